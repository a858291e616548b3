"""Compiled inner loops of the fast path; nothing here knows files, names or settings."""
