"""Common style of all figures of studies; also writes figures to files."""

import re
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullFormatter,
    NullLocator,
)

from allocator.files import whole
from allocator.palette import COLOURS
from allocator.simulation.studies.section import duration, plain

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
_DASHES = (
    *("solid", (0, (5, 2)), (0, (1, 1.5))),
    *((0, (6, 2, 1, 2)), (0, (10, 3)), (0, (6, 2, 1, 2, 1, 2))),
)

_HALF_LIVES = (
    *(1.0, 5.0, 20.0, 60.0, 300.0, 1200.0, 3600.0, 3 * 3600.0, 12 * 3600.0),
    *(86400.0 * days for days in (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)),
)
"""Half-lives in seconds at which a figure may have a tick."""
_SECONDS = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0]
_UNITS = [1.0, 60.0, 3600.0, *(86_400.0 * 10**n for n in range(5))]
_LENGTHS = [*_UNITS, 10.0, 600.0]
"""Times in seconds at which an axis of times may have a tick."""


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
    """Return a new figure with a title, and its panels, which are side by side."""
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


def plain_log(panel: Axes) -> None:
    """Make a panel's horizontal axis logarithmic, with ticks such as 0.5, 20 and 1,000.

    The axis stays linear if its ends differ by less than a factor of three.

    Call the function after the data are drawn.
    """
    low, high = panel.get_xlim()
    if low > 0.0 and high < 3.0 * low:
        panel.ticklabel_format(axis="x", style="plain", useOffset=False)
        panel.locator_params(axis="x", nbins=3)
        return
    panel.set_xscale("log")
    low, high = panel.get_xlim()
    subdivisions = (1.0, 2.0, 5.0) if high < 100.0 * low else (1.0,)
    panel.xaxis.set_major_locator(LogLocator(subs=subdivisions))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
    panel.xaxis.set_minor_formatter(NullFormatter())


def plain_counts(panel: Axes) -> None:
    """Make a panel's vertical axis logarithmic from 1, with ticks such as 0, 10 and 1,000."""
    panel.set_yscale("symlog", linthresh=1.0)
    panel.set_ylim(bottom=0.0)
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))


def time_axis(panel: Axes, which: Literal["x", "y"], linear: float = 1.0) -> None:
    """Make an axis of seconds logarithmic, with ticks such as 0, 10 s, 1 min and 1 h.

    Call the function after the data are drawn.

    Args:
        panel: The panel.
        which: The horizontal or the vertical axis.
        linear: Seconds up to which times, also negative times, are drawn linearly.
    """
    getattr(panel, f"set_{which}scale")("symlog", linthresh=linear)
    axis = panel.xaxis if which == "x" else panel.yaxis
    low, high = sorted(axis.get_view_interval())
    longest = max(-low, high)
    lengths = _SECONDS if longest <= 60.0 else _LENGTHS
    if which == "x" and longest > 3600.0:
        lengths = _UNITS
    lengths = [length for length in lengths if linear <= length <= longest]
    ticks = sorted({0.0, *lengths, *(-length for length in lengths)})
    axis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axis.set_major_formatter(FuncFormatter(lambda time, _: duration(time) if time else "0"))
    axis.set_minor_locator(NullLocator())


def half_life_axis(panel: Axes) -> None:
    """Make a panel's horizontal axis show half-lives: logarithmic, in days, hours and minutes.

    Call the function after the data are drawn, in seconds.
    """
    panel.set_xscale("log")
    panel.set_xlabel("Half-life")
    low, high = panel.get_xlim()
    ticks = [seconds for seconds in _HALF_LIVES if low <= seconds <= high]
    panel.xaxis.set_major_locator(FixedLocator(ticks[:: len(ticks) // 8 + 1]))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: duration(seconds)))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.xaxis.set_minor_locator(NullLocator())


def save(figures: Iterable[tuple[str, Figure]], folder: Path) -> dict[str, Path]:
    """Write figures as PNG files in a folder. Return the files by name of the figure.

    Raises:
        OSError: A file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, figure in figures:
        files[name] = folder / f"{name}.png"
        with whole(files[name]) as part:
            figure.savefig(part, dpi=150, format="png")
    return files
