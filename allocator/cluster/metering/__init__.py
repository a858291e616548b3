"""Metering: the usage of users, roles and offers over time."""
