"""Handling common to the service's SQLite files: a file is private, and one service has it open.

A new file appears at its path only once it is complete. Damaged and foreign files are recognised
without being changed.
"""

import errno
import fcntl
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from allocator.service.store import StoreError, StoreInUse, StoreUnavailable

COMPANIONS = ("-journal", "-wal")
"""Suffixes of the files that a crash may leave next to a SQLite file."""
_MAGIC = b"SQLite format 3\0"
_WITH_WAL = b"\2\2"
"""Versions in the header of a SQLite file with a write-ahead log, which SQLite reads on disk only.
"""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Error numbers of a full disk."""


def claim(path: Path, make: Callable[[sqlite3.Connection], object]) -> BinaryIO:
    """Create a SQLite file if it does not exist, and lock it until the returned file is closed.

    A new file is created in a temporary folder and then linked to its path. So the path never leads
    to an incomplete file.

    Args:
        path: Path of the file.
        make: Creates the tables of a new file.

    Returns:
        The open file, which holds the lock.

    Raises:
        StoreInUse: another service has locked the file.
        StoreError: the path does not lead to a regular file.
        OSError: the file may not be written.
    """
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".new-") as folder:
            created = Path(folder, "store")
            with closing(sqlite3.connect(created)) as connection:
                make(connection)
            created.chmod(0o600)
            with suppress(FileExistsError):  # another process was quicker; the lock decides
                os.link(created, path)
    locked = _open_for_writing(path)
    try:
        # SQLite's own locks are lost as soon as any code of the process closes the file.
        fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        locked.close()
        raise StoreInUse(f"{path}: in use by another service; set another store.path") from None
    return locked


def same(path: Path, held: BinaryIO) -> bool:
    """Return whether a path still leads to the file that `claim` has opened.

    Args:
        path: The path.
        held: The open file.

    Raises:
        FileNotFoundError: nothing exists at the path.
    """
    current, opened = path.stat(), os.fstat(held.fileno())
    return (current.st_dev, current.st_ino) == (opened.st_dev, opened.st_ino)


def layout_version(path: Path, application_id: int, known: Sequence[int]) -> int:
    """Return the version of a SQLite file's tables, without modifying the file.

    Args:
        path: Path of the file.
        application_id: Application identifier that the file's header must contain.
        known: Versions that this release can read, latest last.

    Raises:
        StoreError: the file is foreign or has an unknown version.
    """
    with path.open("rb") as file:
        header = file.read(100)
    if len(header) < 100 or not header.startswith(_MAGIC):
        raise StoreError("not a SQLite file; move it away, or choose another path")
    if int.from_bytes(header[68:72], "big") != application_id:
        raise StoreError("a SQLite file of another program; choose another path")
    version = int.from_bytes(header[60:64], "big")
    if version not in known:
        raise StoreError(
            f"written in version {version} of the layout, this Longshare knows version "
            f"{known[-1]}; use the release that wrote it, or a newer one"
        )
    return version


@contextmanager
def open_copy(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection to a copy of a SQLite file and of its journal files.

    The file itself stays unchanged, even if SQLite recovers the copy after a crash. Without a
    journal, the copy is in memory, else beside the file. Any user could fill the machine's folder
    for temporary files.
    """
    companions = [suffix for suffix in COMPANIONS if os.path.lexists(f"{path}{suffix}")]
    content = path.read_bytes()
    if not companions and content[18:20] != _WITH_WAL:
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.deserialize(content)
            yield connection
        return
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".copy-") as folder:
        copy = Path(folder, "store")
        copy.write_bytes(content)
        for suffix in companions:
            shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
        with closing(sqlite3.connect(copy)) as connection:
            yield connection


@contextmanager
def convert_errors(path: Path) -> Iterator[None]:
    """Convert errors of SQLite and of the operating system to StoreErrors that name the file."""
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


def _open_for_writing(path: Path) -> BinaryIO:
    """Open a regular file for writing; other kinds of files are rejected without blocking.

    Raises:
        StoreError: the path does not lead to a regular file.
        OSError: the file may not be written, or its folder, which has to hold SQLite's journal.
    """
    opened = os.fdopen(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
        opened.close()
        raise StoreError(f"{path}: not a plain file; choose another path")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError:
        opened.close()
        raise
    return opened
