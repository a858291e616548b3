"""Shared parts of benchmarks through the wire: a played master and the peers it connects to."""
