"""Helpers shared by the tests of stores."""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import strategies as st

from allocator.service.store import sqlite
from allocator.users.memory import (
    NO_USE,
    AccumulatedUse,
    Boost,
    Memory,
    MemoryChanges,
    OccupiedPlaces,
    RememberedUser,
    StoredTrajectory,
)
from tests.service.served import PATIENCE

AMOUNTS = st.floats(min_value=0.0, allow_infinity=False, allow_nan=False)
BY_RESOURCE = st.dictionaries(st.sampled_from(["cpus", "mem", "gpus", "a.b\n"]), AMOUNTS)
DIGESTS = st.text("0123456789abcdef", min_size=16, max_size=16)
MEMORIES = st.builds(
    Memory,
    time=AMOUNTS,
    tau=st.none() | st.floats(min_value=0.0, exclude_min=True, allow_infinity=False),
    places=st.dictionaries(
        DIGESTS,
        st.builds(
            OccupiedPlaces,
            st.integers(1, 256),
            st.none() | DIGESTS,
            st.none() | st.integers(0, 2**63),
        ),
        max_size=3,
    ),
    users=st.dictionaries(
        st.text(),
        st.builds(
            RememberedUser,
            commitments=BY_RESOURCE,
            overuse=BY_RESOURCE,
            others=AMOUNTS,
            boost=st.none() | st.builds(Boost, st.floats(1e-6, 1e6), AMOUNTS),
            accumulated=st.builds(AccumulatedUse, AMOUNTS, AMOUNTS) | st.just(NO_USE),
            weight=st.none()
            | st.floats(min_value=0.0, exclude_min=True, allow_infinity=False, allow_nan=False),
        ),
    ),
).map(lambda kept: kept if kept.users else replace(kept, tau=None))


def memory(time: float = 1_600_000_000.1, users: int = 1) -> Memory:
    """Return a memory whose numbers have no short decimal form."""
    return Memory(
        time,
        {
            f"u{i}": RememberedUser({"cpus": 1 / (3 + i)}, {"cpus": 0.1}, 1 / 7, 3.3)
            for i in range(users)
        },
        tau=100.0,
    )


def whole(kept: Memory) -> MemoryChanges:
    """Return the whole content of a memory as changes."""
    courses = {
        user: StoredTrajectory(kept.time, kept.tau, then) for user, then in kept.users.items()
    }
    return MemoryChanges(kept.time, courses, complete=True, places=kept.places)


def stored(file: Path) -> Memory | None:
    """Read the file of a store without its lock, as another process would.

    A service killed within a transaction leaves a file that must be rolled back first. The function
    then copies the file and reads the copy, which SQLite rolls back.
    """
    at = f"{file.as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(at, PATIENCE, isolation_level=None, uri=True)) as connection:
            connection.execute("BEGIN")  # prevents a save between reading the head and the rows
            return sqlite.read(connection)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_READONLY_ROLLBACK:
            raise
    with TemporaryDirectory() as folder:
        for part in file.parent.glob(f"{file.name}*"):
            shutil.copy(part, folder)
        with closing(sqlite3.connect(Path(folder) / file.name)) as connection:
            return sqlite.read(connection)
