"""A month with as many waiting users as in Google's cluster: identical and overloaded users."""

from collections.abc import Callable

from allocator.simulation.generator import crowd, google_month
from allocator.simulation.trace import Trace

TASKS = 50_000
_BURST = 0.5
"""Tasks that a user submits at once, as a fraction of the tasks that run at once."""


def generate(seed: int, tasks: int = TASKS, progress: Callable[[int], None] | None = None) -> Trace:
    """Draw about `tasks` tasks of 627 users. Each user submits bursts at any time of the month.

    Args:
        seed: Seed of all random numbers.
        tasks: At least 2,880, for four tasks at once.
        progress: Called once at the end, with the number of tasks.

    Raises:
        ValueError: There are too few tasks.
    """
    width = tasks / crowd.TASKS_OF_WIDTH
    settings = crowd.Crowd(google_month.USERS, width, concentration=0.0, burst=_BURST)
    trace = crowd.generate(seed, settings)
    if progress:
        progress(len(trace))
    return trace
