"""What an operator decides about the engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from allocator.cluster.agents.placement_constraints import Constraint
from allocator.cluster.backfill.holds import Holding
from allocator.cluster.input.limits import Limits
from allocator.fairness.policies import Policy
from allocator.fairness.quantities import Quantities

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
    allocation: Literal["event", "batch"] = "event"
    """Whether freed resources are offered at once, or at the next tick as stock Mesos does."""
    demands: Mapping[str, Quantities] = field(default_factory=dict)
    """What one task needs, by framework name; wins over what frameworks say themselves."""
    constraints: Mapping[str, Constraint] = field(default_factory=dict)
    """Where tasks may run, by framework name; on top of what frameworks say themselves."""
    whole_from: int = 0
    """From how many agents that are free at once tasks are laid on as few of them as will do; 0:
    never, which is what event logs mean that do not say."""
    exact_ties: bool = True
    """Whether users are equal only if their priorities are the same float; if not, users whom only
    rounding tells apart are equal, too. True is what event logs mean that do not say."""
    learn_demands: bool = False
    """Whether to take what a framework keeps of its offers for its task, if it does not say."""
    hold_for: Holding = "off"
    """For how many clients an agent may be held back whose next task fits nowhere now."""
    longest_hold: float = 600.0
    """Seconds for which an agent is held back at most."""
    counts_for: float | None = None
    """How many times its use a user counts for in n at most, unless an operator has named it. None:
    every known user counts whole, as in the papers. Event logs without this setting mean None."""
    roles_leave_room: bool = False
    """Whether principals leave each other room in `limits.all_roles`; if not, the first that come
    may take all, which is what event logs mean that do not say."""
    hold_by_turns: bool = False
    """Whether the client that has been longest without a hold is first. The default is the rule of
    event logs that do not say."""
    shared_volumes_once: bool = False
    """Whether a shared volume counts once for a user, and not for each of its clients. The default
    is the rule of event logs that do not say."""
    limits: Limits = field(default_factory=Limits)
    """How much of one thing anybody may say."""
    seed: int = 0
    """Of the order in which a run visits agents."""
    forget_after: float = 86400.0
    """Seconds for which an undeclared user without frameworks or allocation stays known; longer
    while it owes something."""
