"""Draws one simulation over time: users' shares, commitments and waiting tasks."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from allocator.palette import COLOURS, distinct_colours
from allocator.simulation.outcome import Outcome
from allocator.simulation.results import running_and_waiting
from allocator.simulation.series import Series
from allocator.simulation.studies.drawing import legend, new_figure, plain_counts
from allocator.simulation.summary import UserSummary

_UNITS = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0))
_OTHERS = "0.6"


def figure_of(outcome: Outcome, users: UserSummary, series: Series, title: str) -> Figure:
    """Draw users' dominant shares, commitments and waiting tasks over time, one panel each.

    For each colour, the user with the highest usage has it. All others are grey.

    Args:
        outcome: Outcome of the simulation.
        users: Summary of the users.
        series: Shares and commitments over time.
        title: Title of the figure.
    """
    by_usage = np.argsort(-users.usage, kind="stable").tolist()
    colours = distinct_colours([users.names[user] for user in by_usage])
    coloured = [user for user in by_usage if users.names[user] in colours]
    remaining = sorted(set(by_usage) - set(coloured))
    has_commitments = bool(np.isfinite(series.commitments).any())
    figure, panels = new_figure(title, panels=3 if has_commitments else 2)
    seconds = series.times / 1e6
    unit, size = next(
        ((name, length) for name, length in _UNITS if seconds[-1] - seconds[0] >= 2.0 * length),
        ("s", 1.0),
    )
    _running, waiting = running_and_waiting(outcome, series.times)
    drawn = [("Dominant share (%)", 100.0 * series.shares), ("Tasks that wait", waiting)]
    if has_commitments:
        drawn.insert(1, ("Commitment (%)", 100.0 * series.commitments))
    for panel, (label, values) in zip(panels, drawn, strict=True):
        if remaining:
            panel.plot(
                seconds / size, values[:, remaining], color=_OTHERS, linewidth=0.4, alpha=0.5
            )
        for user in coloured:
            panel.plot(
                seconds / size,
                values[:, user],
                color=COLOURS[colours[users.names[user]]],
                linewidth=1.1,
                label=users.names[user],
            )
        panel.set_ylabel(label)
        panel.set_xlabel(f"Time ({unit})")
        panel.set_ylim(bottom=0.0)
    plain_counts(panels[-1])
    if remaining:
        panels[0].plot([], [], color=_OTHERS, linewidth=0.8, label=_others(remaining))
    legend(panels[0], "User")
    return figure


def _others(remaining: Sequence[int]) -> str:
    return f"{len(remaining)} others"
