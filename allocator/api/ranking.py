"""Policies by name, and those of one's own."""

import inspect
from pathlib import Path
from typing import TypeVar

from allocator import plugins
from allocator.fairness.policies import Policy, names
from allocator.plugins.adoption import adopt, origin_of

P = TypeVar("P", bound=type[Policy])


def policies() -> list[str]:
    """Return the names of all policies that are known."""
    return names()


def policy(name: str, **parameters: object) -> Policy:
    """Make a policy, as in `policy("sdrf", half_life="1h")`.

    Args:
        name: One of Longshare's, one that has been read or registered, or one that an installed
            package offers.
        parameters: The policy's own.

    Raises:
        ValueError: there is no such policy, or a parameter is not one of it or cannot be; the
            message says which, why, and what would do.
    """
    return plugins.create(name, parameters)


def read_policies(file: Path | str) -> list[str]:
    """Make the policies known that a Python file defines, and return their names.

    The file is run, with all rights of this program.

    Raises:
        ValueError: it cannot be read or run, or defines no policy that can be used; the message
            says what is wrong in which line.
    """
    return plugins.load(Path(file).absolute())


def register_policy(kind: P) -> P:
    """Make a policy known by its name that is defined here and now; also as a decorator.

    One that was registered before with the same name is replaced.

    Raises:
        ValueError: the class cannot be used; the message says what would do.
    """
    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):  # typed at a prompt
        source = ""
    adopt([kind], origin_of(f"{kind.__module__}.{kind.__qualname__}", source.encode()))
    return kind
