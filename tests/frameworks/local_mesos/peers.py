"""Both neighbours of the embedded master, for tests: an allocator's books, and a scheduler."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from itertools import count
from random import Random

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos.clock import SECOND, Clock
from frameworks.local_mesos.master import Master
from frameworks.local_mesos.notation import parse_flag
from frameworks.local_mesos.state import EmbeddedAgent, EmbeddedFramework

START_NS = 1_600_000_000 * SECOND
Atom = tuple[str, tuple[str, ...], object]
"""Name, roles of the reservations, and the item if the resource has distinguishable items."""
Amounts = Counter[Atom]
"""Thousandths of scalars; 1 for each item of ranges and sets."""


def amounts_of(messages: Iterable[bytes], role: str | None = None) -> Amounts:
    """Count resources; if a role is given, require their allocation to the role."""
    counted: Amounts = Counter()
    for data in messages:
        r = mesos.Resource.FromString(data)
        assert not r.HasField("role")
        assert not r.HasField("reservation")
        assert role is None or r.allocation_info.role == role
        stack = tuple(reservation.role for reservation in r.reservations)
        if r.type == mesos.Value.SCALAR:
            counted[r.name, stack, None] += round(r.scalar.value * 1000)
        elif r.type == mesos.Value.RANGES:
            counted.update((r.name, stack, n) for i in r.ranges.range for n in _numbers(i))
        else:
            counted.update((r.name, stack, item) for item in r.set.item)
    return counted


def _numbers(interval: mesos.Value.Range) -> Iterator[int]:
    return iter(range(interval.begin, interval.end + 1))


def messages_of(amounts: Amounts, role: str) -> list[bytes]:
    """Write counted resources as messages allocated to a role."""
    written: dict[tuple[str, tuple[str, ...]], mesos.Resource] = {}
    for (name, stack, item), amount in sorted(amounts.items(), key=repr):
        if amount <= 0:
            continue
        r = written.setdefault((name, stack), mesos.Resource(name=name))
        r.allocation_info.role = role
        if not r.reservations:
            for reserved in stack:
                r.reservations.add(type=mesos.Resource.ReservationInfo.STATIC, role=reserved)
        if item is None:
            r.type, r.scalar.value = mesos.Value.SCALAR, amount / 1000
        elif isinstance(item, int):
            r.type = mesos.Value.RANGES
            r.ranges.range.add(begin=item, end=item)
        else:
            r.type = mesos.Value.SET
            r.set.item.append(str(item))
    return [r.SerializeToString(deterministic=True) for r in written.values()]


class Book:
    """An allocator that checks every call against all earlier calls."""

    def __init__(self) -> None:
        self.sequence = 0
        self.now_ns = 0
        self.totals: dict[str, Amounts] = {}
        self.inactive_agents: set[str] = set()
        self.held: defaultdict[tuple[str, str], Amounts] = defaultdict(Counter)
        """(agent, framework) → allocated resources"""
        self.in_flight: defaultdict[tuple[str, str], Amounts] = defaultdict(Counter)
        """The part of `held` in offers that have not reached the master yet."""
        self.added_at: dict[str, int] = {}
        self.frameworks: dict[str, mesos.FrameworkInfo] = {}
        self.active: set[str] = set()
        self.suppressed: dict[str, set[str]] = {}
        self.quotas: set[str] = set()
        """Roles with a quota."""
        self.paused = False
        self.ticks: list[int] = []
        self.log: list[contract.Event] = []
        """All calls except ticks, in order."""

    def tell(self, event: contract.Event) -> None:
        """Number a call of the master as the link does, and apply the call."""
        event.sequence = self.sequence + 1
        self.apply(contract.Event.FromString(event.SerializeToString()))

    def apply(self, event: contract.Event) -> None:
        """Apply a numbered call."""
        assert event.sequence == self.sequence + 1
        assert event.time_ns >= self.now_ns
        self.sequence, self.now_ns = event.sequence, event.time_ns
        kind = event.WhichOneof("call")
        assert kind is not None
        if kind == "tick":
            self.ticks.append(event.time_ns)
        else:
            self.log.append(event)
            getattr(self, f"_{kind}")(getattr(event, kind))

    def restore(self, snapshot: contract.Snapshot) -> None:
        """Replace all state by a snapshot."""
        self.__init__()  # type: ignore[misc]  # a new book, in the hands of the same holders
        for agent in snapshot.agents:
            self._add_agent(agent)
        for agent_id in snapshot.inactive_agents:
            self._deactivate_agent(contract.DeactivateAgent(agent_id=agent_id))
        for framework in snapshot.frameworks:
            self._add_framework(framework)
        self.quotas = {quota.role for quota in snapshot.quotas}
        self.paused = snapshot.paused
        self.sequence, self.now_ns = snapshot.sequence, snapshot.time_ns

    def summary(self) -> object:
        """Return the state that equal books share."""
        held = {key: +amounts for key, amounts in self.held.items() if +amounts}
        return (
            self.sequence,
            self.totals,
            self.inactive_agents,
            self.quotas,
            held,
            {
                key: info.SerializeToString(deterministic=True)
                for key, info in self.frameworks.items()
            },
            self.active,
            self.suppressed,
            self.paused,
        )

    def free(self, agent_id: str) -> Amounts:
        """Return the free resources of an agent."""
        free = Counter(self.totals[agent_id])
        for (agent, _), amounts in self.held.items():
            if agent == agent_id:
                free -= amounts
        return free

    def subscribed(self, framework_id: str) -> set[str]:
        """Return the subscribed roles of a framework."""
        info = self.frameworks[framework_id]
        multi = any(c.type == mesos.FrameworkInfo.Capability.MULTI_ROLE for c in info.capabilities)
        return set(info.roles) if multi else {info.role}

    def roles(self, framework_id: str) -> list[str]:
        """Return the roles for which a framework may get offers."""
        return sorted(self.subscribed(framework_id) - self.suppressed[framework_id])

    def offer(
        self, framework_id: str, role: str, parts: Iterable[tuple[str, Amounts]]
    ) -> contract.Decisions:
        """Book and offer parts of agents."""
        offers = contract.Offers(framework_id=framework_id)
        for agent_id, amounts in parts:
            self.held[agent_id, framework_id].update(amounts)
            self.in_flight[agent_id, framework_id].update(amounts)
            offers.offers.add(role=role, agent_id=agent_id, resources=messages_of(amounts, role))
        return contract.Decisions(applied_sequence=self.sequence, offers=[offers])

    def arrived(self, decisions: contract.Decisions) -> None:
        """Note that decisions are about to reach the master."""
        for offers in decisions.offers:
            for offer in offers.offers:
                amounts = self.in_flight.get((offer.agent_id, offers.framework_id))
                known = self.added_at.get(offer.agent_id, 0) <= decisions.applied_sequence
                if amounts is not None and known:  # else closed with an agent or a framework
                    amounts.subtract(amounts_of(offer.resources))

    def offer_all(self, turn: int = 0) -> contract.Decisions:
        """Offer all free resources to the first eligible framework, beginning at `turn`."""
        order = deque(self.frameworks)
        order.rotate(turn)
        for framework_id in order:
            roles = self.roles(framework_id)
            parts = [
                (agent_id, self.free(agent_id))
                for agent_id in self.totals
                if agent_id not in self.inactive_agents and self.free(agent_id)
            ]
            if framework_id in self.active and roles and parts:
                return self.offer(framework_id, roles[0], parts)
        return contract.Decisions(applied_sequence=self.sequence)

    def kinds(self, since: int = 0) -> list[str]:
        """Return the names of the calls after a sequence number, ticks left out."""
        return [str(e.WhichOneof("call")) for e in self.log if e.sequence > since]

    def last(self, kind: str) -> contract.Event:
        """Return the latest call of a kind."""
        return next(e for e in reversed(self.log) if e.WhichOneof("call") == kind)

    def _add_agent(self, call: contract.AddAgent) -> None:
        info = mesos.SlaveInfo.FromString(call.info)
        assert info.id.value == call.agent_id
        assert call.agent_id not in self.totals
        self.totals[call.agent_id] = amounts_of(call.total)
        self.added_at[call.agent_id] = self.sequence
        for used in call.used:
            self.held[call.agent_id, used.framework_id] = amounts_of(used.resources)
        assert all(amount >= 0 for amount in self.free(call.agent_id).values())

    def _remove_agent(self, call: contract.RemoveAgent) -> None:
        del self.totals[call.agent_id]
        self.inactive_agents.discard(call.agent_id)
        for key in [key for key in self.held if key[0] == call.agent_id]:
            del self.held[key]
            self.in_flight.pop(key, None)

    def _activate_agent(self, call: contract.ActivateAgent) -> None:
        self.inactive_agents.remove(call.agent_id)

    def _deactivate_agent(self, call: contract.DeactivateAgent) -> None:
        assert call.agent_id in self.totals
        assert call.agent_id not in self.inactive_agents
        self.inactive_agents.add(call.agent_id)

    def _add_framework(self, call: contract.AddFramework) -> None:
        assert call.framework_id not in self.frameworks
        self.frameworks[call.framework_id] = self._info(call)
        self.suppressed[call.framework_id] = set(call.suppressed_roles)
        if call.active:
            self.active.add(call.framework_id)

    def _update_framework(self, call: contract.UpdateFramework) -> None:
        assert call.framework_id in self.frameworks
        self.frameworks[call.framework_id] = self._info(call)
        self.suppressed[call.framework_id] = set(call.suppressed_roles)

    def _info(self, call: contract.AddFramework | contract.UpdateFramework) -> mesos.FrameworkInfo:
        info = mesos.FrameworkInfo.FromString(call.info)
        assert info.id.value == call.framework_id
        return info

    def _remove_framework(self, call: contract.RemoveFramework) -> None:
        assert call.framework_id not in self.active
        del self.frameworks[call.framework_id]
        del self.suppressed[call.framework_id]
        for key in [key for key in self.held if key[1] == call.framework_id]:
            assert +self.held.pop(key) <= +self.in_flight.pop(key, Amounts())

    def _activate_framework(self, call: contract.ActivateFramework) -> None:
        assert call.framework_id in self.frameworks.keys() - self.active
        self.active.add(call.framework_id)

    def _deactivate_framework(self, call: contract.DeactivateFramework) -> None:
        self.active.remove(call.framework_id)

    def _revive_offers(self, call: contract.ReviveOffers) -> None:
        subscribed = self.subscribed(call.framework_id)
        assert subscribed >= set(call.roles)
        self.suppressed[call.framework_id] -= set(call.roles) or subscribed

    def _suppress_offers(self, call: contract.SuppressOffers) -> None:
        subscribed = self.subscribed(call.framework_id)
        assert subscribed >= set(call.roles)
        self.suppressed[call.framework_id] |= set(call.roles) or subscribed

    def _set_quota(self, call: contract.SetQuota) -> None:
        assert call.role not in self.quotas
        self.quotas.add(call.role)

    def _remove_quota(self, call: contract.RemoveQuota) -> None:
        self.quotas.remove(call.role)

    def _request_resources(self, call: contract.RequestResources) -> None:
        assert call.framework_id in self.frameworks

    def _recover_resources(self, call: contract.RecoverResources) -> None:
        if call.HasField("filters"):
            mesos.Filters.FromString(call.filters)
        self._release(call.framework_id, call.agent_id, call.resources)

    def _reject_offer(self, call: contract.RejectOffer) -> None:
        assert call.reason
        self._release(call.framework_id, call.agent_id, call.resources)

    def _release(self, framework_id: str, agent_id: str, messages: Iterable[bytes]) -> None:
        messages = list(messages)
        roles = {mesos.Resource.FromString(data).allocation_info.role for data in messages}
        assert len(roles) <= 1
        if agent_id not in self.totals or framework_id not in self.frameworks:
            return  # freed with the agent or the framework
        held = self.held[agent_id, framework_id]
        held.subtract(amounts_of(messages))
        assert all(amount >= 0 for amount in held.values()), "more came back than was held"

    def _pause(self, _: contract.Pause) -> None:
        assert not self.paused
        self.paused = True

    def _resume(self, _: contract.Resume) -> None:
        assert self.paused
        self.paused = False


class Scheduler:
    """The scheduler's end of a stream."""

    _serial = count(1)

    def __init__(self) -> None:
        self.stream_id = f"stream-{next(self._serial)}"
        self.events: list[v1.Event] = []
        self.offers: dict[str, v1.Offer] = {}
        """Received and neither answered nor rescinded."""
        self.framework_id = ""
        self.closed = False

    def send(self, event: v1.Event) -> None:
        """Receive an event."""
        assert not self.closed
        event = v1.Event.FromString(event.SerializeToString())
        self.events.append(event)
        if event.type == v1.Event.SUBSCRIBED:
            self.framework_id = event.subscribed.framework_id.value
        elif event.type == v1.Event.OFFERS:
            self.offers |= {offer.id.value: offer for offer in event.offers.offers}
        elif event.type == v1.Event.RESCIND:
            del self.offers[event.rescind.offer_id.value]

    def close(self) -> None:
        """See the stream end."""
        self.closed = True

    def of(self, kind: v1.Event.Type.ValueType) -> list[v1.Event]:
        """Return the events of a kind, oldest first."""
        return [event for event in self.events if event.type == kind]

    @property
    def updates(self) -> list[v1.TaskStatus]:
        """All status updates, oldest first, repetitions included."""
        return [event.update.status for event in self.of(v1.Event.UPDATE)]

    @property
    def states(self) -> list[str]:
        """The states of all updates, without the prefix that they share."""
        return [v1.TaskState.Name(u.state).removeprefix("TASK_") for u in self.updates]


class Cluster:
    """An embedded master between a book and schedulers, on a manual clock."""

    def __init__(
        self,
        agents: int = 1,
        resources: str = "cpus:4;mem:6144",
        task_seconds: float = 10.0,
        offer_timeout: float = 0.0,
    ) -> None:
        self.clock = Clock(START_NS)
        self.book = Book()
        self.master = Master(
            self.clock,
            self.book,
            Random(7),
            task_seconds=task_seconds,
            offer_timeout=offer_timeout,
        )
        self.agents: list[EmbeddedAgent] = [
            self.master.add_agent(f"agent-{n}", parse_flag(resources)) for n in range(agents)
        ]

    def subscribe(
        self,
        framework_id: str | None = None,
        *,
        roles: Iterable[str] | None = None,
        suppressed: Iterable[str] = (),
        capabilities: Iterable[mesos.FrameworkInfo.Capability.Type.ValueType] = (),
        **info: object,
    ) -> Scheduler:
        """Open a stream; with `roles`, the framework is MULTI_ROLE."""
        scheduler = Scheduler()
        described = mesos.FrameworkInfo(**{"user": "u", "name": "n", **info})  # type: ignore[arg-type]
        for capability in capabilities:
            described.capabilities.add(type=capability)
        if roles is not None:
            described.capabilities.add(type=mesos.FrameworkInfo.Capability.MULTI_ROLE)
            described.roles.extend(roles)
        call = v1.Call(type=v1.Call.SUBSCRIBE)
        if framework_id is not None:
            described.id.value = call.framework_id.value = framework_id
        call.subscribe.framework_info.CopyFrom(described)
        call.subscribe.suppressed_roles.extend(suppressed)
        self.master.subscribe(call, scheduler)
        return scheduler

    def framework(self, scheduler: Scheduler) -> EmbeddedFramework:
        """Return the master's idea of a scheduler's framework."""
        return self.master.frameworks[scheduler.framework_id]

    def call(self, scheduler: Scheduler, kind: v1.Call.Type.ValueType, **fields: object) -> None:
        """Make a call."""
        call = v1.Call(type=kind, **fields)  # type: ignore[arg-type]
        call.framework_id.value = scheduler.framework_id
        self.master.call(self.framework(scheduler), call)

    def decide(self, decisions: contract.Decisions) -> None:
        """Have the allocator's decisions reach the master."""
        self.book.arrived(decisions)
        self.master.decide(decisions)

    def offer(self, scheduler: Scheduler, text: str | None = None, agent: int = 0) -> v1.Offer:
        """Let the allocator offer resources of an agent: given amounts, or all free resources."""
        agent_id = self.agents[agent].id
        amounts = (
            self.book.free(agent_id)
            if text is None
            else amounts_of(r.SerializeToString() for r in parse_flag(text))
        )
        role = self.book.roles(scheduler.framework_id)[0]
        self.decide(self.book.offer(scheduler.framework_id, role, [(agent_id, amounts)]))
        return scheduler.of(v1.Event.OFFERS)[-1].offers.offers[-1]

    def accept(
        self,
        scheduler: Scheduler,
        offers: Iterable[v1.Offer],
        *tasks: v1.TaskInfo,
        refuse_seconds: float | None = None,
    ) -> None:
        """Launch tasks on offers."""
        accept = v1.Call.Accept()
        for offer in offers:
            accept.offer_ids.add(value=offer.id.value)
            scheduler.offers.pop(offer.id.value, None)
        operation = accept.operations.add(type=v1.Offer.Operation.LAUNCH)
        operation.launch.task_infos.extend(tasks)
        if refuse_seconds is not None:
            accept.filters.refuse_seconds = refuse_seconds
        self.call(scheduler, v1.Call.ACCEPT, accept=accept)

    def run(self, scheduler: Scheduler, *tasks: v1.TaskInfo) -> None:
        """Offer all resources of the first agent, and launch tasks on the offer."""
        self.accept(scheduler, [self.offer(scheduler)], *tasks)

    def acknowledge(self, scheduler: Scheduler, status: v1.TaskStatus | None = None) -> None:
        """Acknowledge an update, the latest if not said which."""
        status = scheduler.updates[-1] if status is None else status
        self.call(
            scheduler,
            v1.Call.ACKNOWLEDGE,
            acknowledge=v1.Call.Acknowledge(
                agent_id=status.agent_id, task_id=status.task_id, uuid=status.uuid
            ),
        )

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(round(seconds * SECOND))

    def task(
        self,
        name: str = "t",
        resources: str = "cpus:1;mem:1024",
        command: str = "sleep 20",
        *,
        agent: int = 0,
        executor: str | None = None,
        executor_resources: str = "cpus:0.1;mem:32",
    ) -> v1.TaskInfo:
        """Describe a task, with a command or with a custom executor."""
        task = v1.TaskInfo(
            name=name,
            task_id=v1.TaskID(value=name),
            agent_id=v1.AgentID(value=self.agents[agent].id),
            resources=parse_flag(resources),
        )
        if executor is None:
            task.command.value = command
        else:
            task.executor.executor_id.value = executor
            task.executor.command.value = "./executor"
            task.executor.resources.extend(parse_flag(executor_resources))
        return task
