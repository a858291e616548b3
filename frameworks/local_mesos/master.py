"""The embedded master: schedulers' calls and allocator's decisions in, events out.

Deterministic: time, identifiers and randomness come in from outside. Whatever a scheduler or
an allocator can see follows Mesos 1.8 (`src/master/master.cpp`); where it does not, that is a
bug here.
"""

import re
import uuid
from collections import Counter
from collections.abc import Iterable
from random import Random

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos.bag import Bag, Resource, downgraded
from frameworks.local_mesos.clock import Clock
from frameworks.local_mesos.launching import Launcher
from frameworks.local_mesos.state import (
    TERMINAL,
    Agent,
    AllocatorSide,
    Capability,
    Framework,
    Holding,
    Offer,
    Subscriber,
    Task,
    allocated,
    serialised,
)
from frameworks.local_mesos.updates import Updates

MESOS_VERSION = "1.8.0"
HEARTBEAT = 15.0
"""Seconds between heartbeats on a scheduler's stream."""
ALL_AGENT_CAPABILITIES = tuple(value for value in mesos.SlaveInfo.Capability.Type.values() if value)


class Refused(Exception):  # noqa: N818 - Mesos's word for it
    """A call that cannot be taken; the message is for the scheduler."""


class Master:
    """One master and its virtual agents.

    Args:
        clock: Its time.
        allocator: Where allocator calls go.
        random: Of its ids.
        task_seconds: How long a task runs whose command is not `sleep N`.
        interval: Seconds between ticks.
    """

    def __init__(
        self,
        clock: Clock,
        allocator: AllocatorSide,
        random: Random,
        *,
        task_seconds: float = 10.0,
        interval: float = 1.0,
    ) -> None:
        self.clock = clock
        self.allocator = allocator
        self.id = str(uuid.UUID(int=random.getrandbits(128), version=4))
        self.started = clock.now
        self.agents: dict[str, Agent] = {}
        self.frameworks: dict[str, Framework] = {}
        self.offers: dict[str, Offer] = {}
        self.completed: dict[str, Framework] = {}
        self.counters: Counter[str] = Counter()
        self.updates = Updates(clock, random, self._task_ended)
        self._launcher = Launcher(self, task_seconds)
        self._random = random
        self._interval = interval
        self._serials: Counter[str] = Counter()
        clock.after(interval, self._tick)
        clock.after(HEARTBEAT, self._heartbeat)

    # Agents

    def add_agent(
        self, hostname: str, total: list[Resource], attributes: Iterable[mesos.Attribute] = ()
    ) -> Agent:
        """Register a new agent."""
        agent = Agent(
            id=self._new_id("S"),
            hostname=hostname,
            port=5051,
            total=total,
            attributes=list(attributes),
        )
        self.agents[agent.id] = agent
        self._tell(add_agent=self._agent_call(agent))
        agent.added_at = self.allocator.sequence
        return agent

    def remove_agent(self, agent_id: str) -> None:
        """Lose an agent and the tasks on it."""
        agent = self.agents.pop(agent_id)
        self._tell(remove_agent=contract.RemoveAgent(agent_id=agent_id))
        for offer in [o for o in self.offers.values() if o.agent == agent_id]:
            self.rescind(offer)
        for framework in self.frameworks.values():
            for task in [t for t in framework.tasks.values() if t.agent == agent_id]:
                self._lose(framework, task)
            for key in [key for key in framework.executors if key[0] == agent_id]:
                self._recover(agent_id, framework, framework.executors.pop(key), None)
            framework.send(
                v1.Event(
                    type=v1.Event.FAILURE,
                    failure=v1.Event.Failure(agent_id=v1.AgentID(value=agent.id)),
                )
            )

    def set_agent_active(self, agent_id: str, *, active: bool) -> None:
        """Have an agent's connection break or come back; its tasks run on."""
        agent = self.agents[agent_id]
        agent.active = active
        if active:
            self._tell(activate_agent=contract.ActivateAgent(agent_id=agent_id))
            return
        self._tell(deactivate_agent=contract.DeactivateAgent(agent_id=agent_id))
        for offer in [o for o in self.offers.values() if o.agent == agent_id]:
            self.rescind(offer)

    # Schedulers' streams

    def subscribe(self, call: v1.Call, subscriber: Subscriber) -> Framework | None:
        """Open a stream; None: refused, and the stream says why."""
        self.counters["messages_register_framework"] += 1
        info = mesos.FrameworkInfo()
        info.CopyFrom(call.subscribe.framework_info)
        suppressed = set(call.subscribe.suppressed_roles)
        framework_id = call.framework_id.value or info.id.value
        try:
            self._validate_subscription(call, info, framework_id, suppressed)
        except Refused as error:
            subscriber.send(v1.Event(type=v1.Event.ERROR, error=v1.Event.Error(message=str(error))))
            subscriber.close()
            return None
        known = self.frameworks.get(framework_id)
        if known is None:
            return self._add_framework(framework_id, info, suppressed, subscriber)
        return self._resubscribe(known, info, suppressed, subscriber)

    def disconnected(self, framework_id: str, subscriber: Subscriber) -> None:
        """Hear that a stream has broken."""
        framework = self.frameworks.get(framework_id)
        if framework is None or framework.subscriber is not subscriber:
            return  # removed, or failed over already
        framework.subscriber = None
        self._deactivate(framework)
        timeout = framework.info.failover_timeout
        framework.removal = self.clock.after(timeout, lambda: self.remove_framework(framework))

    def remove_framework(self, framework: Framework) -> None:
        """End a framework with all its tasks."""
        if framework.removal is not None:
            framework.removal.cancel()
        subscriber, framework.subscriber = framework.subscriber, None
        if subscriber is not None:
            subscriber.close()
            self._deactivate(framework)
        for task in list(framework.tasks.values()):
            self.updates.stop(task)
            if task.state not in TERMINAL:
                task.state = v1.TASK_KILLED
                self.counters["tasks_killed"] += 1
            self._task_recovered(framework, task)
            framework.completed.append(framework.tasks.pop(task.id))
        for executor in framework.executors.values():
            self._recover(executor.agent, framework, executor, None)
        framework.executors.clear()
        del self.frameworks[framework.id]
        self.completed[framework.id] = framework
        self._tell(remove_framework=contract.RemoveFramework(framework_id=framework.id))

    # Schedulers' calls

    def call(self, framework: Framework, call: v1.Call) -> None:
        """Take a call of a subscribed scheduler, other than SUBSCRIBE."""
        kind = v1.Call.Type.Name(call.type).lower()
        self.counters[f"messages_{kind}"] += 1
        handler = getattr(self, f"_{kind}", None)
        if handler is not None:
            handler(framework, call)

    def _teardown(self, framework: Framework, _: v1.Call) -> None:
        self.remove_framework(framework)

    def _accept(self, framework: Framework, call: v1.Call) -> None:
        filters = call.accept.filters if call.accept.HasField("filters") else mesos.Filters()
        offers = [self.offers.get(offer_id.value) for offer_id in call.accept.offer_ids]
        mine = [o for o in offers if o is not None and o.framework == framework.id]
        complaint = _invalid_offers(len(offers), mine)
        for offer in mine:
            self._forget_offer(offer)
        if complaint is not None:
            self._launcher.drop(framework, call.accept.operations, complaint)
            for offer in mine:
                self._recover(offer.agent, framework, offer, None)
            return
        left = self._launcher.launch(framework, mine, call.accept.operations)
        if left:
            rest = Offer("", framework.id, mine[0].agent, mine[0].role, left.resources())
            self._tell(pause=contract.Pause())
            self._recover(rest.agent, framework, rest, filters)
            self._tell(resume=contract.Resume())

    def _decline(self, framework: Framework, call: v1.Call) -> None:
        filters = call.decline.filters if call.decline.HasField("filters") else mesos.Filters()
        for offer_id in call.decline.offer_ids:
            offer = self.offers.get(offer_id.value)
            if offer is not None and offer.framework == framework.id:
                self._forget_offer(offer)
                self._recover(offer.agent, framework, offer, filters)

    def _revive(self, framework: Framework, call: v1.Call) -> None:
        roles = set(call.revive.roles) & framework.roles
        if roles or not call.revive.roles:
            framework.suppressed -= roles or framework.roles
            self._tell(
                revive_offers=contract.ReviveOffers(framework_id=framework.id, roles=sorted(roles))
            )

    def _suppress(self, framework: Framework, call: v1.Call) -> None:
        roles = set(call.suppress.roles) & framework.roles
        if roles or not call.suppress.roles:
            framework.suppressed |= roles or framework.roles
            self._tell(
                suppress_offers=contract.SuppressOffers(
                    framework_id=framework.id, roles=sorted(roles)
                )
            )

    def _request(self, framework: Framework, call: v1.Call) -> None:
        self._tell(
            request_resources=contract.RequestResources(
                framework_id=framework.id,
                requests=[request.SerializeToString() for request in call.request.requests],
            )
        )

    def _kill(self, framework: Framework, call: v1.Call) -> None:
        task = framework.tasks.get(call.kill.task_id.value)
        if task is None:
            self._report(framework, call.kill.task_id.value, call.kill.agent_id.value)
        elif task.state not in TERMINAL and not (
            task.updates and task.updates[-1].state in TERMINAL
        ):
            if task.end is not None:
                task.end.cancel()
            self.updates.add(framework, task, v1.TASK_KILLED, message="Command terminated")

    def _shutdown(self, framework: Framework, call: v1.Call) -> None:
        key = (call.shutdown.agent_id.value, call.shutdown.executor_id.value)
        executor = framework.executors.pop(key, None)
        if executor is None:
            return
        for task in list(framework.tasks.values()):
            if (task.agent, task.executor) == key and task.state not in TERMINAL:
                if task.end is not None:
                    task.end.cancel()
                self.updates.add(
                    framework,
                    task,
                    v1.TASK_FAILED,
                    reason=v1.TaskStatus.REASON_EXECUTOR_TERMINATED,
                    message="Executor terminated",
                )
        self._recover(executor.agent, framework, executor, None)
        framework.send(
            v1.Event(
                type=v1.Event.FAILURE,
                failure=v1.Event.Failure(
                    agent_id=call.shutdown.agent_id,
                    executor_id=call.shutdown.executor_id,
                    status=0,
                ),
            )
        )

    def _acknowledge(self, framework: Framework, call: v1.Call) -> None:
        task = framework.tasks.get(call.acknowledge.task_id.value)
        if task is not None and task.agent == call.acknowledge.agent_id.value:
            self.updates.acknowledge(framework, task, call.acknowledge.uuid)

    def _reconcile(self, framework: Framework, call: v1.Call) -> None:
        if not call.reconcile.tasks:
            for task in framework.tasks.values():
                self._report(framework, task.id, task.agent)
        for asked in call.reconcile.tasks:
            self._report(framework, asked.task_id.value, asked.agent_id.value)

    # The allocator's decisions

    def decide(self, decisions: contract.Decisions) -> None:
        """Make the offers that pass admission (`mesos-allocator.md` §5.4); send back the rest."""
        for offers in decisions.offers:
            made = []
            for part in offers.offers:
                offer = self._admit(offers.framework_id, part, decisions.applied_sequence)
                if offer is not None:
                    made.append(offer)
            framework = self.frameworks.get(offers.framework_id)
            if made and framework is not None:
                self._send_offers(framework, made)

    def _admit(self, framework_id: str, part: contract.Offer, applied: int) -> Offer | None:
        framework, agent = self.frameworks.get(framework_id), self.agents.get(part.agent_id)
        if agent is not None and applied < agent.added_at:
            return None  # of an earlier life of this agent, whose books are closed
        resources = [Resource.FromString(data) for data in part.resources]
        if framework is None or not framework.connected:
            complaint = "the framework is gone or not connected"
        elif part.role not in framework.roles:
            complaint = f"the framework is not subscribed to role {part.role!r}"
        elif agent is None or not agent.active:
            complaint = "the agent is gone or not connected"
        elif not resources or any(r.allocation_info.role != part.role for r in resources):
            complaint = "the resources are not allocated to the offer's role"
        elif any(r.HasField("role") or r.HasField("reservation") for r in resources):
            complaint = "the resources carry deprecated fields"
        elif not agent.free.contains(Bag(resources)):
            complaint = f"the agent has only {agent.free} free"
        else:
            agent.free.remove(resources)
            return Offer(self._new_id("O"), framework_id, agent.id, part.role, resources)
        self.counters["offers_rejected"] += 1
        self._tell(
            reject_offer=contract.RejectOffer(
                framework_id=framework_id,
                agent_id=part.agent_id,
                resources=part.resources,
                reason=complaint,
            )
        )
        return None

    def _send_offers(self, framework: Framework, offers: list[Offer]) -> None:
        event = v1.Event(type=v1.Event.OFFERS, offers=v1.Event.Offers())
        modern = framework.capable(Capability.RESERVATION_REFINEMENT)
        multi_role = framework.capable(Capability.MULTI_ROLE)
        for offer in offers:
            self.offers[offer.id] = offer
            framework.offers[offer.id] = offer
            agent = self.agents[offer.agent]
            said = event.offers.offers.add(
                id=v1.OfferID(value=offer.id),
                framework_id=mesos.FrameworkID(value=framework.id),
                agent_id=v1.AgentID(value=agent.id),
                hostname=agent.hostname,
                attributes=agent.attributes,
                executor_ids=[
                    v1.ExecutorID(value=name)
                    for place, name in framework.executors
                    if place == agent.id
                ],
                resources=offer.resources if modern else map(downgraded, offer.resources),
            )
            if multi_role:
                said.allocation_info.role = offer.role
            else:
                for resource in said.resources:
                    resource.ClearField("allocation_info")
        self.counters["offers_sent"] += len(offers)
        framework.send(event)

    def snapshot(self) -> contract.Snapshot:
        """Describe all that an allocator must know, as of the latest call."""
        used: dict[str, dict[str, list[bytes]]] = {}
        for framework in self.frameworks.values():
            for agent_id, role, resources in framework.holdings():
                held = used.setdefault(agent_id, {}).setdefault(framework.id, [])
                held += serialised(allocated(resources, role))
        return contract.Snapshot(
            sequence=self.allocator.sequence,
            time_ns=self.clock.now_ns,
            agents=[self._agent_call(agent, used.get(agent.id)) for agent in self.agents.values()],
            inactive_agents=[agent.id for agent in self.agents.values() if not agent.active],
            frameworks=[self._framework_call(f) for f in self.frameworks.values()],
        )

    # Inside

    def rescind(self, offer: Offer) -> None:
        """Take an offer back."""
        framework = self.frameworks[offer.framework]
        self._forget_offer(offer)
        self._recover(offer.agent, framework, offer, None)
        self.counters["offers_rescinded"] += 1
        framework.send(
            v1.Event(
                type=v1.Event.RESCIND,
                rescind=v1.Event.Rescind(offer_id=v1.OfferID(value=offer.id)),
            )
        )

    def tell_status(
        self,
        framework: Framework,
        status: v1.TaskStatus,
    ) -> None:
        """Send an update of the master's own, which needs no acknowledgement."""
        status.source = v1.TaskStatus.SOURCE_MASTER
        status.timestamp = self.clock.now
        framework.send(v1.Event(type=v1.Event.UPDATE, update=v1.Event.Update(status=status)))

    def _add_framework(
        self,
        framework_id: str,
        info: mesos.FrameworkInfo,
        suppressed: set[str],
        subscriber: Subscriber,
    ) -> Framework:
        framework = Framework(
            id=framework_id or self._new_id(""),
            info=info,
            suppressed=suppressed,
            registered=self.clock.now,
            subscriber=subscriber,
        )
        info.id.value = framework.id
        self.frameworks[framework.id] = framework
        self._say_subscribed(framework)
        self._tell(add_framework=self._framework_call(framework))
        return framework

    def _resubscribe(
        self,
        framework: Framework,
        info: mesos.FrameworkInfo,
        suppressed: set[str],
        subscriber: Subscriber,
    ) -> Framework:
        was_connected = framework.connected
        if framework.removal is not None:
            framework.removal.cancel()
        if framework.subscriber is not None:
            framework.send(
                v1.Event(
                    type=v1.Event.ERROR,
                    error=v1.Event.Error(message="Framework failed over"),
                )
            )
            framework.subscriber.close()
        framework.subscriber = subscriber
        info.id.value = framework.id
        framework.info = info
        framework.suppressed = suppressed
        self._tell(
            update_framework=contract.UpdateFramework(
                framework_id=framework.id,
                info=info.SerializeToString(),
                suppressed_roles=sorted(suppressed),
            )
        )
        for offer in list(framework.offers.values()):  # of the scheduler that was here before
            self._forget_offer(offer)
            self._recover(offer.agent, framework, offer, None)
        if not was_connected:
            self._tell(activate_framework=contract.ActivateFramework(framework_id=framework.id))
        self._say_subscribed(framework)
        self.updates.flush(framework)
        return framework

    def _validate_subscription(
        self,
        call: v1.Call,
        info: mesos.FrameworkInfo,
        framework_id: str,
        suppressed: set[str],
    ) -> None:
        if call.framework_id.value and info.HasField("id") and info.id != call.framework_id:
            raise Refused("'FrameworkInfo.id' and 'Call.framework_id' differ")
        if framework_id in self.completed:
            raise Refused("Framework has been removed")
        multi_role = any(c.type == Capability.MULTI_ROLE for c in info.capabilities)
        if multi_role and info.HasField("role"):
            raise Refused("'FrameworkInfo.role' must not be set by a MULTI_ROLE framework")
        if not multi_role and info.roles:
            raise Refused("'FrameworkInfo.roles' needs the capability MULTI_ROLE")
        roles = set(info.roles) if multi_role else {info.role}
        for role in roles:
            if role != "*" and not re.fullmatch(r"[^\s/.*-][^\s/*]*(/[^\s/.*-][^\s/*]*)*", role):
                raise Refused(f"'{role}' is not a valid role")
        if not suppressed <= roles:
            raise Refused(
                f"Suppressed roles {sorted(suppressed - roles)} are not among the framework's"
            )

    def _say_subscribed(self, framework: Framework) -> None:
        framework.send(
            v1.Event(
                type=v1.Event.SUBSCRIBED,
                subscribed=v1.Event.Subscribed(
                    framework_id=mesos.FrameworkID(value=framework.id),
                    heartbeat_interval_seconds=HEARTBEAT,
                    master_info=v1.MasterInfo(
                        id=self.id, ip=0x0100007F, port=5050, version=MESOS_VERSION
                    ),
                ),
            )
        )

    def _deactivate(self, framework: Framework) -> None:
        self._tell(deactivate_framework=contract.DeactivateFramework(framework_id=framework.id))
        for offer in list(framework.offers.values()):
            self._forget_offer(offer)
            self._recover(offer.agent, framework, offer, None)

    def _task_ended(self, framework: Framework, task: Task) -> None:
        name = v1.TaskState.Name(task.state).removeprefix("TASK_").lower()
        self.counters[f"tasks_{name}"] += 1
        self._task_recovered(framework, task)

    def _task_recovered(self, framework: Framework, task: Task) -> None:
        if task.held:
            task.held = False
            self._recover(task.agent, framework, task, None)

    def _lose(self, framework: Framework, task: Task) -> None:
        """End a task whose agent is gone."""
        self.updates.stop(task)
        partition_aware = framework.capable(Capability.PARTITION_AWARE)
        if task.state not in TERMINAL:
            task.state = v1.TASK_GONE if partition_aware else v1.TASK_LOST
            self.counters["tasks_lost"] += 1
            self.tell_status(
                framework,
                v1.TaskStatus(
                    task_id=task.info.task_id,
                    state=task.state,
                    agent_id=task.info.agent_id,
                    reason=v1.TaskStatus.REASON_AGENT_REMOVED,
                    message="Agent has been removed",
                ),
            )
        self._task_recovered(framework, task)
        framework.completed.append(framework.tasks.pop(task.id))

    def _report(self, framework: Framework, task_id: str, agent_id: str) -> None:
        """Answer a question for a task's state."""
        task = framework.tasks.get(task_id)
        status = v1.TaskStatus(
            task_id=v1.TaskID(value=task_id), reason=v1.TaskStatus.REASON_RECONCILIATION
        )
        if task is not None:
            status.state = task.state
            status.agent_id.value = task.agent
            status.message = "Reconciliation: latest task state"
        else:
            partition_aware = framework.capable(Capability.PARTITION_AWARE)
            status.state = v1.TASK_GONE if partition_aware else v1.TASK_LOST
            status.message = "Reconciliation: task is unknown"
            if agent_id:
                status.agent_id.value = agent_id
        self.tell_status(framework, status)

    def _forget_offer(self, offer: Offer) -> None:
        del self.offers[offer.id]
        del self.frameworks[offer.framework].offers[offer.id]

    def _recover(
        self,
        agent_id: str,
        framework: Framework,
        holding: Holding,
        filters: mesos.Filters | None,
    ) -> None:
        agent = self.agents.get(agent_id)
        if agent is not None:
            agent.free.add(holding.resources)
        call = contract.RecoverResources(
            framework_id=framework.id,
            agent_id=agent_id,
            resources=serialised(allocated(holding.resources, holding.role)),
        )
        if filters is not None:
            call.filters = filters.SerializeToString()
        self._tell(recover_resources=call)

    def _agent_call(
        self, agent: Agent, used: dict[str, list[bytes]] | None = None
    ) -> contract.AddAgent:
        return contract.AddAgent(
            agent_id=agent.id,
            info=agent.info().SerializeToString(),
            capabilities=ALL_AGENT_CAPABILITIES,
            total=serialised(agent.total),
            used=[
                contract.Allocation(framework_id=framework_id, resources=resources)
                for framework_id, resources in (used or {}).items()
            ],
        )

    def _framework_call(self, framework: Framework) -> contract.AddFramework:
        return contract.AddFramework(
            framework_id=framework.id,
            info=framework.info.SerializeToString(),
            active=framework.connected,
            suppressed_roles=sorted(framework.suppressed),
        )

    def _tell(self, **call: object) -> None:
        self.allocator.tell(contract.Event(time_ns=self.clock.now_ns, **call))  # type: ignore[arg-type]

    def _tick(self) -> None:
        self._tell(tick=contract.Tick())
        self.clock.after(self._interval, self._tick)

    def _heartbeat(self) -> None:
        for framework in self.frameworks.values():
            framework.send(v1.Event(type=v1.Event.HEARTBEAT))
        self.clock.after(HEARTBEAT, self._heartbeat)

    def _new_id(self, kind: str) -> str:
        serial = self._serials[kind]
        self._serials[kind] += 1
        return f"{self.id}-{kind}{serial:04}" if not kind else f"{self.id}-{kind}{serial}"


def _invalid_offers(asked: int, offers: list[Offer]) -> str | None:
    if not asked:
        return "No offers specified"
    if len(offers) < asked:
        return "Offer is no longer valid"
    if len({offer.id for offer in offers}) < asked:
        return "Duplicate offer"
    if len({offer.agent for offer in offers}) > 1:
        return "Offers are of different agents"
    if len({offer.role for offer in offers}) > 1:
        return "Offers are of different roles"
    return None
