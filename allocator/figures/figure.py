"""What a figure is: points that can be checked, what is known of the paper's, and how it looks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, TypeAlias

Number: TypeAlias = Fraction | int | float
Cell: TypeAlias = Number | str


@dataclass(frozen=True, slots=True)
class Line:
    """One curve, or one layer of bars."""

    label: str
    across: tuple[Cell, ...]
    up: tuple[Number, ...]
    low: tuple[Number, ...] = ()
    """Of the band around it; empty: there is none."""
    high: tuple[Number, ...] = ()

    @classmethod
    def banded(
        cls, label: str, across: Sequence[Cell], ends: Iterable[tuple[Number, Number, Number]]
    ) -> "Line":
        """Return a line in a band, of its points and the band's low and high end at each."""
        return cls(label, tuple(across), *zip(*ends, strict=True))


@dataclass(frozen=True, slots=True)
class Panel:
    """A pair of axes."""

    title: str
    across: str
    up: str
    lines: tuple[Line, ...]
    kind: Literal["line", "steps", "bars", "stacked", "graph"] = "line"
    """Steps hold until the next point; bars stand side by side, stacked ones on each other. In a
    graph each line is a node: a label at one point."""
    logarithmic: bool = False
    """Across, to the base of 2."""
    links: tuple[tuple[int, int], ...] = ()
    """Edges of a graph, as pairs of places in `lines`."""
    dashed: tuple[tuple[int, int], ...] = ()
    """More edges, of another kind."""


@dataclass(frozen=True, slots=True)
class PaperFigure:
    """A figure of a paper, computed."""

    name: str
    source: str
    """The paper and its number there."""
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    """What is to be held against the paper."""
    panels: tuple[Panel, ...]
    ours: str
    """What the paper's text does not say and was chosen here, and what this cannot show."""
    facts: dict[str, Number] = field(default_factory=dict)
    """Numbers that the paper's words are about, by what they are."""
