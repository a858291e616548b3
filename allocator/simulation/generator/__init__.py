"""Generators of synthetic workloads that resemble traces which may not be redistributed."""
