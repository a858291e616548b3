"""The figures of Stateful DRF §7.2, from numbers."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from allocator.simulation.studies.comparisons import distribution
from allocator.simulation.studies.drawing import (
    COLOURS,
    MARKERS,
    colour_of,
    legend,
    new_figure,
    towards_one,
)
from allocator.simulation.studies.measures import Floats, Users

Curves = Mapping[float, tuple[Floats, Floats]]
"""For each load: values of 1 − δ, and what was measured there."""


def reductions(curves: Curves) -> Figure:
    """Draw Fig. 8: by how much SDRF lowers the mean of users' mean waits against DRF."""
    figure, (panel,) = new_figure("Reduction in the mean of users' mean waits against DRF")
    _by_load(panel, {load: (x, 100.0 * y) for load, (x, y) in curves.items()})
    panel.axhline(0.0, color="0.5", linewidth=0.8)
    panel.set_ylabel("Reduction (%)")
    return figure


def events(curves: Curves) -> Figure:
    """Draw Fig. 11: position changes that the Live Tree looked at."""
    figure, (panel,) = new_figure("Live Tree events")
    _by_load(panel, curves)
    panel.set_yscale("symlog", linthresh=1.0)
    panel.set_ylim(bottom=0.0)
    panel.set_ylabel("Events")
    return figure


def _by_load(panel: Axes, curves: Curves) -> None:
    towards_one(panel)
    for i, (load, (forgotten, values)) in enumerate(sorted(curves.items())):
        panel.plot(
            forgotten,
            values,
            color=COLOURS[i % len(COLOURS)],
            marker=MARKERS[i % len(MARKERS)],
            markersize=4,
            label=f"{load:.0%}",
        )
    legend(panel, "Capacity, of mean use")


def waits_by_half(drf: Users, sdrf: Users) -> Figure:
    """Draw Fig. 9: how many users wait longer than so long, of each half by usage."""
    figure, panels = new_figure("Users that wait longer on average (CCDF)", panels=2)
    light = drf.lighter_half()
    halves = (("lower half by usage", light), ("upper half by usage", ~light))
    for panel, (title, half) in zip(panels, halves, strict=True):
        for label, users in (("DRF", drf), ("SDRF", sdrf)):
            waits, at_most = distribution(users.wait[half])
            panel.step(waits, 1.0 - at_most, where="post", color=colour_of(label), label=label)
        panel.set_title(title, fontsize=10)
        panel.set_xscale("symlog", linthresh=1.0)
        panel.set_xlim(left=0.0)
        panel.set_ylim(0.0, 1.0)
        panel.set_xlabel("Mean wait (s)")
        legend(panel)
    panels[0].set_ylabel("Fraction of users")
    return figure


def completion_bubbles(drf: Users, sdrf: Users) -> Figure:
    """Draw Fig. 10: each user's completion ratio; the bubble grows with the log of its tasks."""
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
