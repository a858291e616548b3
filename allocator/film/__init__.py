"""Films: how a cluster was shared over time, in one file that a browser plays without a network."""
