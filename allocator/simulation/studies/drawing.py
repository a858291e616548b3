"""How figures look, and how they become files."""

import re
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart by everybody, also in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

_POLICIES = dict(
    zip(("drf", "sdrf", "tsf", "stsf", "cdrf", "cmmf", "fifo"), COLOURS, strict=True)
) | {"cpu": COLOURS[5], "mem": COLOURS[5]}
"""The same in every figure, whoever else is in it."""
# Tol's muted palette, for the others.
_OTHERS = ("#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#CC6677", "#882255", "#AA4499")
_DASHES = ("solid", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))


def colour_of(label: str) -> str:
    """Return the colour of a policy, given its name or what a figure calls it with parameters."""
    name = re.split(r"[\s:]", label, maxsplit=1)[0].lower()
    return _POLICIES.get(name, _OTHERS[zlib.crc32(name.encode()) % len(_OTHERS)])


def styles(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return how each policy's line is drawn; the same policy with other parameters is dashed."""
    drawn: dict[str, dict[str, Any]] = {}
    seen: Counter[str] = Counter()
    for label in labels:
        colour = colour_of(label)
        dashes = _DASHES[seen[colour] % len(_DASHES)]
        drawn[label] = {"color": colour, "linestyle": dashes}
        seen[colour] += 1
    return drawn


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
