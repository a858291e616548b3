"""Store on a local disk: a SQLite file with a row per user."""

import sqlite3
import tempfile
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import BinaryIO

import structlog

from allocator.service.loop.cooperative import run_in_thread
from allocator.service.scheduler_commands import Scheduler
from allocator.service.store import StoreDamaged, StoreError, StoreUnavailable, codec, file, rows
from allocator.service.store.schedulers import require_scheduler
from allocator.users.memory import Memory, MemoryChanges

APPLICATION_ID = 0x4C534852
"""SQLite's application_id of the file: the letters LSHR."""
LAYOUT = 2
"""Version of the tables, SQLite's `user_version`."""
FORMER_LAYOUT = 1
"""Former version of the tables. It can be read, and the first save converts it."""
BUSY = 1.0
"""Seconds to wait while another process reads the file."""
_log = structlog.get_logger(__name__)
_TABLES = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {LAYOUT}",
    "CREATE TABLE IF NOT EXISTS memory (id INTEGER PRIMARY KEY CHECK (id = 1), data BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS users (name BLOB PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID",
)


class SqliteStore:
    """Store in a SQLite file that one service at a time has open.

    An existing file is checked on a copy before it is opened. Even SQLite's own recovery thus never
    writes to a damaged or foreign file.

    Args:
        path: Path of the file.
        scheduler: The scheduler of this service, which the file states; None for a file that
            states none, and belongs to any scheduler.
        set_aside: Whether to rename a damaged file that Longshare wrote, and to create a new one.

    Raises:
        StoreError: the file is damaged, foreign, not a writable regular file, in use by another
            service, or belongs to another scheduler.
    """

    shared = False
    left_out = 0

    def __init__(
        self, path: Path, scheduler: Scheduler | None = None, *, set_aside: bool = False
    ) -> None:
        self._path = path
        self._rows = rows.StoreRows(scheduler)
        self._is_written = False
        """Whether the file contains all rows except those that `_rows` lists as unwritten."""
        try:
            with file.convert_errors(path), ExitStack() as stack:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._locked_file = self._open()
                stack.callback(self._unlock)
                try:
                    self._loaded = _inspect(path, scheduler)
                except StoreDamaged as error:
                    if not set_aside:
                        raise
                    self._replace_damaged(error)
                self._connection = self._connect()
                stack.pop_all()
        except StoreUnavailable as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in file.FULL:
                raise  # another user may have filled the disk, and may leave
            raise StoreError(str(error)) from error  # an unusable disk does not recover by waiting

    def load(self) -> Memory | None:
        """Return the commitments and operator settings that the file contained when it was opened.

        The result is None for a new file.
        """
        return self._loaded

    def recall(self) -> Memory | None:
        """Return None, because the file is locked and no other service writes it."""
        return None

    def take_over(self) -> None:
        """Do nothing, because the file is locked and no other service writes it."""

    def save(self, changes: MemoryChanges) -> None:
        """Write the changes durably: they are on disk when the method returns."""
        run_in_thread(self._rows.take(changes))
        with file.convert_errors(self._path):
            self._check_same_file()
            if not self._is_written:
                self._back_up_former()
            with self._connection as transaction:
                transaction.execute("BEGIN IMMEDIATE")
                if not self._is_written:
                    for statement in _TABLES:
                        transaction.execute(statement)
                    transaction.execute("DELETE FROM users")
                changed = self._rows.unwritten() if self._is_written else self._rows.all()
                transaction.executemany(
                    "INSERT OR REPLACE INTO users (name, data) VALUES (?, ?)",
                    [(user.encode(), row) for user, row in changed if row is not None],
                )
                removed = [(user.encode(),) for user, row in self._rows.unwritten() if row is None]
                transaction.executemany("DELETE FROM users WHERE name = ?", removed)
                transaction.execute(
                    "INSERT OR REPLACE INTO memory (id, data) VALUES (1, ?)", (self._rows.head(),)
                )
            self._rows.mark_written()
            self._is_written = True

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
        self._unlock()

    def _unlock(self) -> None:
        """Release the lock on the file, so that another service can open it."""
        self._locked_file.close()

    def _open(self) -> BinaryIO:
        """Create the file if it does not exist, and lock it."""
        return file.claim(self._path, lambda made: made.executescript(";".join(_TABLES)))

    def _replace_damaged(self, error: StoreDamaged) -> None:
        """Rename a damaged file and its companions, log the loss, and create a new file.

        Args:
            error: The damage, for the log.
        """
        number = 1
        while (new_path := Path(f"{self._path}.damaged-{number}")).exists():
            number += 1
        self._path.rename(new_path)
        for suffix in file.COMPANIONS:
            with suppress(FileNotFoundError):
                Path(f"{self._path}{suffix}").rename(f"{new_path}{suffix}")
        _log.error(
            "commitments are lost: a damaged store has been set aside",
            file=str(new_path),
            reason=str(error),
        )
        self._locked_file.close()
        self._locked_file, self._loaded = self._open(), None

    def _back_up_former(self) -> None:
        """Copy a file that an older release wrote, so that this older release can be used again.

        An existing copy is left in place, because it comes from an earlier attempt to convert the
        file.
        """
        [[layout]] = self._connection.execute("PRAGMA user_version").fetchall()
        backup = Path(f"{self._path}.layout-{FORMER_LAYOUT}")
        if layout != FORMER_LAYOUT or backup.exists():
            return
        with tempfile.TemporaryDirectory(dir=self._path.parent, prefix=".new-") as folder:
            created = Path(folder, "store")
            with closing(sqlite3.connect(created)) as copy:
                self._connection.backup(copy)
            created.chmod(0o600)
            created.rename(backup)

    def _connect(self) -> sqlite3.Connection:
        """Open a connection to the existing file, with the strictest durability."""
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=BUSY,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.execute("PRAGMA synchronous = EXTRA")
        return connection

    def _check_same_file(self) -> None:
        """Check that the path still leads to the opened file; create a new file if it is missing.

        Raises:
            StoreError: another file has replaced the opened file.
        """
        try:
            same = file.same(self._path, self._locked_file)
        except FileNotFoundError:
            with ExitStack() as stack:
                locked = self._open()
                stack.callback(locked.close)
                connection = self._connect()
                stack.pop_all()
            self.close()
            self._locked_file, self._connection, self._is_written = locked, connection, False
            return
        if not same:
            raise StoreError(
                f"{self._path}: has been replaced by another file; restart the service to use that"
            )


def require_usable(path: Path, scheduler: Scheduler) -> None:
    """Check that an existing file could be the store of a scheduler, without modifying the file.

    A damage is no error, because a running service may be writing the file.

    Args:
        path: Path of the file; nothing is checked if it does not exist.
        scheduler: The scheduler whose users are expected.

    Raises:
        StoreError: the file is foreign, of an unknown version, or of another scheduler.
    """
    with file.convert_errors(path), suppress(FileNotFoundError, StoreDamaged):
        _inspect(path, scheduler)


def _inspect(path: Path, scheduler: Scheduler | None) -> Memory | None:
    """Return the commitments and settings in a file of unknown content, without modifying the file.

    The result is None if the file is empty.

    Args:
        path: Path of the file.
        scheduler: The scheduler whose users are expected; None for any scheduler.

    Raises:
        StoreError: the file is damaged, foreign, of an unknown version, or of another scheduler.
    """
    file.layout_version(path, APPLICATION_ID, (FORMER_LAYOUT, LAYOUT))
    try:
        with file.open_copy(path) as connection:
            [problem] = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if problem == "ok":
                return read(connection, scheduler)
    except sqlite3.Error as error:
        problem = str(error)
    except UnicodeDecodeError:  # in a table's name or in SQLite's own message
        problem = "text in it is not UTF-8"
    raise StoreDamaged(f"damaged: {problem}; move it away to start without it")


def read(connection: sqlite3.Connection, scheduler: Scheduler | None = None) -> Memory | None:
    """Return the commitments and operator settings in an open SQLite file; None if it is empty.

    The tables may have the layout of this release or of the former.

    Args:
        connection: The open file.
        scheduler: The scheduler whose users are expected; None for any scheduler.

    Raises:
        StoreError: the content is damaged, or belongs to another scheduler.
        sqlite3.Error: the file is damaged.
    """
    heads = connection.execute("SELECT data FROM memory").fetchall()
    if not heads:
        return None
    [[layout]] = connection.execute("PRAGMA user_version").fetchall()
    if layout == FORMER_LAYOUT:
        memory = codec.decode(_blob(heads[0][0]))
        require_scheduler(scheduler, None, memory)
        return memory
    content = connection.execute("SELECT name, data FROM users").fetchall()
    try:
        users = [(_blob(name).decode(), _blob(data)) for name, data in content]
    except UnicodeDecodeError as error:
        raise StoreDamaged(f"damaged: a user's name: {error}") from error
    return rows.decode_memory(_blob(heads[0][0]), users, scheduler)


def _blob(value: object) -> bytes:
    """Return a value from the database unchanged if it is of type bytes.

    Raises:
        StoreDamaged: the value has another type.
    """
    if not isinstance(value, bytes):
        raise StoreDamaged(f"damaged: {type(value).__name__} where bytes should be")
    return value
