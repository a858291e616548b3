"""A small Mesos master with virtual agents, for newcomers, tests and accelerated experiments."""
