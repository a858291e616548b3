"""Trace-driven simulation: what a policy would have done with a recorded or generated workload."""
