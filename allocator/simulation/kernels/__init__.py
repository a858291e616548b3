"""Compiled inner loops of the fast simulator.

Kernels get numbers and arrays only. The module `allocator.simulation.fast` converts names and
settings for them.
"""
