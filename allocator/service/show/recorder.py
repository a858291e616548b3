"""CSV recording of all users' shares, at regular intervals of the master's clock.

This is the recording thread of the implementation in the SDRF paper (§6). A sample is exact:
between events only commitments change, and commitments are known functions of time.
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

from allocator.cooperative import run_to_completion
from allocator.fairness.quantities import Quantities
from allocator.fairness.standing import PoolSnapshot, Standing
from allocator.files import csv_cell, empty, open_for_writing
from allocator.service.loop.cooperative import PendingWork, Work
from allocator.service.show.shares import holdings
from allocator.users.adapter import SchedulerAdapter

COLUMNS = ("time", "user", "resource", "allocation", "share", "commitment", "priority")
MOST_ROWS = 20_000
"""Maximum number of rows written for one message of a master; they take a tenth of a second.

If a long time without messages needs more rows, the latest samples are written. If one message
covers several such times, the rows go to the first of them.
"""

_log = structlog.get_logger(__name__)


class Recorder:
    """Writes a CSV file with a row for each user and resource at regular instants.

    `time` is in seconds since the Unix epoch, `allocation` in the resource's own unit (cores, MiB).
    `share` and `commitment` are fractions of the cluster, and `priority` is the user's. Names are
    written by `csv_cell`.

    The file is opened at once, but an earlier recording in it is only replaced when the first event
    arrives. A service that cannot start because another service runs thus leaves that service's
    recording unchanged.

    Args:
        path: Path of the file.
        every: Seconds of the master's clock between two samples.
        apart: Other files of the service, which the recording must never overwrite.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path, every: float, apart: Collection[Path] = ()) -> None:
        self._every = every
        self._next: int | None = None
        self._remaining_rows = MOST_ROWS
        """Number of rows that may still be written for the present message."""
        self._sampled = False
        """Whether a sample has been written for the present message."""
        self._failed = False
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._apart = apart
        self._folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        """Descriptor of the folder in which the file is opened again after a rotation."""
        try:
            self._file = self._open()
        except OSError:
            os.close(self._folder)
            raise
        self._begun = False
        """Whether the content of an earlier recording in the file has been replaced."""
        self.backlog = PendingWork()
        """Rows that are still to be written, in steps."""

    @property
    def failed(self) -> bool:
        """Whether the recording has ended because of a write error."""
        return self._failed

    def allow(self) -> None:
        """Permit `MOST_ROWS` CSV rows for the next message of the master; called before it."""
        self._remaining_rows, self._sampled = MOST_ROWS, False

    def sample_until(self, adapter: SchedulerAdapter, instant: float) -> None:
        """Take all samples that are due before a change of the adapter; called just before it."""
        work = self.sampling(adapter, instant)
        if work is not None:
            run_to_completion(work)

    def sampling(self, adapter: SchedulerAdapter, instant: float) -> Work[None] | None:
        """Return the steps that take the samples due before a change; None if none is due.

        The steps copy the state. The rows are written in the background, at the latest before
        the next sample. One message writes at most `MOST_ROWS` rows, but always at least one
        sample. If the disk is full, the recording ends with a logged error, and allocation
        continues.

        Args:
            adapter: The adapter, before the change.
            instant: Time of the change, in seconds since the epoch.
        """
        if self._failed:
            return None
        due = math.floor(instant / self._every)
        if due + 1 == self._next:
            return None
        if self._next is None or due < self._next - 1:
            self._next = due + 1  # the first event, or the clock of another master
        first = max(self._next, due + 1 - self._remaining_samples(adapter))
        self._next = due + 1
        if not self._begun:
            with self._ending_on_error():
                empty(self._file.fileno())
                self._begin()
        if first <= due and not self._failed:
            self._remaining_rows -= (due + 1 - first) * _rows_of(adapter)
            self._sampled = True
            instants = [index * self._every for index in range(first, due + 1)]
            return self._copy(adapter, instants)
        return None

    def _copy(self, adapter: SchedulerAdapter, instants: list[float]) -> Work[None]:
        snapshot = yield from adapter.pool.still_in_steps()
        self.backlog.put(self._write(snapshot, instants))

    def flush(self) -> None:
        """Pass buffered rows to the operating system."""
        with self._ending_on_error():
            self._file.flush()

    def reopen(self) -> None:
        """Close the file that log rotation has renamed, and continue in a new file at the path."""
        self.backlog.finish()
        with self._ending_on_error():
            file = self._open()
            self._file.close()
            self._file = file
            if self._begun:
                self._begin()

    def close(self) -> None:
        """Write all remaining rows and close the file."""
        self.backlog.finish()
        with self._ending_on_error():
            self._file.close()
        os.close(self._folder)

    def _remaining_samples(self, adapter: SchedulerAdapter) -> int:
        """Return how many more samples may be written for the master's message being applied.

        A message may write `MOST_ROWS` rows, but always at least one sample.
        """
        return max(self._remaining_rows // _rows_of(adapter), 0 if self._sampled else 1)

    def _open(self) -> IO[str]:
        opener = partial(open_for_writing, folder=self._folder, apart=self._apart)
        return open(self._path, "a", newline="", encoding="utf-8", opener=opener)

    def _begin(self) -> None:
        self._begun = True
        if self._file.seek(0, os.SEEK_END) == 0:
            csv.writer(self._file).writerow(COLUMNS)

    @contextmanager
    def _ending_on_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not self._failed:
                _log.error(
                    "recorder stopped, because its file cannot be written",
                    file=str(self._path),
                    reason=error.strerror,
                )
            self._failed = True

    def _write(self, snapshot: PoolSnapshot[str], instants: list[float]) -> Work[None]:
        for instant in instants:
            standings = []
            for standing in snapshot.standings_at(instant):
                standings.append(standing)
                yield
            standings.sort(key=lambda standing: (standing.priority, standing.user))
            for standing in standings:
                with self._ending_on_error():
                    self._rows(standing, snapshot.capacity, instant)
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


def _rows_of(adapter: SchedulerAdapter) -> int:
    """Return how many CSV rows one sample of an engine's users takes, at least 1."""
    return max(len(adapter.pool) * max(len(adapter.pool.capacity), 1), 1)
