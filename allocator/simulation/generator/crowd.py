"""A month in which users share a pool, and what may decide whether memory pays can be turned."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.trace import MICROSECONDS, UNCONSTRAINED, Trace, by_appearance

DAYS = 30
_SECONDS = DAYS * 86_400
_RUN_S = 3600.0
TASKS_OF_WIDTH = _SECONDS / _RUN_S
"""Of a month, for each task that runs at once."""
_RUN_SPREAD = 1.0
"""Of the logarithm of run times."""
_MOST = 0.4
LEAST = 4.0
"""Tasks at once."""


@dataclass(frozen=True)
class Crowd:
    """What a workload is like.

    Args:
        users: How many.
        width: Tasks that run at once in the mean: the mean use over the mean demand of a task.
        concentration: Of the logarithm of users' numbers of tasks; 0: all have as many.
        burst: Tasks that a user submits at once in the mean, over those that run at once.
        spread: Of the logarithm of tasks' demands; 0: all are as large.
    """

    users: int = 50
    width: float = 32.0
    concentration: float = 2.0
    burst: float = 1.0
    spread: float = 0.5


def generate(seed: int, crowd: Crowd) -> Trace:
    """Draw a month of tasks of an hour in the mean; the same seed and crowd give the same.

    There are `width` × TASKS_OF_WIDTH tasks, at least one of each user; a burst has a geometric
    number of tasks, at least one, and comes at any moment. One resource; no task asks for more
    than two fifths of what is used in the mean, so that there is room for it at every load of
    interest.

    Raises:
        ValueError: So few tasks run at once that this cannot be.
    """
    if crowd.width < LEAST:
        raise ValueError(f"{crowd.width:g} tasks at once are too few, at least {LEAST:g}")
    random = np.random.default_rng(seed)
    tasks = max(int(crowd.width * TASKS_OF_WIDTH), crowd.users)
    weight = np.exp(crowd.concentration * random.normal(0.0, 1.0, crowd.users))
    others = random.choice(crowd.users, tasks - crowd.users, p=weight / weight.sum())
    user = np.sort(np.concatenate((np.arange(crowd.users), others)))
    submitted = _bursts(random, user, max(crowd.burst * crowd.width, 1.0))
    order = np.argsort(submitted, kind="stable")
    runtime = _RUN_S * np.exp(_RUN_SPREAD * random.normal(0.0, 1.0, tasks) - _RUN_SPREAD**2 / 2)
    demand = np.exp(crowd.spread * random.normal(0.0, 1.0, tasks) - crowd.spread**2 / 2)
    demand = np.minimum(demand, _MOST * crowd.width)
    appearance, number = by_appearance(user[order])
    return Trace(
        resources=("cpus",),
        users=tuple(f"user-{name}" for name in appearance),
        submitted=submitted[order],
        runtime=np.rint(runtime * MICROSECONDS).astype(np.int64),
        user=number[user[order]],
        job=np.arange(tasks),
        demand=demand[:, np.newaxis],
        constraint=np.full(tasks, UNCONSTRAINED, np.int32),
    )


def _bursts(random: np.random.Generator, user: NDArray[np.int64], mean: float) -> NDArray[np.int64]:
    """Return when each task comes, given whose it is, sorted: a burst is tasks of one user."""
    begins = random.random(len(user)) < 1.0 / mean
    begins |= np.diff(user, prepend=-1) != 0
    burst = np.cumsum(begins) - 1
    moments = random.random(int(begins.sum())) * _SECONDS
    times: NDArray[np.int64] = np.rint(moments[burst] * MICROSECONDS).astype(np.int64)
    return times
