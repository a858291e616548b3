"""Fits the unpublished parameters of Google's month to the published results of simulations."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from allocator.simulation.generator.failures import Loops
from allocator.simulation.generator.google_month import FITTED, MonthParameters
from allocator.simulation.studies.fingerprints import (
    LOADS,
    Fingerprint,
    Months,
    fingerprints,
    miss,
)

SEARCHED = (LOADS[0], LOADS[-1])
"""Loads at which waits are compared during the search; fewer than `LOADS`, to save time."""


@dataclass(frozen=True)
class Fit:
    """One choice of parameters, and how well it reproduces the published numbers.

    Args:
        knobs: Parameters of the generator.
        found: Comparison with each published number.
        miss: Total deviation from all published numbers; 0 is a perfect fit.
    """

    knobs: MonthParameters
    found: tuple[Fingerprint, ...]
    miss: float


def tried(
    knobs: MonthParameters,
    months: Months,
    loads: Sequence[float] = LOADS,
    on_simulation: Callable[[], None] = lambda: None,
) -> Fit:
    """Simulate months with given generator parameters, and compare them with published numbers.

    Args:
        knobs: Parameters of the generator.
        months: Months to generate.
        loads: Capacities at which waits are compared, divided by the mean use.
        on_simulation: Called after each simulation.
    """
    compared = fingerprints(knobs, months, loads, on_simulation)
    return Fit(knobs, tuple(compared), miss(compared))


def search(
    draws: int,
    seed: int,
    months: Months,
    on_simulation: Callable[[], None] = lambda: None,
) -> Iterator[Fit]:
    """Try random generator parameters, and yield how well each try fits the published numbers.

    The first half of the tries covers the whole range of each parameter. The other half is drawn
    near the best result so far.

    Args:
        draws: Number of tries.
        seed: Seed of the random parameters.
        months: Months to generate, the same in each try, so that chance does not decide.
        on_simulation: Called after each simulation of `simulations(months, SEARCHED)` in each try.
    """
    random = np.random.default_rng(seed)
    best: Fit | None = None
    for draw in range(draws):
        near = best.knobs if best is not None and draw >= draws // 2 else None
        fit = tried(_drawn(random, near), months, SEARCHED, on_simulation)
        if best is None or fit.miss < best.miss:
            best = fit
        yield fit


_RANGES = {
    "user_sigma": (1.5, 3.0),
    "sessions": (0.3, 0.9),
    "session_s": (600.0, 28_800.0),
    "user_spread": (0.2, 1.5),
    "job_spread": (0.8, 2.0),
}
"""Range of each parameter that is searched.

Logarithmic parameters are drawn by their logarithms.
"""
_LOOPS = {
    "jobs": (0.002, 0.1),
    "user_spread": (0.0, 3.0),
    "spread": (0.5, 2.5),
    "attempt_s": (10.0, 600.0),
    "attempt_spread": (0.3, 1.5),
}
_LOGARITHMIC = {"session_s", "jobs", "attempt_s"}
_NEAR = 0.15
"""Standard deviation of draws near the best result, as a fraction of the parameter's range."""


def _drawn(random: Generator, near: MonthParameters | None) -> MonthParameters:
    old_loops = None if near is None else near.loops
    knobs = {name: _draw_value(random, name, ends, near) for name, ends in _RANGES.items()}
    loops = {name: _draw_value(random, name, ends, old_loops) for name, ends in _LOOPS.items()}
    return replace(FITTED, **knobs, loops=Loops(**loops))


def _draw_value(
    random: Generator, name: str, ends: tuple[float, float], near: MonthParameters | Loops | None
) -> float:
    low, high = np.log(ends) if name in _LOGARITHMIC else ends
    if near is None:
        value = random.uniform(low, high)
    else:
        old = float(getattr(near, name))
        old = float(np.log(old)) if name in _LOGARITHMIC else old
        value = float(np.clip(old + _NEAR * (high - low) * random.normal(), low, high))
    return round(float(np.exp(value)) if name in _LOGARITHMIC else value, 4)
