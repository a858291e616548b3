"""Generates Google's month in a simpler form: no failed attempts, jobs of 40 tasks on average."""

from collections.abc import Callable

from allocator.simulation.generator import google_month
from allocator.simulation.generator.moments import Moment
from allocator.simulation.trace import Trace

TASKS = google_month.TASKS
FEWEST = google_month.FEWEST


def generate(seed: int, tasks: int = TASKS, progress: Callable[[int], None] | None = None) -> Trace:
    """Generate the month as google_month.generate does, but without failing attempts."""
    return google_month.generate(seed, tasks, progress, google_month.PLAIN)


def moments(trace: Trace, tasks: int) -> list[Moment]:
    """Compare properties of a generated month with published properties, except those on failures.

    Args:
        trace: The generated month.
        tasks: The argument `tasks` with which the trace was generated.
    """
    return google_month.moments(trace, tasks, google_month.PLAIN)
