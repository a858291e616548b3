"""Draws the figures of the TSF paper (§VI-B) from own simulations."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from allocator.palette import COLOURS
from allocator.simulation.studies.comparisons import SIZES, distribution
from allocator.simulation.studies.drawing import legend, new_figure, plain_log, styles, time_axis
from allocator.simulation.studies.measures import Floats

ByPolicy = Mapping[str, Floats]


def workload(machines: NDArray[np.int64], sizes: NDArray[np.int64]) -> Figure:
    """Draw TSF paper, Fig. 8: distributions over jobs of allowed machines and of tasks.

    Args:
        machines: For each job, the number of machines that it may use.
        sizes: For each job, its number of tasks.
    """
    figure, panels = new_figure("The workload: jobs", panels=2)
    for panel, values, label in (
        (panels[0], machines, "Machines that a job may use"),
        (panels[1], sizes, "Tasks of a job"),
    ):
        panel.step(*distribution(values.astype(np.float64)), where="post", color=COLOURS[0])
        panel.set_xlabel(label)
        panel.set_ylim(0.0, 1.0)
    plain_log(panels[1])
    panels[0].set_ylabel("Fraction of jobs")
    return figure


def jobs(delays: ByPolicy, completions: ByPolicy) -> Figure:
    """Draw TSF paper, Fig. 9: distributions (CDF) of jobs' queueing delays and completion times.

    Args:
        delays: Delay of each job in seconds, by policy.
        completions: Completion time of each job in seconds, by policy.
    """
    figure, panels = new_figure("Jobs", panels=2)
    _cdfs(panels[0], delays)
    panels[0].set_xlabel("Queueing delay")
    _cdfs(panels[1], completions)
    panels[1].set_xlabel("Completion time")
    panels[0].set_ylabel("Fraction of jobs")
    return figure


def speedups(gains: Mapping[str, Mapping[str, Floats]], baseline: str) -> Figure:
    """Draw TSF paper, Fig. 10: how much earlier jobs complete under the baseline, by job size.

    Args:
        gains: For each alternative policy and size class, the speed-up of each job.
        baseline: Name of the policy that is compared with the alternatives.
    """
    figure, (panel,) = new_figure(f"How much earlier jobs end under {baseline}")
    width = 0.8 / max(len(gains), 1)
    line_styles = styles(gains)
    for index, (policy, bins) in enumerate(gains.items()):
        values_by_bin = [100.0 * bins[name] for name, _, _ in SIZES]
        panel.bar(
            np.arange(len(SIZES)) + (index - (len(gains) - 1) / 2) * width,
            [values.mean() if len(values) else 0.0 for values in values_by_bin],
            width,
            yerr=[values.std() if len(values) else 0.0 for values in values_by_bin],
            color=line_styles[policy]["color"],
            error_kw={"linewidth": 0.8, "ecolor": "0.3"},
            label=f"than under {policy}",
        )
    panel.axhline(0.0, color="0.3", linewidth=0.8)
    panel.set_xticks(range(len(SIZES)), [_range(*size) for size in SIZES])
    panel.set_xlabel("Tasks of the job")
    panel.set_ylabel("Part of its time under the other policy (%)")
    legend(panel)
    return figure


def tasks(waits: ByPolicy, saved: ByPolicy, baseline: str) -> Figure:
    """Draw TSF paper, Fig. 11: distributions (CDF) of tasks' queueing delays, and of delays saved.

    Args:
        waits: Delay of each task in seconds, by policy.
        saved: Delay that each task saves under the baseline in seconds, by alternative policy.
        baseline: Name of the baseline.
    """
    figure, panels = new_figure("Tasks", panels=2)
    _cdfs(panels[0], waits)
    panels[0].set_xlabel("Queueing delay")
    panels[0].set_ylabel("Fraction of tasks")
    _cdfs(panels[1], saved)
    panels[1].axvline(0.0, color="0.3", linewidth=0.8)
    panels[1].set_xlabel(f"Delay saved by {baseline}")
    return figure


def _range(name: str, minimum: int, maximum: int | None) -> str:
    return f"{name}\n{minimum}-{maximum}" if maximum is not None else f"{name}\n≥ {minimum}"


def _cdfs(panel: Axes, values_by_policy: ByPolicy) -> None:
    line_styles = styles(values_by_policy)
    for label, values in values_by_policy.items():
        panel.step(
            *_thinned(*distribution(values)),
            where="post",
            linewidth=1.3,
            label=label,
            **line_styles[label],
        )
    time_axis(panel, "x")
    panel.set_ylim(0.0, 1.0)
    legend(panel)


def _thinned(x: Floats, y: Floats, points: int = 2000) -> tuple[Floats, Floats]:
    """Return a curve with about `points` of its points, which are enough for a drawing.

    Args:
        x: Horizontal coordinates of all points.
        y: Vertical coordinates of all points.
        points: Number of points to keep.
    """
    if len(x) <= points:
        return x, y
    kept = np.linspace(0, len(x) - 1, points).astype(np.int64)
    return x[kept], y[kept]
