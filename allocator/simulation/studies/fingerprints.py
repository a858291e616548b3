"""Compares simulations of synthetic months with published results for Google's real month.

A "fingerprint" is one published number, such as a reduction of waits, with its simulated value.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from allocator.simulation import fastest
from allocator.simulation.generator import google_month
from allocator.simulation.generator.google_month import FAILED, FINISHED, MonthParameters
from allocator.simulation.outcome import Outcome
from allocator.simulation.setting import Setting, capacity_at
from allocator.simulation.studies.comparisons import PolicyGain, reduction
from allocator.simulation.studies.measures import UserMeasures, of_users
from allocator.simulation.studies.waiting import users_at_starts
from allocator.simulation.trace import Trace

JOURNAL, THESIS = "SDRF §7.2", "thesis §4.5"
LOADS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Loads of the SDRF paper: capacities divided by the mean use."""
BEST = 1e-6
"""Value of 1 − δ with the shortest published waits, at each load of the SDRF paper."""
_NEIGHBOURS = (1e-5, 1e-7)
_TASKS = FINISHED + FAILED
_MIN_REDUCTION = 0.10
_MAX_LOSERS = 11 / google_month.USERS

_EVENTS = (
    ("events per 1,000 tasks, 50 %, 1 − 10⁻¹", 5_101_975, "journal", 1e-1, JOURNAL),
    ("events per 1,000 tasks, 50 %, 1 − 10⁻⁶", 24_856, "journal", 1e-6, JOURNAL),
    ("  the same, thesis form, 1 − 10⁻¹", 5_094_167, "thesis", 1e-1, THESIS),
    ("  the same, thesis form, 1 − 10⁻⁶", 22_718, "thesis", 1e-6, THESIS),
)
"""Published numbers of Live Tree events in the whole month.

Each row: name, number of events, form of SDRF, 1 − δ, source.
"""

_RATIOS = {name for name, *_ in _EVENTS}
_Published = tuple[str, float, Literal["=", "≥", "≤"], str, float]
"""A published number: (name, value, relation, source, scale); fields as in `Fingerprint`."""


@dataclass(frozen=True)
class Months:
    """Which synthetic months to generate and simulate.

    Args:
        tasks: Number of tasks in each month.
        seeds: Seeds of the generator, one for each month.
    """

    tasks: int
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Fingerprint:
    """A published number, and the same number measured in synthetic months.

    Args:
        name: Name of the measured quantity.
        published: Published value, or published bound.
        relation: How the measured value should relate to `published`: equal, at least, or at most.
        measured: Mean of the measured values over seeds.
        seeds: Measured value for each seed.
        source: The publication that gives `published`.
        scale: Deviation that counts as 1 in `miss`, as a ratio or a difference.
        ratio: True if the deviation is a ratio, False if it is a difference.
    """

    name: str
    published: float
    relation: Literal["=", "≥", "≤"]
    measured: float
    seeds: tuple[float, ...]
    source: str
    scale: float
    ratio: bool

    @property
    def miss(self) -> float:
        """Deviation from the published number in units of `scale`: root mean square over months.

        The deviation is computed for each month, not for the mean of the months, because the
        published month was a single month too.
        """
        return float(np.sqrt(np.mean([self._miss(value) ** 2 for value in self.seeds])))

    def _miss(self, value: float) -> float:
        if self.ratio:
            deviation = float(np.log(max(value, 1e-9) / self.published) / np.log(self.scale))
        else:
            deviation = (value - self.published) / self.scale
        if self.relation == "=":
            return abs(deviation)
        return max(-deviation if self.relation == "≥" else deviation, 0.0)


def fingerprints(
    knobs: MonthParameters,
    months: Months,
    loads: Sequence[float] = LOADS,
    on_simulation: Callable[[], None] = lambda: None,
) -> list[Fingerprint]:
    """Generate and simulate months, and compare the results with all published numbers.

    Args:
        knobs: Parameters of the generator.
        months: Size and seeds of the months.
        loads: Capacities at which waits are compared, divided by the mean use.
        on_simulation: Called after each simulation; `simulations` returns the number of calls.
    """
    measured = [
        _of_month(google_month.generate(seed, months.tasks, knobs=knobs), loads, on_simulation)
        for seed in months.seeds
    ]
    return [
        Fingerprint(
            name,
            wanted,
            relation,
            float(np.mean([values[name] for values in measured])),
            tuple(values[name] for values in measured),
            source,
            scale,
            ratio=name in _RATIOS,
        )
        for name, wanted, relation, source, scale in _published(months.tasks, loads)
    ]


def simulations(months: Months, loads: Sequence[float]) -> int:
    """Return how many simulations `fingerprints` runs with these arguments, to display progress."""
    return len(months.seeds) * ((2 + len(_NEIGHBOURS)) * len(loads) + len(_EVENTS))


def miss(fingerprints: Sequence[Fingerprint]) -> float:
    """Return the total deviation from the published numbers.

    The result is the root mean square of the single deviations (`Fingerprint.miss`).
    """
    return float(np.sqrt(np.mean([fingerprint.miss**2 for fingerprint in fingerprints])))


def _published(tasks: int, loads: Sequence[float]) -> list[_Published]:
    """Return the published numbers, adapted to months with fewer tasks than Google's.

    In a month with fewer tasks, the published number of Live Tree events per task at a small δ
    becomes a lower bound. Reason: commitments decay in seconds, and such a month has more seconds,
    and so more possible swaps of neighbours, between two tasks.

    Args:
        tasks: Number of tasks in each month.
        loads: Capacities at which waits are compared, divided by the mean use.
    """
    full_size = tasks >= google_month.TASKS
    return [
        *(
            (
                name,
                1e3 * events / _TASKS,
                "=" if full_size or forgotten <= BEST else "≥",
                source,
                2.0,
            )
            for name, events, _, forgotten, source in _EVENTS
        ),
        *((_reduction_name(load), _MIN_REDUCTION, "≥", JOURNAL, 0.05) for load in loads),
        *((_lead_name(load), 0.0, "≥", JOURNAL, 0.02) for load in loads),
        ("saved seconds in the lower half, 50 %, part", 0.5, "≥", JOURNAL, 0.1),
        ("users that complete fewer, 50 %, part", _MAX_LOSERS, "≤", JOURNAL, 0.05),
        ("users that complete more, 50 %, part", 0.5, "≥", JOURNAL, 0.1),
        ("users that wait at a start, 50 %", 15.0, "≥", "Table 1, inferred", 15.0),
    ]


def _reduction_name(load: float) -> str:
    return f"mean wait less by, {load:.0%}, 1 − 10⁻⁶".replace("%", " %")


def _lead_name(load: float) -> str:
    return f"  more than at 10⁻⁵ and 10⁻⁷, {load:.0%}".replace("%", " %")


def _of_month(
    trace: Trace, loads: Sequence[float], on_simulation: Callable[[], None]
) -> dict[str, float]:
    measured: dict[str, float] = {}

    def run(
        load: float, forgotten: float | None, form: str = "journal", *, events: bool = False
    ) -> Outcome:
        """Simulate the month under SDRF with `forgotten` = 1 − δ, or under DRF if it is None.

        Args:
            load: Capacity divided by the mean use.
            forgotten: Fraction of a commitment that decays in a second.
            form: Variant of SDRF: "journal" (as in the SDRF paper) or "thesis".
            events: True to count the Live Tree's events.
        """
        capacity = capacity_at(trace, load)
        setting = (
            Setting("drf", {}, capacity)
            if forgotten is None
            else Setting("sdrf", {"delta": 1.0 - forgotten, "form": form}, capacity)
        )
        outcome = fastest.simulate(trace, setting, events=events)
        on_simulation()
        return outcome

    for name, _, form, forgotten, _ in _EVENTS:
        outcome = run(LOADS[0], forgotten, form, events=True)
        measured[name] = 1000.0 * outcome.operations.events / len(trace)
    for load in loads:
        drf, sdrf = of_users(run(load, None)), run(load, BEST)
        after = of_users(sdrf)
        reduced = reduction(drf.mean_wait(), after.mean_wait())
        neighbours = [
            reduction(drf.mean_wait(), of_users(run(load, forgotten)).mean_wait())
            for forgotten in _NEIGHBOURS
        ]
        measured[_reduction_name(load)] = reduced
        measured[_lead_name(load)] = reduced - max(neighbours)
        if load == LOADS[0]:
            measured |= _at_half(drf, after, sdrf)
    return measured


def _at_half(drf: UserMeasures, after: UserMeasures, sdrf: Outcome) -> dict[str, float]:
    return {
        "saved seconds in the lower half, 50 %, part": PolicyGain(
            drf, drf.wait, after.wait
        ).lower_part,
        "users that complete fewer, 50 %, part": float(np.mean(after.completion < drf.completion)),
        "users that complete more, 50 %, part": float(np.mean(after.completion > drf.completion)),
        "users that wait at a start, 50 %": users_at_starts(sdrf),
    }
