"""How other systems keep account of users: now and then, with their roundings and penalties.

`allocator/fairness/policies/rivals` has what they are after, exact at every instant. What follows a
policy here does the same by the original's own arithmetic, at the original's instants, so that what
looking now and then costs can be measured.
"""
