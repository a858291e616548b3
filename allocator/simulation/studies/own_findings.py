"""A report's part about a trace of one's own: what each half-life makes of waits."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.figure import Figure

from allocator.simulation.studies.comparisons import reduction
from allocator.simulation.studies.drawing import COLOURS, MARKERS, legend, new_figure
from allocator.simulation.studies.results import Result
from allocator.simulation.studies.section import Section, Table, duration

Group = tuple[str, str, str, str]
"""Trace, blocking, users, per."""
_LEAST = 2
"""Half-lives, for a curve."""


def sections(results: Sequence[Result]) -> Iterator[Section]:
    """Go through the traces that were simulated under SDRF with several half-lives."""
    groups: defaultdict[Group, list[Result]] = defaultdict(list)
    for result in results:
        if result.raw["engine"] == "fast":
            groups[result.group[:4]].append(result)
    for number, ((name, *_), group) in enumerate(groups.items(), 1):
        curves = _curves(group)
        if curves:
            yield _section(f"half-lives-{number}", name, curves)


def _curves(group: Sequence[Result]) -> dict[float | None, list[tuple[float, float]]]:
    """Return by load, of each half-life, by which fraction users wait less than under DRF."""
    curves: dict[float | None, list[tuple[float, float]]] = {}
    for load in dict.fromkeys(result.load for result in group):
        same = [result for result in group if result.load == load]
        drf = next((result for result in same if result.policy == "drf"), None)
        if drf is None or not drf.mean_wait > 0.0:
            continue
        curve = sorted(
            (_half_life(result), reduction(drf.mean_wait, result.mean_wait))
            for result in same
            if result.policy == "sdrf" and result.parameters.keys() <= {"delta", "half_life"}
        )
        if len(curve) >= _LEAST:
            curves[load] = curve
    return curves


def _half_life(result: Result) -> float:
    """Return in how many seconds a debt halves."""
    return -math.log(2.0) / math.log1p(-result.forgotten)


def _section(
    name: str, trace: str, curves: dict[float | None, list[tuple[float, float]]]
) -> Section:
    best = {load: max(curve, key=lambda point: point[1]) for load, curve in curves.items()}
    return Section(
        name,
        f"Which half-life: {trace}",
        (
            (
                "By how much less users wait under SDRF than under DRF, as the mean of users' mean "
                "waits: each user counts once. Below 0 they wait longer."
            ),
        ),
        _figure(trace, curves),
        (
            (
                "The best of those that were tried",
                Table(
                    ("capacity", "half-life", "mean wait less by"),
                    [
                        (_where(load), duration(half_life), f"{less:+.1%}")
                        for load, (half_life, less) in best.items()
                    ],
                ),
            ),
        ),
    )


def _where(load: float | None) -> str:
    return "its machines" if load is None else f"{load:.0%} of mean use"


def _figure(trace: str, curves: dict[float | None, list[tuple[float, float]]]) -> Figure:
    figure, (panel,) = new_figure(f"{trace}: mean wait under SDRF against DRF")
    for i, (load, curve) in enumerate(curves.items()):
        half_lives, less = np.array(curve).T
        panel.plot(
            half_lives,
            100.0 * less,
            color=COLOURS[i % len(COLOURS)],
            marker=MARKERS[i % len(MARKERS)],
            markersize=4,
            label=_where(load),
        )
    panel.axhline(0.0, color="0.5", linewidth=0.8)
    panel.set_xscale("log")
    panel.set_xlabel("Half-life (s)")
    panel.set_ylabel("Less by (%)")
    legend(panel, "Capacity")
    return figure
