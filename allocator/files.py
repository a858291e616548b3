"""Files: written whole or not at all, and never waited for."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OF_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", "'")
_NOT_PLAIN = "not a plain file; name another"


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give the block a path to write to; if it ends well, what was there before is replaced.

    Whoever else writes the same meanwhile, the file is that of one of both. What is no file, such
    as a pipe or /dev/null, is not replaced but written to; a link stays, and its file is replaced.

    Raises:
        OSError: it cannot be replaced.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    path = path.resolve()
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def csv_cell(text: str) -> str:
    """Return text for a cell of a CSV file, which no spreadsheet takes for a formula.

    A text that begins with a formula character or with an apostrophe gets an apostrophe before it.
    A program that removes one apostrophe has the text again. Numbers must not pass through here.
    """
    return f"'{text}" if text.startswith(_OF_FORMULAS) else text


def read_plain(path: Path, *, private: bool = False) -> bytes:
    """Read a plain file, without ever waiting for another process.

    Args:
        path: The file. A pipe, a socket, a device or a folder is refused.
        private: Whether to refuse a file that every user of the machine may read.

    Raises:
        OSError: it cannot be read, or is refused; `strerror` says why and what to do.
    """
    with os.fdopen(_opened(path, os.O_RDONLY), "rb") as file:
        require_plain(path, os.fstat(file.fileno()), private=private)
        return file.read()


def require_plain(path: Path, status: os.stat_result, *, private: bool = False) -> None:
    """Refuse what `read_plain` refuses, by the status of a file.

    Raises:
        OSError: as `read_plain`.
    """
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, _NOT_PLAIN, str(path))
    if private and status.st_mode & stat.S_IROTH:
        raise OSError(
            errno.EPERM,
            "it holds a secret, and every user of this machine may read it "
            f"(mode {stat.S_IMODE(status.st_mode):o}): chmod o-rwx {path}",
            str(path),
        )


def open_to_write(path: str, flags: int) -> int:
    """Open a plain file or a device; an `opener` for `open`, which never waits for a reader.

    Raises:
        OSError: it cannot be opened, or is a pipe or a socket.
    """
    opened = _opened(Path(path), flags)
    mode = os.fstat(opened).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):
        os.close(opened)
        raise OSError(errno.EINVAL, _NOT_PLAIN, path)
    return opened


def _opened(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a pipe that nobody reads
            raise OSError(errno.EINVAL, _NOT_PLAIN, str(path)) from error
        raise
