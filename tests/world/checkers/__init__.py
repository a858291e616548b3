"""Invariants of the world, checked by code that shares nothing with the checked code."""
