"""Synthetic workloads with the published statistics of traces that may not be redistributed."""
