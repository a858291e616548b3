"""Replacements of the machine: time, threads, the network, the disk."""
