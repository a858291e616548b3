"""What a report is made of: sections with text, a figure, a table, and claims held against it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from matplotlib.figure import Figure


@dataclass(frozen=True)
class Finding:
    """Something that a paper found, and what was found here.

    Args:
        theirs: The paper's finding, in our words.
        ours: The same of these simulations, with numbers.
        agrees: Whether the two say the same; None: these simulations cannot tell.
        why: Where they do not agree, what does it.
    """

    theirs: str
    ours: str
    agrees: bool | None
    why: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under headings; numbers as text."""

    headings: tuple[str, ...]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Args:
        name: Of its figure's file.
        title: What it is about.
        text: Paragraphs.
        figure: If it has one.
        tables: Each with its title.
        claims: In the order of the paper.
    """

    name: str
    title: str
    text: tuple[str, ...] = ()
    figure: Figure | None = None
    tables: tuple[tuple[str, Table], ...] = ()
    claims: tuple[Finding, ...] = field(default=())


def duration(seconds: float) -> str:
    """Write a time in the unit that people would use."""
    for unit, length in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2.0 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def discount(forgotten: float) -> str:
    """Write δ, given 1 − δ."""
    return f"δ = 1 − {forgotten:.2g}"
