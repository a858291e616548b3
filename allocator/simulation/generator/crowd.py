"""Generates a month of users that share a pool, with chosen statistics.

The statistics are chosen because they may decide whether a policy that remembers past usage
shortens waits.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.trace import MICROSECONDS, UNCONSTRAINED, Trace, by_appearance

DAYS = 30
_SECONDS = DAYS * 86_400
_RUN_S = 3600.0
TASKS_OF_WIDTH = _SECONDS / _RUN_S
"""Number of tasks in the month for each unit of `Crowd.width`."""
_RUN_SPREAD = 1.0
"""Standard deviation of the logarithm of tasks' run times."""
_LARGEST_DEMAND = 0.4
LEAST = 4.0
"""Smallest allowed `Crowd.width`."""


@dataclass(frozen=True)
class Crowd:
    """Statistics of a workload to generate.

    Args:
        users: Number of users.
        width: Mean number of tasks that run at the same time, if no task waits.
        concentration: Inequality of users: the standard deviation of the logarithm of their numbers
            of tasks. 0: all users have the same number.
        burst: Mean number of tasks that a user submits together, as a fraction of `width`.
        spread: Standard deviation of the logarithm of tasks' demands. 0: all demands are equal.
    """

    users: int = 50
    width: float = 32.0
    concentration: float = 2.0
    burst: float = 1.0
    spread: float = 0.5


def generate(seed: int, crowd: Crowd) -> Trace:
    """Generate a month of tasks that run for an hour on average. Equal arguments give equal traces.

    There are `width` × TASKS_OF_WIDTH tasks, at least one per user. They demand a single resource.
    Users submit tasks in bursts at random times. The size of a burst is geometric, at least 1.

    A task demands at most two fifths of the mean use, so that it fits in the smallest pool that
    studies simulate: half the mean use.

    Args:
        seed: Seed of all random numbers.
        crowd: Statistics of the workload.

    Raises:
        ValueError: `width` is below LEAST.
    """
    if crowd.width < LEAST:
        raise ValueError(f"{crowd.width:g} tasks at once are too few, at least {LEAST:g}")
    random = np.random.default_rng(seed)
    tasks = max(int(crowd.width * TASKS_OF_WIDTH), crowd.users)
    weight = np.exp(crowd.concentration * random.normal(0.0, 1.0, crowd.users))
    drawn = random.choice(crowd.users, tasks - crowd.users, p=weight / weight.sum())
    user = np.sort(np.concatenate((np.arange(crowd.users), drawn)))
    submitted = _bursts(random, user, max(crowd.burst * crowd.width, 1.0))
    order = np.argsort(submitted, kind="stable")
    runtime = _RUN_S * np.exp(_RUN_SPREAD * random.normal(0.0, 1.0, tasks) - _RUN_SPREAD**2 / 2)
    demand = np.exp(crowd.spread * random.normal(0.0, 1.0, tasks) - crowd.spread**2 / 2)
    demand = np.minimum(demand, _LARGEST_DEMAND * crowd.width)
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
    """Draw the submission time of each task in microseconds. Tasks of a burst have the same time.

    Args:
        random: Random generator.
        user: User number of each task, ascending.
        mean: Mean number of tasks in a burst.
    """
    begins = random.random(len(user)) < 1.0 / mean
    begins |= np.diff(user, prepend=-1) != 0
    burst = np.cumsum(begins) - 1
    moments = random.random(int(begins.sum())) * _SECONDS
    times: NDArray[np.int64] = np.rint(moments[burst] * MICROSECONDS).astype(np.int64)
    return times
