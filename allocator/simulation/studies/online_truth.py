"""What users gain online by not telling the truth: one liar at a time, in whole simulations."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocator.simulation import fast, reference
from allocator.simulation.outcome import NEVER, Outcome
from allocator.simulation.setting import Setting
from allocator.simulation.statistics import dominant_use
from allocator.simulation.studies.lies import LIES
from allocator.simulation.trace import MICROSECONDS, Trace


@dataclass(frozen=True)
class LieGain:
    """What one lie did for one user."""

    user: str
    lie: str
    true_wait_s: float
    """Mean wait of its tasks when it tells the truth."""
    lying_wait_s: float
    """From when it had a task until the task ran; infinite if one never ran."""
    others_true_wait_s: float
    """Mean of the other users' mean waits."""
    others_wait_s: float
    """The same beside the liar."""

    @property
    def saved(self) -> float:
        """Part of its wait that the lie saves; negative if it costs."""
        return 1.0 - self.lying_wait_s / self.true_wait_s

    @property
    def harm(self) -> float:
        """By what part others wait longer."""
        if not self.others_true_wait_s:
            return 0.0
        return self.others_wait_s / self.others_true_wait_s - 1.0


def liars(trace: Trace, outcome: Outcome, count: int) -> list[int]:
    """Return users who wait at least a second on average, spread evenly over use, lightest first.

    Only users with at least ten tasks, all of which ran.
    """
    tasks = np.bincount(trace.user, minlength=len(trace.users))
    waits = _mean_waits(trace, outcome.started)
    may = np.flatnonzero((tasks >= 10) & (waits >= 1.0) & np.isfinite(waits))
    by_use = may[np.argsort(dominant_use(trace)[may], kind="stable")]
    if len(by_use) <= count:
        return [int(user) for user in by_use]
    chosen = np.linspace(0, len(by_use) - 1, count).round().astype(int)
    return [int(by_use[place]) for place in chosen]


def gains(
    trace: Trace, setting: Setting, count: int, watch: Callable[[int, int], None]
) -> Iterator[LieGain]:
    """Yield what each lie does for each liar.

    Args:
        trace: What users have, and when.
        setting: How it is dealt with.
        count: Of liars, at most.
        watch: Told how many simulations are done, of how many.

    Raises:
        SettingError: the setting does not fit the trace.
    """
    truth = _simulate(trace, setting)
    true_waits = _mean_waits(trace, truth.started)
    chosen = liars(trace, truth, count)
    done = 0
    for user in chosen:
        others = [other for other in range(len(trace.users)) if other != user]
        for name, lie in LIES.items():
            told = lie(trace, user)
            outcome = _simulate(told.trace, setting)
            waits = told.waits(trace, outcome.started)
            never = (outcome.started[told.carrier] == NEVER).any()
            beside = dict(
                zip(told.trace.users, _mean_waits(told.trace, outcome.started), strict=True)
            )
            yield LieGain(
                trace.users[user],
                name,
                float(true_waits[user]),
                float("inf") if never else float(waits.mean()),
                _mean(true_waits[others]),
                _mean(np.array([beside[trace.users[other]] for other in others])),
            )
            done += 1
            watch(done, len(chosen) * len(LIES))


@dataclass(frozen=True)
class LieRow:
    """What a lie does for liars of all kinds."""

    lie: str
    liars: int
    saved: tuple[float, float, float]
    """Of the wait: 5 %, 50 % and 95 % quantiles over liars; negative: lost."""
    gaining: float
    """Part of the liars who save more than one hundredth."""
    harm: float
    """By what part others wait longer, median."""


def rows(found: Sequence[LieGain]) -> list[LieRow]:
    """Return a row for each lie."""
    return [
        _row(name, of_it)
        for name in LIES
        if (of_it := [gain for gain in found if gain.lie == name])
    ]


def _row(lie: str, found: Sequence[LieGain]) -> LieRow:
    saved = np.array([gain.saved for gain in found])
    low, middle, high = (float(q) for q in np.quantile(saved, [0.05, 0.5, 0.95], method="nearest"))
    harm = float(np.median([gain.harm for gain in found]))
    return LieRow(lie, len(found), (low, middle, high), float((saved > 0.01).mean()), harm)


def _simulate(trace: Trace, setting: Setting) -> Outcome:
    if fast.supports(setting):
        return fast.simulate(trace, setting, events=False)
    return reference.simulate(trace, setting)


def _mean_waits(trace: Trace, started: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return each user's mean wait in seconds; infinite if one of its tasks never ran."""
    waits = (started - trace.submitted) / MICROSECONDS
    waits[started == NEVER] = np.inf
    total = np.bincount(trace.user, waits, minlength=len(trace.users))
    with np.errstate(invalid="ignore"):
        mean: NDArray[np.float64] = total / np.bincount(trace.user, minlength=len(trace.users))
    return mean


def _mean(values: NDArray[np.float64]) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else 0.0
