"""Loads external policies, from a policy file or from an installed package.

Policies are code. The code runs with all rights of the user that runs Longshare.
"""

from collections.abc import Mapping
from pathlib import Path

from allocator.complaints import unknown
from allocator.fairness import policies
from allocator.plugins.entry_points import installed, load_installed
from allocator.plugins.errors import PolicyError
from allocator.plugins.files import load, load_trusted

__all__ = ["PolicyError", "create", "is_known", "load", "load_trusted", "provide"]


def create(name: str, parameters: Mapping[str, object]) -> policies.Policy:
    """Create a policy by name: of Longshare, of a loaded file or of an installed package.

    Raises:
        ValueError: no policy has this name, the package's policy cannot be used, or a parameter is
            invalid. The message says which parameter, why, and how to mend it.
    """
    if name not in policies.names() and not load_installed(name):
        raise ValueError(unknown("policy", name, [*policies.names(), *installed()]))
    return policies.create(name, parameters)


def is_known(name: str) -> bool:
    """Return whether a policy of Longshare or an external policy has this name."""
    return name in policies.names() or name in installed()


def provide(name: str, file: str, sha256: str) -> None:
    """Load a policy's file in a worker process, if its content is the same as for the caller.

    Args:
        name: The policy's name.
        file: Path of the file that defines the policy.
        sha256: SHA-256 of the file's content, in hexadecimal.

    Raises:
        PolicyError: the policy cannot be used, or the file has changed.
    """
    if name not in policies.names():
        load_installed(name)
    if not _has_content(name, sha256):
        load(Path(file))
    if not _has_content(name, sha256):
        raise PolicyError(f"{file} has changed meanwhile; start the command again")


def _has_content(name: str, sha256: str) -> bool:
    """Return whether a registered policy comes from a file with this SHA-256 checksum."""
    origin = policies.find(name).origin if name in policies.names() else None
    return origin is not None and origin.sha256 == sha256
