"""Faults of the world, and their times."""
