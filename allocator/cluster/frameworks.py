"""What the allocator knows of a framework, and which agents and resources it can take."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from google.protobuf.message import DecodeError

from allocator.cluster.agents import Agent
from allocator.cluster.constraints import Constraint, parse_labels
from allocator.cluster.errors import InvalidEvent
from allocator.cluster.resources import Kind, Resources
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.quantities import Quantities

DEMAND = "longshare.demand"
"""Label by which a framework says what one of its tasks needs: `cpus:1;mem:1024`."""

Alternatives: TypeAlias = tuple[Quantities, ...]
"""Minimum allocatable resources: an offer must reach one of these; none at all: any will do."""

_Capability = mesos.FrameworkInfo.Capability


class Client(NamedTuple):
    """A framework in one of its roles."""

    role: str
    framework: str


@dataclass(slots=True, eq=False)
class Framework:
    """One framework as its latest subscription describes it."""

    id: str
    info: mesos.FrameworkInfo
    active: bool
    suppressed: set[str]
    """Roles, among its own, for which it wants no offers."""
    roles: frozenset[str] = field(init=False)
    capabilities: frozenset[int] = field(init=False)
    """Values of `FrameworkInfo.Capability.Type`."""
    min_allocatable: dict[str, Alternatives] = field(init=False)
    """By role; replaces the master's own."""
    demand: Quantities | None = field(init=False)
    """What one task needs, as the framework says by a label or, later, by a request."""
    unreadable: str = field(init=False)
    """What is wrong with the label for its demand, which is as good as none then."""
    constraint: Constraint = field(init=False)
    """Where its tasks may run, as it says by labels."""

    def __post_init__(self) -> None:
        self.update(self.info, self.suppressed)

    def update(self, info: mesos.FrameworkInfo, suppressed: Iterable[str]) -> None:
        """Take over a new subscription.

        Raises:
            InvalidEvent: its minimum allocatable resources are no amounts; nothing has changed.
        """
        self.min_allocatable = _min_allocatable(info)
        self.demand, self.unreadable = _demand(info)
        self.constraint = parse_labels(info.labels)
        self.info = info
        self.capabilities = frozenset(capability.type for capability in info.capabilities)
        multi_role = _Capability.MULTI_ROLE in self.capabilities
        self.roles = frozenset(info.roles) if multi_role else frozenset((info.role,))
        self.suppressed = set(suppressed) & self.roles

    def wants(self, role: str) -> bool:
        """Whether the framework is to be offered resources for the role."""
        return self.active and role in self.roles and role not in self.suppressed

    def can_use(self, agent: Agent, role: str, rules: "Rules") -> bool:
        """Whether the framework and the agent fit together at all (§3.6)."""
        if (
            rules.filter_gpus
            and agent.has_gpus
            and _Capability.GPU_RESOURCES not in self.capabilities
        ):
            return False
        if (
            agent.region is not None
            and agent.region != rules.region
            and _Capability.REGION_AWARE not in self.capabilities
        ):
            return False
        if _Capability.MULTI_ROLE in self.capabilities and not agent.multi_role:
            return False
        return "/" not in role or agent.hierarchical_role

    def share_of(self, available: Resources, role: str) -> Resources:
        """Return what of an agent's available resources the framework can take for the role."""
        if available.ordinary:
            return available
        return available.where(lambda kind: kind.offerable_to(role) and self._understands(kind))

    def _understands(self, kind: Kind) -> bool:
        return (
            (not kind.revocable or _Capability.REVOCABLE_RESOURCES in self.capabilities)
            and (not kind.shared or _Capability.SHARED_RESOURCES in self.capabilities)
            and (not kind.refined or _Capability.RESERVATION_REFINEMENT in self.capabilities)
        )


@dataclass(frozen=True, slots=True)
class Rules:
    """What the master's flags say about who may be offered what (§3.6)."""

    min_allocatable: Alternatives = ()
    filter_gpus: bool = False
    region: str | None = None
    """The master's own; agents of others are for frameworks that know about regions."""


def _demand(info: mesos.FrameworkInfo) -> tuple[Quantities | None, str]:
    """Return the demand, and what is wrong with the label.

    No master checks labels. One framework's slip must not end everybody's offers.
    """
    for label in info.labels.labels:
        if label.key == DEMAND:
            try:
                return Quantities.parse(label.value) or None, ""
            except ValueError as error:
                return None, f"label {DEMAND}: {error}"
    return None, ""


def _min_allocatable(info: mesos.FrameworkInfo) -> dict[str, Alternatives]:
    try:
        return {
            role: tuple(
                Quantities.from_doubles({n: s.value for n, s in alternative.quantities.items()})
                for alternative in filters.min_allocatable_resources.quantities
            )
            for role, filters in info.offer_filters.items()
            if filters.HasField("min_allocatable_resources")
        }
    except ValueError as error:
        raise InvalidEvent(f"offer_filters: min_allocatable_resources: {error}") from error


def parse_framework_info(framework_id: str, data: bytes) -> mesos.FrameworkInfo:
    """Read a serialised FrameworkInfo.

    Raises:
        InvalidEvent: it is malformed, or of another framework.
    """
    try:
        info = mesos.FrameworkInfo.FromString(data)
    except DecodeError as error:
        raise InvalidEvent(
            f"framework {framework_id}: info is not a serialised mesos.FrameworkInfo: {error}"
        ) from error
    if info.HasField("id") and info.id.value != framework_id:
        raise InvalidEvent(
            f"framework {framework_id}: its info names another id, {info.id.value!r}"
        )
    return info
