"""One agent: its description, its total resources, and the resources allocated on it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from allocator.cluster.input.limits import Limits
from allocator.cluster.input.quarantine import ValidationError
from allocator.cluster.input.text import excerpt, readable, text_of
from allocator.cluster.resources import NOTHING, Resources
from allocator.cluster.resources.amounts import covers, minus, plus
from allocator.contract import mesos_pb2 as mesos

_FEW_ALLOCATIONS = 16
"""Number of allocations on an agent up to which their bags are subtracted one after the other."""


class _Remainder:
    """The total of an agent minus the resources allocated on it, kind by kind.

    Entries that are used up are kept, so the order of kinds is always the order in the total.
    """

    def __init__(self, total: Resources, allocations: Iterable[Resources]) -> None:
        self._total = total
        self._amounts = dict(total.items())
        """Amounts, also of zero. Copies of a shared volume may be negative."""
        self.exact = True
        """False if more than the total is allocated, except of shared volumes. Allocated resources
        can then not be added again."""
        for allocated in allocations:
            self.subtract(allocated)

    def subtract(self, allocated: Resources) -> None:
        """Subtract allocated resources, clipped at zero."""
        amounts = self._amounts
        for kind, amount in allocated.items():
            present = amounts.get(kind)
            if kind.shared and isinstance(present, int) and isinstance(amount, int):
                amounts[kind] = present - amount
            elif present is not None:
                self.exact = self.exact and covers(present, amount)
                amounts[kind] = minus(present, amount)
            elif not kind.shared:
                self.exact = False

    def add(self, released: Resources) -> None:
        """Add resources that were allocated, and are contained in the total."""
        for kind, amount in released.items():
            if kind in self._amounts:
                self._amounts[kind] = plus(self._amounts[kind], amount)

    def free(self) -> Resources:
        """Return the resources that are not allocated, and all shared volumes."""
        free = {
            kind: n for kind, n in self._amounts.items() if (n > 0 if isinstance(n, int) else n)
        }
        return Resources(free).with_shared_of(self._total)


@dataclass(slots=True, eq=False)
class Agent:
    """One agent: its total resources, and the resources allocated on it, by framework and role.

    Allocated resources are offered or used; `Ledger.used` tells the two apart. The agent's
    ledger may name frameworks that have not been added yet. The allocated resources may exceed the
    total.
    """

    id: str
    """The agent ID that Mesos assigned."""
    info: mesos.SlaveInfo
    """The agent's description, as last sent by the master; empty if unreadable."""
    capabilities: frozenset[int]
    """Values of `SlaveInfo.Capability.Type`."""
    total: Resources
    """All resources of the agent, allocated or free."""
    validation_error: ValidationError | None = None
    """Why the agent is not offered although it may be active; None if the agent may be offered."""
    left_out: bool = False
    """Whether a message left out the agent's resources, and the resources allocated on it."""
    active: bool = True
    """False while the agent is deactivated (disconnected from the master)."""
    hostname: str = field(init=False)
    """Host name; bytes that are not UTF-8 are escaped."""
    region: str | None = field(init=False)
    """Region of the agent's fault domain; None without a fault domain."""
    has_gpus: bool = field(init=False)
    """True if frameworks without the GPU_RESOURCES capability may be excluded from the agent."""
    multi_role: bool = field(init=False)
    """Whether the agent supports frameworks with several roles."""
    hierarchical_role: bool = field(init=False)
    """Whether the agent supports hierarchical roles such as `eng/web`."""
    _ledger: dict[str, dict[str, Resources]] = field(default_factory=dict)
    """framework → role → allocated resources; without empty entries"""
    _available: Resources | None = None
    """Cached free resources; None if they must be recomputed."""
    _exact: bool = field(init=False)
    """Whether allocated and free resources added up to the total when free resources were
    computed last."""
    _remainder: _Remainder | None = None
    """The remainder of an agent with shared volumes or many allocations, if it has been computed
    since the agent was over-allocated."""
    turns: dict[str, int] = field(default_factory=dict)
    """By principal, the number of the bit at which turns of its clients begin (`SharingLimit`)."""

    def __post_init__(self) -> None:
        self.update(self.info, self.capabilities, self.total)

    def update(self, info: mesos.SlaveInfo, capabilities: Iterable[int], total: Resources) -> None:
        """Replace the agent's description, capabilities and total.

        Args:
            info: The new description.
            capabilities: Values of `SlaveInfo.Capability.Type`.
            total: The new total, which may be less than the allocated resources.
        """
        self.info = info
        self.hostname = readable(text_of(info, "hostname"))
        self.capabilities = frozenset(capabilities)
        self.total = total
        self.region = None
        if info.HasField("domain") and info.domain.HasField("fault_domain"):
            self.region = readable(text_of(info.domain.fault_domain.region, "name"))
        self.has_gpus = total.scalars["gpus"] > 0
        self.multi_role = mesos.SlaveInfo.Capability.MULTI_ROLE in self.capabilities
        self.hierarchical_role = mesos.SlaveInfo.Capability.HIERARCHICAL_ROLE in self.capabilities
        self._available = self._remainder = None

    @property
    def available(self) -> Resources:
        """Resources that may be offered: the total minus allocated resources, clipped at zero.

        Shared volumes are always available.
        """
        if self._available is None:
            self._available, self._exact, self._remainder = self._compute_available()
        return self._available

    @property
    def available_for_display(self) -> Resources:
        """Return the available resources for a display, without filling the cache of `available`.

        The cache depends on the order in which resources were added. A display that filled the
        cache could change the order of resources in a later offer. Replay of the event log would
        then no longer be exact.
        """
        return self._compute_available()[0] if self._available is None else self._available

    def _compute_available(self) -> tuple[Resources, bool, _Remainder | None]:
        """Compute values of `_available`, `_exact` and `_remainder`, without a change."""
        if self.total.has_shared or self.allocation_count > _FEW_ALLOCATIONS:
            remainder = self._remainder
            if remainder is None:
                remainder = _Remainder(self.total, [held for _, _, held in self.allocations()])
            exact = remainder.exact and not self.total.has_shared
            return remainder.free(), exact, remainder if remainder.exact else None
        free, exact = self.total, True
        for roles in self._ledger.values():
            for allocated in roles.values():
                exact = exact and allocated in free
                free = free - allocated
        return free, exact, None

    def allocations(self) -> Iterator[tuple[str, str, Resources]]:
        """Iterate over all allocations on the agent: framework ID, role, resources."""
        for framework, roles in self._ledger.items():
            for role, resources in roles.items():
                yield framework, role, resources

    def holders(self) -> list[str]:
        """Return the IDs of frameworks with allocated (offered or used) resources on the agent."""
        return list(self._ledger)

    @property
    def allocation_count(self) -> int:
        """Number of allocations on the agent, each to a framework in a role."""
        return sum(map(len, self._ledger.values()))

    def held(self, framework: str, role: str) -> Resources:
        """Return the resources on this agent that are allocated to the framework for the role."""
        roles = self._ledger.get(framework)
        return NOTHING if roles is None else roles.get(role, NOTHING)

    def holds(self, framework: str) -> bool:
        """Return whether the framework has allocated (offered or used) resources on the agent."""
        return framework in self._ledger

    def available_after_release(self, resources: Resources) -> Resources | None:
        """Return the available resources that the agent will have after a release, if predictable.

        The result is None if the agent is over-allocated, because released resources then need not
        become available. It is also None if a volume is released with another mount path than the
        agent offers. The caller then lets `available` recompute the resources.

        Args:
            resources: Allocated resources that are about to be released.
        """
        if self._available is None or not self._exact or resources.has_whole:
            return None
        return self._available + resources

    def set_available(self, available: Resources) -> None:
        """Set the cached available resources to a result that the caller has computed."""
        self._available = available

    def held_by(self, framework: str) -> dict[str, Resources]:
        """Return the framework's allocated resources on this agent, by role."""
        return dict(self._ledger.get(framework, {}))

    def set_held(self, framework: str, role: str, resources: Resources) -> None:
        """Replace the resources allocated to the framework for the role on this agent.

        Empty `resources` remove the allocation.
        """
        if self._remainder is not None:
            self._remainder.add(self.held(framework, role))
            self._remainder.subtract(resources)
            if not self._remainder.exact:
                self._remainder = None
        if resources:
            self._ledger.setdefault(framework, {})[role] = resources
        elif role in (roles := self._ledger.get(framework, {})):
            del roles[role]
            if not roles:
                del self._ledger[framework]
        self._available = None


def parse_agent_info(
    agent_id: str, data: bytes, limits: Limits
) -> tuple[mesos.SlaveInfo, ValidationError | None]:
    """Parse a serialised SlaveInfo; return the message and a validation error, if any.

    An agent with an error must not be offered. If the description is unreadable, the returned
    message is empty, so host name and attributes are unknown.

    Args:
        agent_id: The ID by which the master added the agent.
        data: The serialised SlaveInfo.
        limits: Bounds on the size of the message.
    """
    if len(data) > limits.subscription:
        message = f"its info has {len(data)} bytes, more than {limits.subscription}"
        return mesos.SlaveInfo(), ValidationError("limit", f"{message} (limits.subscription)")
    try:
        info = mesos.SlaveInfo.FromString(data)
    except DecodeError as error:
        message = f"its info is not a serialised mesos.SlaveInfo: {error}"
        return mesos.SlaveInfo(), ValidationError("malformed", message)
    if info.HasField("id") and (named := text_of(info.id, "value")) != agent_id:
        message = f"its info names another id, {excerpt(named)!r}"
        return info, ValidationError("contradiction", message)
    flaw = _excess(info, limits)
    return (info, None) if flaw is None else (mesos.SlaveInfo(), flaw)


def _excess(info: mesos.SlaveInfo, limits: Limits) -> ValidationError | None:
    """Return an error if an agent's description exceeds the limits; None otherwise."""
    if not limits.entries:
        return None
    if len(text_of(info, "hostname")) > limits.name:
        message = f"its host name has more than {limits.name} bytes (limits.name)"
        return ValidationError("limit", message)
    number = len(info.attributes)
    if number <= limits.entries:
        number += sum(len(a.set.item) + len(a.ranges.range) for a in info.attributes)
    if number <= limits.entries:
        return None
    message = f"it has {number} attributes with items and ranges, more than {limits.entries}"
    return ValidationError("limit", f"{message} (limits.entries)")


def attributes(info: mesos.SlaveInfo) -> frozenset[bytes]:
    """Return an agent's attributes in serialised form, as a set that can be compared."""
    return frozenset(
        attribute.SerializePartialToString(deterministic=True) for attribute in info.attributes
    )
