"""Runs experiments with real processes, measures the users' shares, and checks the claims."""
