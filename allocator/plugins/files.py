"""A file with a policy: read, run once, and what is wrong with it said by file and line."""

import errno
import os
import stat
import sys
import traceback
from pathlib import Path
from types import ModuleType

from allocator.files import read_plain
from allocator.plugins.adoption import adopt, defined, known, origin_of
from allocator.plugins.errors import PolicyError

_FOLDER = os.O_PATH | os.O_DIRECTORY


def load(path: Path) -> list[str]:
    """Make the policies of a file known; does nothing if they are, and the file is the same.

    Returns:
        Their names.

    Raises:
        PolicyError: the file cannot be read or run, or defines no policy that can be used.
    """
    try:
        return _run(path, read_plain(path))
    except OSError as error:
        raise PolicyError(f"{path}: {error.strerror}") from error


def load_trusted(path: Path) -> list[str]:
    """Make the policies of a file known that nobody else could have written.

    The file, and every folder above it, belongs to who runs this process or to root, and neither
    its group nor others may write there; a folder like /tmp, in which everybody keeps what is
    his, may be above. No part of its path is a symbolic link. Each part of the path is opened once,
    from the folder above, and checked by its descriptor. No user can exchange a part meanwhile.

    Raises:
        PolicyError: as `load`, or somebody else could have written the file.
    """
    if not path.is_absolute():
        raise PolicyError(f"{path}: a service's policy is named by its absolute path")
    try:
        where = path.resolve(strict=True)
        if where != path:
            raise PolicyError(f"{path} leads elsewhere; name the file by where it lies: {where}")
        return _run(path, _read_trusted(path))
    except OSError as error:
        raise PolicyError(f"{path}: {error.strerror}") from error


def _read_trusted(path: Path) -> bytes:
    folder = os.open("/", _FOLDER)
    try:
        _require_ours(Path("/"), os.fstat(folder))
        for place in reversed(path.parents[:-1]):
            below = _open_within(folder, place, _FOLDER)
            os.close(folder)
            folder = below
            _require_ours(place, os.fstat(folder))
        with os.fdopen(_open_within(folder, path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise PolicyError(f"{path}: not a plain file; name another")
            _require_ours(path, status)
            return file.read()
    finally:
        os.close(folder)


def _open_within(folder: int, place: Path, flags: int) -> int:
    try:
        return os.open(place.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:
            raise PolicyError(f"{place} leads elsewhere; name the file by where it lies") from error
        raise


def _require_ours(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in {0, os.geteuid()}:
        raise PolicyError(
            f"{path} belongs to user {status.st_uid}, who could write what the service runs; it "
            f"must belong to root or to user {os.geteuid()}, who runs the service (chown)"
        )
    everybodys = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not everybodys:
        raise PolicyError(
            f"{path} can be written by others than its owner (mode "
            f"{stat.S_IMODE(status.st_mode):o}), who could change what the service runs: "
            f"chmod go-w {path}"
        )


def _run(path: Path, content: bytes) -> list[str]:
    origin = origin_of(str(path), content)
    names = known(origin)
    if names:
        return names
    module = ModuleType(f"longshare_policy_{origin.sha256[:16]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # where types that are written as text are looked up
    try:
        code = compile(content, str(path), "exec", dont_inherit=True)
        exec(code, vars(module))  # noqa: S102 - what a policy's file is for
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise PolicyError(_said(path, error)) from error
    kinds = defined(module)
    if not kinds:
        raise PolicyError(
            f"{path}: no policy is defined there; write a class with a name, derived from "
            "KeyPolicy, LinePolicy or Sdrf of allocator.api"
        )
    return adopt(kinds, origin)


def _said(path: Path, error: BaseException) -> str:
    """Say what is wrong, and in which line of the file."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        shown = f": {error.text.strip()}" if error.text else ""
        return f"{path}, line {error.lineno}: not valid Python: {error.msg}{shown}"
    lines = [s.lineno for s in traceback.extract_tb(error.__traceback__) if s.filename == str(path)]
    where = f", line {lines[-1]}" if lines else ""
    first = next(iter(str(error).splitlines()), "")
    what = f"{type(error).__name__}: {first}" if first else type(error).__name__
    advice = ""
    if isinstance(error, ModuleNotFoundError):
        advice = f"; install {error.name} beside Longshare, or do without"
    return f"{path}{where}: {what}{advice}"
