"""The disk under a service: a real folder, in which real writes fail, are late, or are lost."""

import resource
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

STORE = "commitments.sqlite"


class Disk:
    """The files of a host, from one service to the next.

    Each service works in its own copy of its predecessor's files. A killed service can therefore be
    cleaned up without effect on its successor.

    Args:
        folder: The folder of the copies.
        chance: Draws the durations of writes, and losses.
    """

    def __init__(self, folder: Path, chance: Random) -> None:
        self.full = False
        """Whether nothing can be written."""
        self.lies = False
        """Whether the disk acknowledges writes that a crash will lose."""
        self.slow = 0.0
        """Seconds that each write takes, plus some milliseconds."""
        self.saves = 0
        """Memories written."""
        self._folder = folder
        self._chance = chance
        self._lives = 0
        self.present = self._next()
        self._before: list[bytes] = []
        """The store's file before each of the latest saves."""

    def thread_time(self) -> tuple[float, float]:
        """Return the seconds until a thread starts its work, and until the work is done."""
        answers = self._chance.uniform(0.001, 0.02) + self.slow
        return self._chance.uniform(0.0, answers), answers

    @property
    def well(self) -> bool:
        """Whether the disk keeps writes, in time."""
        return not (self.full or self.lies or self.slow)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write a memory in the block, as far as the disk permits."""
        store = self.present / STORE
        before = store.read_bytes() if store.exists() else b""
        with _no_room() if self.full else _room():
            yield
        self.saves += 1
        self._before = [*self._before[-2:], before]

    def crash(self, *, torn: bool) -> None:
        """Leave the files that a crash at this instant would leave.

        Args:
            torn: Whether a write to the store was under way.
        """
        folder = self.present
        self.present = self._next()
        for file in folder.glob(f"{STORE}*"):
            if file.is_file():
                shutil.copyfile(file, self.present / file.name)
        store = self.present / STORE
        if self.lies and self._before and self._before[0]:
            store.write_bytes(self._before[0])
        elif torn and store.is_file():
            _tear(store)
        self._before = []
        shutil.rmtree(folder, ignore_errors=True)

    def _next(self) -> Path:
        self._lives += 1
        path = self._folder / str(self._lives)
        path.mkdir(parents=True)
        return path


@contextmanager
def _no_room() -> Iterator[None]:
    """Make every write to a file fail, in the system itself; Python ignores the signal."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def _room() -> Iterator[None]:
    yield


def _tear(store: Path) -> None:
    """Leave a half-finished write: some pages are new, and the rollback journal exists."""
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA cache_size = 1")  # pages are written before the commit
        connection.execute("BEGIN")
        connection.execute(
            "INSERT INTO memory (id, data) VALUES (1, randomblob(200000)) "
            "ON CONFLICT (id) DO UPDATE SET data = excluded.data"
        )
        half = {suffix: Path(f"{store}{suffix}").read_bytes() for suffix in ("", "-journal")}
        connection.rollback()
    for suffix, data in half.items():
        Path(f"{store}{suffix}").write_bytes(data)
