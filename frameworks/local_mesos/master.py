"""The embedded master: receives schedulers' calls and the allocator's decisions, and sends events.

The master is deterministic, because its clock and its random generator are supplied from outside.
All behaviour visible to a scheduler or an allocator follows Mesos 1.8 (`src/master/master.cpp`).
Any difference is a bug in this package.
"""

from collections.abc import Iterable, Mapping
from random import Random

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos.bag import Resource
from frameworks.local_mesos.books import MasterState
from frameworks.local_mesos.clock import SECOND, Clock
from frameworks.local_mesos.drops import log_dropped_call
from frameworks.local_mesos.launching import Launching
from frameworks.local_mesos.offering import Offering
from frameworks.local_mesos.state import (
    AllocatorSide,
    EmbeddedAgent,
    EmbeddedFramework,
    Offer,
    Subscriber,
)
from frameworks.local_mesos.subscribing import Subscribing
from frameworks.local_mesos.tasks import TaskReports
from frameworks.local_mesos.updates import StatusUpdates
from frameworks.local_mesos.validation import Refused, check_quota

AGENT_PORT = 5051
ANSWER_TIMEOUT_S = 1.0
"""Seconds within which a scheduler normally answers an offer, unless it keeps the offer."""


class Master:
    """The embedded master with its virtual agents: the entry point for schedulers' calls.

    Args:
        clock: The master's clock.
        allocator: Receives the calls with which the master reports changes.
        random: Random generator for ids.
        task_seconds: Run time in seconds of a task whose command is not `sleep N`.
        interval: Seconds between the batch allocations (ticks) that the master requests.
        offer_timeout: Seconds after which an unanswered offer is rescinded; 0 disables the timeout.
    """

    def __init__(  # noqa: PLR0913 - a master has as many flags
        self,
        clock: Clock,
        allocator: AllocatorSide,
        random: Random,
        *,
        task_seconds: float = 10.0,
        interval: float = 1.0,
        offer_timeout: float = 0.0,
    ) -> None:
        self.clock = clock
        self.started = clock.now
        self._interval = interval
        self._books = MasterState(clock, allocator, random)
        self._updates = StatusUpdates(self._books, random)
        self._tasks = TaskReports(self._books, self._updates, task_seconds)
        self._offering = Offering(self._books, clock, offer_timeout)
        self._launching = Launching(self._books, self._tasks, self._updates)
        self._subscribing = Subscribing(self._books, self._tasks, self._updates)
        self._expected: set[str] = set()
        """Names of announced frameworks that have never subscribed."""
        self._overdue: set[str] = set()
        """Names of announced frameworks that should have subscribed by now, but have not.

        The clock stops.
        """
        self._announced: set[str] = set()
        """Names of all frameworks announced by `expect`. They answer every offer."""
        clock.after(interval, self._tick)

    # Read access for other modules

    @property
    def id(self) -> str:
        """The master's id, the prefix of the ids of its agents, frameworks and offers."""
        return self._books.master_id

    @property
    def agents(self) -> Mapping[str, EmbeddedAgent]:
        """Registered agents by id."""
        return self._books.agents

    @property
    def frameworks(self) -> Mapping[str, EmbeddedFramework]:
        """Frameworks by id, connected or disconnected."""
        return self._books.frameworks

    @property
    def completed(self) -> Mapping[str, EmbeddedFramework]:
        """Removed frameworks by id; only the most recent are kept."""
        return self._subscribing.completed

    @property
    def offers(self) -> Mapping[str, Offer]:
        """Unanswered offers by id."""
        return self._books.offers

    @property
    def expecting(self) -> bool:
        """True if frameworks were announced by `expect`, as an experiment does."""
        return bool(self._announced)

    @property
    def answer_due(self) -> bool:
        """True if an announced framework must subscribe now, or has an unanswered offer.

        Frameworks are announced by `expect`. The master's clock must then stop until the framework
        has subscribed or answered.
        """
        announced = (
            framework
            for framework in self.frameworks.values()
            if framework.info.name in self._announced
        )
        return bool(self._overdue) or any(framework.offers for framework in announced)

    @property
    def awaiting(self) -> bool:
        """True if the latest offer is unanswered and was made less than `ANSWER_TIMEOUT_S` ago.

        The master's clock must then not run faster than real time.
        """
        latest = next(reversed(self._books.offers.values()), None)
        return latest is not None and self.clock.now_ns - latest.made_ns < ANSWER_TIMEOUT_S * SECOND

    @property
    def counters(self) -> Mapping[str, int]:
        """Counters for `/metrics/snapshot` by name, without the prefix `master/`."""
        return self._books.counters

    @property
    def address(self) -> tuple[str, int]:
        """IPv4 address and port at which schedulers reach the master."""
        return self._subscribing.address

    @address.setter
    def address(self, address: tuple[str, int]) -> None:
        self._subscribing.address = address

    # Agents

    def add_agent(
        self,
        hostname: str,
        total: Iterable[Resource],
        *,
        attributes: Iterable[mesos.Attribute] = (),
        agent_id: str | None = None,
    ) -> EmbeddedAgent:
        """Register a virtual agent and return it.

        Args:
            hostname: Host name of the agent.
            total: All resources of the agent.
            attributes: Attributes of the agent.
            agent_id: The former id, for an agent that returns after its removal; None: a new id.
        """
        agent = EmbeddedAgent(
            id=agent_id or self._books.new_id("S"),
            hostname=hostname,
            port=AGENT_PORT,
            total=list(total),
            attributes=list(attributes),
            registered=self.clock.now,
        )
        self._books.add_agent(agent)
        return agent

    def remove_agent(self, agent_id: str) -> None:
        """Remove an agent. Its tasks are reported as lost."""
        agent = self._books.agents.pop(agent_id)
        self._books.send_call(remove_agent=contract.RemoveAgent(agent_id=agent_id))
        self._tasks.lose(agent_id, f"Agent {agent.hostname} removed")
        self._rescind(agent_id)
        failure = v1.Event.Failure(agent_id=v1.AgentID(value=agent_id))
        for framework in self._books.frameworks.values():
            framework.send(v1.Event(type=v1.Event.FAILURE, failure=failure))

    def disconnect_agent(self, agent_id: str) -> None:
        """Break an agent's connection. Its tasks continue, but the master receives no updates."""
        self._books.agents[agent_id].active = False
        self._books.send_call(deactivate_agent=contract.DeactivateAgent(agent_id=agent_id))
        self._rescind(agent_id)

    def reconnect_agent(self, agent_id: str) -> None:
        """Restore an agent's connection, send its delayed updates, and carry out delayed kills."""
        agent = self._books.agents[agent_id]
        agent.active = True
        self._books.send_call(activate_agent=contract.ActivateAgent(agent_id=agent_id))
        self._tasks.agent_is_back(agent)

    def _rescind(self, agent_id: str) -> None:
        for offer in [offer for offer in self._books.offers.values() if offer.agent == agent_id]:
            self._books.take_back(offer, rescind=True)

    # Schedulers

    def subscribe(self, call: v1.Call, subscriber: Subscriber) -> EmbeddedFramework | None:
        """Handle a SUBSCRIBE call: register the scheduler's framework, or give it a new stream.

        Args:
            call: The SUBSCRIBE call.
            subscriber: The scheduler's event stream.

        Returns:
            The framework, or None if the subscription is rejected. The reason is then sent to the
            subscriber.
        """
        name = call.subscribe.framework_info.name
        self._expected.discard(name)
        self._overdue.discard(name)
        return self._subscribing.subscribe(call.subscribe, subscriber)

    def expect(self, name: str, uptime: float) -> None:
        """Announce a framework: from a given uptime on, the clock stops until it has subscribed.

        From then on, the clock also stops during each unanswered offer to the framework. The
        framework must therefore answer every offer.

        Args:
            name: Name of the framework.
            uptime: Seconds since the master's start at which the framework must subscribe.
        """
        self._expected.add(name)
        self._announced.add(name)
        delay = max(self.started + uptime - self.clock.now, 0.0)
        self.clock.after(delay, lambda: self._overdue.update(self._expected & {name}))

    def disconnected(self, framework_id: str, subscriber: Subscriber) -> None:
        """Handle the end of a scheduler's event stream.

        Args:
            framework_id: Id of the scheduler's framework.
            subscriber: The stream that ended; ignored if the framework has a newer stream.
        """
        self._subscribing.disconnected(framework_id, subscriber)

    def call(self, framework: EmbeddedFramework, call: v1.Call) -> None:
        """Handle any call of a connected scheduler except SUBSCRIBE."""
        handler = getattr(self, f"_{v1.Call.Type.Name(call.type).lower()}", None)
        if handler is not None:
            handler(framework, call)
        else:
            name = v1.Call.Type.Name(call.type)
            log_dropped_call(framework, name, "it is not supported by the embedded Mesos")

    def _count(self, name: str) -> None:
        self._books.counters[f"messages_{name}"] += 1

    def _teardown(self, framework: EmbeddedFramework, _: v1.Call) -> None:
        self._subscribing.remove(framework)

    def _accept(self, framework: EmbeddedFramework, call: v1.Call) -> None:
        self._launching.accept(framework, call.accept)

    def _decline(self, framework: EmbeddedFramework, call: v1.Call) -> None:
        self._count("decline_offers")
        self._offering.decline(framework, call.decline)

    def _revive(self, framework: EmbeddedFramework, call: v1.Call) -> None:
        self._count("revive_offers")
        roles = set(call.revive.roles)
        if roles <= framework.roles:
            framework.suppressed -= roles or framework.roles
            revived = contract.ReviveOffers(framework_id=framework.id, roles=sorted(roles))
            self._books.send_call(revive_offers=revived)
        else:
            log_dropped_call(framework, "REVIVE", _not_subscribed(framework, roles))

    def _suppress(self, framework: EmbeddedFramework, call: v1.Call) -> None:
        self._count("suppress_offers")
        roles = set(call.suppress.roles)
        if roles <= framework.roles:
            framework.suppressed |= roles or framework.roles
            suppressed = contract.SuppressOffers(framework_id=framework.id, roles=sorted(roles))
            self._books.send_call(suppress_offers=suppressed)
        else:
            log_dropped_call(framework, "SUPPRESS", _not_subscribed(framework, roles))

    def _request(self, framework: EmbeddedFramework, call: v1.Call) -> None:
        self._count("resource_request")
        self._books.send_call(
            request_resources=contract.RequestResources(
                framework_id=framework.id,
                requests=[request.SerializeToString() for request in call.request.requests],
            )
        )

    def _kill(self, framework: EmbeddedFramework, call: v1.Call) -> None:
        self._count("kill_task")
        self._tasks.kill(framework, call.kill)

    def _shutdown(self, framework: EmbeddedFramework, call: v1.Call) -> None:
        self._tasks.shut_down(framework, call.shutdown)

    def _acknowledge(self, framework: EmbeddedFramework, call: v1.Call) -> None:
        self._count("status_update_acknowledgement")
        acknowledgement = call.acknowledge
        agent = self._books.agents.get(acknowledgement.agent_id.value)
        task = framework.tasks.get(acknowledgement.task_id.value)
        if agent is None or not agent.active:
            self._books.counters["invalid_status_update_acknowledgements"] += 1
            log_dropped_call(
                framework,
                "ACKNOWLEDGE",
                f"agent {acknowledgement.agent_id.value!r} is not connected",
            )
            return
        self._books.counters["valid_status_update_acknowledgements"] += 1
        if task is not None and task.agent == agent.id:
            self._updates.acknowledge(framework, task, acknowledgement.uuid)

    def _reconcile(self, framework: EmbeddedFramework, call: v1.Call) -> None:
        self._count("reconcile_tasks")
        if not call.reconcile.tasks:
            for task in framework.tasks.values():
                self._tasks.report(framework, task.info.task_id, None)
        for reported_task in call.reconcile.tasks:
            self._tasks.report(framework, reported_task.task_id, reported_task.agent_id)

    def _message(self, framework: EmbeddedFramework, _: v1.Call) -> None:
        self._count("framework_to_executor")
        log_dropped_call(framework, "MESSAGE", "virtual executors do not listen")

    # Operators

    @property
    def quotas(self) -> Mapping[str, mesos.QuotaInfo]:
        """Quotas by role."""
        return self._books.quotas

    def set_quota(self, quota: mesos.QuotaInfo) -> None:
        """Set a role's quota, as `POST /quota` does: the guarantee is also the limit.

        Raises:
            Refused: The role has a quota or cannot have one, or a guarantee is invalid.
        """
        check_quota(quota)
        if quota.role in self.quotas:
            raise Refused("Cannot set quota for a role that already has quota")
        self._books.set_quota(quota)

    def remove_quota(self, role: str) -> None:
        """Remove a role's quota, as `DELETE /quota/ROLE` does.

        Raises:
            Refused: The role has no quota.
        """
        if role not in self.quotas:
            raise Refused(f"Role {role!r} has no quota set")
        self._books.remove_quota(role)

    def tear_down(self, framework_id: str) -> None:
        """Remove a framework with its tasks, as `POST /teardown` does.

        Raises:
            Refused: No framework has the ID.
        """
        framework = self.frameworks.get(framework_id)
        if framework is None:
            raise Refused("No framework found with specified ID")
        self._subscribing.remove(framework)

    # The allocator

    def decide(self, decisions: contract.Decisions) -> None:
        """Turn the allocator's decisions into offers and other events for schedulers."""
        self._offering.decide(decisions)
        for refused in decisions.refused:
            self._subscribing.refuse(refused.framework_id, refused.reason)

    def snapshot(self) -> contract.Snapshot:
        """Return the master's complete state, as the first message to an allocator that connects.

        The snapshot includes the effects of all calls numbered so far.
        """
        return self._books.snapshot()

    def _tick(self) -> None:
        self._books.send_call(tick=contract.Tick())
        self.clock.after(self._interval, self._tick)


def _not_subscribed(framework: EmbeddedFramework, roles: set[str]) -> str:
    return f"the framework is not subscribed to roles {sorted(roles - framework.roles)}"
