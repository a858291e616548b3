"""Studies: many simulations of a workload, their measurements, and reports about the results."""
