"""Structured logs on standard error: text for people, or one JSON object per line.

Lines of the same kind are rate-limited, so that they fill neither the disk nor the event loop's
time.
"""

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from structlog.typing import EventDict, WrappedLogger
from typing_extensions import override

from allocator.contract.printable import printable
from allocator.service.config import LogSection

BURST = 20
"""Maximum number of logged lines per kind of event within `WINDOW` seconds."""
WINDOW = 60.0
"""Length of the rate limit's window in seconds; further lines are counted."""
LONGEST = 8000
"""Maximum characters of a value. The rest is left out, except in lines of `NEVER_DROPPED`."""
LONGEST_TRACEBACK_LINE = 300
"""Maximum characters of a line in a traceback. An exception can quote kilobytes of a request."""
NEVER_DROPPED = frozenset({"order carried out"})
"""Kinds of events that the rate limit never drops, because they document actions of operators."""


def configure(section: LogSection) -> None:
    """Set up structured logging for this process, also for the log records of libraries.

    Args:
        section: Level and format of the log, from the configuration.
    """
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if section.format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            RateLimiter(),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _cleaned,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[section.level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logging.basicConfig(handlers=[_Libraries()], level=logging.WARNING, force=True)


def _cleaned(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Structlog processor that shortens values and escapes unprintable characters in them.

    A traceback keeps its lines, each shortened, and loses lines at its start if it is too long.
    """
    longest = None if event.get("event") in NEVER_DROPPED else LONGEST
    for key, value in event.items():
        if isinstance(value, str):
            if key == "exception":
                event[key] = _cleaned_traceback(value)
            else:
                event[key] = _cleaned_value(value, longest)
    return event


def _cleaned_value(value: str, longest: int | None) -> str:
    """Return a value with at most `longest` characters before escapes; None means no limit."""
    text = printable(value[:longest])
    return text if len(value) == len(value[:longest]) else f"{text}…"


def _cleaned_traceback(traceback: str) -> str:
    """Return a traceback with shortened lines, and only its last lines within `LONGEST`."""
    lines = list[str]()
    length = 0
    for line in reversed(traceback.split("\n")):
        lines.append(_cleaned_value(line, LONGEST_TRACEBACK_LINE))
        length += len(lines[-1]) + 1
        if length > LONGEST:
            lines[-1] = "…"
            break
    return "\n".join(reversed(lines))


@dataclass(slots=True)
class _Window:
    """Number of lines of one kind of event in the present time window of `RateLimiter`."""

    start: float
    """Start of the window, in seconds of the rate limiter's clock."""
    lines: int = 0


class RateLimiter:
    """Structlog processor that limits the number of lines per kind of event.

    The kind of event is a line's constant text. The first line of the next time window says how
    many lines were dropped.

    Args:
        clock: Returns seconds from any origin; never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: dict[str, _Window] = {}

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """Return the event of a log line, or drop the line if its kind of event is too frequent.

        The kind of event is the line's constant text. Each kind has a limit of lines per time
        window.

        Raises:
            structlog.DropEvent: the limit for this kind of event is reached.
        """
        name, now = str(event["event"]), self._clock()
        if name in NEVER_DROPPED:
            return event
        window = self._windows.setdefault(name, _Window(now))
        if now - window.start >= WINDOW:
            if window.lines > BURST:
                event["left_out"] = window.lines - BURST
            window.start, window.lines = now, 0
        window.lines += 1
        if window.lines > BURST:
            raise structlog.DropEvent
        if window.lines == BURST:
            event["more"] = f"further such lines are left out for {WINDOW:g} s"
        return event


class _Libraries(logging.Handler):
    """Handler of Python's `logging` that passes log records of libraries to structlog."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(
            record.levelno, record.name, message=record.getMessage(), exc_info=record.exc_info
        )
