"""What the embedded master knows: agents, frameworks, offers, tasks."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos.bag import Bag, Resource
from frameworks.local_mesos.clock import Timer

Capability = mesos.FrameworkInfo.Capability

TERMINAL = frozenset(
    {
        v1.TASK_FINISHED,
        v1.TASK_FAILED,
        v1.TASK_KILLED,
        v1.TASK_ERROR,
        v1.TASK_LOST,
        v1.TASK_DROPPED,
        v1.TASK_GONE,
        v1.TASK_GONE_BY_OPERATOR,
    }
)


class Subscriber(Protocol):
    """A scheduler's open stream."""

    stream_id: str

    def send(self, event: v1.Event) -> None:
        """Queue an event."""

    def close(self) -> None:
        """End the stream after what is queued."""


class AllocatorSide(Protocol):
    """Where the master's allocator calls go."""

    @property
    def sequence(self) -> int:
        """Sequence number of the latest call."""

    def tell(self, event: contract.Event) -> None:
        """Number, stamp and send a call; without a session it is dropped (see `snapshot`)."""


@dataclass(slots=True, eq=False)
class Offer:
    """Resources in the hands of a framework that has not answered yet."""

    id: str
    framework: str
    agent: str
    role: str
    resources: list[Resource]
    made_ns: int
    """When, in the master's time."""


@dataclass(slots=True, eq=False)
class Executor:
    """A custom executor; holds its resources until it ends."""

    info: v1.ExecutorInfo
    agent: str
    role: str
    resources: list[Resource]

    @property
    def id(self) -> str:
        """The id that its framework gave it."""
        return self.info.executor_id.value


@dataclass(slots=True, eq=False)
class EmbeddedTask:
    """A task, from its launch until its terminal update is acknowledged."""

    info: v1.TaskInfo
    framework: str
    agent: str
    role: str
    resources: list[Resource]
    executor: str | None
    """Id of its custom executor."""
    state: v1.TaskState.ValueType = v1.TASK_STAGING
    """The latest that the master has heard of."""
    reported: v1.TaskState.ValueType | None = None
    """That of the update which the scheduler was sent last."""
    held: bool = True
    """Whether its resources are still its own."""
    ended: bool = False
    """Whether its agent has seen its end; the master hears of it with the next update."""
    kill_when_back: bool = False
    """Whether it was to be killed while its agent was not connected."""
    end: Timer | None = None
    """When it will finish."""
    updates: deque[v1.TaskStatus] = field(default_factory=deque)
    """Of the agent, oldest first; the first one waits for its acknowledgement."""
    resend: Timer | None = None
    statuses: list[v1.TaskStatus] = field(default_factory=list)
    """What the master has heard of it, in order, without repetitions."""

    @property
    def id(self) -> str:
        """The id that its framework gave it."""
        return self.info.task_id.value


@dataclass(slots=True, eq=False)
class EmbeddedAgent:
    """A virtual agent, and the master's book of what is free on it."""

    id: str
    hostname: str
    port: int
    total: list[Resource]
    attributes: list[mesos.Attribute]
    registered: float
    """Seconds since the Unix epoch."""
    active: bool = True
    """Whether it is connected."""
    added_at: int = 0
    """Sequence number of its latest AddAgent."""
    free: Bag = field(init=False)

    def __post_init__(self) -> None:
        self.free = Bag(self.total)

    def info(self) -> mesos.SlaveInfo:
        """Describe the agent as it would describe itself."""
        return mesos.SlaveInfo(
            hostname=self.hostname,
            port=self.port,
            id=mesos.SlaveID(value=self.id),
            resources=self.total,
            attributes=self.attributes,
        )

    def url(self) -> v1.URL:
        """Say where a real agent would answer."""
        address = v1.Address(hostname=self.hostname, ip="127.0.0.1", port=self.port)
        return v1.URL(scheme="http", address=address, path="/slave(1)")


@dataclass(slots=True, eq=False)
class EmbeddedFramework:
    """A framework, from its first subscription to its removal."""

    id: str
    info: mesos.FrameworkInfo
    suppressed: set[str]
    registered: float
    """Seconds since the Unix epoch."""
    reregistered: float
    """Likewise, of its latest subscription."""
    unregistered: float = 0.0
    """Likewise, of its end."""
    subscriber: Subscriber | None = None
    heartbeat: Timer | None = None
    removal: Timer | None = None
    """Ends it when it does not come back."""
    offers: dict[str, Offer] = field(default_factory=dict)
    tasks: dict[str, EmbeddedTask] = field(default_factory=dict)
    executors: dict[tuple[str, str], Executor] = field(default_factory=dict)
    """(agent, executor id) → executor"""
    completed: deque[EmbeddedTask] = field(default_factory=lambda: deque(maxlen=1000))

    @property
    def connected(self) -> bool:
        """Whether its scheduler is there; in the embedded Mesos that is: active."""
        return self.subscriber is not None

    @property
    def roles(self) -> frozenset[str]:
        """The roles it is subscribed to."""
        return roles_of(self.info)

    def capable(self, capability: Capability.Type.ValueType) -> bool:
        """Whether it declared a capability."""
        return any(declared.type == capability for declared in self.info.capabilities)

    def send(self, event: v1.Event) -> None:
        """Send an event if the scheduler is there."""
        if self.subscriber is not None:
            self.subscriber.send(event)

    def used(self) -> Iterator[tuple[str, str, list[Resource]]]:
        """Go through what its tasks and executors hold: agent, role, resources."""
        for task in self.tasks.values():
            if task.held:
                yield task.agent, task.role, task.resources
        for executor in self.executors.values():
            yield executor.agent, executor.role, executor.resources

    def holdings(self) -> Iterator[tuple[str, str, list[Resource]]]:
        """Go through all that it holds, offers included: agent, role, resources."""
        yield from self.used()
        for offer in self.offers.values():
            yield offer.agent, offer.role, offer.resources


def roles_of(info: mesos.FrameworkInfo) -> frozenset[str]:
    """Return the roles that a framework subscribes to."""
    if any(declared.type == Capability.MULTI_ROLE for declared in info.capabilities):
        return frozenset(info.roles)
    return frozenset((info.role,))


def allocated(resources: Iterable[Resource], role: str) -> list[Resource]:
    """Return copies of resources that say which role they are allocated to."""
    copies = []
    for resource in resources:
        copy = Resource()
        copy.CopyFrom(resource)
        copy.allocation_info.role = role
        copies.append(copy)
    return copies


def serialised(resources: Iterable[Resource]) -> list[bytes]:
    """Return resources as the contract carries them."""
    return [resource.SerializeToString(deterministic=True) for resource in resources]
