"""A month in which as many users as in Google's wait at once: all alike, with more than fits."""

from collections.abc import Callable

from allocator.simulation.generator import crowd, google_month
from allocator.simulation.trace import Trace

TASKS = 50_000
_BURST = 0.5
"""Of the tasks that run at once."""


def generate(seed: int, tasks: int = TASKS, progress: Callable[[int], None] | None = None) -> Trace:
    """Draw about so many tasks of 627 users, each in bursts at any time of the month.

    Args:
        seed: Of all chance.
        tasks: At least 2,880, for four tasks at once.
        progress: Is told how many tasks are done, at the end.

    Raises:
        ValueError: There are too few tasks.
    """
    width = tasks / crowd.TASKS_OF_WIDTH
    alike = crowd.Crowd(google_month.USERS, width, concentration=0.0, burst=_BURST)
    trace = crowd.generate(seed, alike)
    if progress:
        progress(len(trace))
    return trace
