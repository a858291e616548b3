"""Compiled inner loops of the fast simulator.

Kernels have no access to files, names or settings.
"""
