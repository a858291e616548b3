"""Loads policies of installed packages: entry points of the group `longshare.policies`."""

import inspect
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from allocator.fairness.policies import Policy
from allocator.plugins.adoption import adopt, origin_of
from allocator.plugins.errors import PolicyError

GROUP = "longshare.policies"


def installed() -> list[str]:
    """Return the names of policies that installed packages offer, without importing any package."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def load_installed(name: str) -> bool:
    """Register the policy that an installed package offers under a name.

    Returns:
        Whether a package offers this name.

    Raises:
        PolicyError: two packages offer the name, or the policy cannot be used.
    """
    points = list(entry_points(group=GROUP, name=name))
    if not points:
        return False
    if len(points) > 1:
        offering = " and ".join(sorted(point.value for point in points))
        raise PolicyError(f"policy {name!r}: {offering} offer it; remove one of the packages")
    _adopt(points[0])
    return True


def _adopt(point: EntryPoint) -> None:
    """Import the class of an entry point and register it as a policy.

    Raises:
        PolicyError: the import fails, or the class cannot be used.
    """
    label = f"entry point {point.name} = {point.value} of {GROUP}"
    try:
        kind = point.load()
        file = inspect.getsourcefile(kind) if isinstance(kind, type) else None
        content = b"" if file is None else Path(file).read_bytes()
    except (Exception, SystemExit) as error:
        raise PolicyError(f"{label}: {type(error).__name__}: {error}") from error
    if not isinstance(kind, type) or not issubclass(kind, Policy):
        raise PolicyError(f"{label}: {kind!r} is not a policy; the entry point must name a class")
    policy_name = getattr(kind, "name", None)
    if policy_name != point.name:
        raise PolicyError(f"{label}: the class calls itself {policy_name!r}; both must be the same")
    adopt([kind], origin_of(file or point.value, content))
