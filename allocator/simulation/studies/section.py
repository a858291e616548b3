"""Building blocks of a report: sections with text, figures, tables and comparisons with papers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from matplotlib.figure import Figure


@dataclass(frozen=True)
class Finding:
    """A finding of a paper, and whether the simulations confirm it.

    Args:
        published: The paper's finding, in other words.
        measured: The result of the simulations, with numbers.
        agrees: True if both agree; None if the simulations cannot tell.
        explanation: Reason for a disagreement, or "".
    """

    published: str
    measured: str
    agrees: bool | None
    explanation: str = ""


@dataclass(frozen=True)
class Table:
    """A table of a report, with numbers already formatted as text."""

    headings: tuple[str, ...]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Section:
    """A section of a report.

    Args:
        name: Name of the section, also used for the figure's file.
        title: Heading.
        text: Paragraphs.
        figure: The figure, if there is one.
        tables: (title, table) of each table.
        claims: The paper's findings, in the paper's order.
    """

    name: str
    title: str
    text: tuple[str, ...] = ()
    figure: Figure | None = None
    tables: tuple[tuple[str, Table], ...] = ()
    claims: tuple[Finding, ...] = field(default=())


def duration(seconds: float) -> str:
    """Format a number of seconds as text, in days, hours, minutes or seconds."""
    for unit, length in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2.0 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def discount(forgotten: float) -> str:
    """Format δ, the fraction of a commitment that remains after a second, as text.

    Args:
        forgotten: Value of 1 − δ.
    """
    return f"δ = 1 − {forgotten:.2g}"
