"""What tests of stores have in common."""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import strategies as st

from allocator.cluster.memory import Boost, Memory, MemoryChanges, Remembered, StoredTrajectory
from allocator.service.store import sqlite
from tests.service.served import PATIENCE

AMOUNTS = st.floats(min_value=0.0, allow_infinity=False, allow_nan=False)
BY_RESOURCE = st.dictionaries(st.sampled_from(["cpus", "mem", "gpus", "a.b\n"]), AMOUNTS)
MEMORIES = st.builds(
    Memory,
    time=AMOUNTS,
    tau=st.none() | st.floats(min_value=0.0, exclude_min=True, allow_infinity=False),
    places=st.dictionaries(
        st.text("0123456789abcdef", min_size=16, max_size=16), st.integers(1, 256), max_size=3
    ),
    users=st.dictionaries(
        st.text(),
        st.builds(
            Remembered,
            commitments=BY_RESOURCE,
            overuse=BY_RESOURCE,
            others=AMOUNTS,
            boost=st.none() | st.builds(Boost, st.floats(1e-6, 1e6), AMOUNTS),
            weight=st.none()
            | st.floats(min_value=0.0, exclude_min=True, allow_infinity=False, allow_nan=False),
        ),
    ),
).map(lambda kept: kept if kept.users else replace(kept, tau=None))


def memory(time: float = 1_600_000_000.1, users: int = 1) -> Memory:
    """One whose numbers have no short decimal form."""
    return Memory(
        time,
        {
            f"u{i}": Remembered({"cpus": 1 / (3 + i)}, {"cpus": 0.1}, 1 / 7, 3.3)
            for i in range(users)
        },
        tau=100.0,
    )


def whole(kept: Memory) -> MemoryChanges:
    """Everything that a memory says, as what has changed."""
    courses = {
        user: StoredTrajectory(kept.time, kept.tau, then) for user, then in kept.users.items()
    }
    return MemoryChanges(kept.time, courses, complete=True, places=kept.places)


def stored(file: Path) -> Memory | None:
    """Read a store's file from outside, without a lock on it.

    Where its service was killed within a transaction that has to be rolled back first, so is the
    copy that is read.
    """
    at = f"{file.as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(at, PATIENCE, isolation_level=None, uri=True)) as connection:
            connection.execute("BEGIN")  # so that no save comes between head and rows
            return sqlite.read(connection)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_READONLY_ROLLBACK:
            raise
    with TemporaryDirectory() as folder:
        for each in file.parent.glob(f"{file.name}*"):
            shutil.copy(each, folder)
        with closing(sqlite3.connect(Path(folder) / file.name)) as connection:
            return sqlite.read(connection)
