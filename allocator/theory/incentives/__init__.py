"""Gains from false demands under Dynamic DRF, which evens out users' shares over time."""
