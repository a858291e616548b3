"""Emulated schedulers: Slurm, HTCondor and others, as they really keep their users' accounts.

Policies in `allocator/fairness/policies/rivals` compute continuously what these systems compute now
and then. The emulations sample usage, round and charge as the original systems do. Comparing a
policy with its emulation shows the effect of sampling.
"""
