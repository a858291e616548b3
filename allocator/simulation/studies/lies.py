"""What a user may do with its tasks other than submit them when it has them, as whom it is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.trace import MICROSECONDS, Trace


@dataclass(frozen=True)
class Told:
    """A trace in which one user does not submit what it has.

    Args:
        trace: What is submitted.
        mine: The liar's real tasks, by place in the true trace.
        carrier: For each of these, the place in `trace` of the task in which it runs.
        offset: Microseconds from the start of that task to its own.
    """

    trace: Trace
    mine: NDArray[np.int64]
    carrier: NDArray[np.int64]
    offset: NDArray[np.int64]

    def waits(self, true: Trace, started: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return seconds from when the liar had its tasks until they ran."""
        starts = started[self.carrier] + self.offset
        waits: NDArray[np.float64] = (starts - true.submitted[self.mine]) / MICROSECONDS
        return waits


def nothing(trace: Trace, user: int) -> Told:
    """Return the truth."""
    mine = np.flatnonzero(trace.user == user)
    return Told(trace, mine, mine, np.zeros(len(mine), np.int64))


def delayed(seconds: float) -> Callable[[Trace, int], Told]:
    """Return the lie that submits everything so much later."""

    def lie(trace: Trace, user: int) -> Told:
        truth = nothing(trace, user)
        submitted = trace.submitted.copy()
        submitted[truth.mine] += round(seconds * MICROSECONDS)
        order = np.argsort(submitted, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        later = _rows(trace, order, submitted=submitted)
        return replace(truth, trace=later, carrier=place[truth.carrier])

    return lie


def split(accounts: int) -> Callable[[Trace, int], Told]:
    """Return the lie that submits tasks in turn as so many users of the same weight.

    They are numbered where the liar was, so that ties are decided as they were.
    """

    def lie(trace: Trace, user: int) -> Told:
        truth = nothing(trace, user)
        names = tuple(f"{trace.users[user]}~{k}" for k in range(1, accounts))
        who = np.where(trace.user > user, trace.user + len(names), trace.user).astype(np.int32)
        who[truth.mine] = user + np.arange(len(truth.mine)) % accounts
        several = np.arange(len(trace.users)).repeat(
            [accounts if place == user else 1 for place in range(len(trace.users))]
        )
        users = list(trace.users)
        users[user + 1 : user + 1] = names
        told = replace(
            trace,
            user=who,
            users=tuple(users),
            weights=tuple(trace.weights[place] for place in several) if trace.weights else (),
            commitments=_first_owes(trace, several.tolist()),
        )
        return replace(truth, trace=told)

    return lie


def padded(factor: float) -> Callable[[Trace, int], Told]:
    """Return the lie that asks for so many times what its tasks need."""

    def lie(trace: Trace, user: int) -> Told:
        truth = nothing(trace, user)
        demand = trace.demand.copy()
        demand[truth.mine] *= factor
        return replace(truth, trace=replace(trace, demand=demand))

    return lie


def held(most: int) -> Callable[[Trace, int], Told]:
    """Return the lie that does not give back what a finished task had, but runs its next one there.

    Up to so many tasks of the same shape become one, if each is submitted by the time at which the
    one before it is over even when nothing waits.
    """

    def lie(trace: Trace, user: int) -> Told:
        truth = nothing(trace, user)
        runtime, kept = trace.runtime.copy(), np.ones(len(trace), np.bool_)
        carrier, offset = truth.carrier.copy(), truth.offset.copy()
        open_: dict[tuple[float, ...], tuple[int, int]] = {}  # by shape: the carrier, its tasks
        for place, task in enumerate(truth.mine.tolist()):
            shape = (float(trace.constraint[task]), *trace.demand[task].tolist())
            first, tasks = open_.get(shape, (task, most))
            over = int(trace.submitted[first] + runtime[first])
            if tasks < most and trace.submitted[task] <= over:
                carrier[place], offset[place] = first, runtime[first]
                runtime[first] += trace.runtime[task]
                kept[task] = False
                open_[shape] = first, tasks + 1
            else:
                open_[shape] = task, 1
        moved = np.cumsum(kept) - 1
        shorter = _rows(replace(trace, runtime=runtime), np.flatnonzero(kept))
        return Told(shorter, truth.mine, moved[carrier], offset)

    return lie


LIES: Mapping[str, Callable[[Trace, int], Told]] = {
    "a minute late": delayed(60.0),
    "an hour late": delayed(3600.0),
    "two accounts": split(2),
    "eight accounts": split(8),
    "demand + 50 %": padded(1.5),
    "demand × 2": padded(2.0),
    "holds for 4 tasks": held(4),
    "holds for 16 tasks": held(16),
}
"""By name, in the order of tables."""


def _first_owes(trace: Trace, several: list[int]) -> tuple[tuple[float, ...], ...]:
    """Return debts after a user has split up: the first account keeps them."""
    if not trace.commitments:
        return ()
    nothing = (0.0,) * len(trace.resources)
    return tuple(
        nothing if place == before else trace.commitments[place]
        for before, place in zip([None, *several[:-1]], several, strict=True)
    )


def _rows(
    trace: Trace, places: NDArray[np.int64], *, submitted: NDArray[np.int64] | None = None
) -> Trace:
    """Return some tasks in another order, with other times of submission perhaps."""
    return replace(
        trace,
        submitted=(trace.submitted if submitted is None else submitted)[places],
        runtime=trace.runtime[places],
        user=trace.user[places],
        job=trace.job[places],
        demand=trace.demand[places],
        constraint=trace.constraint[places],
    )
