"""Emulated schedulers: other systems' user accounts, with their sampling, rounding and penalties.

Policies in `allocator/fairness/policies/rivals` compute what these systems aim at, exactly at every
instant. The emulated schedulers compute the same with the original's arithmetic, at the original's
sampling instants. Comparing both shows the cost of sampling.
"""
