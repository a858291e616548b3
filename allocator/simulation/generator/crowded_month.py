"""Generates an overloaded month of users with equal statistics, as many as in Google's cluster."""

from collections.abc import Callable

from allocator.simulation.generator import crowd, google_month
from allocator.simulation.trace import Trace

TASKS = 50_000
_BURST = 0.5
"""Number of tasks that a user submits together, as a fraction of the tasks that run at once."""


def generate(seed: int, tasks: int = TASKS, progress: Callable[[int], None] | None = None) -> Trace:
    """Generate about `tasks` tasks of 627 users, which submit bursts throughout the month.

    Args:
        seed: Seed of all random numbers.
        tasks: Number of tasks, at least 2,880 (then four tasks run at once).
        progress: Called once at the end with the number of tasks.

    Raises:
        ValueError: There are too few tasks.
    """
    width = tasks / crowd.TASKS_OF_WIDTH
    settings = crowd.Crowd(google_month.USERS, width, concentration=0.0, burst=_BURST)
    trace = crowd.generate(seed, settings)
    if progress:
        progress(len(trace))
    return trace
