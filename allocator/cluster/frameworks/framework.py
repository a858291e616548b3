"""What the allocator knows of a framework, and which agents and resources it can take."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from allocator.cluster.agents.agent import Agent
from allocator.cluster.agents.placement_constraints import Constraint
from allocator.cluster.frameworks.subscription import Alternatives, Subscription
from allocator.cluster.resources import Kind, Resources
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.quantities import Quantities

_Capability = mesos.FrameworkInfo.Capability

Lack: TypeAlias = Literal[
    "gpu_resources",
    "region_aware",
    "multi_role",
    "hierarchical_role",
    "revocable_resources",
    "shared_resources",
    "reservation_refinement",
]
"""A capability that a framework lacks, or, of `multi_role` and `hierarchical_role`, an agent."""


class Client(NamedTuple):
    """A framework in one of its roles."""

    role: str
    framework: str


@dataclass(slots=True, eq=False)
class Framework:
    """One framework as its latest subscription describes it."""

    id: str
    said: Subscription
    active: bool
    suppressed: set[str]
    """Roles, among its own, for which it wants no offers."""
    name: str = field(init=False)
    roles: frozenset[str] = field(init=False)
    capabilities: frozenset[int] = field(init=False)
    """Values of `FrameworkInfo.Capability.Type`."""
    min_allocatable: dict[str, Alternatives] = field(init=False)
    """By role; replaces the master's own."""
    demand: Quantities | None = field(init=False)
    """What one task needs, as the framework says by a label or, later, by a request."""
    constraint: Constraint = field(init=False)
    """Where its tasks may run, as it says by labels."""

    def __post_init__(self) -> None:
        self.update(self.said, self.suppressed)

    def update(self, said: Subscription, suppressed: Iterable[str]) -> None:
        """Take over a new subscription."""
        self.said = said
        self.name = said.name
        self.roles = said.roles
        self.capabilities = said.capabilities
        self.min_allocatable = said.min_allocatable
        self.demand = said.demand
        self.constraint = said.constraint
        self.suppressed = set(suppressed) & said.roles

    def wants(self, role: str) -> bool:
        """Whether the framework is to be offered resources for the role."""
        return (
            self.active
            and self.said.flaw is None
            and role in self.roles
            and role not in self.suppressed
        )

    def can_use(self, agent: Agent, role: str, rules: "Rules") -> bool:
        """Whether the framework and the agent fit together at all (§3.6)."""
        return self.lacking(agent, role, rules) is None

    def lacking(self, agent: Agent, role: str, rules: "Rules") -> Lack | None:
        """Return the capability without which the framework gets nothing of an agent (§3.6)."""
        if (
            rules.filter_gpus
            and agent.has_gpus
            and _Capability.GPU_RESOURCES not in self.capabilities
        ):
            return "gpu_resources"
        if (
            agent.region is not None
            and agent.region != rules.region
            and _Capability.REGION_AWARE not in self.capabilities
        ):
            return "region_aware"
        if _Capability.MULTI_ROLE in self.capabilities and not agent.multi_role:
            return "multi_role"
        return None if "/" not in role or agent.hierarchical_role else "hierarchical_role"

    def share_of(self, available: Resources, role: str) -> Resources:
        """Return what of an agent's available resources the framework can take for the role."""
        if available.ordinary:
            return available
        return available.where(
            lambda kind: kind.offerable_to(role) and self.lacking_for(kind) is None
        )

    def lacking_for(self, kind: Kind) -> Lack | None:
        """Return the capability without which the framework is not offered a kind of resource."""
        if kind.revocable and _Capability.REVOCABLE_RESOURCES not in self.capabilities:
            return "revocable_resources"
        if kind.shared and _Capability.SHARED_RESOURCES not in self.capabilities:
            return "shared_resources"
        if kind.refined and _Capability.RESERVATION_REFINEMENT not in self.capabilities:
            return "reservation_refinement"
        return None


@dataclass(frozen=True, slots=True)
class Rules:
    """What the master's flags say about who may be offered what (§3.6)."""

    min_allocatable: Alternatives
    filter_gpus: bool
    region: str | None
    """The master's own; agents of others are for frameworks that know about regions."""
