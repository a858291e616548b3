"""Common style of all figures of studies; also writes figures to files."""

import re
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from allocator.palette import COLOURS

MARKERS = ("o", "s", "^", "D", "v", "P", "X")

_POLICIES = dict(
    zip(("drf", "sdrf", "tsf", "stsf", "cdrf", "cmmf", "fifo"), COLOURS, strict=True)
) | {"cpu": COLOURS[5], "mem": COLOURS[5]}
"""Colour of each well-known policy, the same in every figure."""
# Tol's muted palette, for all other policies.
_OTHER_COLOURS = (
    "#332288",
    "#88CCEE",
    "#44AA99",
    "#117733",
    "#999933",
    "#CC6677",
    "#882255",
    "#AA4499",
)
_DASHES = ("solid", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))


def colour_of(label: str) -> str:
    """Return the colour of a policy, given a label that begins with its name."""
    name = re.split(r"[\s:]", label, maxsplit=1)[0].lower()
    return _POLICIES.get(name, _OTHER_COLOURS[zlib.crc32(name.encode()) % len(_OTHER_COLOURS)])


def styles(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return Matplotlib's arguments `color` and `linestyle` for each line, by the line's label.

    The first line of a colour is solid; further lines of the same colour are dashed.
    """
    line_styles: dict[str, dict[str, Any]] = {}
    uses: Counter[str] = Counter()
    for label in labels:
        colour = colour_of(label)
        dashes = _DASHES[uses[colour] % len(_DASHES)]
        line_styles[label] = {"color": colour, "linestyle": dashes}
        uses[colour] += 1
    return line_styles


def new_figure(title: str, panels: int = 1) -> tuple[Figure, list[Axes]]:
    """Create a figure with a title. Return it with its panels, which are side by side."""
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
    """Add a legend to a panel, where it covers the fewest lines."""
    panel.legend(title=title, frameon=False, fontsize=8, title_fontsize=8)


def towards_one(panel: Axes) -> None:
    """Make a panel's horizontal axis show 1 − δ, decreasing to the right as in the SDRF paper."""
    panel.set_xscale("log")
    panel.invert_xaxis()
    panel.set_xlabel("1 − δ, per second")


def save(figures: Iterable[tuple[str, Figure]], folder: Path) -> dict[str, Path]:
    """Write figures as PNG files in a folder. Return the files by name of the figure.

    Raises:
        OSError: A file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, figure in figures:
        files[name] = folder / f"{name}.png"
        figure.savefig(files[name], dpi=150)
    return files
