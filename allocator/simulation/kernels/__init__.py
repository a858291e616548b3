"""Compiled inner loops of the fast path; kernels have no access to files, names or settings."""
