"""Metering: allocations, commitments and offers of users and roles over time."""
