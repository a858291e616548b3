"""Which memory serves a workload best: SDRF at many half-lives, held against DRF."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.outcome import Outcome
from allocator.simulation.setting import Setting
from allocator.simulation.studies.estimates import resampled_ends
from allocator.simulation.summary import UserSummary, users_of
from allocator.simulation.trace import MICROSECONDS, Trace

SHORTEST = 60.0
"""Seconds: the shortest half-life that is tried; less is hardly different from DRF."""
LONGEST = 4.0
"""Times the trace's length: what is forgotten even more slowly is not forgotten at all."""
FLAT = 0.9
"""Of the best reduction: half-lives that reach so much are as good as the best."""
_DRAWS = 1000
"""How often users are drawn anew."""
_SEED = 1
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0

Simulate = Callable[[Trace, Setting], Outcome]


class AdviceError(ValueError):
    """There is nothing to give advice on; the message says why."""


@dataclass(frozen=True)
class Trial:
    """SDRF at one half-life.

    Args:
        half_life_s: Seconds in which a debt halves.
        delta: What is left of a debt after a second.
        mean_user_wait_s: Mean of users' mean waits, seconds.
        reduction: By which fraction of DRF's it is lower.
        light: Likewise of the half of users with the lowest usage.
        heavy: Likewise of the other half.
        waits_less: Users that wait less on average than under DRF.
        waits_longer: Users that wait longer.
        low: Of the reduction where users are drawn anew from those there are: 5 in 100 are lower …
        high: … and 5 in 100 higher.
        better: In how many of 100 it is above 0.
    """

    half_life_s: float
    delta: float
    mean_user_wait_s: float
    reduction: float
    light: float
    heavy: float
    waits_less: int
    waits_longer: int
    low: float
    high: float
    better: float


@dataclass(frozen=True)
class Advice:
    """What was found.

    Args:
        drf_wait_s: Mean of users' mean waits under DRF, seconds.
        trials: In order of half-lives.
        best: The one with the least wait.
        flat_from_s: Half-lives from here …
        flat_to_s: … to here, next to the best, have at least nine tenths of its reduction.
        interior: Whether the best is neither the shortest nor the longest that was tried.
    """

    drf_wait_s: float
    trials: tuple[Trial, ...]
    best: Trial
    flat_from_s: float
    flat_to_s: float
    interior: bool

    @property
    def helps(self) -> bool:
        """Whether SDRF is better than DRF at all."""
        return self.best.reduction > 0.0


def advise(  # noqa: PLR0913 - what is simulated, and how closely
    trace: Trace,
    drf: Setting,
    simulate: Simulate,
    *,
    coarse: int = 12,
    fine: int = 6,
    on_trial: Callable[[], None] = lambda: None,
) -> Advice:
    """Try half-lives from a minute to four times the trace's length, then closer to the best.

    Waits are no smooth function of the half-life, so the answer is the best that was seen.

    Args:
        trace: The workload.
        drf: The setting under DRF; SDRF is tried in the same.
        simulate: What simulates.
        coarse: Half-lives in equal ratios, at least 3.
        fine: Steps of a golden-section search between the best one's neighbours.
        on_trial: Called after each simulation: one under DRF, then `coarse` + `fine`.

    Raises:
        AdviceError: Nobody waits under DRF, so memory can change nothing.
    """
    length = int((trace.submitted + trace.runtime).max() - trace.submitted[0]) if len(trace) else 0
    seconds = length / MICROSECONDS
    before = users_of(simulate(trace, drf))
    on_trial()
    wait = _mean(before.mean_wait_s)
    if not wait > 0.0:
        raise AdviceError("nobody waits under DRF, so memory can change nothing; lower the load")
    trials: dict[float, Trial] = {}

    def tried(log_half_life: float) -> float:
        half_life = math.exp(log_half_life)
        if half_life not in trials:
            setting = _with_memory(drf, half_life)
            trials[half_life] = _trial(half_life, before, users_of(simulate(trace, setting)))
            on_trial()
        return trials[half_life].mean_user_wait_s

    first, last = math.log(SHORTEST), math.log(max(LONGEST * seconds, 4.0 * SHORTEST))
    grid = [first + (last - first) * step / (coarse - 1) for step in range(coarse)]
    best = min(range(coarse), key=lambda step: tried(grid[step]))
    _narrow(tried, grid[max(best - 1, 0)], grid[min(best + 1, coarse - 1)], fine)
    return _advice(wait, sorted(trials.values(), key=lambda trial: trial.half_life_s))


def _narrow(tried: Callable[[float], float], low: float, high: float, steps: int) -> None:
    """Do golden-section search for the least; each step is one trial."""
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    for step in range(steps):
        if step == 0:
            tried(left)
        elif tried(left) <= tried(right):
            high, right = right, left
            left = high - _GOLDEN * (high - low)
        else:
            low, left = left, right
            right = low + _GOLDEN * (high - low)


def _with_memory(drf: Setting, half_life: float) -> Setting:
    return replace(drf, policy="sdrf", parameters={"half_life": half_life})


def _trial(half_life: float, before: UserSummary, after: UserSummary) -> Trial:
    light = np.zeros(len(before.usage), np.bool_)
    light[np.argsort(before.usage, kind="stable")[: len(light) // 2]] = True
    wait = _mean(after.mean_wait_s)
    return Trial(
        half_life_s=half_life,
        delta=math.exp(-math.log(2.0) / half_life),
        mean_user_wait_s=wait,
        reduction=_reduction(before.mean_wait_s, after.mean_wait_s),
        light=_reduction(before.mean_wait_s[light], after.mean_wait_s[light]),
        heavy=_reduction(before.mean_wait_s[~light], after.mean_wait_s[~light]),
        waits_less=int((after.mean_wait_s < before.mean_wait_s).sum()),
        waits_longer=int((after.mean_wait_s > before.mean_wait_s).sum()),
        **_resampled(before.mean_wait_s, after.mean_wait_s),
    )


def _resampled(before: NDArray[np.float64], after: NDArray[np.float64]) -> dict[str, float]:
    """Return how sure a reduction is: had other users come, alike in kind, what would it be?

    Users are drawn from those there are, with replacement (the bootstrap), by the same chance for
    every trial. A trace of few users, or one that a single user decides, gives a wide interval.
    """
    known = ~np.isnan(before) & ~np.isnan(after)
    users = int(known.sum())
    if not users:
        return {"low": 0.0, "high": 0.0, "better": 0.0}
    chance = np.random.default_rng(_SEED)
    reductions = np.empty(_DRAWS)
    for draw in range(_DRAWS):
        drawn = chance.integers(0, users, users)
        waited = before[known][drawn].mean()
        reductions[draw] = 1.0 - after[known][drawn].mean() / waited if waited > 0.0 else 0.0
    if users == 1:  # one user does not tell how others would differ
        only = float(reductions[0])
        return {"low": min(only, 0.0), "high": max(only, 0.0), "better": 0.0}
    low, high = resampled_ends(reductions, users)
    return {
        "low": low,
        "high": high,
        "better": float(100.0 * (reductions > 0.0).mean()),
    }


def _advice(wait: float, trials: list[Trial]) -> Advice:
    place = min(range(len(trials)), key=lambda i: trials[i].mean_user_wait_s)
    best = trials[place]
    enough = FLAT * best.reduction
    low = high = place
    while low > 0 and trials[low - 1].reduction >= enough:
        low -= 1
    while high < len(trials) - 1 and trials[high + 1].reduction >= enough:
        high += 1
    return Advice(
        drf_wait_s=wait,
        trials=tuple(trials),
        best=best,
        flat_from_s=trials[low].half_life_s,
        flat_to_s=trials[high].half_life_s,
        interior=0 < place < len(trials) - 1,
    )


def _mean(waits: NDArray[np.float64]) -> float:
    known = waits[~np.isnan(waits)]
    return float(known.mean()) if len(known) else 0.0


def _reduction(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    mean = _mean(before)
    return 1.0 - _mean(after) / mean if mean > 0.0 else 0.0
