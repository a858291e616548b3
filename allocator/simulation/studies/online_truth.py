"""Simulates lies: if one user lies, how much does it gain, and how much do other users lose?"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocator.simulation import fastest
from allocator.simulation.outcome import NEVER, Outcome
from allocator.simulation.setting import Setting
from allocator.simulation.statistics import dominant_use
from allocator.simulation.studies.lies import LIES
from allocator.simulation.trace import MICROSECONDS, Trace


@dataclass(frozen=True)
class LieGain:
    """Effect of one lie of one user on its own wait and on the waits of all other users."""

    user: str
    lie: str
    true_wait_s: float
    """Mean wait of the user's tasks in seconds if it tells the truth."""
    lying_wait_s: float
    """Mean wait of the user's tasks in seconds if it lies, counted from the true submission.

    Infinite if a task never ran.
    """
    others_true_wait_s: float
    """Mean over all other users of their mean waits, in seconds, without the lie."""
    others_wait_s: float
    """Mean over all other users of their mean waits, in seconds, with the lie."""

    @property
    def saved(self) -> float:
        """Fraction of its wait that the user saves by the lie; negative if it waits longer."""
        return 1.0 - self.lying_wait_s / self.true_wait_s

    @property
    def harm(self) -> float:
        """Fraction by which all other users wait longer because of the lie."""
        if not self.others_true_wait_s:
            return 0.0
        return self.others_wait_s / self.others_true_wait_s - 1.0


def liars(trace: Trace, outcome: Outcome, count: int) -> list[int]:
    """Choose users for which lies are simulated, evenly spread over usage, lowest usage first.

    A user can be chosen if it has at least ten tasks, all its tasks ran, and its mean wait is at
    least a second.

    Args:
        trace: The trace.
        outcome: Outcome of the truthful simulation.
        count: Maximum number of liars.
    """
    tasks = np.bincount(trace.user, minlength=len(trace.users))
    waits = _mean_waits(trace, outcome.started)
    eligible = np.flatnonzero((tasks >= 10) & (waits >= 1.0) & np.isfinite(waits))
    by_use = eligible[np.argsort(dominant_use(trace)[eligible], kind="stable")]
    if len(by_use) <= count:
        return [int(user) for user in by_use]
    chosen = np.linspace(0, len(by_use) - 1, count).round().astype(int)
    return [int(by_use[place]) for place in chosen]


def gains(
    trace: Trace, setting: Setting, count: int, watch: Callable[[int, int], None]
) -> Iterator[LieGain]:
    """Simulate each lie of each chosen user, and yield the effects.

    Args:
        trace: The true trace.
        setting: Options of the simulations.
        count: Maximum number of users that lie, one at a time.
        watch: Progress callback: receives the number of finished and of all simulations.

    Raises:
        SettingError: The setting does not fit the trace.
    """
    truth = fastest.simulate(trace, setting, events=False)
    true_waits = _mean_waits(trace, truth.started)
    chosen = liars(trace, truth, count)
    done = 0
    for user in chosen:
        other_users = [index for index in range(len(trace.users)) if index != user]
        for name, lie in LIES.items():
            lying_trace = lie(trace, user)
            outcome = fastest.simulate(lying_trace.trace, setting, events=False)
            waits = lying_trace.waits(trace, outcome.started)
            never = (outcome.started[lying_trace.carrier] == NEVER).any()
            waits_of_lie = dict(
                zip(
                    lying_trace.trace.users,
                    _mean_waits(lying_trace.trace, outcome.started),
                    strict=True,
                )
            )
            yield LieGain(
                trace.users[user],
                name,
                float(true_waits[user]),
                float("inf") if never else float(waits.mean()),
                _mean(true_waits[other_users]),
                _mean(np.array([waits_of_lie[trace.users[index]] for index in other_users])),
            )
            done += 1
            watch(done, len(chosen) * len(LIES))


@dataclass(frozen=True)
class LieRow:
    """Effect of one kind of lie, summarised over all liars."""

    lie: str
    liars: int
    saved: tuple[float, float, float]
    """Saved fraction of the wait:

    5 %, 50 % and 95 % quantiles over liars; negative if a lie costs.
    """
    gaining: float
    """Fraction of the liars that save more than 1 % of their wait."""
    harm: float
    """Median over liars of the fraction by which all other users wait longer."""


def rows(gains: Sequence[LieGain]) -> list[LieRow]:
    """Summarise the effects of all liars, with one row for each kind of lie."""
    return [
        _row(name, selected)
        for name in LIES
        if (selected := [gain for gain in gains if gain.lie == name])
    ]


def _row(lie: str, gains: Sequence[LieGain]) -> LieRow:
    saved = np.array([gain.saved for gain in gains])
    low, middle, high = (
        float(value) for value in np.quantile(saved, [0.05, 0.5, 0.95], method="nearest")
    )
    harm = float(np.median([gain.harm for gain in gains]))
    return LieRow(lie, len(gains), (low, middle, high), float((saved > 0.01).mean()), harm)


def _mean_waits(trace: Trace, started: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return each user's mean wait in seconds; infinite if one of its tasks never ran.

    Args:
        trace: The trace.
        started: Start time of each task in microseconds, or NEVER.
    """
    waits = (started - trace.submitted) / MICROSECONDS
    waits[started == NEVER] = np.inf
    total = np.bincount(trace.user, waits, minlength=len(trace.users))
    with np.errstate(invalid="ignore"):
        mean: NDArray[np.float64] = total / np.bincount(trace.user, minlength=len(trace.users))
    return mean


def _mean(values: NDArray[np.float64]) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else 0.0
