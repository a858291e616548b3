"""Policies by name. A new one is a file of its own and a line here."""

from collections.abc import Mapping

from pydantic import ValidationError

from allocator.fairness.policies.drf import Drf
from allocator.fairness.policies.policy import Policy
from allocator.fairness.policies.sdrf import Sdrf

__all__ = ["Policy", "create", "names"]

_POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in (Drf, Sdrf)}


def names() -> list[str]:
    """Return the names of all policies."""
    return sorted(_POLICIES)


def create(name: str, parameters: Mapping[str, object]) -> Policy:
    """Make a policy from its name and parameters.

    Raises:
        ValueError: there is no such policy, or a parameter is not one of it or has a value
            that it cannot have; the message says which, why, and what would do.
    """
    try:
        policy = _POLICIES[name]
    except KeyError:
        raise ValueError(f"policy {name!r} is unknown; there are: {', '.join(names())}") from None
    try:
        return policy.model_validate(dict(parameters))
    except ValidationError as error:
        complaints = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'parameters'}: {problem['msg']}"
            for problem in error.errors()
        )
        known = ", ".join(policy.model_fields) or "none"
        raise ValueError(f"policy {name!r}: {complaints} (parameters: {known})") from None
