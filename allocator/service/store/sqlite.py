"""The store of one machine: a SQLite file with a row for each user."""

import sqlite3
import tempfile
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import BinaryIO

import structlog

from allocator.cluster.memory import Memory, MemoryChanges
from allocator.service.loop.cooperative import giving_way
from allocator.service.store import StoreDamaged, StoreError, StoreUnavailable, codec, file, rows

APPLICATION_ID = 0x4C534852
"""In the file's header, by which `file` and we know it: LSHR."""
LAYOUT = 2
"""Version of the tables, SQLite's `user_version`."""
FORMER = 1
"""A layout that is read, too, and becomes ours with the first save."""
BUSY = 1.0
"""Seconds to wait for somebody who reads the file."""
_log = structlog.get_logger(__name__)
_TABLES = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {LAYOUT}",
    "CREATE TABLE IF NOT EXISTS memory (id INTEGER PRIMARY KEY CHECK (id = 1), data BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS users (name BLOB PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID",
)


class SqliteStore:
    """A file that one service at a time has open.

    Before a file that exists is opened, a copy of it is looked at, so that one which is damaged or
    belongs to something else is not even written to by SQLite's own recovery.

    Args:
        path: The file.
        set_aside: Whether a file that is ours and damaged is renamed, and a new one begun.

    Raises:
        StoreError: the file is damaged, not ours, no plain file that may be written, or in use by
            another service.
    """

    shared = False

    def __init__(self, path: Path, *, set_aside: bool = False) -> None:
        self._path = path
        self._rows = rows.StoreRows()
        self._ours = False
        """Whether what is in the file is what `_rows` says has been written."""
        try:
            with file.explained(path), ExitStack() as stack:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._held = self._open()
                stack.callback(self._let_go)
                try:
                    self._loaded = _inspect(path)
                except StoreDamaged as error:
                    if not set_aside:
                        raise
                    self._begin_anew(error)
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

    def take_over(self) -> None:
        """Go on: the file is locked, so nobody else writes it."""

    def save(self, changes: MemoryChanges) -> None:
        """Write durably what has changed: it is on the disk when this returns."""
        giving_way(self._rows.take(changes))
        with file.explained(self._path):
            self._stay()
            if not self._ours:
                self._keep_former()
            with self._connection as transaction:
                transaction.execute("BEGIN IMMEDIATE")
                if not self._ours:
                    for statement in _TABLES:
                        transaction.execute(statement)
                    transaction.execute("DELETE FROM users")
                changed = self._rows.unwritten() if self._ours else self._rows.all()
                transaction.executemany(
                    "INSERT OR REPLACE INTO users (name, data) VALUES (?, ?)",
                    [(user.encode(), row) for user, row in changed if row is not None],
                )
                gone = [(user.encode(),) for user, row in self._rows.unwritten() if row is None]
                transaction.executemany("DELETE FROM users WHERE name = ?", gone)
                transaction.execute(
                    "INSERT OR REPLACE INTO memory (id, data) VALUES (1, ?)", (self._rows.head(),)
                )
            self._rows.written()
            self._ours = True

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
        self._let_go()

    def _let_go(self) -> None:
        self._held.close()

    def _open(self) -> BinaryIO:
        """Make the file if need be, and keep other services out."""
        return file.claim(self._path, lambda made: made.executescript(";".join(_TABLES)))

    def _begin_anew(self, error: StoreDamaged) -> None:
        """Rename a file that is damaged, with what SQLite keeps beside it, and make a new one."""
        number = 1
        while (aside := Path(f"{self._path}.damaged-{number}")).exists():
            number += 1
        self._path.rename(aside)
        for suffix in file.COMPANIONS:
            with suppress(FileNotFoundError):
                Path(f"{self._path}{suffix}").rename(f"{aside}{suffix}")
        _log.error(
            "what users owe is lost: a damaged store has been set aside",
            file=str(aside),
            reason=str(error),
        )
        self._held.close()
        self._held, self._loaded = self._open(), None

    def _keep_former(self) -> None:
        """Leave a copy of a file in the former layout beside it, for a release that knows no other.

        A copy that is there already is of an earlier attempt, and stays.
        """
        [[layout]] = self._connection.execute("PRAGMA user_version").fetchall()
        kept = Path(f"{self._path}.layout-{FORMER}")
        if layout != FORMER or kept.exists():
            return
        with tempfile.TemporaryDirectory(dir=self._path.parent, prefix=".new-") as folder:
            made = Path(folder, "store")
            with closing(sqlite3.connect(made)) as copy:
                self._connection.backup(copy)
            made.chmod(0o600)
            made.rename(kept)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=BUSY,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.execute("PRAGMA synchronous = EXTRA")
        return connection

    def _stay(self) -> None:
        """Write to no file but the one that was opened; make a new one if that is gone."""
        try:
            same = file.same(self._path, self._held)
        except FileNotFoundError:
            with ExitStack() as stack:
                held = self._open()
                stack.callback(held.close)
                connection = self._connect()
                stack.pop_all()
            self.close()
            self._held, self._connection, self._ours = held, connection, False
            return
        if not same:
            raise StoreError(
                f"{self._path}: has been replaced by another file; restart the service to use that"
            )


def _inspect(path: Path) -> Memory | None:
    """Read a file that may be anything, without touching it."""
    file.layout(path, APPLICATION_ID, (FORMER, LAYOUT))
    try:
        with file.copied(path) as connection:
            [found] = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if found == "ok":
                return read(connection)
    except sqlite3.Error as error:
        found = str(error)
    except UnicodeDecodeError:  # of a table's name, or of what SQLite says about it
        found = "text in it is not UTF-8"
    raise StoreDamaged(f"damaged: {found}; move it away to start without it")


def read(connection: sqlite3.Connection) -> Memory | None:
    """Return what is in a file that is open, in this layout or the former; None: nothing yet.

    Raises:
        StoreError: it is damaged.
        sqlite3.Error: likewise.
    """
    heads = connection.execute("SELECT data FROM memory").fetchall()
    if not heads:
        return None
    [[layout]] = connection.execute("PRAGMA user_version").fetchall()
    if layout == FORMER:
        return codec.decode(_blob(heads[0][0]))
    content = connection.execute("SELECT name, data FROM users").fetchall()
    try:
        users = [(_blob(name).decode(), _blob(data)) for name, data in content]
    except UnicodeDecodeError as error:
        raise StoreDamaged(f"damaged: a user's name: {error}") from error
    return rows.assembled(_blob(heads[0][0]), users)


def _blob(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise StoreDamaged(f"damaged: {type(value).__name__} where bytes should be")
    return value
