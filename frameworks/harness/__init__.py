"""Runs an experiment on real parts, and says whether it came out as it should."""
