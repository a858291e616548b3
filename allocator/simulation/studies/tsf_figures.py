"""The figures of Task Share Fairness §VI-B, from numbers."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from allocator.simulation.studies.comparisons import SIZES, distribution
from allocator.simulation.studies.drawing import COLOURS, legend, new_figure, styles
from allocator.simulation.studies.measures import Floats

ByPolicy = Mapping[str, Floats]


def workload(machines: NDArray[np.int64], sizes: NDArray[np.int64]) -> Figure:
    """Draw Fig. 8: on how many machines jobs may run, and how many tasks they have."""
    figure, panels = new_figure("The workload: jobs", panels=2)
    for panel, values, label in (
        (panels[0], machines, "Machines that a job may use"),
        (panels[1], sizes, "Tasks of a job"),
    ):
        panel.step(*distribution(values.astype(np.float64)), where="post", color=COLOURS[0])
        panel.set_xlabel(label)
        panel.set_ylim(0.0, 1.0)
    panels[1].set_xscale("log")
    panels[0].set_ylabel("Fraction of jobs")
    return figure


def jobs(delays: ByPolicy, completions: ByPolicy) -> Figure:
    """Draw Fig. 9: CDFs of jobs' queueing delays and completion times."""
    figure, panels = new_figure("Jobs", panels=2)
    _cdfs(panels[0], delays)
    panels[0].set_xlabel("Queueing delay (s)")
    _cdfs(panels[1], completions)
    panels[1].set_xlabel("Completion time (s)")
    panels[0].set_ylabel("Fraction of jobs")
    return figure


def speedups(of: Mapping[str, Mapping[str, Floats]], baseline: str) -> Figure:
    """Draw Fig. 10: mean speed-up of the baseline, by size of job, for each alternative."""
    figure, (panel,) = new_figure(f"How much earlier jobs end under {baseline}")
    width = 0.8 / max(len(of), 1)
    drawn = styles(of)
    for i, (policy, bins) in enumerate(of.items()):
        shown = [100.0 * bins[name] for name, _, _ in SIZES]
        panel.bar(
            np.arange(len(SIZES)) + (i - (len(of) - 1) / 2) * width,
            [values.mean() if len(values) else 0.0 for values in shown],
            width,
            yerr=[values.std() if len(values) else 0.0 for values in shown],
            color=drawn[policy]["color"],
            error_kw={"linewidth": 0.8, "ecolor": "0.3"},
            label=f"than under {policy}",
        )
    panel.axhline(0.0, color="0.3", linewidth=0.8)
    panel.set_xticks(range(len(SIZES)), [_range(*size) for size in SIZES])
    panel.set_xlabel("Tasks of the job")
    panel.set_ylabel("Of its time under the other policy (%)")
    legend(panel)
    return figure


def tasks(waits: ByPolicy, saved: ByPolicy, baseline: str) -> Figure:
    """Draw Fig. 11: CDFs of tasks' queueing delays, and of the delay that the baseline saves."""
    figure, panels = new_figure("Tasks", panels=2)
    _cdfs(panels[0], waits)
    panels[0].set_xlabel("Queueing delay (s)")
    panels[0].set_ylabel("Fraction of tasks")
    _cdfs(panels[1], saved)
    panels[1].axvline(0.0, color="0.3", linewidth=0.8)
    panels[1].set_xlabel(f"Delay saved by {baseline} (s)")
    return figure


def _range(name: str, least: int, most: int | None) -> str:
    return f"{name}\n{least}-{most}" if most is not None else f"{name}\n≥ {least}"


def _cdfs(panel: Axes, of: ByPolicy) -> None:
    drawn = styles(of)
    for label, values in of.items():
        panel.step(
            *_thinned(*distribution(values)),
            where="post",
            linewidth=1.3,
            label=label,
            **drawn[label],
        )
    panel.set_xscale("symlog", linthresh=1.0)
    panel.set_ylim(0.0, 1.0)
    legend(panel)


def _thinned(x: Floats, y: Floats, points: int = 2000) -> tuple[Floats, Floats]:
    """Keep what can be seen of a long distribution."""
    if len(x) <= points:
        return x, y
    kept = np.linspace(0, len(x) - 1, points).astype(np.int64)
    return x[kept], y[kept]
