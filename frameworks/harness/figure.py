"""A figure like the paper's: CPUs by user over time, below them commitments."""

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from frameworks.experiment import Experiment
from frameworks.harness.measurement import Measurement, Series

# Okabe and Ito's palette: told apart by everybody, also in grey.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def draw(
    experiment: Experiment, measured: Measurement, expected: Measurement, folder: Path
) -> Path:
    """Draw measured lines over the divisible optimum's; return the PNG's path."""
    figure = Figure(figsize=(8.0, 5.4), layout="constrained")
    FigureCanvasAgg(figure)
    owes = experiment.create_policy().tau is not None
    axes = figure.subplots(
        2 if owes else 1, 1, sharex=True, squeeze=False, height_ratios=[2, 1] if owes else [1]
    )[:, 0]
    figure.suptitle(experiment.title, fontsize=11)
    shown = [(axes[0], measured.cpus, expected.cpus, "CPUs held")]
    if owes:
        shown.append((axes[1], measured.commitments, expected.commitments, "Commitment"))
    for panel, drawn, ideal, label in shown:
        for i, user in enumerate(experiment.users):
            colour = _COLOURS[i % len(_COLOURS)]
            after = {t: v for t, v in ideal.get(user.name, {}).items() if t >= user.start}
            panel.plot(
                *_points(after), color=colour, linewidth=0.9, linestyle=(0, (3, 2)), alpha=0.8
            )
            line = drawn.get(user.name, {})
            panel.plot(*_points(line), color=colour, linewidth=1.6, label=user.name)
        for phase in experiment.phases[1:]:
            panel.axvline(phase.start, color="0.75", linewidth=0.8, zorder=0)
        panel.set_ylabel(label)
        panel.set_ylim(bottom=0.0)
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color="0.92")
    axes[0].legend(title="User", ncols=len(experiment.users), frameon=False, loc="upper right")
    axes[0].plot([], [], color="0.4", linewidth=0.9, linestyle=(0, (3, 2)))
    axes[-1].set_xlabel("Time (s); dashed: the optimum for divisible tasks")
    axes[-1].set_xlim(0.0, experiment.duration)
    figure.savefig(folder / "figure.svg")
    figure.savefig(folder / "figure.png", dpi=150)
    return folder / "figure.png"


def _points(series: Series) -> tuple[list[float], list[float]]:
    times = sorted(series)
    return times, [series[when] for when in times]
