"""What the allocator knows of an agent, and who holds what of it."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from allocator.cluster.resources import NOTHING, Resources
from allocator.contract import mesos_pb2 as mesos


@dataclass(slots=True, eq=False)
class Agent:
    """One agent: its total, and the ledger of what is allocated on it.

    "Allocated" is offered or used: an allocator cannot tell the two apart. The ledger names
    frameworks that have not been added yet, too. What is allocated may exceed the total.
    """

    id: str
    hostname: str
    capabilities: frozenset[int]
    """Values of `SlaveInfo.Capability.Type`."""
    total: Resources
    active: bool = True
    _ledger: dict[str, dict[str, Resources]] = field(default_factory=dict)
    """framework → role → resources; no empty entries."""
    _available: Resources | None = None
    """What is free; None when it must be computed again."""

    @property
    def available(self) -> Resources:
        """What may be offered: the total less what is allocated, clipped at nothing."""
        if self._available is None:
            allocated = NOTHING
            for _framework, _role, held in self.allocations():
                allocated = allocated + held
            self._available = self.total.available_after(allocated)
        return self._available

    @property
    def multi_role(self) -> bool:
        """Whether the agent understands frameworks with several roles."""
        return mesos.SlaveInfo.Capability.MULTI_ROLE in self.capabilities

    @property
    def hierarchical_role(self) -> bool:
        """Whether the agent understands roles such as `eng/web`."""
        return mesos.SlaveInfo.Capability.HIERARCHICAL_ROLE in self.capabilities

    @property
    def has_gpus(self) -> bool:
        """Whether frameworks without GPU_RESOURCES may have to keep off."""
        return self.total.scalars["gpus"] > 0

    def allocations(self) -> Iterator[tuple[str, str, Resources]]:
        """Go through the ledger: framework, role, resources."""
        for framework, roles in self._ledger.items():
            for role, held in roles.items():
                yield framework, role, held

    def held(self, framework: str, role: str) -> Resources:
        """Return what the framework holds here for the role."""
        return self._ledger.get(framework, {}).get(role, NOTHING)

    def held_by(self, framework: str) -> dict[str, Resources]:
        """Return what the framework holds here: role → resources."""
        return dict(self._ledger.get(framework, {}))

    def allocate(self, framework: str, role: str, resources: Resources) -> None:
        """Book resources as allocated."""
        roles = self._ledger.setdefault(framework, {})
        roles[role] = roles.get(role, NOTHING) + resources
        self._available = None

    def recover(self, framework: str, role: str, resources: Resources) -> bool:
        """Release resources; return whether all of them had been allocated.

        What had not is passed over.
        """
        held = self.held(framework, role)
        if not held:
            return not resources
        rest = held - resources
        roles = self._ledger[framework]
        if rest:
            roles[role] = rest
        else:
            del roles[role]
            if not roles:
                del self._ledger[framework]
        self._available = None
        return resources in held
