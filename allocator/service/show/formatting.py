"""Formatting of times, names and numbers in sentences."""


def duration(seconds: float) -> str:
    """Return a duration in the largest unit in which it is at least 1: "42.0 s", "1.5 h"."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def called(user: str) -> str:
    """Return a user's name; the role `*` gets quotes, or readers would take it for all users."""
    return f"user '{user}'" if "*" in user else user


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 agent", "2 agents"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
