"""Metering: records the allocations, commitments and offers of users and roles over time."""
