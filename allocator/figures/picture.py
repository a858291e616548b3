"""Draws figures as PNG files."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from allocator.figures.figure import Line, Panel, PaperFigure
from allocator.palette import COLOURS
from allocator.simulation.studies.drawing import MARKERS, legend, new_figure, save

_LAYERS = {"owes": "#000000", "has": COLOURS[0], "demands beyond": "0.88"}
_MARKED = 12
"""Largest number of points at which each point is marked."""


def draw(figure: PaperFigure, folder: Path) -> Path:
    """Write a figure as PNG and return the path of the file.

    Raises:
        OSError: the file cannot be written.
    """
    return save([(figure.name, picture(figure))], folder)[figure.name]


def picture(figure: PaperFigure) -> Figure:
    """Return a figure as Matplotlib draws it, with its panels side by side."""
    drawn, axes = new_figure(figure.title, len(figure.panels))
    for panel, axis in zip(figure.panels, axes, strict=True):
        _DRAWN[panel.kind](panel, axis)
        axis.set_title(panel.title, fontsize=10)
        axis.set_xlabel(panel.across)
        axis.set_ylabel(panel.up)
        if panel.kind != "graph":
            axis.set_ylim(bottom=0.0)
    _share_scales(figure.panels, axes)
    _add_legends(figure.panels, axes)
    return drawn


def _share_scales(panels: Sequence[Panel], axes: Sequence[Axes]) -> None:
    """Give the same vertical scale to the panels of the same quantity."""
    highest: dict[str, float] = {}
    for panel, axis in zip(panels, axes, strict=True):
        highest[panel.up] = max(highest.get(panel.up, 0.0), axis.get_ylim()[1])
    for panel, axis in zip(panels, axes, strict=True):
        if panel.kind != "graph":
            axis.set_ylim(top=highest[panel.up])


def _add_legends(panels: Sequence[Panel], axes: Sequence[Axes]) -> None:
    """Add a legend to each panel, except to a panel with the same labels as the previous one."""
    explained: list[str] = []
    for panel, axis in zip(panels, axes, strict=True):
        labels = [line.label for line in panel.lines]
        if panel.kind != "graph" and labels != explained:
            legend(axis)
        explained = labels


def _lines(panel: Panel, axis: Axes) -> None:
    for line, colour, marker in zip(panel.lines, COLOURS, MARKERS, strict=False):
        across = _numbers(line.across)
        mark = marker if len(line.across) <= _MARKED else ""
        axis.plot(across, _numbers(line.up), label=line.label, color=colour, marker=mark)
        if line.low:
            low, high = _numbers(line.low), _numbers(line.high)
            axis.fill_between(across, low, high, color=colour, alpha=0.2, linewidth=0)
    if panel.logarithmic:
        axis.set_xscale("log", base=2)
        ticks = _numbers(panel.lines[0].across)
        axis.set_xticks(ticks, [str(Fraction(tick).limit_denominator(1000)) for tick in ticks])


def _steps(panel: Panel, axis: Axes) -> None:
    for line, colour in zip(panel.lines, COLOURS, strict=False):
        across, up = _numbers(line.across), _numbers(line.up)
        axis.step(across, up, where="post", label=line.label, color=colour)


def _bars(panel: Panel, axis: Axes) -> None:
    width = 0.8 / len(panel.lines)
    for number, (line, colour) in enumerate(zip(panel.lines, COLOURS, strict=False)):
        positions = [
            index + (number - (len(panel.lines) - 1) / 2) * width for index in range(len(line.up))
        ]
        axis.bar(positions, _numbers(line.up), width, label=line.label, color=colour)
    _name(panel.lines[0], axis)


def _stacked(panel: Panel, axis: Axes) -> None:
    below = [0.0] * len(panel.lines[0].up)
    for line in panel.lines:
        up = _numbers(line.up)
        style: dict[str, Any] = {"color": _LAYERS[line.label], "edgecolor": "0.4"}
        axis.bar(range(len(up)), up, 0.8, bottom=below, label=line.label, **style)
        below = [base + height for base, height in zip(below, up, strict=True)]
    _name(panel.lines[0], axis)


def _graph(panel: Panel, axis: Axes) -> None:
    positions = [(*_numbers(node.across), *_numbers(node.up)) for node in panel.lines]
    for edges, style in ((panel.links, "-"), (panel.dashed, "--")):
        for first, second in edges:
            ends = zip(positions[first], positions[second], strict=True)
            axis.plot(*ends, color="0.4", linestyle=style, zorder=1)
    box = {"boxstyle": "round", "facecolor": "white", "edgecolor": COLOURS[0]}
    for node, (across, up) in zip(panel.lines, positions, strict=True):
        axis.text(across, up, node.label, ha="center", va="center", bbox=box)
    axis.set_xticks([])
    axis.set_yticks(range(len(panel.rows)), panel.rows)
    axis.grid(visible=False)
    axis.spines[["left", "bottom"]].set_visible(False)
    axis.tick_params(left=False)
    axis.margins(0.1)


def _name(line: Line, axis: Axes) -> None:
    axis.set_xticks(range(len(line.across)), [str(label) for label in line.across])


def _numbers(values: Sequence[Any]) -> list[float]:
    return [float(value) for value in values]


_DRAWN = {"line": _lines, "steps": _steps, "bars": _bars, "stacked": _stacked, "graph": _graph}
