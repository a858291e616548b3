"""Runs an experiment with real processes, and checks its claims."""
