"""Draws how much less or longer each user waits under each policy."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from allocator.simulation.studies.comparisons import PolicyGain
from allocator.simulation.studies.drawing import legend, new_figure, plain_log, styles, time_axis


def saved_by_user(gains: Mapping[str, PolicyGain], baseline: str) -> Figure:
    """Draw each user's change of mean wait relative to the baseline, sorted by size and by usage.

    Args:
        gains: Changes of users' waits, by policy.
        baseline: Name of the policy with which all others are compared.
    """
    figure, (by_rank, by_usage) = new_figure(f"Mean wait saved relative to {baseline}", panels=2)
    line_styles = styles(gains)
    for label, gain in gains.items():
        finite = np.isfinite(gain.saved)
        saved = np.sort(gain.saved[finite])[::-1]
        rank = np.arange(1, len(saved) + 1) / max(len(saved), 1)
        by_rank.step(rank, saved, where="post", label=label, **line_styles[label])
        by_usage.scatter(
            100.0 * gain.users.usage[finite],
            gain.saved[finite],
            s=10,
            color=line_styles[label]["color"],
            alpha=0.5,
            linewidths=0.0,
        )
    for panel in (by_rank, by_usage):
        time_axis(panel, "y", linear=10.0)
        panel.axhline(0.0, color="0.3", linewidth=0.8)
    by_rank.set_xlabel("Fraction of users, largest gain first")
    by_rank.set_ylabel("Mean wait saved per task")
    plain_log(by_usage)
    by_usage.set_xlabel("Fraction of the total use (%)")
    if gains:
        legend(by_rank)
    return figure
