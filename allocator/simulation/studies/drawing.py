"""How figures look, and how they become files."""

from collections.abc import Iterable
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart by everybody, also in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def new_figure(title: str, panels: int = 1) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels side by side."""
    figure = Figure(figsize=(5.6 if panels == 1 else 4.4 * panels, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(1, panels, squeeze=False)[0])
    figure.suptitle(title, fontsize=11)
    for panel in axes:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(color="0.92")
        panel.set_axisbelow(True)
    return figure, axes


def legend(panel: Axes, title: str | None = None) -> None:
    """Explain a panel's lines where they leave room."""
    panel.legend(title=title, frameon=False, fontsize=8, title_fontsize=8)


def towards_one(panel: Axes) -> None:
    """Have the horizontal axis be 1 − δ, smaller to the right, as the paper draws δ."""
    panel.set_xscale("log")
    panel.invert_xaxis()
    panel.set_xlabel("1 − δ, per second")


def save(figures: Iterable[tuple[str, Figure]], folder: Path) -> dict[str, Path]:
    """Write figures as PNG; return the files by name.

    Raises:
        OSError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, figure in figures:
        files[name] = folder / f"{name}.png"
        figure.savefig(files[name], dpi=150)
    return files
