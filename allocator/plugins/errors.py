"""Errors of external policies."""


class PolicyError(ValueError):
    """A policy cannot be used. The message names the file, the line if known, and the remedy."""
