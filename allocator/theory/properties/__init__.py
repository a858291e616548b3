"""Fairness properties, and a search for cases in which a policy violates them."""
