"""Faults that change nothing that anybody could see, each with the reason.

They are in `equivalent`, a file for each folder of ours. One without `now` explains all faults of
its lines that are not found, one without `was` all of the function, or of what its module does.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.faults import Mutant, described


@dataclass(frozen=True)
class Equivalent:
    """One fault, all of some lines, or all of a function."""

    place: str
    """File and function."""
    why: str
    was: str | None = None
    """The lines without a fault, in one; if there are none, any of the function."""
    now: str | None = None
    """The lines with the fault; if there are none, any fault of these lines."""

    @property
    def alone(self) -> bool:
        """Return whether it is one fault, which need not be tried; some of several may be found."""
        return self.now is not None

    def explains(self, mutant: Mutant) -> bool:
        """Return whether this fault is one of them."""
        place, was, now = described(mutant)
        return place == self.place and self.was in {None, was} and self.now in {None, now}


def equivalents() -> list[Equivalent]:
    """Return those that somebody has explained."""
    files = sorted((Path(__file__).parent / "equivalent").glob("*.toml"))
    return [
        Equivalent(**each)
        for file in files
        for each in tomllib.loads(file.read_text())["equivalent"]
    ]
