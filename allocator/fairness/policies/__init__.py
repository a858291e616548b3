"""Registry of policies by name. A module of this package that defines a policy registers it.

External policies are registered by `allocator.plugins`.
"""

import difflib
import pkgutil
from collections.abc import Collection, Iterator, Mapping
from importlib import import_module

from pydantic import ValidationError

from allocator.complaints import complaints, unknown
from allocator.fairness.policies.policy import Policy

__all__ = ["Policy", "create", "find", "mistaken_resources", "names", "ours", "register"]


def _policy_classes() -> Iterator[type[Policy]]:
    """Yield the classes of this package's modules that have a policy name (`name`)."""
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        for kind in vars(import_module(module.name)).values():
            if isinstance(kind, type) and issubclass(kind, Policy) and "name" in vars(kind):
                yield kind


_POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in _policy_classes()}


def names() -> list[str]:
    """Return the names of all registered policies, external policies included."""
    return sorted(_POLICIES)


def ours() -> list[str]:
    """Return the names of the policies that come with Longshare, without external policies."""
    return [name for name in names() if _POLICIES[name].origin is None]


def register(kind: type[Policy]) -> None:
    """Register an external policy; it replaces an external policy of the same name.

    Raises:
        ValueError: a policy of Longshare has this name.
    """
    known = _POLICIES.get(kind.name)
    if known is not None and known.origin is None:
        raise ValueError(f"Longshare has a policy {kind.name!r}; give yours another name")
    _POLICIES[kind.name] = kind


def find(name: str) -> type[Policy]:
    """Return a policy's class.

    Raises:
        ValueError: no policy has this name; the message lists the policies.
    """
    try:
        return _POLICIES[name]
    except KeyError:
        raise ValueError(unknown("policy", name, names())) from None


def create(name: str, parameters: Mapping[str, object]) -> Policy:
    """Create a policy from its name and parameters.

    Raises:
        ValueError: no policy has this name, or a parameter is unknown or has an invalid value. The
            message names the parameter, the reason and valid values.
    """
    policy = find(name)
    try:
        return policy.model_validate(dict(parameters))
    except ValidationError as error:
        problems = "; ".join(complaints(error, policy))
        known = ", ".join(policy.model_fields) or "none"
        raise ValueError(f"policy {name!r}: {problems} (parameters: {known})") from None
    except Exception as error:
        if policy.origin is None:
            raise
        raise ValueError(
            f"policy {name!r}: {policy.origin.file} failed on its parameters: "
            f"{type(error).__name__}: {error}"
        ) from error


def mistaken_resources(policy: Policy, known: Collection[str]) -> list[str]:
    """Return the resources that a policy's parameters name by mistake.

    A cluster may lack one of several named resources, such as GPUs. So an unknown name is a mistake
    only in two cases: no named resource is known, or a known resource that the parameters do not
    name has a similar name. The parameters of external policies are not examined.

    Args:
        policy: The policy.
        known: Names of all resources of the cluster or trace.
    """
    if policy.origin is not None:
        return []
    weights = getattr(policy, "billed", None) or getattr(policy, "weighed", {})
    named = {name for name, weight in weights.items() if weight}
    if resource := getattr(policy, "resource", None):
        named.add(resource)
    unknown_names = sorted(named - set(known))
    if named.isdisjoint(known):
        return unknown_names
    others = [name for name in known if name not in named]
    return [name for name in unknown_names if difflib.get_close_matches(name, others)]
