"""Policies from outside: a file that somebody names, or a package that is installed.

What is loaded is code, and runs with all rights of whoever loads it.
"""

from collections.abc import Mapping
from pathlib import Path

from allocator.fairness import policies
from allocator.plugins.entry_points import installed, load_installed
from allocator.plugins.errors import PolicyError
from allocator.plugins.files import load, load_trusted

__all__ = ["PolicyError", "create", "is_known", "load", "load_trusted", "provide"]


def create(name: str, parameters: Mapping[str, object]) -> policies.Policy:
    """Make a policy that is ours, of a file that has been loaded, or of an installed package.

    Raises:
        ValueError: there is no such policy, a package's cannot be used, or a parameter is not one
            of it; the message says which, why, and what would do.
    """
    if name not in policies.names() and not load_installed(name):
        others = f", and installed: {', '.join(found)}" if (found := installed()) else ""
        raise ValueError(
            f"policy {name!r} is unknown; there are: {', '.join(policies.names())}{others}"
        )
    return policies.create(name, parameters)


def is_known(name: str) -> bool:
    """Whether there is a policy of this name, ours or from outside."""
    return name in policies.names() or name in installed()


def provide(name: str, file: str, sha256: str) -> None:
    """Make a policy known in another process, as it was in the one that asks.

    Args:
        name: The policy's.
        file: Where it is defined.
        sha256: Of that file.

    Raises:
        PolicyError: it cannot be used, or is another one by now.
    """
    if name not in policies.names():
        load_installed(name)
    if not _is(name, sha256):
        load(Path(file))
    if not _is(name, sha256):
        raise PolicyError(f"{file} has changed meanwhile; start anew")


def _is(name: str, sha256: str) -> bool:
    origin = policies.find(name).origin if name in policies.names() else None
    return origin is not None and origin.sha256 == sha256
