"""What stands in for the machine: time, threads, the network, the disk."""
