"""Policies by name. A new one is a file of its own in this package, and nothing else.

Those that others have written are told by `allocator.plugins`.
"""

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module

from pydantic import ValidationError

from allocator.complaints import complaints
from allocator.fairness.policies.policy import Policy

__all__ = ["Policy", "create", "find", "names", "ours", "register"]


def _found() -> Iterator[type[Policy]]:
    """Go through the classes of this package's modules that have a policy's name."""
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        for kind in vars(import_module(module.name)).values():
            if isinstance(kind, type) and issubclass(kind, Policy) and "name" in vars(kind):
                yield kind


_POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in _found()}


def names() -> list[str]:
    """Return the names of all policies that are known."""
    return sorted(_POLICIES)


def ours() -> list[str]:
    """Return the names of those that come with Longshare."""
    return [name for name in names() if _POLICIES[name].origin is None]


def register(kind: type[Policy]) -> None:
    """Make a policy known that does not come with Longshare; one of its name is replaced.

    Raises:
        ValueError: it has the name of one that does.
    """
    known = _POLICIES.get(kind.name)
    if known is not None and known.origin is None:
        raise ValueError(f"Longshare has a policy {kind.name!r}; give yours another name")
    _POLICIES[kind.name] = kind


def find(name: str) -> type[Policy]:
    """Return a policy's class.

    Raises:
        ValueError: there is no such policy; the message says which there are.
    """
    try:
        return _POLICIES[name]
    except KeyError:
        raise ValueError(f"policy {name!r} is unknown; there are: {', '.join(names())}") from None


def create(name: str, parameters: Mapping[str, object]) -> Policy:
    """Make a policy from its name and parameters.

    Raises:
        ValueError: there is no such policy, or a parameter is not one of it or has a value
            that it cannot have; the message says which, why, and what would do.
    """
    policy = find(name)
    try:
        return policy.model_validate(dict(parameters))
    except ValidationError as error:
        found = "; ".join(complaints(error, policy))
        known = ", ".join(policy.model_fields) or "none"
        raise ValueError(f"policy {name!r}: {found} (parameters: {known})") from None
    except Exception as error:
        if policy.origin is None:
            raise
        raise ValueError(
            f"policy {name!r}: {policy.origin.file} failed on its parameters: "
            f"{type(error).__name__}: {error}"
        ) from error
