"""Ways in which a user could deceive a scheduler, applied to a trace.

The lies: late submission, several accounts, padded demands, and keeping resources between tasks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.trace import MICROSECONDS, Trace


@dataclass(frozen=True)
class SubmittedTrace:
    """The trace that a scheduler sees if one user lies, with a map from real to submitted tasks.

    Args:
        trace: The trace as submitted with the lie.
        mine: Indices of the liar's real tasks in the true trace.
        carrier: For each real task, the index in `trace` of the submitted task that runs it.
        offset: For each real task, its start in microseconds after the start of the carrier.
    """

    trace: Trace
    mine: NDArray[np.int64]
    carrier: NDArray[np.int64]
    offset: NDArray[np.int64]

    def waits(self, true: Trace, started: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the wait of each of the liar's real tasks, in seconds since its true submission.

        Args:
            true: The true trace.
            started: Start times of the tasks in `trace`, in microseconds, or NEVER.
        """
        starts = started[self.carrier] + self.offset
        waits: NDArray[np.float64] = (starts - true.submitted[self.mine]) / MICROSECONDS
        return waits


def nothing(trace: Trace, user: int) -> SubmittedTrace:
    """Return the unchanged trace as a `SubmittedTrace`, for comparison with lies.

    Args:
        trace: The true trace.
        user: The user that tells the truth.
    """
    mine = np.flatnonzero(trace.user == user)
    return SubmittedTrace(trace, mine, mine, np.zeros(len(mine), np.int64))


def delayed(seconds: float) -> Callable[[Trace, int], SubmittedTrace]:
    """Return a lie: the user submits all its tasks some seconds late."""

    def lie(trace: Trace, user: int) -> SubmittedTrace:
        truth = nothing(trace, user)
        submitted = trace.submitted.copy()
        submitted[truth.mine] += round(seconds * MICROSECONDS)
        order = np.argsort(submitted, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        later = _rows(trace, order, submitted=submitted)
        return replace(truth, trace=later, carrier=place[truth.carrier])

    return lie


def split(accounts: int) -> Callable[[Trace, int], SubmittedTrace]:
    """Return a lie: the user submits its tasks in turn from several accounts of the same weight.

    The accounts get user numbers next to the liar's, so that ties with other users are decided as
    before.

    Args:
        accounts: Number of accounts, including the user's own.
    """

    def lie(trace: Trace, user: int) -> SubmittedTrace:
        truth = nothing(trace, user)
        names = tuple(f"{trace.users[user]}~{number}" for number in range(1, accounts))
        owners = np.where(trace.user > user, trace.user + len(names), trace.user).astype(np.int32)
        owners[truth.mine] = user + np.arange(len(truth.mine)) % accounts
        originals = np.arange(len(trace.users)).repeat(
            [accounts if index == user else 1 for index in range(len(trace.users))]
        )
        users = list(trace.users)
        users[user + 1 : user + 1] = names
        split_trace = replace(
            trace,
            user=owners,
            users=tuple(users),
            weights=tuple(trace.weights[index] for index in originals) if trace.weights else (),
            commitments=_split_commitments(trace, originals.tolist()),
        )
        return replace(truth, trace=split_trace)

    return lie


def padded(factor: float) -> Callable[[Trace, int], SubmittedTrace]:
    """Return a lie: the user demands more for each task than the task needs, by a factor."""

    def lie(trace: Trace, user: int) -> SubmittedTrace:
        truth = nothing(trace, user)
        demand = trace.demand.copy()
        demand[truth.mine] *= factor
        return replace(truth, trace=replace(trace, demand=demand))

    return lie


def held(maximum: int) -> Callable[[Trace, int], SubmittedTrace]:
    """Return a lie: the user keeps a finished task's resources for its next task.

    Real tasks of the same demand are merged into one long submitted task. A task joins a merged
    task only if it is submitted before the merged task ends, assuming no waits.

    Args:
        maximum: Maximum number of real tasks that run one after the other on the same resources.
    """

    def lie(trace: Trace, user: int) -> SubmittedTrace:
        truth = nothing(trace, user)
        runtime, kept = trace.runtime.copy(), np.ones(len(trace), np.bool_)
        carrier, offset = truth.carrier.copy(), truth.offset.copy()
        merged: dict[tuple[float, ...], tuple[int, int]] = {}  # by shape: carrier, number of tasks
        for place, task in enumerate(truth.mine.tolist()):
            shape = (float(trace.constraint[task]), *trace.demand[task].tolist())
            first, tasks = merged.get(shape, (task, maximum))
            end = int(trace.submitted[first] + runtime[first])
            if tasks < maximum and trace.submitted[task] <= end:
                carrier[place], offset[place] = first, runtime[first]
                runtime[first] += trace.runtime[task]
                kept[task] = False
                merged[shape] = first, tasks + 1
            else:
                merged[shape] = task, 1
        new_index = np.cumsum(kept) - 1
        shorter = _rows(replace(trace, runtime=runtime), np.flatnonzero(kept))
        return SubmittedTrace(shorter, truth.mine, new_index[carrier], offset)

    return lie


LIES: Mapping[str, Callable[[Trace, int], SubmittedTrace]] = {
    "a minute late": delayed(60.0),
    "an hour late": delayed(3600.0),
    "two accounts": split(2),
    "eight accounts": split(8),
    "demand + 50 %": padded(1.5),
    "demand × 2": padded(2.0),
    "holds for 4 tasks": held(4),
    "holds for 16 tasks": held(16),
}
"""All lies by name, in the order of tables. A lie is a function of a trace and a user number."""


def _split_commitments(trace: Trace, originals: list[int]) -> tuple[tuple[float, ...], ...]:
    """Return users' initial commitments after one user has split into accounts.

    The first account keeps the user's commitment, and the new accounts have none.

    Args:
        trace: The true trace.
        originals: For each new user, the index of its original user.
    """
    if not trace.commitments:
        return ()
    nothing = (0.0,) * len(trace.resources)
    return tuple(
        nothing if original == previous else trace.commitments[original]
        for previous, original in zip([None, *originals[:-1]], originals, strict=True)
    )


def _rows(
    trace: Trace, places: NDArray[np.int64], *, submitted: NDArray[np.int64] | None = None
) -> Trace:
    """Return a trace that has only some tasks of a trace, optionally submitted at other times.

    Args:
        trace: The trace.
        places: Indices of the selected tasks, in the new order.
        submitted: New submission times in microseconds, in the new order; None keeps them.
    """
    return replace(
        trace,
        submitted=(trace.submitted if submitted is None else submitted)[places],
        runtime=trace.runtime[places],
        user=trace.user[places],
        job=trace.job[places],
        demand=trace.demand[places],
        constraint=trace.constraint[places],
    )
