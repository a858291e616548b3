"""Makes the "time machine" of a run: an HTML page that plays back the allocator's recording."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

EVENTS = "events.log"
"""Name of the recording (the allocator's event log) in the folder of a run."""
FILM = "time-machine.html"


class NoFilm(RuntimeError):  # noqa: N818 - the message names the missing part
    """Raised if a recording cannot be played back; the message gives the reason."""


def recordings(folder: Path, seed: int) -> Iterator[Path]:
    """Yield the allocator's recordings in the result folder of an experiment.

    If a variant has several runs, only the run with the given seed is included.
    """
    if (folder / EVENTS).exists():
        yield folder / EVENTS
    yield from sorted(folder.glob(f"*-{seed}/{EVENTS}"))


def make(recording: Path, film: Path) -> None:
    """Write the page that plays back a recording of the allocator.

    Args:
        recording: Path of the recording, an event log.
        film: Path of the page to write.

    Raises:
        NoFilm: The recording cannot be played back.
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
