"""The embedded Mesos: a small master with virtual agents, for newcomers, tests and experiments."""

MESOS_VERSION = "1.8.0"
"""Version of Mesos that the embedded master reports to schedulers and tools."""
