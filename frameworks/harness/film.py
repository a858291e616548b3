"""Makes the time machine of a run: a page that plays what its allocator has recorded."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

EVENTS = "events.log"
"""In the folder of a run: what the allocator has recorded."""
FILM = "time-machine.html"


class NoFilm(RuntimeError):  # noqa: N818 - the message says what is missing
    """The recording cannot be played."""


def recordings(folder: Path, seed: int) -> Iterator[Path]:
    """Go through what was recorded in a folder: of each variant the run with a seed."""
    if (folder / EVENTS).exists():
        yield folder / EVENTS
    yield from sorted(folder.glob(f"*-{seed}/{EVENTS}"))


def make(recording: Path, film: Path) -> None:
    """Write a film of an event log.

    Raises:
        NoFilm: it cannot be made; the message says why.
    """
    command = ("replay", str(recording), "--html", str(film))
    made = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "allocator.cli", *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if made.returncode:
        raise NoFilm((made.stderr or made.stdout).strip() or f"exit code {made.returncode}")
