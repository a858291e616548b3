"""Finds the policies that a module defines, and registers them."""

import hashlib
import re
from collections.abc import Collection, Iterable
from types import ModuleType

from allocator.fairness import policies
from allocator.fairness.plugin_sandbox import contained
from allocator.fairness.policies import Policy
from allocator.fairness.policies.policy import Origin
from allocator.plugins.errors import PolicyError

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def origin_of(file: str, content: bytes) -> Origin:
    """Return a file's origin record: its name, checksum and content."""
    return Origin(
        file=file,
        sha256=hashlib.sha256(content).hexdigest(),
        source=content.decode(errors="replace"),
    )


def known(origin: Origin) -> list[str]:
    """Return the names of the registered policies that this origin defines.

    So a policy file with unchanged content need not run again.
    """
    return [
        name
        for name in policies.names()
        if (existing := policies.find(name).origin) is not None
        and (existing.file, existing.sha256) == (origin.file, origin.sha256)
    ]


def defined(module: ModuleType) -> list[type[Policy]]:
    """Return the policy classes with a `name` that a module defines, in the order of definition.

    Classes that the module only imports are left out.
    """
    return [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, Policy)
        and kind.__module__ == module.__name__
        and ("name" in vars(kind) or "name" in kind.model_fields)
    ]


def adopt(kinds: Iterable[type[Policy]], origin: Origin) -> list[str]:
    """Register external policies and return their names. If one is invalid, register none.

    Args:
        kinds: The policies' classes.
        origin: The file or package that defines the classes.

    Raises:
        PolicyError: a policy cannot be used, so no policy has been registered.
    """
    ready: dict[str, type[Policy]] = {}
    for kind in kinds:
        try:
            ready[_validated_name(kind, ready)] = contained(kind, origin)
        except ValueError as error:
            raise PolicyError(f"{origin.file}: {error}") from error
    for kind in ready.values():
        policies.register(kind)
    return list(ready)


def _validated_name(kind: type[Policy], taken: Collection[str]) -> str:
    """Return the name of an external policy, after checking that it may be registered.

    Args:
        kind: The policy's class.
        taken: Names of other policies of the same file.

    Raises:
        ValueError: the name is malformed, taken, or declared as a parameter.
    """
    if "name" in kind.model_fields:
        raise ValueError(
            f"class {kind.__name__}: the name is not a parameter; write it without a type, "
            'as name = "mine"'
        )
    name = kind.name
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ValueError(
            f"class {kind.__name__}: {name!r} is not a name of small letters, digits and dashes"
        )
    if name in taken:
        raise ValueError(f"two classes have the name {name!r}")
    if name in policies.ours():
        raise ValueError(f"Longshare has a policy {name!r}; give yours another name")
    return name
