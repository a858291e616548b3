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
    """Compare a generated month with the real month's published properties, except failures.

    Args:
        trace: The generated month.
        tasks: The number of tasks that was asked for.
    """
    return google_month.moments(trace, tasks, google_month.PLAIN)
