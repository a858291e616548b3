"""Draws the figures of the SDRF paper (§7.2) from own simulations.

Shaded bands are 90 % intervals of means over traces.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from allocator.palette import COLOURS
from allocator.simulation.studies.drawing import (
    MARKERS,
    colour_of,
    legend,
    new_figure,
    plain_counts,
    time_axis,
    towards_one,
)
from allocator.simulation.studies.estimates import Estimate, estimate
from allocator.simulation.studies.measures import Floats, UserMeasures

Curves = Mapping[float, tuple[Floats, Sequence[Estimate]]]
"""For each load, the curve to draw: values of 1 − δ, and the measured value at each."""
_POINTS = 200
_FAINT = 0.15


def reductions(curves: Curves) -> Figure:
    """Draw SDRF paper, Fig. 8: how much shorter waits are under SDRF than under DRF, by 1 − δ.

    δ is the fraction of a commitment that remains after a second.
    """
    figure, (panel,) = new_figure("Reduction in the mean of users' mean waits against DRF")
    _by_load(panel, curves, 100.0)
    panel.axhline(0.0, color="0.5", linewidth=0.8)
    panel.set_ylabel("Reduction (%)")
    return figure


def events(curves: Curves) -> Figure:
    """Draw SDRF paper, Fig. 11: Live Tree events (possible swaps of neighbours), by 1 − δ."""
    figure, (panel,) = new_figure("Live Tree events per 1,000 tasks")
    _by_load(panel, curves, 1.0)
    plain_counts(panel)
    panel.set_ylabel("Events per 1,000 tasks")
    return figure


def _by_load(panel: Axes, curves: Curves, scale: float) -> None:
    towards_one(panel)
    for index, (load, (forgotten, measured)) in enumerate(sorted(curves.items())):
        _banded(
            panel,
            forgotten,
            measured,
            scale,
            color=COLOURS[index % len(COLOURS)],
            marker=MARKERS[index % len(MARKERS)],
            markersize=4,
            label=f"{load:.0%}",
        )
    legend(panel, "Capacity, of mean use")


def _banded(
    panel: Axes,
    at: Floats,
    measured: Sequence[Estimate],
    scale: float,
    *,
    color: str,
    **style: Any,  # noqa: ANN401 - arguments of matplotlib
) -> None:
    mean, low, high = (
        [scale * value for value in values]
        for values in zip(
            *((estimate.mean, estimate.low, estimate.high) for estimate in measured), strict=True
        )
    )
    panel.plot(at, mean, color=color, **style)
    panel.fill_between(at, low, high, color=color, alpha=_FAINT, linewidth=0.0)


def waits_by_half(pairs: Sequence[tuple[UserMeasures, UserMeasures]]) -> Figure:
    """Draw SDRF paper, Fig. 9: distributions (CCDF) of users' mean waits under DRF and SDRF.

    There is one panel for each half of the users by usage.

    Args:
        pairs: For each trace, the users' results under DRF and under SDRF.
    """
    figure, panels = new_figure("Users that wait longer on average (CCDF)", panels=2)
    longest = max(float(np.nanmax(users.wait)) for pair in pairs for users in pair)
    at = np.concatenate(([0.0], np.geomspace(1.0, max(longest, 2.0), _POINTS)))
    for half_index, (panel, title) in enumerate(
        zip(panels, ("lower half by usage", "upper half by usage"), strict=True)
    ):
        for policy_index, label in enumerate(("DRF", "SDRF")):
            fractions = []
            for pair in pairs:
                light = pair[0].lighter_half()
                waits = pair[policy_index].wait[~light if half_index else light]
                fractions.append((np.nan_to_num(waits, nan=np.inf)[:, None] > at).mean(axis=0))
            measured = [estimate(values) for values in np.array(fractions).T.tolist()]
            _banded(panel, at, measured, 1.0, color=colour_of(label), label=label)
        panel.set_title(title, fontsize=10)
        panel.set_xlim(left=0.0)
        time_axis(panel, "x")
        panel.set_ylim(0.0, 1.0)
        panel.set_xlabel("Mean wait")
        legend(panel)
    panels[0].set_ylabel("Fraction of users")
    return figure


def completion_bubbles(drf: UserMeasures, sdrf: UserMeasures) -> Figure:
    """Draw SDRF paper, Fig. 10: each user's completion ratio under DRF and under SDRF.

    A user's bubble grows with the logarithm of its number of tasks.
    """
    figure, (panel,) = new_figure("Task completion ratio of each user")
    panel.plot([0.0, 1.0], [0.0, 1.0], color="black", linewidth=0.8)
    panel.scatter(
        drf.completion,
        sdrf.completion,
        s=6.0 + 12.0 * np.log10(np.maximum(drf.tasks, 1)),
        color=COLOURS[0],
        alpha=0.45,
        linewidths=0.0,
    )
    panel.set_xlim(-0.03, 1.03)
    panel.set_ylim(-0.03, 1.03)
    panel.set_aspect("equal")
    panel.set_xlabel("DRF")
    panel.set_ylabel("SDRF")
    return figure
