"""Files: written whole or not at all, and never waited for."""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
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


def open_to_write(
    path: str, flags: int, *, folder: int | None = None, apart: Iterable[Path] = ()
) -> int:
    """Open a plain file or a device; an `opener` for `open`, which never waits for a reader.

    Another user may be able to write the folder. So a symbolic link is not followed, a file with a
    second name is refused, and nothing is truncated before the descriptor has been checked.

    Args:
        path: The file.
        flags: As of `os.open`.
        folder: The open folder in which the last part of the path is looked up; None: the path is.
        apart: Other files, which this one must not be.

    Raises:
        OSError: it cannot be opened, or is refused; `strerror` says why and what to do.
    """
    place = Path(path)
    name = place if folder is None else Path(place.name)
    opened = _opened(name, (flags & ~os.O_TRUNC) | os.O_NOFOLLOW, folder)
    try:
        _require_alone(name, opened, folder, apart)
        if flags & os.O_TRUNC:
            empty(opened)
    except OSError:
        os.close(opened)
        raise
    return opened


def empty(opened: int) -> None:
    """Truncate an open file; a device stays as it is.

    Raises:
        OSError: it cannot be truncated.
    """
    if stat.S_ISREG(os.fstat(opened).st_mode):
        os.ftruncate(opened, 0)


def _require_alone(name: Path, opened: int, folder: int | None, apart: Iterable[Path]) -> None:
    """Refuse an open file that is not plain, or that has another name.

    Raises:
        OSError: it is refused.
    """
    status = os.fstat(opened)
    if stat.S_ISCHR(status.st_mode):
        return
    require_plain(name, status)
    named = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if named.st_nlink != 1 or not os.path.samestat(named, status):
        raise OSError(errno.EMLINK, "it has another name, too (a hard link); name another", name)
    for service_file in apart:
        with suppress(FileNotFoundError):
            if os.path.samestat(service_file.stat(), status):
                words = f"it is also {service_file}; give each a path of its own"
                raise OSError(errno.EINVAL, words)


def _opened(path: Path, flags: int, folder: int | None = None) -> int:
    flags |= os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        return os.open(path, flags, 0o666, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a pipe that nobody reads
            raise OSError(errno.EINVAL, _NOT_PLAIN, str(path)) from error
        if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise OSError(errno.ELOOP, "a symbolic link; name the file by where it lies") from error
        raise
