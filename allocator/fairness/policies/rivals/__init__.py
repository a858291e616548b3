"""Policies of other systems for long-term sharing, as exact rankings of a live pool.

Each policy does what its original would do if it sampled continuously.
`allocator/simulation/originals` emulates the effects of the originals' sampling intervals.
"""
