"""Makes the time machine of a run: a page that plays the allocator's recording."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

EVENTS = "events.log"
"""Name of the allocator's recording in the folder of a run."""
FILM = "time-machine.html"


class NoFilm(RuntimeError):  # noqa: N818 - the message names the missing part
    """The recording cannot be played."""


def recordings(folder: Path, seed: int) -> Iterator[Path]:
    """Yield the recordings in a folder: of each variant, the run with the given seed."""
    if (folder / EVENTS).exists():
        yield folder / EVENTS
    yield from sorted(folder.glob(f"*-{seed}/{EVENTS}"))


def make(recording: Path, film: Path) -> None:
    """Write the film of an event log.

    Args:
        recording: Path of the event log.
        film: Path of the page to write.

    Raises:
        NoFilm: The film cannot be made; the message gives the reason.
    """
    command = ("replay", str(recording), "--html", str(film))
    result = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "allocator.cli", *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if result.returncode:
        raise NoFilm((result.stderr or result.stdout).strip() or f"exit code {result.returncode}")
