"""Records of the embedded master: agents, frameworks, offers, tasks."""

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
    """The open stream of a scheduler."""

    stream_id: str

    def send(self, event: v1.Event) -> None:
        """Queue an event."""

    def close(self) -> None:
        """End the stream after the queued events."""


class AllocatorSide(Protocol):
    """The receiver of the master's allocator calls."""

    @property
    def sequence(self) -> int:
        """Sequence number of the latest call."""

    def tell(self, event: contract.Event) -> None:
        """Number, stamp and send a call; without a session the call is dropped (see `snapshot`)."""


@dataclass(slots=True, eq=False)
class Offer:
    """An offer that the framework has not answered yet."""

    id: str
    framework: str
    agent: str
    role: str
    resources: list[Resource]
    made_ns: int
    """Time of the offer in the master's time, in nanoseconds since the Unix epoch."""


@dataclass(slots=True, eq=False)
class Executor:
    """A custom executor; it holds its resources until it ends."""

    info: v1.ExecutorInfo
    agent: str
    role: str
    resources: list[Resource]

    @property
    def id(self) -> str:
        """Executor id, chosen by the framework."""
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
    """Id of the custom executor, or None."""
    state: v1.TaskState.ValueType = v1.TASK_STAGING
    """Latest state known to the master."""
    reported: v1.TaskState.ValueType | None = None
    """State in the latest update sent to the scheduler."""
    held: bool = True
    """True until the task's resources are recovered."""
    ended: bool = False
    """True once the task has ended on its agent; the master learns of the end with the next
    update."""
    kill_when_back: bool = False
    """True if the task was killed while its agent was disconnected."""
    end: Timer | None = None
    """Timer of the task's regular end."""
    updates: deque[v1.TaskStatus] = field(default_factory=deque)
    """The agent's unacknowledged updates, oldest first; only the first was sent to the
    scheduler."""
    resend: Timer | None = None
    statuses: list[v1.TaskStatus] = field(default_factory=list)
    """Updates received by the master, in order and without repetitions."""

    @property
    def id(self) -> str:
        """Task id, chosen by the framework."""
        return self.info.task_id.value


@dataclass(slots=True, eq=False)
class EmbeddedAgent:
    """A virtual agent, with the master's record of its free resources."""

    id: str
    hostname: str
    port: int
    total: list[Resource]
    attributes: list[mesos.Attribute]
    registered: float
    """Time of registration, in seconds since the Unix epoch."""
    active: bool = True
    """True while the agent is connected."""
    added_at: int = 0
    """Sequence number of the latest AddAgent call."""
    free: Bag = field(init=False)

    def __post_init__(self) -> None:
        self.free = Bag(self.total)

    def info(self) -> mesos.SlaveInfo:
        """Return the agent's description as the agent would send it."""
        return mesos.SlaveInfo(
            hostname=self.hostname,
            port=self.port,
            id=mesos.SlaveID(value=self.id),
            resources=self.total,
            attributes=self.attributes,
        )

    def url(self) -> v1.URL:
        """Return the URL at which a real agent would answer."""
        address = v1.Address(hostname=self.hostname, ip="127.0.0.1", port=self.port)
        return v1.URL(scheme="http", address=address, path="/slave(1)")


@dataclass(slots=True, eq=False)
class EmbeddedFramework:
    """A framework, from its first subscription to its removal."""

    id: str
    info: mesos.FrameworkInfo
    suppressed: set[str]
    registered: float
    """Time of the first subscription, in seconds since the Unix epoch."""
    reregistered: float
    """Time of the latest subscription, in seconds since the Unix epoch."""
    unregistered: float = 0.0
    """Time of the removal, in seconds since the Unix epoch; 0 before the removal."""
    subscriber: Subscriber | None = None
    heartbeat: Timer | None = None
    removal: Timer | None = None
    """Timer that removes a disconnected framework after its failover timeout."""
    offers: dict[str, Offer] = field(default_factory=dict)
    tasks: dict[str, EmbeddedTask] = field(default_factory=dict)
    executors: dict[tuple[str, str], Executor] = field(default_factory=dict)
    """Executors by agent id and executor id."""
    completed: deque[EmbeddedTask] = field(default_factory=lambda: deque(maxlen=1000))

    @property
    def connected(self) -> bool:
        """True while the scheduler is connected; the embedded Mesos treats this as active."""
        return self.subscriber is not None

    @property
    def roles(self) -> frozenset[str]:
        """Roles to which the framework is subscribed."""
        return roles_of(self.info)

    def capable(self, capability: Capability.Type.ValueType) -> bool:
        """Return whether the framework declared a capability."""
        return any(declared.type == capability for declared in self.info.capabilities)

    def send(self, event: v1.Event) -> None:
        """Send an event if the scheduler is connected."""
        if self.subscriber is not None:
            self.subscriber.send(event)

    def used(self) -> Iterator[tuple[str, str, list[Resource]]]:
        """Yield agent id, role and resources of each task and executor that holds resources."""
        for task in self.tasks.values():
            if task.held:
                yield task.agent, task.role, task.resources
        for executor in self.executors.values():
            yield executor.agent, executor.role, executor.resources

    def holdings(self) -> Iterator[tuple[str, str, list[Resource]]]:
        """Yield agent id, role and resources of each task, executor and offer."""
        yield from self.used()
        for offer in self.offers.values():
            yield offer.agent, offer.role, offer.resources


def roles_of(info: mesos.FrameworkInfo) -> frozenset[str]:
    """Return the roles to which a framework subscribes."""
    if any(declared.type == Capability.MULTI_ROLE for declared in info.capabilities):
        return frozenset(info.roles)
    return frozenset((info.role,))


def allocated(resources: Iterable[Resource], role: str) -> list[Resource]:
    """Return copies of resources, marked as allocated to a role."""
    copies = []
    for resource in resources:
        copy = Resource()
        copy.CopyFrom(resource)
        copy.allocation_info.role = role
        copies.append(copy)
    return copies


def serialised(resources: Iterable[Resource]) -> list[bytes]:
    """Return resources in the contract's serialised form."""
    return [resource.SerializeToString(deterministic=True) for resource in resources]
