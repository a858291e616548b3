"""Synthetic workloads with the published moments of traces that cannot be passed on."""
