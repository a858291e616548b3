"""Trace-driven simulation: what a policy would have done to a recorded workload."""
