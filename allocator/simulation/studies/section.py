"""Building blocks of a report: sections with text, figures, tables and comparisons with papers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
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

    @property
    def verdict(self) -> str:
        """The verdict as text: "agrees", "differs", or "cannot be told" with the reason."""
        if self.agrees is not None:
            return "agrees" if self.agrees else "differs"
        # Only means over several traces have an interval, which is written in brackets.
        reason = "an interval contains the limit" if "[" in self.measured else "one trace"
        return f"cannot be told ({reason})"


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


def plain(number: float) -> str:
    """Format a number with three significant digits, without an exponent: 0.0792, 1,340."""
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.0f}" if rounded.is_integer() else np.format_float_positional(rounded)


def duration(seconds: float) -> str:
    """Format a number of seconds as text, in d, h, min or s: "2 h", "30 min"."""
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if abs(seconds) >= length:
            return f"{plain(seconds / length)} {unit}"
    return f"{plain(seconds)} s"


def discount(forgotten: float) -> str:
    """Format δ, the fraction of a commitment that remains after a second, as text.

    Args:
        forgotten: Value of 1 − δ.
    """
    return f"δ = 1 − {power_of_ten(forgotten)}"


def power_of_ten(number: float) -> str:
    """Format a positive number with two significant digits; small ones as 10⁻⁶ or 2.5 × 10⁻⁶."""
    if number >= 0.01:
        return f"{number:.2g}"
    factor, _, exponent = f"{number:.1e}".partition("e")
    power = "10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return power if factor == "1.0" else f"{factor} × {power}"
