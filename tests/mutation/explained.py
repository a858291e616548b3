"""Faults without a visible effect, each with the reason.

The directory `equivalent` has a file for each package. An entry without `now` explains all faults
of its lines that are not found. An entry without `was` explains all faults of the function, or of
the module's top level.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.faults import Mutant, described


@dataclass(frozen=True)
class Equivalent:
    """An explanation of one fault, of all faults of some lines, or of all faults of a function."""

    place: str
    """File and function."""
    why: str
    was: str | None = None
    """The original lines, joined into one; None for any lines of the function."""
    now: str | None = None
    """The lines with the fault; None for any fault of these lines."""

    @property
    def alone(self) -> bool:
        """Return whether the entry explains a single fault, which need not be tried."""
        return self.now is not None

    def explains(self, mutant: Mutant) -> bool:
        """Return whether the entry explains this fault."""
        place, was, now = described(mutant)
        return place == self.place and self.was in {None, was} and self.now in {None, now}


def equivalents() -> list[Equivalent]:
    """Return all explained faults."""
    files = sorted((Path(__file__).parent / "equivalent").glob("*.toml"))
    return [
        Equivalent(**entry)
        for file in files
        for entry in tomllib.loads(file.read_text())["equivalent"]
    ]
