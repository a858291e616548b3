"""Offers: filters of declined resources, offer constraints, and offer operations."""
