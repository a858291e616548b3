"""Formatting of durations, names and counts in sentences for people."""

_LONGEST = 300
"""Maximum length of a displayed message in characters."""


def duration(seconds: float) -> str:
    """Return seconds as text in the largest fitting unit, such as "42.0 s" or "1.5 h"."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def called(user: str) -> str:
    """Return a user's name for a sentence; the role `*` gets quotes, to be seen as a name."""
    return f"user '{user}'" if "*" in user else user


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in singular or plural: "1 agent", "2 agents"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shortened(message: str) -> str:
    """Return a message, shortened if it is too long for logs and displays.

    A message may contain received text of any length.
    """
    return message if len(message) <= _LONGEST else f"{message[:_LONGEST]}…"
