"""What an operator decides about the engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from allocator.fairness.policies import Policy

UserKey = Literal["role", "framework", "principal", "framework_name"]
"""What a user is: fairness is among these."""


@dataclass(frozen=True, slots=True)
class DeclaredUser:
    """A user that is known, and counts in n, before its first framework shows up."""

    name: str
    weight: float = 1.0
    commitment: float | Mapping[str, float] = 0.0
    """Initial commitment as a share of the cluster: of every resource, or by resource name."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The policy, who its users are, and the seed of the one random choice the engine makes."""

    policy: Policy
    user_key: UserKey = "role"
    users: tuple[DeclaredUser, ...] = field(default=())
    seed: int = 0
    """Of the order in which a run visits agents."""
    forget_after: float = 86400.0
    """Seconds for which an undeclared user without frameworks or allocation stays known; longer
    while it owes something."""
