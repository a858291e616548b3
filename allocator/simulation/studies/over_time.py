"""How users stood over time in one simulation, drawn: shares, commitments, and who waits."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from allocator.simulation.outcome import Outcome
from allocator.simulation.results import running_and_waiting
from allocator.simulation.series import Series
from allocator.simulation.studies.drawing import COLOURS, legend, new_figure
from allocator.simulation.summary import UserSummary

_UNITS = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0))
_OTHERS = "0.6"


def figure_of(outcome: Outcome, users: UserSummary, series: Series, title: str) -> Figure:
    """Draw the users of most usage, and the others together, in the order of users' colours.

    Args:
        outcome: What was simulated.
        users: How its users fared.
        series: How they stood.
        title: Of the figure.
    """
    most = np.argsort(-users.usage, kind="stable")[: len(COLOURS)].tolist()
    rest = sorted(set(range(len(users.names))) - set(most))
    owes = bool(np.isfinite(series.commitments).any())
    figure, panels = new_figure(title, panels=3 if owes else 2)
    seconds = series.times / 1e6
    unit, size = next(
        ((u, s) for u, s in _UNITS if seconds[-1] - seconds[0] >= 2.0 * s), ("s", 1.0)
    )
    _running, waiting = running_and_waiting(outcome, series.times)
    drawn = [("Dominant share (%)", 100.0 * series.shares), ("Tasks that wait", waiting)]
    if owes:
        drawn.insert(1, ("Commitment (%)", 100.0 * series.commitments))
    for panel, (label, values) in zip(panels, drawn, strict=True):
        if rest:
            panel.plot(seconds / size, values[:, rest], color=_OTHERS, linewidth=0.4, alpha=0.5)
        for colour, user in zip(COLOURS, most, strict=False):
            panel.plot(
                seconds / size,
                values[:, user],
                color=colour,
                linewidth=1.1,
                label=users.names[user],
            )
        panel.set_ylabel(label)
        panel.set_xlabel(f"Time ({unit})")
        panel.set_ylim(bottom=0.0)
    panels[-1].set_yscale("symlog", linthresh=1.0)
    if rest:
        panels[0].plot([], [], color=_OTHERS, linewidth=0.8, label=_others(rest))
    legend(panels[0], "User")
    return figure


def _others(rest: Sequence[int]) -> str:
    return f"{len(rest)} others"
