"""Sharers: the entities among which a policy divides a simulated cluster, users or jobs."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocator.fairness.bounds import LARGEST_COMMITMENT, LARGEST_WEIGHT, LEAST_WEIGHT
from allocator.simulation.setting import Setting, SettingError
from allocator.simulation.trace import Trace


@dataclass(frozen=True)
class Sharers:
    """Weights and initial commitments of all sharers, numbered in order of first submission.

    Args:
        number: For each task, the number of its sharer; int32.
        weights: Weights, one entry per sharer.
        commitments: Initial commitments, shape (sharers, resources): fractions of the capacity.
        known: For each sharer, True if it is in the pool, and in the total weight, from the
            start. Otherwise the sharer joins with its first submission.
    """

    number: NDArray[np.int32]
    weights: NDArray[np.float64]
    commitments: NDArray[np.float64]
    known: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.weights)


def sharers(trace: Trace, setting: Setting) -> Sharers:
    """Return the sharers that a setting defines for a trace: its users, or each job separately.

    A job has its user's weight and no initial commitment. A user with an initial commitment is
    known from the start, even if users appear with their first submission.

    Raises:
        SettingError: The setting names a user that the trace does not have, or a weight or
            commitment outside its bounds.
    """
    weights, commitments = trace.weight(), trace.initial_commitments()
    indices = {user: index for index, user in enumerate(trace.users)}
    _check(setting.weights, "weight", LEAST_WEIGHT, LARGEST_WEIGHT, indices)
    for user, weight in setting.weights.items():
        weights[indices[user]] = weight
    _check(setting.owes, "commitment", 0.0, LARGEST_COMMITMENT, indices)
    for user, commitment in setting.owes.items():
        commitments[indices[user]] = commitment
    number = trace.user
    if setting.per == "job":
        number, users = _jobs(trace)
        weights, commitments = weights[users], np.zeros((len(users), len(trace.resources)))
    known: NDArray[np.bool_] = np.any(commitments > 0.0, axis=1)
    if setting.users == "known":
        known[:] = True
    return Sharers(number, weights, commitments, known)


def _check(
    given: Mapping[str, float],
    name: str,
    least: float,
    most: float,
    known: Mapping[str, int],
) -> None:
    for user, amount in given.items():
        if user not in known:
            raise SettingError(f"the {name} of user {user!r}: the trace has no such user")
        if not least <= amount <= most:
            raise SettingError(
                f"user {user!r}: the {name} {amount:g} is not a number from {least:g} to {most:g}"
            )


def _jobs(trace: Trace) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Number jobs in order of first submission, to treat each job as a sharer.

    Returns:
        For each task, the number of its job; and for each job, the number of its user.
    """
    _jobs, first, job = np.unique(trace.job, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(first), np.int32)
    number[order] = np.arange(len(first), dtype=np.int32)
    return number[job], trace.user[first[order]]
