"""Who shares in a simulation, users or jobs: what each is entitled to, and owes at the start."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocator.fairness.bounds import LARGEST_COMMITMENT, LARGEST_WEIGHT, LEAST_WEIGHT
from allocator.simulation.setting import Setting, SettingError
from allocator.simulation.trace import Trace


@dataclass(frozen=True)
class Sharers:
    """Those whom a policy ranks, numbered in order of first submission.

    Args:
        number: Of each task's sharer, int32, one per task.
        weights: One per sharer.
        debts: Commitments at the start, shape (sharers, resources): fractions of the capacity.
        known: Who counts from the start, one per sharer.
    """

    number: NDArray[np.int32]
    weights: NDArray[np.float64]
    debts: NDArray[np.float64]
    known: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.weights)


def sharers(trace: Trace, setting: Setting) -> Sharers:
    """Return who shares a trace's cluster.

    A job has the weight of its user and owes nothing. Who owes something at the start is known
    from then on, also where users appear with their first submission.

    Raises:
        SettingError: The setting names users that the trace does not have, or numbers that none
            can have.
    """
    weights, debts = trace.weight(), trace.owed()
    places = {user: place for place, user in enumerate(trace.users)}
    _check(setting.weights, "weight", LEAST_WEIGHT, LARGEST_WEIGHT, places)
    for user, weight in setting.weights.items():
        weights[places[user]] = weight
    _check(setting.owes, "commitment", 0.0, LARGEST_COMMITMENT, places)
    for user, commitment in setting.owes.items():
        debts[places[user]] = commitment
    number = trace.user
    if setting.per == "job":
        number, users = _jobs(trace)
        weights, debts = weights[users], np.zeros((len(users), len(trace.resources)))
    known: NDArray[np.bool_] = np.any(debts > 0.0, axis=1)
    if setting.users == "known":
        known[:] = True
    return Sharers(number, weights, debts, known)


def _check(
    given: Mapping[str, float], what: str, least: float, most: float, known: Mapping[str, int]
) -> None:
    for user, amount in given.items():
        if user not in known:
            raise SettingError(f"there is no user {user!r} in the trace to have a {what}")
        if not least <= amount <= most:
            raise SettingError(
                f"user {user!r}: the {what} {amount:g} is not a number from {least:g} to {most:g}"
            )


def _jobs(trace: Trace) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Number jobs in order of first submission: each task's job, and each job's user."""
    _jobs, first, job = np.unique(trace.job, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(first), np.int32)
    number[order] = np.arange(len(first), dtype=np.int32)
    return number[job], trace.user[first[order]]
