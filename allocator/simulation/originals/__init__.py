"""Emulated schedulers: Slurm, HTCondor and others, as they really keep their users' accounts.

The policies in `allocator/fairness/policies/rivals` keep usage exact at every instant. The real
systems update it only now and then. The emulations sample usage, round and charge as the original
systems do. Comparing a policy with its emulation shows the effect of sampling.
"""
