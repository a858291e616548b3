"""Loads policy files: runs each file once, and reports errors with file and line."""

import os
import stat
import sys
import traceback
from pathlib import Path
from types import ModuleType

from allocator.files import (
    UntrustedPathError,
    open_component,
    read_regular_file,
    reason,
    require_trusted,
    trusted_folder,
)
from allocator.plugins.adoption import adopt, defined, known, origin_of
from allocator.plugins.errors import PolicyError

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
    group nor others may write to them; see `trusted_folder`. A file with a second hard link is
    refused in a folder where another user could have made this link.

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
    except UntrustedPathError as error:
        raise PolicyError(str(error)) from error
    except OSError as error:
        raise PolicyError(f"{path}: {reason(error)}") from error


def _read_trusted(path: Path) -> bytes:
    """Return the content of a file, after checking the owner and mode of each path component.

    Raises:
        PolicyError: the file has another name, or is no regular file.
        OSError: another user could have written the file, or a component cannot be opened.
    """
    with trusted_folder(path.parent) as folder:
        flags = os.O_RDONLY | os.O_NONBLOCK
        with os.fdopen(open_component(folder, path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise PolicyError(f"{path}: not a plain file; name another")
            require_trusted(path, status)
            if status.st_nlink > 1 and os.fstat(folder).st_mode & _WRITABLE_BY_OTHERS:
                raise PolicyError(
                    f"{path} has another name, too (a hard link), which another user may have "
                    f"made in {path.parent}; copy the file to a folder that only its owner can "
                    "write"
                )
            return file.read()


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
