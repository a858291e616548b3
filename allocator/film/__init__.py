"""Films: allocations of a cluster over time, in one file that a browser plays without a network."""
