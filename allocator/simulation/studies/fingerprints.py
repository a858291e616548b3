"""What is published of simulations of Google's month, held against those of a month made up."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from allocator.simulation import fast
from allocator.simulation.generator import google_month
from allocator.simulation.generator.google_month import FAILED, FINISHED, Knobs
from allocator.simulation.outcome import Outcome
from allocator.simulation.setting import Setting, capacity_at
from allocator.simulation.studies.comparisons import PolicyGain, reduction
from allocator.simulation.studies.measures import UserMeasures, of_users
from allocator.simulation.studies.waiting import users_at_starts
from allocator.simulation.trace import Trace

JOURNAL, THESIS = "SDRF §7.2", "thesis §4.5"
LOADS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Of the paper."""
BEST = 1e-6
"""1 − δ that served best at each of them."""
_BESIDE = (1e-5, 1e-7)
_TASKS = FINISHED + FAILED
_LEAST = 0.10
_LOSERS = 11 / google_month.USERS

_EVENTS = (
    ("events per 1,000 tasks, 50 %, 1 − 10⁻¹", 5_101_975, "journal", 1e-1, JOURNAL),
    ("events per 1,000 tasks, 50 %, 1 − 10⁻⁶", 24_856, "journal", 1e-6, JOURNAL),
    ("  the same, thesis form, 1 − 10⁻¹", 5_094_167, "thesis", 1e-1, THESIS),
    ("  the same, thesis form, 1 − 10⁻⁶", 22_718, "thesis", 1e-6, THESIS),
)
"""Name, events of the Live Tree in the whole month, form, 1 − δ, source."""

_RATIOS = {name for name, *_ in _EVENTS}
_Published = tuple[str, float, Literal["=", "≥", "≤"], str, float]
"""Name, value, relation, source, scale."""


@dataclass(frozen=True)
class Months:
    """Months to be made up.

    Args:
        tasks: Of each.
        seeds: One month for each.
    """

    tasks: int
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Fingerprint:
    """One figure that is published.

    Args:
        name: What.
        wanted: Its value, or the bound on it.
        relation: Whether it should be equal, at least or at most that.
        got: Here, the mean over seeds.
        seeds: Of each seed.
        source: Who published it.
        scale: How much counts as a miss of one.
        ratio: Whether that is a ratio; if not, a difference.
    """

    name: str
    wanted: float
    relation: Literal["=", "≥", "≤"]
    got: float
    seeds: tuple[float, ...]
    source: str
    scale: float
    ratio: bool

    @property
    def miss(self) -> float:
        """Return how far off months are, in units of the scale: the root of the mean square.

        Each month counts, not their mean: the real one was one month, too.
        """
        return float(np.sqrt(np.mean([self._miss(value) ** 2 for value in self.seeds])))

    def _miss(self, value: float) -> float:
        if self.ratio:
            over = float(np.log(max(value, 1e-9) / self.wanted) / np.log(self.scale))
        else:
            over = (value - self.wanted) / self.scale
        if self.relation == "=":
            return abs(over)
        return max(-over if self.relation == "≥" else over, 0.0)


def fingerprints(
    knobs: Knobs,
    months: Months,
    loads: Sequence[float] = LOADS,
    on_simulation: Callable[[], None] = lambda: None,
) -> list[Fingerprint]:
    """Simulate months, and hold them against all that is published of simulations of the real one.

    Args:
        knobs: Of the months.
        months: How large, and how many.
        loads: Capacities, of mean use, at which waits are compared.
        on_simulation: Called after each of `simulations(months, loads)`.
    """
    found = [
        _of_month(google_month.generate(seed, months.tasks, knobs=knobs), loads, on_simulation)
        for seed in months.seeds
    ]
    return [
        Fingerprint(
            name,
            wanted,
            relation,
            float(np.mean([of[name] for of in found])),
            tuple(of[name] for of in found),
            source,
            scale,
            ratio=name in _RATIOS,
        )
        for name, wanted, relation, source, scale in _published(months.tasks, loads)
    ]


def simulations(months: Months, loads: Sequence[float]) -> int:
    """Return how many simulations that takes."""
    return len(months.seeds) * ((2 + len(_BESIDE)) * len(loads) + len(_EVENTS))


def miss(found: Sequence[Fingerprint]) -> float:
    """Return how far off all are together: the root of the mean of the squares."""
    return float(np.sqrt(np.mean([one.miss**2 for one in found])))


def _published(tasks: int, loads: Sequence[float]) -> list[_Published]:
    """Return what is known, as a month of so many tasks can show it.

    Small δ makes more events for each task the fewer tasks a month has: commitments fade in
    seconds, and with fewer tasks there are more seconds between two. So of smaller months only
    the bound is asked.
    """
    whole = tasks >= google_month.TASKS
    return [
        *(
            (name, 1e3 * events / _TASKS, "=" if whole or forgotten <= BEST else "≥", source, 2.0)
            for name, events, _, forgotten, source in _EVENTS
        ),
        *((_less(load), _LEAST, "≥", JOURNAL, 0.05) for load in loads),
        *((_beside(load), 0.0, "≥", JOURNAL, 0.02) for load in loads),
        ("saved seconds in the lower half, 50 %, part", 0.5, "≥", JOURNAL, 0.1),
        ("users that complete fewer, 50 %, part", _LOSERS, "≤", JOURNAL, 0.05),
        ("users that complete more, 50 %, part", 0.5, "≥", JOURNAL, 0.1),
        ("users that wait at a start, 50 %", 15.0, "≥", "Table 1, inferred", 15.0),
    ]


def _less(load: float) -> str:
    return f"mean wait less by, {load:.0%}, 1 − 10⁻⁶".replace("%", " %")


def _beside(load: float) -> str:
    return f"  more than at 10⁻⁵ and 10⁻⁷, {load:.0%}".replace("%", " %")


def _of_month(
    trace: Trace, loads: Sequence[float], on_simulation: Callable[[], None]
) -> dict[str, float]:
    found: dict[str, float] = {}

    def run(
        load: float, forgotten: float | None, form: str = "journal", *, events: bool = False
    ) -> Outcome:
        """Simulate SDRF, or DRF, which has nothing to forget."""
        capacity = capacity_at(trace, load)
        setting = (
            Setting("drf", {}, capacity)
            if forgotten is None
            else Setting("sdrf", {"delta": 1.0 - forgotten, "form": form}, capacity)
        )
        outcome = fast.simulate(trace, setting, events=events)
        on_simulation()
        return outcome

    for name, _, form, forgotten, _ in _EVENTS:
        outcome = run(LOADS[0], forgotten, form, events=True)
        found[name] = 1000.0 * outcome.operations.events / len(trace)
    for load in loads:
        drf, sdrf = of_users(run(load, None)), run(load, BEST)
        after = of_users(sdrf)
        less = reduction(drf.mean_wait(), after.mean_wait())
        others = [
            reduction(drf.mean_wait(), of_users(run(load, forgotten)).mean_wait())
            for forgotten in _BESIDE
        ]
        found[_less(load)] = less
        found[_beside(load)] = less - max(others)
        if load == LOADS[0]:
            found |= _at_half(drf, after, sdrf)
    return found


def _at_half(drf: UserMeasures, after: UserMeasures, sdrf: Outcome) -> dict[str, float]:
    return {
        "saved seconds in the lower half, 50 %, part": PolicyGain(
            drf, drf.wait, after.wait
        ).lower_part,
        "users that complete fewer, 50 %, part": float(np.mean(after.completion < drf.completion)),
        "users that complete more, 50 %, part": float(np.mean(after.completion > drf.completion)),
        "users that wait at a start, 50 %": users_at_starts(sdrf),
    }
