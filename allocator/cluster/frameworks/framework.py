"""One framework: its latest subscription, and the agents and resources that its roles can use."""

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
_PLACING = frozenset(
    {
        _Capability.GPU_RESOURCES,
        _Capability.REGION_AWARE,
        _Capability.MULTI_ROLE,
        _Capability.REVOCABLE_RESOURCES,
        _Capability.SHARED_RESOURCES,
        _Capability.RESERVATION_REFINEMENT,
    }
)
"""Capabilities that decide about agents and kinds of resources."""

MissingCapability: TypeAlias = Literal[
    "gpu_resources",
    "region_aware",
    "multi_role",
    "hierarchical_role",
    "revocable_resources",
    "shared_resources",
    "reservation_refinement",
]
"""A capability that a framework lacks; for `multi_role` and `hierarchical_role`, that an agent
lacks."""


class Client(NamedTuple):
    """A framework in one of its roles: the party that receives offers."""

    role: str
    framework: str
    """The framework's ID."""


@dataclass(slots=True, eq=False)
class Framework:
    """One framework: its latest subscription, its activity, and its suppressed roles."""

    id: str
    """The framework ID that Mesos assigned."""
    subscription: Subscription
    """The latest accepted subscription."""
    active: bool
    """Whether the framework's scheduler is connected."""
    suppressed: set[str]
    """Roles, among the framework's own, in which the framework wants no offers."""
    name: str = field(init=False)
    roles: frozenset[str] = field(init=False)
    """Roles of the latest accepted subscription; none if no subscription was accepted."""
    capabilities: frozenset[int] = field(init=False)
    """Values of `FrameworkInfo.Capability.Type`."""
    placing_capabilities: frozenset[int] = field(init=False)
    """Capabilities on which `lacking` and `lacking_for` depend."""
    min_allocatable: dict[str, Alternatives] = field(init=False)
    """role → minimum allocatable resources, in place of the master's minimum"""
    demand: Quantities | None = field(init=False)
    """Resources of one task, as stated by a label or, later, by a request; None if unknown."""
    constraint: Constraint = field(init=False)
    """Placement constraint of the framework's tasks, as stated by labels."""
    unknown_resources: tuple[object, tuple[str, ...]] | None = field(init=False)
    """Descriptions of resources that the framework needs but no agent has had, after the values
    from which they were made; None if not made since the latest subscription."""

    def __post_init__(self) -> None:
        self.update(self.subscription, self.suppressed)

    def update(self, subscription: Subscription, suppressed: Iterable[str]) -> None:
        """Replace the subscription and the set of suppressed roles."""
        self.subscription = subscription
        self.name = subscription.name
        self.roles = subscription.roles
        self.capabilities = subscription.capabilities
        self.placing_capabilities = subscription.capabilities & _PLACING
        self.min_allocatable = subscription.min_allocatable
        self.demand = subscription.demand
        self.constraint = subscription.constraint
        self.unknown_resources = None
        self.suppressed = set(suppressed) & subscription.roles

    def wants(self, role: str) -> bool:
        """Return whether the framework wants offers in the role.

        The framework must be connected, and subscribed with the role. Its subscription must be
        valid, and it must not have suppressed the role.
        """
        return (
            self.active
            and self.subscription.flaw is None
            and role in self.roles
            and role not in self.suppressed
        )

    def can_use(self, agent: Agent, role: str, rules: "OfferRules") -> bool:
        """Return whether the framework has all capabilities that offers of an agent require.

        Args:
            agent: The agent that would be offered.
            role: The role in which the agent would be offered.
            rules: The master's flags that restrict offers (Mesos semantics, §3.6).
        """
        return self.missing_capability(agent, role, rules) is None

    def missing_capability(
        self, agent: Agent, role: str, rules: "OfferRules"
    ) -> MissingCapability | None:
        """Return a capability that offers of an agent require and the framework lacks; else None.

        Args:
            agent: The agent that would be offered.
            role: The role in which the agent would be offered.
            rules: The master's flags that restrict offers (Mesos semantics, §3.6).
        """
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

    def usable_part(self, available: Resources, role: str) -> Resources:
        """Return the part of an agent's available resources that the framework can use in a role.

        The result excludes resources that are reserved for other roles. It also excludes kinds of
        resources that require a capability that the framework lacks.
        """
        if available.ordinary:
            return available
        offerable = available.offerable_to(role)
        if not offerable.restricted:
            return offerable
        return offerable.where(lambda kind: self.lacking_for(kind) is None)

    def lacking_for(self, kind: Kind) -> MissingCapability | None:
        """Return the capability that a resource kind requires but the framework lacks, or None."""
        if kind.revocable and _Capability.REVOCABLE_RESOURCES not in self.capabilities:
            return "revocable_resources"
        if kind.shared and _Capability.SHARED_RESOURCES not in self.capabilities:
            return "shared_resources"
        if kind.refined and _Capability.RESERVATION_REFINEMENT not in self.capabilities:
            return "reservation_refinement"
        return None


@dataclass(frozen=True, slots=True)
class OfferRules:
    """The master's flags that restrict which offers are made (Mesos semantics, §3.6).

    Examples are minimum offer sizes and the treatment of agents with GPUs.
    """

    min_allocatable: Alternatives
    """Minimum allocatable resources of an offer."""
    filter_gpus: bool
    """Whether agents with GPUs are reserved for frameworks with the GPU_RESOURCES capability."""
    region: str | None
    """The master's region. Agents of other regions require the REGION_AWARE capability."""
