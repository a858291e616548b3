"""Why memory pays: mean wait saved over what a workload is like, one thing turned at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from allocator.figures.figure import Cell, Line, Panel, PaperFigure
from allocator.simulation import fast
from allocator.simulation.generator.crowd import Crowd, generate
from allocator.simulation.holding import Blocking
from allocator.simulation.setting import Setting, capacity_at
from allocator.simulation.studies.comparisons import PolicyGain, reduction
from allocator.simulation.studies.estimates import Estimate, estimate
from allocator.simulation.studies.measures import of_users

LOADS = (0.5, 0.7, 0.9)
SEEDS = (1, 2, 3, 4, 5, 6, 7, 8)
HALF_LIFE = "4d"


@dataclass(frozen=True)
class _Turned:
    """One thing that is turned.

    Args:
        name: Of the field of a Crowd.
        values: What it is set to.
        across: What it is, for people.
        blocking: What happens to a task that does not fit.
    """

    name: str
    values: tuple[float, ...]
    across: str
    blocking: Blocking = "head-of-line"


_WORKLOAD = (
    _Turned("width", (4.0, 8.0, 16.0, 32.0, 64.0, 128.0), "tasks that run at once"),
    _Turned("concentration", (0.0, 0.5, 1.0, 1.5, 2.0, 3.0), "σ of users' log number of tasks"),
    _Turned("burst", (0.03125, 0.25, 1.0, 4.0, 16.0), "tasks of a burst, of those at once"),
)
_SPREADS = (0.0, 0.25, 0.5, 0.75, 1.0)
_BLOCKING = (
    _Turned("spread", _SPREADS, "σ of tasks' log demand; head-of-line"),
    _Turned("spread", _SPREADS, "σ of tasks' log demand; skip", "skip"),
)


@dataclass(frozen=True)
class Saved:
    """What memory saves on one kind of workload.

    Args:
        less: By which part the mean of users' mean waits is less than under DRF.
        light: Of all saved seconds, what the lighter half of users saves.
        wait_h: That mean under DRF, hours.
    """

    less: Estimate
    light: Estimate
    wait_h: float


def saved(crowd: Crowd, load: float, seeds: Sequence[int], blocking: Blocking) -> Saved:
    """Simulate DRF, and SDRF with a half-life of four days, on a workload for each seed."""
    less, light, waits = [], [], []
    for seed in seeds:
        trace = generate(seed, crowd)
        capacity = capacity_at(trace, load)
        drf, sdrf = (
            of_users(
                fast.simulate(trace, Setting(name, parameters, capacity, blocking), events=False)
            )
            for name, parameters in (("drf", {}), ("sdrf", {"half_life": HALF_LIFE}))
        )
        less.append(reduction(drf.mean_wait(), sdrf.mean_wait()))
        light.append(PolicyGain(drf, drf.wait, sdrf.wait).lower_part)
        waits.append(drf.mean_wait() / 3600.0)
    return Saved(estimate(less), estimate(light), fmean(waits))


def by_workload(seeds: Sequence[int] = SEEDS) -> PaperFigure:
    """Turn how wide the pool is, how unequal users are and how they come."""
    return _figure("memory-workload", _WORKLOAD, seeds)


def by_blocking(seeds: Sequence[int] = SEEDS) -> PaperFigure:
    """Turn how unequal tasks are, where one that does not fit holds all up and where not."""
    return _figure("memory-blocking", _BLOCKING, seeds)


def _figure(name: str, several: Sequence[_Turned], seeds: Sequence[int]) -> PaperFigure:
    rows: list[tuple[Cell, ...]] = []
    panels = []
    for turned in several:
        found = {
            load: [saved(crowd, load, seeds, turned.blocking) for crowd in _crowds(turned)]
            for load in LOADS
        }
        panels.append(_panel(turned, found))
        rows += _rows(turned, found)
    return PaperFigure(
        name=name,
        source=f"of no paper; {len(seeds)} drawn months for each point, 90 % intervals",
        title="How much less users wait under SDRF than under DRF",
        columns=(
            *("turned", "to", "capacity", "less, %", "from", "to", "light, %"),
            "wait under DRF, h",
        ),
        rows=tuple(rows),
        panels=tuple(panels),
        ours="all of it: 50 users, tasks of an hour in the mean, a half-life of four days; where "
        "nothing else is said 32 tasks at once, σ = 2 between users, bursts of 32 tasks, demands "
        "with σ = 0.5, head-of-line",
    )


def _crowds(turned: _Turned) -> Iterator[Crowd]:
    for value in turned.values:
        one: dict[str, Any] = {turned.name: value}
        yield replace(Crowd(), **one)


def _panel(turned: _Turned, found: dict[float, list[Saved]]) -> Panel:
    return Panel(
        turned.across,
        turned.across,
        "less by, %",
        tuple(
            Line.banded(f"capacity {load:.0%} of mean use", turned.values, map(_percents, several))
            for load, several in found.items()
        ),
        logarithmic=turned.name in {"width", "burst"},
    )


def _rows(turned: _Turned, found: dict[float, list[Saved]]) -> Iterator[tuple[Cell, ...]]:
    name = turned.name + (", skipping" if turned.blocking == "skip" else "")
    for load, several in found.items():
        for value, one in zip(turned.values, several, strict=True):
            yield (name, value, load, *_percents(one), 100.0 * one.light.mean, one.wait_h)


def _percents(one: Saved) -> tuple[float, float, float]:
    return 100.0 * one.less.mean, 100.0 * one.less.low, 100.0 * one.less.high
