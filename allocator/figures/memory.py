"""Figures of how much shorter waits are under SDRF than under DRF, for different workloads."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from allocator.figures.figure import Cell, Line, Panel, PaperFigure
from allocator.simulation import fastest
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
class _Parameter:
    """A workload parameter that varies in one panel of a figure.

    Args:
        name: The parameter: a field of `Crowd`.
        values: Values of the parameter.
        across: Label of the horizontal axis.
        blocking: Reaction of the simulator if a task does not fit.
    """

    name: str
    values: tuple[float, ...]
    across: str
    blocking: Blocking = "head-of-line"


_WORKLOAD = (
    _Parameter("width", (4.0, 8.0, 16.0, 32.0, 64.0, 128.0), "tasks that run at once"),
    _Parameter("concentration", (0.0, 0.5, 1.0, 1.5, 2.0, 3.0), "σ of users' log number of tasks"),
    _Parameter(
        "burst", (0.03125, 0.25, 1.0, 4.0, 16.0), "burst, in multiples of tasks that run at once"
    ),
)
_SPREADS = (0.0, 0.25, 0.5, 0.75, 1.0)
_BLOCKING = (
    _Parameter("spread", _SPREADS, "σ of tasks' log demand; head-of-line"),
    _Parameter("spread", _SPREADS, "σ of tasks' log demand; skip", "skip"),
)


@dataclass(frozen=True)
class Saved:
    """Waiting time that SDRF saves on one kind of workload, in comparison with DRF.

    Args:
        less: Relative reduction of the mean of users' mean waits, compared with DRF.
        light: Fraction of all users' saved seconds that goes to the half with the lowest usage.
        wait_h: Mean of users' mean waits under DRF, in hours.
    """

    less: Estimate
    light: Estimate
    wait_h: float


def saved(crowd: Crowd, load: float, seeds: Sequence[int], blocking: Blocking) -> Saved:
    """Simulate DRF, and SDRF with a half-life of four days, on one workload for each seed.

    Args:
        crowd: Parameters of the workload.
        load: Capacity as a fraction of the workload's mean use.
        seeds: Seeds of the workloads.
        blocking: Reaction of the simulator if a task does not fit.
    """
    reductions, light_parts, waits = [], [], []
    for seed in seeds:
        trace = generate(seed, crowd)
        capacity = capacity_at(trace, load)
        drf, sdrf = (
            of_users(
                fastest.simulate(trace, Setting(name, parameters, capacity, blocking), events=False)
            )
            for name, parameters in (("drf", {}), ("sdrf", {"half_life": HALF_LIFE}))
        )
        reductions.append(reduction(drf.mean_wait(), sdrf.mean_wait()))
        light_parts.append(PolicyGain(drf, drf.wait, sdrf.wait).lower_part)
        waits.append(drf.mean_wait() / 3600.0)
    return Saved(estimate(reductions), estimate(light_parts), fmean(waits))


def by_workload(seeds: Sequence[int] = SEEDS) -> PaperFigure:
    """Compute the wait that SDRF saves compared with DRF, for different workloads.

    In each panel one parameter varies: size of the pool, inequality of users, or size of bursts.
    """
    return _figure("memory-workload", _WORKLOAD, seeds)


def by_blocking(seeds: Sequence[int] = SEEDS) -> PaperFigure:
    """Compute the wait that SDRF saves compared with DRF, as tasks become more unequal.

    One panel is with head-of-line blocking, one with skipping of tasks that do not fit.
    """
    return _figure("memory-blocking", _BLOCKING, seeds)


def _figure(name: str, parameters: Sequence[_Parameter], seeds: Sequence[int]) -> PaperFigure:
    rows: list[tuple[Cell, ...]] = []
    panels = []
    for parameter in parameters:
        saved_by_load = {
            load: [saved(crowd, load, seeds, parameter.blocking) for crowd in _crowds(parameter)]
            for load in LOADS
        }
        panels.append(_panel(parameter, saved_by_load))
        rows += _rows(parameter, saved_by_load)
    return PaperFigure(
        name=name,
        source=f"Longshare; {len(seeds)} generated months for each point, 90 % intervals",
        title="How much less users wait under SDRF than under DRF; bands: 90 % intervals",
        columns=(
            *("varied", "value", "load", "less, %", "low", "high", "light, %"),
            "DRF wait, h",
        ),
        rows=tuple(rows),
        panels=tuple(panels),
        ours="all parameters. They are 50 users, tasks of an hour in the mean, and a half-life of "
        "four days. Parameters that do not vary are 32 tasks at once, σ = 2 between users, "
        "bursts of 32 tasks, demands with σ = 0.5, and head-of-line",
    )


def _crowds(parameter: _Parameter) -> Iterator[Crowd]:
    for value in parameter.values:
        change: dict[str, Any] = {parameter.name: value}
        yield replace(Crowd(), **change)


def _panel(parameter: _Parameter, saved_by_load: dict[float, list[Saved]]) -> Panel:
    return Panel(
        "",
        parameter.across,
        "reduction of the mean wait, %",
        tuple(
            Line.banded(
                f"capacity {load:.0%} of mean use", parameter.values, map(_percents, savings)
            )
            for load, savings in saved_by_load.items()
        ),
        logarithmic=parameter.name in {"width", "burst"},
    )


def _rows(
    parameter: _Parameter, saved_by_load: dict[float, list[Saved]]
) -> Iterator[tuple[Cell, ...]]:
    name = parameter.name + (", skipping" if parameter.blocking == "skip" else "")
    for load, savings in saved_by_load.items():
        for value, saving in zip(parameter.values, savings, strict=True):
            yield (name, value, load, *_percents(saving), 100.0 * saving.light.mean, saving.wait_h)


def _percents(saving: Saved) -> tuple[float, float, float]:
    return 100.0 * saving.less.mean, 100.0 * saving.less.low, 100.0 * saving.less.high
