"""Studies: many simulations of a workload, what to measure in each, and what they show together."""
