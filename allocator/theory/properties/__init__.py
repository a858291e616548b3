"""Fairness properties of the TSF paper, and a search for cases in which a policy violates them."""
