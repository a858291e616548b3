"""The store of one machine: a SQLite file with one row."""

import fcntl
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from allocator.cluster.memory import Memory
from allocator.service.store import StoreError, StoreUnavailable, codec

APPLICATION_ID = 0x4C534852
"""In the file's header, by which `file` and we know it: LSHR."""
LAYOUT = 1
"""Version of the tables, SQLite's `user_version`."""
BUSY = 1.0
"""Seconds to wait for somebody who reads the file."""
_MAGIC = b"SQLite format 3\0"


class SqliteStore:
    """A file that one service at a time has open.

    Before a file that exists is opened, a copy of it is looked at, so that one which is damaged or
    belongs to something else is not even written to by SQLite's own recovery.

    Raises:
        StoreError: the file is damaged, not ours, or in use by another service.
    """

    shared = False

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with _explained(path), ExitStack() as stack:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._held = self._open()
                stack.callback(self._held.close)
                self._loaded = _inspect(path)
                self._connection = self._connect()
                stack.pop_all()
        except StoreUnavailable as error:  # a disk that cannot be used now will not heal itself
            raise StoreError(str(error)) from error

    def load(self) -> Memory | None:
        """Return what was in the file when it was opened."""
        return self._loaded

    def recall(self) -> Memory | None:
        """Return None: nobody else writes a file that this service has locked."""
        return None

    def save(self, memory: Memory) -> None:
        """Write durably: it is on the disk when this returns."""
        with _explained(self._path):
            self._stay()
            with self._connection as transaction:
                transaction.execute(
                    "INSERT INTO memory (id, data) VALUES (1, ?) "
                    "ON CONFLICT (id) DO UPDATE SET data = excluded.data",
                    (codec.encode(memory),),
                )

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
        self._held.close()

    def _open(self) -> BinaryIO:
        """Make the file if need be, and keep other services out.

        A new one is made beside its place and then put there whole, so that there never is half
        a file.
        """
        if not self._path.exists():
            with tempfile.TemporaryDirectory(dir=self._path.parent, prefix=".new-") as folder:
                made = Path(folder, "store")
                with closing(sqlite3.connect(made)) as connection:
                    connection.executescript(
                        f"PRAGMA application_id = {APPLICATION_ID};"
                        f"PRAGMA user_version = {LAYOUT};"
                        "CREATE TABLE memory (id INTEGER PRIMARY KEY CHECK (id = 1), "
                        "data BLOB NOT NULL);"
                    )
                made.chmod(0o600)
                with suppress(FileExistsError):  # somebody was quicker; the lock decides
                    os.link(made, self._path)
        held = self._path.open("rb")
        try:
            # Not SQLite's own locks: these are lost when anything in the process closes the file.
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.close()
            raise StoreError(f"{self._path}: in use by another service") from None
        return held

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=BUSY,
            check_same_thread=False,
        )
        connection.execute("PRAGMA synchronous = EXTRA")
        return connection

    def _stay(self) -> None:
        """Write to no file but the one that was opened; make a new one if that is gone."""
        try:
            there = self._path.stat()
        except FileNotFoundError:
            with ExitStack() as stack:
                held = self._open()
                stack.callback(held.close)
                connection = self._connect()
                stack.pop_all()
            self.close()
            self._held, self._connection = held, connection
            return
        opened = os.fstat(self._held.fileno())
        if (there.st_dev, there.st_ino) != (opened.st_dev, opened.st_ino):
            raise StoreError(
                f"{self._path}: has been replaced by another file; restart the service to use that"
            )


def _inspect(path: Path) -> Memory | None:
    """Read a file that may be anything, without touching it."""
    with path.open("rb") as file:
        header = file.read(100)
    if len(header) < 100 or not header.startswith(_MAGIC):
        raise StoreError("not a SQLite file; move it away, or choose another path")
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise StoreError("a SQLite file of another program's; choose another path")
    layout = int.from_bytes(header[60:64], "big")
    if layout != LAYOUT:
        raise StoreError(
            f"written in version {layout} of the layout, this Longshare knows version {LAYOUT}; "
            "use the release that wrote it, or a newer one"
        )
    with tempfile.TemporaryDirectory(prefix="longshare-") as folder:
        copy = Path(folder, "store")
        shutil.copyfile(path, copy)
        for suffix in ("-journal", "-wal"):
            with suppress(FileNotFoundError):  # there is one only after a crash
                shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
        try:
            with closing(sqlite3.connect(copy)) as connection:
                [found] = connection.execute("PRAGMA integrity_check(1)").fetchone()
                rows = connection.execute("SELECT data FROM memory").fetchall()
        except sqlite3.Error as error:
            found = str(error)
    if found != "ok":
        raise StoreError(f"damaged: {found}; move it away to start without it")
    return codec.decode(rows[0][0]) if rows else None


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what SQLite and the operating system say into errors that name the file."""
    try:
        yield
    except StoreError as error:
        if str(path) in str(error):
            raise
        raise type(error)(f"{path}: {error}") from error
    except OSError as error:
        raise StoreUnavailable(f"{path}: {error.strerror}") from error
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{path}: {error}") from error
