"""Loads policy files: runs each file once, and reports errors with file and line."""

import errno
import os
import stat
import sys
import traceback
from pathlib import Path
from types import ModuleType

from allocator.files import read_regular_file, reason
from allocator.plugins.adoption import adopt, defined, known, origin_of
from allocator.plugins.errors import PolicyError

_FOLDER = os.O_PATH | os.O_DIRECTORY
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def load(path: Path) -> list[str]:
    """Run a policy file and register its policies, unless the same content was loaded before.

    Returns:
        The names of the policies.

    Raises:
        PolicyError: the file cannot be read or run, or defines no usable policy.
    """
    try:
        return _run(path, read_regular_file(path))
    except OSError as error:
        raise PolicyError(f"{path}: {reason(error)}") from error


def load_trusted(path: Path) -> list[str]:
    """Load a policy file like `load`, but only if no other user could have written the file.

    The file and all folders above it must belong to root or to the user of this process. Neither
    group nor others may write to them. A shared folder with the sticky bit, such as /tmp, may be
    above. No component of the path is a symbolic link. Each component is opened once, relative to
    the folder above, and checked through its descriptor. So no user can exchange a component
    between check and use.

    Raises:
        PolicyError: as `load`, or another user could have written the file.
    """
    if not path.is_absolute():
        raise PolicyError(f"{path}: give the absolute path of a service's policy file")
    try:
        resolved = path.resolve(strict=True)
        if resolved != path:
            raise PolicyError(f"{path} is not the file's real path; give the real path: {resolved}")
        return _run(path, _read_trusted(path))
    except OSError as error:
        raise PolicyError(f"{path}: {reason(error)}") from error


def _read_trusted(path: Path) -> bytes:
    """Return the content of a file, after checking the owner and mode of each path component.

    Raises:
        PolicyError: another user could have written the file.
        OSError: a component cannot be opened.
    """
    folder = os.open("/", _FOLDER)
    try:
        _require_trusted_owner(Path("/"), os.fstat(folder))
        for component in reversed(path.parents[:-1]):
            subfolder = _open_within(folder, component, _FOLDER)
            os.close(folder)
            folder = subfolder
            _require_trusted_owner(component, os.fstat(folder))
        with os.fdopen(_open_within(folder, path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise PolicyError(f"{path}: not a plain file; name another")
            _require_trusted_owner(path, status)
            if status.st_nlink > 1 and os.fstat(folder).st_mode & _WRITABLE_BY_OTHERS:
                raise PolicyError(
                    f"{path} has another name, too (a hard link), which another user may have "
                    f"made in {path.parent}; copy the file to a folder that only its owner can "
                    "write"
                )
            return file.read()
    finally:
        os.close(folder)


def _open_within(folder: int, component: Path, flags: int) -> int:
    """Return a descriptor of a path component, opened relative to the folder above.

    Raises:
        PolicyError: the component is a symbolic link.
        OSError: the component cannot be opened.
    """
    try:
        return os.open(component.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:
            raise PolicyError(
                f"{component} is a symbolic link; give the file's real path"
            ) from error
        raise


def _require_trusted_owner(path: Path, status: os.stat_result) -> None:
    """Check that only root and the user of this process may write to a file or folder.

    Args:
        path: The file or folder, for the error message.
        status: Its status.

    Raises:
        PolicyError: another user may write to the file or folder.
    """
    if status.st_uid not in {0, os.geteuid()}:
        raise PolicyError(
            f"{path} belongs to user {status.st_uid}, who could change the code that the service "
            f"runs; it must belong to root or to user {os.geteuid()}, who runs the service (chown)"
        )
    is_shared_folder = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    if status.st_mode & _WRITABLE_BY_OTHERS and not is_shared_folder:
        raise PolicyError(
            f"users other than its owner can write {path} (mode "
            f"{stat.S_IMODE(status.st_mode):o}), and could change the code that the service runs: "
            f"chmod go-w {path}"
        )


def _run(path: Path, content: bytes) -> list[str]:
    """Execute a policy file unless its policies are registered, and register its policies.

    Raises:
        PolicyError: the file cannot be run, or defines no usable policy.
    """
    origin = origin_of(str(path), content)
    names = known(origin)
    if names:
        return names
    module = ModuleType(f"longshare_policy_{origin.sha256[:16]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # string annotations are resolved there
    try:
        code = compile(content, str(path), "exec", dont_inherit=True)
        exec(code, vars(module))  # noqa: S102 - policy files are code
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise PolicyError(_error_text(path, error)) from error
    kinds = defined(module)
    if not kinds:
        raise PolicyError(
            f"{path}: no policy is defined there; write a class with a name, derived from "
            "KeyPolicy, LinePolicy or Sdrf of allocator.api"
        )
    return adopt(kinds, origin)


def _error_text(path: Path, error: BaseException) -> str:
    """Return an error's message, with the policy file and the line of the error."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        source = f": {error.text.strip()}" if error.text else ""
        return f"{path}, line {error.lineno}: not valid Python: {error.msg}{source}"
    lines = [s.lineno for s in traceback.extract_tb(error.__traceback__) if s.filename == str(path)]
    location = f", line {lines[-1]}" if lines else ""
    first = next(iter(str(error).splitlines()), "")
    description = f"{type(error).__name__}: {first}" if first else type(error).__name__
    advice = ""
    if isinstance(error, ModuleNotFoundError):
        advice = f"; install {error.name} in the environment of Longshare, or remove the import"
    return f"{path}{location}: {description}{advice}"
