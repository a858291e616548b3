"""Data classes of the embedded master: agents, frameworks, offers, tasks and executors."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos.bag import Resource, ResourceBag
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
    """The event stream to a subscribed scheduler, as the master sees it."""

    stream_id: str

    def send(self, event: v1.Event) -> None:
        """Queue an event for the scheduler."""

    def close(self) -> None:
        """End the stream after all events queued so far have been written."""


class AllocatorSide(Protocol):
    """Interface through which the master sends calls to the allocator, as `AllocatorLink` does."""

    @property
    def sequence(self) -> int:
        """Sequence number of the latest call to the allocator; calls are numbered in order."""

    def tell(self, event: contract.Event) -> None:
        """Give a call to the allocator the next sequence number, and send it.

        Without a connection, the call is dropped. The next connection begins with a snapshot, which
        includes the call's effect.

        Args:
            event: Message with the call.
        """


@dataclass(slots=True, eq=False)
class Offer:
    """An offer that its framework has not answered yet."""

    id: str
    framework: str
    agent: str
    role: str
    resources: list[Resource]
    made_ns: int
    """Time of the offer by the master's clock, in nanoseconds since the Unix epoch."""


@dataclass(slots=True, eq=False)
class Executor:
    """A running custom executor. It holds its resources until it ends."""

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
    """A task, from its launch until the scheduler acknowledges its terminal status update."""

    info: v1.TaskInfo
    framework: str
    agent: str
    role: str
    resources: list[Resource]
    executor: str | None
    """Id of the task's custom executor; None for a command task."""
    state: v1.TaskState.ValueType = v1.TASK_STAGING
    """Latest state that the master knows."""
    reported: v1.TaskState.ValueType | None = None
    """State in the latest update sent to the scheduler; None before the first update."""
    held: bool = True
    """True while the task still holds its resources."""
    ended: bool = False
    """True if the task has ended on its agent. The master learns it from the next update."""
    kill_when_back: bool = False
    """True if the task must be killed when its agent reconnects."""
    end: Timer | None = None
    """Timer for the end of the task's run time."""
    updates: deque[v1.TaskStatus] = field(default_factory=deque)
    """Updates that the scheduler has not acknowledged, oldest first.

    Only the first has been sent.
    """
    resend: Timer | None = None
    statuses: list[v1.TaskStatus] = field(default_factory=list)
    """All updates that the master received, in order and without repetitions."""

    @property
    def id(self) -> str:
        """Task id, chosen by the framework."""
        return self.info.task_id.value


@dataclass(slots=True, eq=False)
class EmbeddedAgent:
    """A virtual agent, with its resources and the part of them that is free."""

    id: str
    hostname: str
    port: int
    total: list[Resource]
    attributes: list[mesos.Attribute]
    registered: float
    """Time of the agent's registration, in seconds since the Unix epoch."""
    active: bool = True
    """True while the agent is connected."""
    added_at: int = 0
    """Number of the allocator call that added the agent last."""
    free: ResourceBag = field(init=False)

    def __post_init__(self) -> None:
        self.free = ResourceBag(self.total)

    def info(self) -> mesos.SlaveInfo:
        """Return the agent's SlaveInfo message."""
        return mesos.SlaveInfo(
            hostname=self.hostname,
            port=self.port,
            id=mesos.SlaveID(value=self.id),
            resources=self.total,
            attributes=self.attributes,
        )

    def url(self) -> v1.URL:
        """Return the agent's URL for messages to schedulers. Nothing answers there."""
        address = v1.Address(hostname=self.hostname, ip="127.0.0.1", port=self.port)
        return v1.URL(scheme="http", address=address, path="/slave(1)")


@dataclass(slots=True, eq=False)
class EmbeddedFramework:
    """A framework that has subscribed to the embedded master: its description, offers and tasks."""

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
    """Timer that removes the framework if it stays disconnected for its failover timeout."""
    offers: dict[str, Offer] = field(default_factory=dict)
    tasks: dict[str, EmbeddedTask] = field(default_factory=dict)
    executors: dict[tuple[str, str], Executor] = field(default_factory=dict)
    """Running custom executors by (agent id, executor id)."""
    completed: deque[EmbeddedTask] = field(default_factory=lambda: deque(maxlen=1000))

    @property
    def connected(self) -> bool:
        """True while the scheduler has an event stream; the framework is then active."""
        return self.subscriber is not None

    @property
    def roles(self) -> frozenset[str]:
        """Roles to which the framework is subscribed."""
        return roles_of(self.info)

    def capable(self, capability: Capability.Type.ValueType) -> bool:
        """Return whether the framework has declared a capability."""
        return any(declared.type == capability for declared in self.info.capabilities)

    def send(self, event: v1.Event) -> None:
        """Send an event to the scheduler; do nothing if it is disconnected."""
        if self.subscriber is not None:
            self.subscriber.send(event)

    def used(self) -> Iterator[tuple[str, str, list[Resource]]]:
        """Yield the resources that tasks and executors of the framework hold.

        There is one item (agent id, role, resources) for each executor, and for each task that has
        not ended.
        """
        for task in self.tasks.values():
            if task.held:
                yield task.agent, task.role, task.resources
        for executor in self.executors.values():
            yield executor.agent, executor.role, executor.resources

    def holdings(self) -> Iterator[tuple[str, str, list[Resource]]]:
        """Yield the resources that the framework holds in tasks, executors and unanswered offers.

        There is one item (agent id, role, resources) for each offer, for each executor, and for
        each task that has not ended.
        """
        yield from self.used()
        for offer in self.offers.values():
            yield offer.agent, offer.role, offer.resources


def roles_of(info: mesos.FrameworkInfo) -> frozenset[str]:
    """Return the roles in a FrameworkInfo, from the field `roles` or the old field `role`."""
    if any(declared.type == Capability.MULTI_ROLE for declared in info.capabilities):
        return frozenset(info.roles)
    return frozenset((info.role,))


def allocated(resources: Iterable[Resource], role: str) -> list[Resource]:
    """Return copies of resources that are marked as allocated to a role."""
    copies = []
    for resource in resources:
        copy = Resource()
        copy.CopyFrom(resource)
        copy.allocation_info.role = role
        copies.append(copy)
    return copies


def serialised(resources: Iterable[Resource]) -> list[bytes]:
    """Return resources as serialised messages, as the contract transports them."""
    return [resource.SerializeToString(deterministic=True) for resource in resources]
