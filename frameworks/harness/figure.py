"""Draws an experiment's results over time, in the style of the SDRF and TSF papers' figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from allocator import __version__
from allocator.palette import COLOURS, user_colours
from frameworks.experiment import Experiment
from frameworks.harness.measurement import Measurement, Series


def draw(
    experiment: Experiment, measured: Measurement, expected: Measurement, folder: Path
) -> Path:
    """Draw users' CPUs and commitments over time, with the divisible optimum for comparison.

    Args:
        experiment: The experiment.
        measured: The measured values.
        expected: The values in the divisible optimum.
        folder: Folder for the files.

    Returns:
        The path of the PNG file.
    """
    figure = Figure(figsize=(8.0, 5.4), layout="constrained")
    FigureCanvasAgg(figure)
    has_commitments = experiment.create_policy().tau is not None
    axes = figure.subplots(
        2 if has_commitments else 1,
        1,
        sharex=True,
        squeeze=False,
        height_ratios=[2, 1] if has_commitments else [1],
    )[:, 0]
    figure.suptitle(experiment.title, fontsize=11)
    colours = user_colours(user.name for user in experiment.users)
    panels = [(axes[0], measured.cpus, expected.cpus, "CPUs held")]
    if has_commitments:
        panels.append((axes[1], measured.commitments, expected.commitments, "Commitment"))
    for panel, drawn, ideal, label in panels:
        for user in experiment.users:
            colour = COLOURS[colours[user.name]]
            from_start = {
                time: value
                for time, value in ideal.get(user.name, {}).items()
                if time >= user.start
            }
            panel.plot(
                *_points(from_start), color=colour, linewidth=0.9, linestyle=(0, (3, 2)), alpha=0.8
            )
            line = drawn.get(user.name, {})
            panel.plot(*_points(line), color=colour, linewidth=1.6, label=user.name)
        for phase in experiment.phases[1:]:
            panel.axvline(phase.start, color="0.75", linewidth=0.8, zorder=0)
        panel.set_ylabel(label)
        panel.set_ylim(bottom=0.0)
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color="0.92")
    axes[0].legend(
        title="User", ncols=min(4, len(experiment.users)), frameon=False, loc="upper right"
    )
    axes[0].plot([], [], color="0.4", linewidth=0.9, linestyle=(0, (3, 2)))
    axes[-1].set_xlabel("Time (s); dashed: the optimum for divisible tasks")
    axes[-1].set_xlim(0.0, experiment.duration)
    return _save(figure, folder)


def draw_shares(experiment: Experiment, measured: Measurement, folder: Path) -> Path:
    """Draw each user's CPU, memory and task share over time. Return the PNG file's path.

    A task share is the number of running tasks, as a fraction of the tasks that the user could run
    alone.
    """
    figure = Figure(figsize=(8.0, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(3, 1, sharex=True)
    figure.suptitle(experiment.title, fontsize=11)
    capacity = experiment.cluster.capacity
    colours = user_colours(user.name for user in experiment.users)
    for user in experiment.users:
        demand = experiment.tasks_of(user).quantities
        times, cpus = _points(measured.running.get(user.name, {}))
        tasks = [held * 1000 / demand["cpus"] for held in cpus]
        shares_of_task = {
            "CPU share": demand["cpus"] / capacity["cpus"],
            "Memory share": demand["mem"] / capacity["mem"],
            "Task share": 1.0 / experiment.cluster.monopoly(demand),
        }
        for panel, (label, share) in zip(panels, shares_of_task.items(), strict=True):
            drawn = [share * number for number in tasks]
            panel.plot(
                times, drawn, color=COLOURS[colours[user.name]], linewidth=1.6, label=user.name
            )
            panel.set_ylabel(label)
    for panel in panels:
        panel.set_ylim(0.0, 1.05)
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color="0.92")
    panels[0].legend(ncols=min(4, len(experiment.users)), frameon=False, loc="upper right")
    panels[-1].set_xlabel("Time (s)")
    panels[-1].set_xlim(0.0, max(measured.in_use, default=experiment.duration))
    return _save(figure, folder)


def draw_completions(
    title: str, completions: Mapping[str, Mapping[str, Sequence[float]]], folder: Path
) -> Path:
    """Draw users' completion times in each variant; bars show standard deviations over seeds.

    Args:
        title: Title of the figure.
        completions: Seconds by variant and by user, one value per seed.
        folder: Folder for the files.

    Returns:
        The path of the PNG file.
    """
    figure = Figure(figsize=(8.0, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    panel = figure.subplots()
    figure.suptitle(title, fontsize=11)
    users = list(dict.fromkeys(user for times in completions.values() for user in times))
    width = 0.8 / len(completions)
    for index, (variant, times) in enumerate(completions.items()):
        places = [place for place, user in enumerate(users) if user in times]
        panel.bar(
            [place - 0.4 + (index + 0.5) * width for place in places],
            [fmean(times[users[place]]) for place in places],
            width * 0.92,
            yerr=[_deviation(times[users[place]]) for place in places],
            capsize=3,
            color=COLOURS[index % len(COLOURS)],
            label=variant,
        )
    panel.set_xticks(range(len(users)), users)
    panel.set_ylabel("Completion time (s)")
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", color="0.92")
    panel.set_axisbelow(True)
    panel.legend(frameon=False)
    return _save(figure, folder)


def _deviation(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


def _save(figure: Figure, folder: Path) -> Path:
    """Save a figure, with the version of Longshare in a corner. Return the PNG file's path."""
    figure.text(
        0.995, 0.005, f"Longshare {__version__}", ha="right", va="bottom", fontsize=8, color="0.45"
    )
    figure.savefig(folder / "figure.svg")
    figure.savefig(folder / "figure.png", dpi=150)
    return folder / "figure.png"


def _points(series: Series) -> tuple[list[float], list[float]]:
    times = sorted(series)
    return times, [series[time] for time in times]
