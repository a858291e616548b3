"""Policies by name, and registration of your own policies."""

import inspect
from pathlib import Path
from typing import TypeVar

from allocator import plugins
from allocator.fairness.policies import Policy, names
from allocator.plugins.adoption import adopt, origin_of

P = TypeVar("P", bound=type[Policy])


def policies() -> list[str]:
    """Return the names of all policies that `policy` can create."""
    return names()


def policy(name: str, **parameters: object) -> Policy:
    """Create a policy, as in `policy("sdrf", half_life="1h")`.

    Args:
        name: Name of a built-in policy, of a policy that has been read or registered, or of a
            policy of an installed package.
        parameters: The policy's parameters.

    Raises:
        ValueError: there is no such policy or parameter, or a value is invalid. The message names
            the error and the valid choices.
    """
    return plugins.create(name, parameters)


def read_policies(file: Path | str) -> list[str]:
    """Run a Python file that defines policies, register the policies, and return their names.

    The file runs with all rights of this program.

    Args:
        file: Path of the file.

    Raises:
        ValueError: the file cannot be read or run, or defines no usable policy. The message names
            the error and its line.
    """
    return plugins.load(Path(file).absolute())


def register_policy(kind: P) -> P:
    """Register a policy class of your program under its name, and return it; usable as a decorator.

    A policy that was registered before under the same name is replaced.

    Args:
        kind: The policy class.

    Raises:
        ValueError: the class cannot be used; the message says how to correct it.
    """
    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):  # a class typed at a prompt has no source
        source = ""
    adopt([kind], origin_of(f"{kind.__module__}.{kind.__qualname__}", source.encode()))
    return kind
