"""A small Mesos master with virtual agents, for newcomers, tests and accelerated experiments."""

MESOS_VERSION = "1.8.0"
"""Mesos version that the embedded master reports."""
