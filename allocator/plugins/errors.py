"""What is wrong with a policy from outside."""


class PolicyError(ValueError):
    """It cannot be used; the message names the file, the line if there is one, and what to do."""
