"""Rules for every SQLite file of ours: made whole, for its owner alone, and one service at a time.

A file that is damaged or belongs to something else is told from ours without being touched.
"""

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
"""What a crash may leave beside a file."""
_MAGIC = b"SQLite format 3\0"


def claim(path: Path, make: Callable[[sqlite3.Connection], object]) -> BinaryIO:
    """Make a file if need be, and keep other services out for as long as what this returns is open.

    A new one is made beside its place and then put there whole, so that there never is half a file.

    Args:
        path: The file.
        make: Makes its tables.

    Raises:
        StoreInUse: another service has it.
        StoreError: it is no plain file.
        OSError: it may not be written.
    """
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".new-") as folder:
            made = Path(folder, "store")
            with closing(sqlite3.connect(made)) as connection:
                make(connection)
            made.chmod(0o600)
            with suppress(FileExistsError):  # somebody was quicker; the lock decides
                os.link(made, path)
    held = _for_writing(path)
    try:
        # Not SQLite's own locks: these are lost when anything in the process closes the file.
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        held.close()
        raise StoreInUse(f"{path}: in use by another service") from None
    return held


def same(path: Path, held: BinaryIO) -> bool:
    """Whether a file is still the one that was claimed.

    Raises:
        FileNotFoundError: it is gone.
    """
    there, opened = path.stat(), os.fstat(held.fileno())
    return (there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino)


def layout(path: Path, application_id: int, known: Sequence[int]) -> int:
    """Return the version of a file's tables, without touching it.

    Raises:
        StoreError: it is not one of ours, or of a version that is not known here.
    """
    with path.open("rb") as file:
        header = file.read(100)
    if len(header) < 100 or not header.startswith(_MAGIC):
        raise StoreError("not a SQLite file; move it away, or choose another path")
    if int.from_bytes(header[68:72], "big") != application_id:
        raise StoreError("a SQLite file of another program's; choose another path")
    found = int.from_bytes(header[60:64], "big")
    if found not in known:
        raise StoreError(
            f"written in version {found} of the layout, this Longshare knows version {known[-1]}; "
            "use the release that wrote it, or a newer one"
        )
    return found


@contextmanager
def copied(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a copy of a file, with what a crash has left beside it."""
    with tempfile.TemporaryDirectory(prefix="longshare-") as folder:
        copy = Path(folder, "store")
        shutil.copyfile(path, copy)
        for suffix in COMPANIONS:
            with suppress(FileNotFoundError):  # there is one only after a crash
                shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
        with closing(sqlite3.connect(copy)) as connection:
            yield connection


@contextmanager
def explained(path: Path) -> Iterator[None]:
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


def _for_writing(path: Path) -> BinaryIO:
    """Open a file that can be written; whatever it is, this does not wait for anybody.

    Raises:
        StoreError: it is no plain file.
        OSError: it may not be written, or its folder, in which SQLite keeps its journal.
    """
    held = os.fdopen(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(held.fileno()).st_mode):
        held.close()
        raise StoreError(f"{path}: not a plain file; choose another path")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError:
        held.close()
        raise
    return held
