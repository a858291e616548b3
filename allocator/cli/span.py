"""Parses times in arguments: a day, an instant, or a duration before now. All times are UTC."""

import time
from datetime import UTC, datetime

import typer

_FORMS = "write a day (2026-11-22), an instant (2026-11-22T14:00), or a time before now (36h, 7d)"


def duration(text: str) -> float:
    """Convert a duration such as `90s`, `2h` or `7d` to seconds.

    Raises:
        ValueError: the text is not a duration.
    """
    try:
        seconds = _read(text)
    except ValueError:
        seconds = None
    if seconds is None or not 0.0 < seconds < 1e12:
        raise ValueError(f"{text!r} is not a duration; write for example 90s, 30m, 2h, 7d")
    return seconds


def span(since: str | None, until: str | None) -> tuple[float, float]:
    """Convert the options --since and --until to a time interval.

    Args:
        since: Start as text; None: the start of this day.
        until: End as text; None: now.

    Returns:
        Start and end in seconds since the epoch.

    Raises:
        typer.BadParameter: a text is invalid, or the interval is empty.
    """
    now = time.time()
    begin = now - now % 86400.0 if since is None else _instant(since, now, "--since")
    end = now + 1.0 if until is None else _instant(until, now, "--until")
    if not begin < end:
        raise typer.BadParameter("--since is not before --until", param_hint="--since")
    return begin, end


def _instant(text: str, now: float, option: str) -> float:
    try:
        if _read(text) is not None:
            return now - duration(text)
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r}: {_FORMS}", param_hint=option) from None
    return (instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)).timestamp()


def _read(text: str) -> float | None:
    from allocator.fairness import durations

    return durations.read(text, {**durations.UNITS, "w": 604800.0})
