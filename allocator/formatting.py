"""Formatting of times, durations, names, counts and errors in sentences for people."""

from datetime import UTC, datetime

_DAY = 86400.0
_LONGEST = 300
"""Maximum length of a displayed message in characters."""


def duration(seconds: float) -> str:
    """Return seconds as text in the largest fitting unit, such as "42.0 s" or "1.5 h"."""
    for unit, size in (("d", _DAY), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def clock(at: float, ago: float) -> str:
    """Return a past time as text: "03:12:09 UTC", after a day with the date.

    Args:
        at: The time in seconds since the Unix epoch.
        ago: Seconds since this time.
    """
    form = "%H:%M:%S UTC" if ago < _DAY else "%Y-%m-%d %H:%M:%S UTC"
    return datetime.fromtimestamp(at, UTC).strftime(form)


def since(at: float, now: float) -> str:
    """Return a past time and its distance: "03:12:09 UTC, 41.0 min ago".

    Args:
        at: The time in seconds since the Unix epoch.
        now: The present time in the same unit.
    """
    ago = max(now - at, 0.0)
    return f"{clock(at, ago)}, {duration(ago)} ago"


def called(user: str) -> str:
    """Return a user's name for a sentence; the role `*` gets quotes, to be seen as a name."""
    return f"user '{user}'" if "*" in user else user


def passing_clause(passing: str, passed: str, user: str, verb: str) -> str:
    """Return a clause about two users, with a pronoun for the user of the sentence.

    Args:
        passing: The faster user.
        passed: The slower user.
        user: The user of the sentence.
        verb: The verb, such as "overtakes".
    """
    first, second = ("it" if name == user else called(name) for name in (passing, passed))
    return f"{first} {verb} {second}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in singular or plural: "1 agent", "2 agents"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shortened(message: str) -> str:
    """Return a message, shortened if it is too long for logs and displays.

    A message may contain received text of any length.
    """
    return message if len(message) <= _LONGEST else f"{message[:_LONGEST]}…"


def bind_error(error: OSError) -> str:
    """Return why a program cannot listen on an address, without the address and error number.

    asyncio repeats the address before the reason, and from Python 3.14 on also the error number.
    """
    reason = (error.strerror or str(error)).rpartition(": ")[2]
    return reason.removeprefix(f"[errno {error.errno}] ")
