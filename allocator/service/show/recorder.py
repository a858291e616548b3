"""Writes how users stand, at a steady frequency of the master's clock.

This is the recording thread of the paper's implementation (§6). A sample is exact: between
events nothing changes but commitments, and these are known functions of time.
"""

import csv
import math
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

import structlog

from allocator.cluster.engine import Engine
from allocator.fairness.quantities import Quantities
from allocator.fairness.standing import PoolSnapshot, Standing
from allocator.files import csv_cell, empty, open_to_write
from allocator.service.loop.cooperative import Backlog, Work
from allocator.service.show.shares import holdings

COLUMNS = ("time", "user", "resource", "allocation", "share", "commitment", "priority")
MOST_ROWS = 20_000
"""Written of one message, which takes a tenth of a second; of a longer silence the latest samples
are, of several silences in one message the first ones'."""

_log = structlog.get_logger(__name__)


class Recorder:
    """A CSV file with a row for each user and resource at each instant of the grid.

    `time` is in seconds since the Unix epoch, `allocation` in the resource's own units (cores,
    megabytes), `share` and `commitment` are fractions of the cluster, `priority` is the user's.
    Names are written as `csv_cell` does.
    What the file held before is replaced when the first event comes, not earlier: a service that
    cannot start, because another one runs, must leave that one's recording alone. The descriptor
    that was checked at the start is the one that is written to.

    Args:
        path: The file.
        every: Seconds between instants of the grid.
        apart: Other files of the service, which the recording must never overwrite.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path, every: float, apart: Collection[Path] = ()) -> None:
        self._every = every
        self._next: int | None = None
        self._left = MOST_ROWS
        """Rows that the present message may still have written."""
        self._sampled = False
        """Whether it has had a sample written."""
        self._failed = False
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._apart = apart
        self._folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        """In which the file is opened anew, wherever its path leads by then."""
        try:
            self._file = self._open()
        except OSError:
            os.close(self._folder)
            raise
        self._begun = False
        """Whether what the file held before has been replaced."""
        self.backlog = Backlog()
        """Rows that have not been written yet."""

    @property
    def failed(self) -> bool:
        """Whether it has given up."""
        return self._failed

    def allow(self) -> None:
        """Allow what one message may have written: another one has come."""
        self._left, self._sampled = MOST_ROWS, False

    def sample_until(self, engine: Engine, instant: float) -> None:
        """Take all samples due up to an instant at which something is about to change.

        How users stand is noted at once; the rows are written when the backlog's turn comes, at the
        latest before the next sample. However many instants one message is about, and however far
        apart they are, it has `MOST_ROWS` written, but one sample in any case.

        A disk that is full ends the recording, not the allocation.
        """
        if self._failed:
            return
        due = math.floor(instant / self._every)
        if due + 1 == self._next:
            return
        if self._next is None or due < self._next - 1:
            self._next = due + 1  # the first event, or another master's clock
        first = max(self._next, due + 1 - self._affordable(engine))
        self._next = due + 1
        if not self._begun:
            with self._giving_up():
                empty(self._file.fileno())
                self._begin()
        if first <= due and not self._failed:
            self._left -= (due + 1 - first) * _rows_of(engine)
            self._sampled = True
            instants = [index * self._every for index in range(first, due + 1)]
            self.backlog.put(self._write(engine.pool.still(), instants))

    def flush(self) -> None:
        """Hand what has been written to the operating system."""
        with self._giving_up():
            self._file.flush()

    def reopen(self) -> None:
        """Go on in the file that has the path now, after it has been rotated."""
        self.backlog.finish()
        with self._giving_up():
            opened = self._open()
            self._file.close()
            self._file = opened
            if self._begun:
                self._begin()

    def close(self) -> None:
        """Write what is left, and close the file."""
        self.backlog.finish()
        with self._giving_up():
            self._file.close()
        os.close(self._folder)

    def _affordable(self, engine: Engine) -> int:
        """Return how many samples the present message may still have written."""
        return max(self._left // _rows_of(engine), 0 if self._sampled else 1)

    def _open(self) -> IO[str]:
        opener = partial(open_to_write, folder=self._folder, apart=self._apart)
        return open(self._path, "a", newline="", encoding="utf-8", opener=opener)

    def _begin(self) -> None:
        self._begun = True
        if self._file.seek(0, os.SEEK_END) == 0:
            csv.writer(self._file).writerow(COLUMNS)

    @contextmanager
    def _giving_up(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not self._failed:
                _log.error("recording ends", file=str(self._path), reason=error.strerror)
            self._failed = True

    def _write(self, still: PoolSnapshot[str], instants: list[float]) -> Work[None]:
        for instant in instants:
            standings = []
            for standing in still.standings_at(instant):
                standings.append(standing)
                yield
            standings.sort(key=lambda standing: (standing.priority, standing.user))
            for standing in standings:
                with self._giving_up():
                    self._rows(standing, still.capacity, instant)
                if self._failed:
                    return
                yield

    def _rows(self, standing: Standing[str], capacity: Quantities, instant: float) -> None:
        csv.writer(self._file).writerows(
            (
                f"{instant:.3f}",
                csv_cell(standing.user),
                csv_cell(name),
                f"{holding.allocation:.15g}",
                f"{holding.share:.6g}",
                f"{holding.commitment:.6g}",
                f"{standing.priority:.6g}",
            )
            for name, holding in holdings(standing, capacity).items()
        )


def _rows_of(engine: Engine) -> int:
    """Return how many rows a sample has, at least one."""
    return max(len(engine.pool) * max(len(engine.pool.capacity), 1), 1)
