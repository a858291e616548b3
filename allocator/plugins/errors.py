"""Errors of external policies."""


class PolicyError(ValueError):
    """An external policy cannot be used. The message names its file, the line, and the remedy."""
