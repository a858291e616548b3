"""Report sections on an operator's own trace: how the half-life of SDRF changes waits."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.figure import Figure

from allocator.palette import COLOURS
from allocator.simulation.studies.comparisons import reduction
from allocator.simulation.studies.drawing import MARKERS, half_life_axis, legend, new_figure
from allocator.simulation.studies.results import Result
from allocator.simulation.studies.section import Section, Table, duration

Group = tuple[str, str, str, str]
"""Values that are equal in all results of a section: (trace, blocking, users, per)."""
_MIN_POINTS = 2
"""Minimum number of half-lives for which a curve is drawn."""


def sections(results: Sequence[Result]) -> Iterator[Section]:
    """Yield a report section for each trace simulated under SDRF with several half-lives."""
    groups: defaultdict[Group, list[Result]] = defaultdict(list)
    for result in results:
        if result.raw["engine"] == "fast":
            groups[result.group[:4]].append(result)
    for number, ((name, *_), group) in enumerate(groups.items(), 1):
        curves = _curves(group)
        if curves:
            yield _section(f"half-lives-{number}", name, curves)


def _curves(group: Sequence[Result]) -> dict[float | None, list[tuple[float, float]]]:
    """Return the points of a figure: how waits under SDRF depend on the half-life.

    Returns:
        For each load (None: the trace's own machines), pairs of a half-life in seconds and the
        reduction of the mean wait compared with DRF.
    """
    curves: dict[float | None, list[tuple[float, float]]] = {}
    for load in dict.fromkeys(result.load for result in group):
        same_load = [result for result in group if result.load == load]
        drf = next((result for result in same_load if result.policy == "drf"), None)
        if drf is None or not drf.mean_wait > 0.0:
            continue
        curve = sorted(
            (_half_life(result), reduction(drf.mean_wait, result.mean_wait))
            for result in same_load
            if result.policy == "sdrf" and result.parameters.keys() <= {"delta", "half_life"}
        )
        if len(curve) >= _MIN_POINTS:
            curves[load] = curve
    return curves


def _half_life(result: Result) -> float:
    """Return the half-life of commitments in a result's policy, in seconds."""
    return -math.log(2.0) / math.log1p(-result.forgotten)


def _section(
    name: str, trace: str, curves: dict[float | None, list[tuple[float, float]]]
) -> Section:
    best = {load: max(curve, key=lambda point: point[1]) for load, curve in curves.items()}
    return Section(
        name,
        f"Effect of the half-life: {trace}",
        (
            (
                "Reduction of the mean of users' mean waits under SDRF relative to DRF. Each user "
                "counts once. Below 0, users wait longer."
            ),
        ),
        _figure(trace, curves),
        (
            (
                "Best half-life among the simulated ones",
                Table(
                    ("capacity", "half-life", "reduction of the mean wait"),
                    [
                        (_capacity_text(load), duration(half_life), f"{reduced:+.1%}")
                        for load, (half_life, reduced) in best.items()
                    ],
                ),
            ),
        ),
    )


def _capacity_text(load: float | None) -> str:
    return "its machines" if load is None else f"{load:.0%} of mean use"


def _figure(trace: str, curves: dict[float | None, list[tuple[float, float]]]) -> Figure:
    figure, (panel,) = new_figure(f"{trace}: mean wait under SDRF relative to DRF")
    for index, (load, curve) in enumerate(curves.items()):
        half_lives, reductions = np.array(curve).T
        panel.plot(
            half_lives,
            100.0 * reductions,
            color=COLOURS[index % len(COLOURS)],
            marker=MARKERS[index % len(MARKERS)],
            markersize=4,
            label=_capacity_text(load),
        )
    panel.axhline(0.0, color="0.5", linewidth=0.8)
    half_life_axis(panel)
    panel.set_ylabel("Reduction (%)")
    legend(panel, "Capacity")
    return figure
