"""What the allocator knows of an agent, and who holds what of it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from allocator.cluster.input.limits import Limits
from allocator.cluster.input.quarantine import ValidationError
from allocator.cluster.input.text import readable
from allocator.cluster.resources import NOTHING, Resources
from allocator.contract import mesos_pb2 as mesos


@dataclass(slots=True, eq=False)
class Agent:
    """One agent: its total, and the ledger of what is allocated on it.

    "Allocated" is offered or used; what tells the two apart is `running`. The ledger names
    frameworks that have not been added yet, too. What is allocated may exceed the total.
    """

    id: str
    info: mesos.SlaveInfo
    capabilities: frozenset[int]
    """Values of `SlaveInfo.Capability.Type`."""
    total: Resources
    flaw: ValidationError | None = None
    """Why it is not offered, though it may be active; None: it may be."""
    active: bool = True
    hostname: str = field(init=False)
    """What is not UTF-8 of it is escaped."""
    region: str | None = field(init=False)
    """Of its fault domain, if it has one."""
    has_gpus: bool = field(init=False)
    """Whether frameworks without GPU_RESOURCES may have to keep off."""
    multi_role: bool = field(init=False)
    """Whether the agent understands frameworks with several roles."""
    hierarchical_role: bool = field(init=False)
    """Whether the agent understands roles such as `eng/web`."""
    _ledger: dict[str, dict[str, Resources]] = field(default_factory=dict)
    """framework → role → resources; no empty entries."""
    _available: Resources | None = None
    """What is free; None when it must be computed again."""
    _exact: bool = field(init=False)
    """Whether what is allocated and what was free made up the total when last computed."""

    def __post_init__(self) -> None:
        self.update(self.info, self.capabilities, self.total)

    def update(self, info: mesos.SlaveInfo, capabilities: Iterable[int], total: Resources) -> None:
        """Take over what the agent says of itself now; the total may be less than allocated."""
        self.info = info
        self.hostname = readable(info.hostname)
        self.capabilities = frozenset(capabilities)
        self.total = total
        fault = info.domain.fault_domain
        self.region = fault.region.name if info.domain.HasField("fault_domain") else None
        self.has_gpus = total.scalars["gpus"] > 0
        self.multi_role = mesos.SlaveInfo.Capability.MULTI_ROLE in self.capabilities
        self.hierarchical_role = mesos.SlaveInfo.Capability.HIERARCHICAL_ROLE in self.capabilities
        self._available = None

    @property
    def available(self) -> Resources:
        """What may be offered: the total less what is allocated, clipped at nothing."""
        if self._available is None:
            self._available, self._exact = self._added_up()
        return self._available

    @property
    def shown(self) -> Resources:
        """The same, for people to look at: it leaves no trace.

        What comes back is put in the order of what is there, or all is added up anew; so who has
        looked must not be seen in the order of an offer, or replay would not be exact.
        """
        return self._added_up()[0] if self._available is None else self._available

    def _added_up(self) -> tuple[Resources, bool]:
        """Return what is free, and whether that and what is allocated make up the total."""
        free = self.total
        exact = not free.has_shared
        for _framework, _role, held in self.allocations():
            exact = exact and held in free
            free = free - held
        return free.with_shared_of(self.total), exact

    def allocations(self) -> Iterator[tuple[str, str, Resources]]:
        """Go through the ledger: framework, role, resources."""
        for framework, roles in self._ledger.items():
            for role, held in roles.items():
                yield framework, role, held

    def holders(self) -> list[str]:
        """Return the frameworks that hold something here, or are offered it."""
        return list(self._ledger)

    def held(self, framework: str, role: str) -> Resources:
        """Return what the framework holds here for the role."""
        roles = self._ledger.get(framework)
        return NOTHING if roles is None else roles.get(role, NOTHING)

    def holds(self, framework: str) -> bool:
        """Whether the framework holds anything here."""
        return framework in self._ledger

    def freed(self, resources: Resources) -> Resources | None:
        """Return what will be free once held resources are released; None: that must be added up.

        Where more is allocated than there is, what is released need not become free. A volume
        may come back as its task had mounted it, but is offered as the agent has it.
        """
        if self._available is None or not self._exact or resources.has_whole:
            return None
        return self._available + resources

    def set_available(self, available: Resources) -> None:
        """Say what is free, where that is known more cheaply than by adding everything up."""
        self._available = available

    def held_by(self, framework: str) -> dict[str, Resources]:
        """Return what the framework holds here: role → resources."""
        return dict(self._ledger.get(framework, {}))

    def hold(self, framework: str, role: str, resources: Resources) -> None:
        """Say anew what a framework holds here for a role."""
        if resources:
            self._ledger.setdefault(framework, {})[role] = resources
        elif role in (roles := self._ledger.get(framework, {})):
            del roles[role]
            if not roles:
                del self._ledger[framework]
        self._available = None


def read_agent_info(
    agent_id: str, data: bytes, limits: Limits
) -> tuple[mesos.SlaveInfo, ValidationError | None]:
    """Read a serialised SlaveInfo, and return what is wrong with it.

    Nobody knows then where the agent is, so it is not offered.
    """
    if len(data) > limits.subscription:
        words = f"its info has {len(data)} bytes, more than {limits.subscription}"
        return mesos.SlaveInfo(), ValidationError("limit", f"{words} (limits.subscription)")
    try:
        info = mesos.SlaveInfo.FromString(data)
    except DecodeError as error:
        words = f"its info is not a serialised mesos.SlaveInfo: {error}"
        return mesos.SlaveInfo(), ValidationError("malformed", words)
    if info.HasField("id") and info.id.value != agent_id:
        words = f"its info names another id, {readable(info.id.value)!r}"
        return info, ValidationError("contradiction", words)
    return info, None


def attributes(info: mesos.SlaveInfo) -> frozenset[bytes]:
    """Return an agent's attributes as a set that can be compared."""
    return frozenset(
        attribute.SerializePartialToString(deterministic=True) for attribute in info.attributes
    )
