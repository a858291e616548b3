"""Analysis of how much users gain from false demands under Dynamic DRF.

Dynamic DRF favours users with small total allocations in the past.
"""
