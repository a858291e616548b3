"""Policies by name. A new one is a file of its own in this package, and nothing else."""

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module

from pydantic import ValidationError

from allocator.complaints import complaints
from allocator.fairness.policies.policy import Policy

__all__ = ["Policy", "create", "find", "names"]


def _found() -> Iterator[type[Policy]]:
    """Go through the classes of this package's modules that have a policy's name."""
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        for kind in vars(import_module(module.name)).values():
            if isinstance(kind, type) and issubclass(kind, Policy) and "name" in vars(kind):
                yield kind


_POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in _found()}


def names() -> list[str]:
    """Return the names of all policies."""
    return sorted(_POLICIES)


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
