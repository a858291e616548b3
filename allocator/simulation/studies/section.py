"""Parts of a report: sections with text, a figure, tables, and findings of papers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from matplotlib.figure import Figure


@dataclass(frozen=True)
class Finding:
    """A finding of a paper, compared with the simulations.

    Args:
        theirs: The paper's finding, reworded.
        ours: The simulations' finding, with numbers.
        agrees: Whether both findings agree; None if the simulations cannot tell.
        why: Reason for a disagreement.
    """

    theirs: str
    ours: str
    agrees: bool | None
    why: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under headings; all numbers are formatted as text."""

    headings: tuple[str, ...]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Section:
    """A section of a report.

    Args:
        name: Name of the section and of its figure's file.
        title: Heading.
        text: Paragraphs.
        figure: The figure, if there is one.
        tables: Titles and tables.
        claims: Findings in the order of the paper.
    """

    name: str
    title: str
    text: tuple[str, ...] = ()
    figure: Figure | None = None
    tables: tuple[tuple[str, Table], ...] = ()
    claims: tuple[Finding, ...] = field(default=())


def duration(seconds: float) -> str:
    """Format a time in days, hours, minutes or seconds."""
    for unit, length in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2.0 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def discount(forgotten: float) -> str:
    """Format δ, given 1 − δ."""
    return f"δ = 1 − {forgotten:.2g}"
