"""Recommends a half-life for SDRF: simulates a workload with many half-lives, compared with DRF."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.outcome import NEVER, Outcome
from allocator.simulation.setting import Setting
from allocator.simulation.statistics import lighter_half
from allocator.simulation.studies.comparisons import reduction_interval
from allocator.simulation.summary import UserSummary, users_of
from allocator.simulation.trace import MICROSECONDS, Trace

SHORTEST = 60.0
"""Shortest half-life tried, in seconds. With a shorter half-life, SDRF hardly differs from DRF.

The longest is the trace's length. The trace says nothing about longer memories.
"""
FLAT = 0.9
"""A half-life is nearly best if it has this fraction of the best reduction, and if the best wait is
at least this fraction of its wait."""
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0

Simulate = Callable[[Trace, Setting], Outcome]


class AdviceError(ValueError):
    """Raised if no half-life can be recommended; the message gives the reason."""


@dataclass(frozen=True)
class GroupReduction:
    """How much less a group of users waits under SDRF than under DRF.

    Args:
        reduction: Relative reduction of the mean of the users' mean waits.
        low: 90 % interval of the reduction, lower end; None for fewer than five users.
        high: Upper end of this interval.
    """

    reduction: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Trial:
    """Result of SDRF with one half-life, compared with DRF.

    Args:
        half_life_s: Seconds in which a commitment halves.
        delta: Fraction of a commitment that remains after one second.
        mean_user_wait_s: Mean over users of each user's mean wait, in seconds.
        reduction: Relative reduction of `mean_user_wait_s` compared with DRF; 0.1 is 10 % shorter.
        light: The same reduction for the half of the users with the lowest usage.
        heavy: The same reduction for the half of the users with the highest usage.
        waits_less: Number of users with a shorter mean wait than under DRF.
        waits_longer: Number of users with a longer mean wait than under DRF.
        low: 90 % interval of the reduction from 1,000 draws of the users, lower end; None for
            fewer than five users.
        high: Upper end of this interval.
        light_low: 90 % interval of `light`, lower end; None for fewer than five such users.
        light_high: Upper end of this interval.
        groups: Reductions for the groups that the caller named, by name.
    """

    half_life_s: float
    delta: float
    mean_user_wait_s: float
    reduction: float
    light: float
    heavy: float
    waits_less: int
    waits_longer: int
    low: float | None
    high: float | None
    light_low: float | None = None
    light_high: float | None = None
    groups: Mapping[str, GroupReduction] = field(default_factory=dict)


@dataclass(frozen=True)
class Advice:
    """The recommended half-life, and all trials behind it.

    Args:
        drf_wait_s: Mean over users of each user's mean wait under DRF, in seconds.
        trials: All trials in order of half-lives.
        best: The trial with the shortest `mean_user_wait_s`.
        nearly_best_s: All half-lives tried that are nearly best (`FLAT`), in seconds.
        flat_from_s: Shortest of the nearly best half-lives around the best, in seconds.
        flat_to_s: Longest of the nearly best half-lives around the best, in seconds. Every
            half-life tried in between is nearly best.
        interior: True if half-lives both below and above the best were tried.
        never_started: Number of tasks that fit on no machine, so no half-life serves them.
        between_bursts_s: Seconds between two bursts of a light user (`time_between_bursts`); None
            if no light user has two bursts.
    """

    drf_wait_s: float
    trials: tuple[Trial, ...]
    best: Trial
    nearly_best_s: tuple[float, ...]
    flat_from_s: float
    flat_to_s: float
    interior: bool
    never_started: int
    between_bursts_s: float | None = None

    @property
    def decided(self) -> bool:
        """True if the interval of the best half-life's reduction is above 0."""
        return self.best.low is not None and self.best.low > 0.0

    @property
    def serves_light(self) -> bool:
        """True if light users certainly wait less, and also under the next half-lives.

        Under these, just outside of the nearly best half-lives, the mean wait of light users must
        be shorter than under DRF. Otherwise, the reduction is perhaps chance.
        """
        if self.best.light_low is None or self.best.light_low <= 0.0:
            return False
        first = next(
            number
            for number, trial in enumerate(self.trials)
            if trial.half_life_s >= self.flat_from_s
        )
        beyond = [trial for trial in self.trials if trial.half_life_s > self.flat_to_s]
        around = self.trials[max(first - 1, 0) : len(self.trials) - len(beyond) + 1]
        return all(trial.light > 0.0 for trial in around)

    @property
    def helps(self) -> bool:
        """True if users wait less under SDRF with the best half-life than under DRF."""
        return self.best.reduction > 0.0


def advise(  # noqa: PLR0913 - options of the search
    trace: Trace,
    drf: Setting,
    simulate: Simulate,
    *,
    coarse: int = 12,
    fine: int = 6,
    groups: Mapping[str, NDArray[np.bool_]] | None = None,
    on_trial: Callable[[], None] = lambda: None,
) -> Advice:
    """Find the half-life with which a workload waits least, and return all trials.

    Half-lives from a minute to the trace's length are tried, then more near the best. If
    the neighbours of the best are nearly as good, no more half-lives are tried.

    The best half-life tried is the answer, because waits are no smooth function of the half-life.

    Args:
        trace: The workload.
        drf: The simulation options, with DRF as the policy. SDRF is simulated with the same
            options.
        simulate: The simulator to use.
        coarse: Number of half-lives in the first pass, spaced by equal ratios; at least 3.
        fine: Steps of the golden-section search in the second pass, between the neighbours of the
            best.
        groups: Masks of groups of users that each trial also compares, by name; None for none.
        on_trial: Called after each simulation, for progress: once under DRF, then at most `coarse`
            + `fine` times.

    Raises:
        AdviceError: No user waits under DRF, or no half-life changes a wait.
        ValueError: No task fits on any machine.
    """
    length = int((trace.submitted + trace.runtime).max() - trace.submitted[0]) if len(trace) else 0
    seconds = length / MICROSECONDS
    outcome = simulate(trace, drf)
    outcome.require_starts()
    before = users_of(outcome)
    on_trial()
    wait = _mean(before.mean_wait_s)
    if not wait > 0.0:
        raise AdviceError("no user waits under DRF, so memory can change nothing; lower the load")
    trials: dict[float, Trial] = {}

    def mean_wait(log_half_life: float) -> float:
        half_life = math.exp(log_half_life)
        if half_life not in trials:
            setting = _with_memory(drf, half_life)
            after = users_of(simulate(trace, setting))
            trials[half_life] = _trial(half_life, before, after, groups or {})
            on_trial()
        return trials[half_life].mean_user_wait_s

    first, last = math.log(SHORTEST), math.log(max(seconds, 4.0 * SHORTEST))
    grid = [first + (last - first) * step / (coarse - 1) for step in range(coarse)]
    best = min(range(coarse), key=lambda step: mean_wait(grid[step]))
    ends = grid[max(best - 1, 0)], grid[min(best + 1, coarse - 1)]
    best_trial = trials[math.exp(grid[best])]
    flat = all(_is_nearly(best_trial, trials[math.exp(end)]) for end in ends)
    if best_trial.reduction <= 0.0 or not flat:
        _narrow(mean_wait, *ends, fine)
    if not any(trial.waits_less or trial.waits_longer for trial in trials.values()):
        raise AdviceError(
            "no half-life changes any user's mean wait, so choose the policy drf; a smaller "
            "capacity would make users wait more"
        )
    ordered = sorted(trials.values(), key=lambda trial: trial.half_life_s)
    advice = _advice(wait, ordered, outcome.never_started)
    bursts = time_between_bursts(outcome, np.flatnonzero(lighter_half(before.usage)))
    return replace(advice, between_bursts_s=bursts)


def time_between_bursts(outcome: Outcome, users: NDArray[np.intp]) -> float | None:
    """Return the median, over users, of the typical time from one burst to the next, in seconds.

    A burst lasts while a task of the user waits or runs. The typical time is the median of the
    times between beginnings of bursts, weighted by these times. So short bursts during a day do not
    hide the nights.

    Args:
        outcome: The simulated tasks.
        users: Indices of the users.

    Returns:
        The time; None if no user has two bursts.
    """
    typical = []
    for user in users.tolist():
        own = np.flatnonzero((outcome.trace.user == user) & (outcome.started != NEVER))
        submitted = outcome.trace.submitted[own]
        busy_until = np.maximum.accumulate(outcome.finished[own])
        begins = np.concatenate((submitted[:1], submitted[1:][submitted[1:] > busy_until[:-1]]))
        times = np.sort(np.diff(begins))
        if len(times):
            total = np.cumsum(times)
            typical.append(times[np.searchsorted(2 * total, total[-1])])
    return float(np.median(typical)) / MICROSECONDS if typical else None


def _narrow(mean_wait: Callable[[float], float], low: float, high: float, steps: int) -> None:
    """Find the half-life with the minimum mean wait, by golden-section search.

    Returns nothing: `mean_wait` stores the result of each half-life tried.

    Args:
        mean_wait: Simulates a half-life in seconds and returns the mean wait.
        low: Lower end of the search, in seconds.
        high: Upper end of the search, in seconds.
        steps: Number of half-lives to try.
    """
    lower, upper = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    for step in range(steps):
        if step == 0:
            mean_wait(lower)
        elif mean_wait(lower) <= mean_wait(upper):
            high, upper = upper, lower
            lower = high - _GOLDEN * (high - low)
        else:
            low, lower = lower, upper
            upper = low + _GOLDEN * (high - low)


def _with_memory(drf: Setting, half_life: float) -> Setting:
    return replace(drf, policy="sdrf", parameters={"half_life": half_life})


def _trial(
    half_life: float,
    before: UserSummary,
    after: UserSummary,
    groups: Mapping[str, NDArray[np.bool_]],
) -> Trial:
    light = lighter_half(before.usage)
    wait = _mean(after.mean_wait_s)
    low, high = _interval(before.mean_wait_s, after.mean_wait_s)
    light_low, light_high = _interval(before.mean_wait_s[light], after.mean_wait_s[light])
    return Trial(
        half_life_s=half_life,
        delta=math.exp(-math.log(2.0) / half_life),
        mean_user_wait_s=wait,
        reduction=_reduction(before.mean_wait_s, after.mean_wait_s),
        light=_reduction(before.mean_wait_s[light], after.mean_wait_s[light]),
        heavy=_reduction(before.mean_wait_s[~light], after.mean_wait_s[~light]),
        waits_less=int((after.mean_wait_s < before.mean_wait_s).sum()),
        waits_longer=int((after.mean_wait_s > before.mean_wait_s).sum()),
        low=low,
        high=high,
        light_low=light_low,
        light_high=light_high,
        groups={
            name: _of_group(before.mean_wait_s[mask], after.mean_wait_s[mask])
            for name, mask in groups.items()
        },
    )


def _of_group(before: NDArray[np.float64], after: NDArray[np.float64]) -> GroupReduction:
    """Return the reduction of a group's mean wait, from its users' mean waits in seconds."""
    return GroupReduction(_reduction(before, after), *_interval(before, after))


def _interval(
    before: NDArray[np.float64], after: NDArray[np.float64]
) -> tuple[float | None, float | None]:
    """Return the ends of `reduction_interval`; None for too few users."""
    low, high = reduction_interval([(before, after)])
    return (low, high) if math.isfinite(low) else (None, None)


def _advice(wait: float, trials: list[Trial], never_started: int) -> Advice:
    best_index = min(range(len(trials)), key=lambda index: trials[index].mean_user_wait_s)
    best = trials[best_index]
    low = high = best_index
    while low > 0 and _is_nearly(best, trials[low - 1]):
        low -= 1
    while high < len(trials) - 1 and _is_nearly(best, trials[high + 1]):
        high += 1
    return Advice(
        drf_wait_s=wait,
        trials=tuple(trials),
        best=best,
        nearly_best_s=tuple(trial.half_life_s for trial in trials if _is_nearly(best, trial)),
        flat_from_s=trials[low].half_life_s,
        flat_to_s=trials[high].half_life_s,
        interior=0 < best_index < len(trials) - 1,
        never_started=never_started,
    )


def _is_nearly(best: Trial, trial: Trial) -> bool:
    """Return whether a trial is nearly as good as the best one.

    Near a reduction of 1, nine tenths of the reduction may be a multiple of the wait.
    """
    if trial.reduction < FLAT * best.reduction:
        return False
    return trial.mean_user_wait_s * FLAT <= best.mean_user_wait_s


def _mean(waits: NDArray[np.float64]) -> float:
    known = waits[~np.isnan(waits)]
    return float(known.mean()) if len(known) else 0.0


def _reduction(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    mean = _mean(before)
    return 1.0 - _mean(after) / mean if mean > 0.0 else 0.0
