"""Data types of a computed figure: its points, numbers to compare with the paper, its layout."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, TypeAlias

Number: TypeAlias = Fraction | int | float
Cell: TypeAlias = Number | str


@dataclass(frozen=True, slots=True)
class Line:
    """One curve of a panel, or one layer of bars, with the coordinates of its points."""

    label: str
    across: tuple[Cell, ...]
    """Horizontal coordinates of the points."""
    up: tuple[Number, ...]
    """Vertical coordinates of the points."""
    low: tuple[Number, ...] = ()
    """Lower edge of the band around the curve; empty if there is no band."""
    high: tuple[Number, ...] = ()
    """Upper edge of the band around the curve; empty if there is no band."""

    @classmethod
    def banded(
        cls, label: str, across: Sequence[Cell], ends: Iterable[tuple[Number, Number, Number]]
    ) -> "Line":
        """Return a curve with a band around it.

        Args:
            label: The curve's name.
            across: Horizontal coordinates.
            ends: For each point: height of the curve, lower edge and upper edge of the band.
        """
        return cls(label, tuple(across), *zip(*ends, strict=True))


@dataclass(frozen=True, slots=True)
class Panel:
    """A pair of axes with its lines; a figure has one or several panels side by side."""

    title: str
    across: str
    """Label of the horizontal axis."""
    up: str
    """Label of the vertical axis; unused in a graph. Panels with the same label share a scale."""
    lines: tuple[Line, ...]
    kind: Literal["line", "steps", "bars", "stacked", "graph"] = "line"
    """Kind of plot. Steps hold until the next point; stacked bars are drawn on top of each other.
    In a graph each line is a node: a label at one point."""
    logarithmic: bool = False
    """Whether the horizontal axis is logarithmic, with base 2."""
    links: tuple[tuple[int, int], ...] = ()
    """Edges of a graph, as pairs of positions in `lines`."""
    dashed: tuple[tuple[int, int], ...] = ()
    """Dashed edges of a graph, as pairs of positions in `lines`."""
    rows: tuple[str, ...] = ()
    """Names of a graph's rows, which are at the heights 0, 1, ..."""


@dataclass(frozen=True, slots=True)
class PaperFigure:
    """A computed figure: its values, its panels, and numbers to compare with a paper's text."""

    name: str
    source: str
    """The paper, and the figure's number in the paper."""
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    """Values to compare with the paper."""
    panels: tuple[Panel, ...]
    ours: str
    """Values that the paper does not state and that were chosen here, and limits of the figure."""
    facts: dict[str, Number] = field(default_factory=dict)
    """Numbers that the paper's text mentions, by description."""
