"""Who holds what where: the one place that keeps agents, fair shares and quota in step."""

from collections.abc import Collection, Iterable, Mapping

from allocator.cluster.agents.agent import Agent
from allocator.cluster.agents.failover_recovery import Failover
from allocator.cluster.agents.placement_constraints import Host
from allocator.cluster.agents.placements import Placements
from allocator.cluster.agents.shared_volumes import NO_REPEATS, Repeats, Volume, volumes
from allocator.cluster.agents.used_resources import AssumedUsage, UsedResources
from allocator.cluster.frameworks.clients import Clients
from allocator.cluster.frameworks.demands import Demands
from allocator.cluster.frameworks.framework import Client, Framework
from allocator.cluster.offers.exclusions import Exclusions
from allocator.cluster.quota import Quotas
from allocator.cluster.resources import NOTHING, Resources
from allocator.cluster.users import UserTask
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.quantities import Quantities


class Ledger:
    """Agents, frameworks, and what the latter hold of the former.

    The agents' side is the only one that is written: what a framework, a role and a user
    hold is derived from it, so nothing is ever counted twice (§1.4). Resources of frameworks
    that are not known (yet) are booked on the agent and counted when the framework comes.

    Args:
        clients: Who has something, and wants something.
        demands: Of what size their tasks are.
        placements: Where these may run.
        answered_after_ns: Nanoseconds after which what is offered is presumed to be used; None:
            nothing is presumed.
    """

    def __init__(
        self,
        clients: Clients,
        demands: Demands,
        placements: Placements,
        answered_after_ns: int | None = None,
    ) -> None:
        self.clients = clients
        self._demands = demands
        self.placements = placements
        self.exclusions = Exclusions()
        self.quotas = Quotas()
        self.floor = demands.new_floor()
        self.running = UsedResources()
        self.presumed = (
            AssumedUsage(self.running, answered_after_ns) if answered_after_ns is not None else None
        )
        """Presumes what is running; None: the master tells, or it does not matter."""
        self.agents: dict[str, Agent] = {}
        self.frameworks: dict[str, Framework] = {}
        self._places: dict[str, dict[str, None]] = {}
        """framework → agents on which it holds something, in order of arrival"""
        self._capacity = Quantities()
        self._failover: Failover | None = None
        """Agents are awaited whose resources count already; None: none are."""

    def add_agent(self, agent: Agent, used: dict[str, dict[str, Resources]]) -> None:
        """Take in an agent with all that is allocated on it: framework → role → resources."""
        self.agents[agent.id] = agent
        self.placements.put_agent(agent.id, Host.of(agent.info))
        self.clients.users.put_agent(agent.id, agent.total.scalars)
        self.quotas.note_total(NOTHING, agent.total)
        self.floor.put(agent.total.scalars)
        self.floor.put_names(agent.total.quantities)
        self._set_capacity(self._capacity + agent.total.scalars)
        self.add_used(agent, used)

    def exclude(self, agent: str, clients: Collection[Client]) -> bool:
        """Say anew who wants no offers of an agent; return whether anybody changed its mind.

        The agent need not be known.
        """
        changed = self.exclusions.put_agent(agent, clients)
        for client in changed:
            if client in self.clients:
                self.note_task(client)
        if changed and agent in self.agents:
            self.clients.users.put_agent(agent, self.agents[agent].total.scalars)
        return bool(changed)

    def add_used(self, agent: Agent, used: dict[str, dict[str, Resources]]) -> None:
        """Book what turned out to be allocated on an agent."""
        for framework, roles in used.items():
            for role, resources in roles.items():
                self._hold(agent, framework, role, agent.held(framework, role) + resources)
                if self.presumed is not None:
                    self.presumed.used(agent, Client(role, framework))

    def update_agent(
        self,
        agent: Agent,
        info: mesos.SlaveInfo,
        capabilities: Iterable[int],
        total: Resources,
    ) -> None:
        """Take over what an agent says of itself now."""
        if self.placements.put_agent(agent.id, Host.of(info)):
            self.clients.users.put_agent(agent.id, total.scalars)
        self.set_total(agent, total)
        agent.update(info, capabilities, total)

    def set_total(self, agent: Agent, total: Resources) -> None:
        """Change an agent's total, which may become less than what is allocated."""
        if total == agent.total:
            return
        self.quotas.note_total(agent.total, total)
        self.floor.put_names(total.quantities)
        self.floor.discard_names(agent.total.quantities)
        if total.scalars != agent.total.scalars:
            self.clients.users.put_agent(agent.id, total.scalars)
            self.floor.put(total.scalars)
            self.floor.discard(agent.total.scalars)
        self._set_capacity(self._capacity - agent.total.scalars + total.scalars)
        agent.update(agent.info, agent.capabilities, total)

    def remove_agent(self, agent: Agent) -> None:
        """Let an agent go, and free at once all that was held on it."""
        for framework, role, _held in list(agent.allocations()):
            self._hold(agent, framework, role, NOTHING)
        del self.agents[agent.id]
        self.clients.users.discard_agent(agent.id)
        self.placements.discard_agent(agent.id)
        self.exclude(agent.id, ())
        self.quotas.note_total(agent.total, NOTHING)
        self.floor.discard(agent.total.scalars)
        self.floor.discard_names(agent.total.quantities)
        self._set_capacity(self._capacity - agent.total.scalars)

    def add_framework(
        self, framework: Framework, excluded: Mapping[str, Iterable[str]] | None = None
    ) -> None:
        """Take in a framework: its roles, whom it excludes, and what it already holds."""
        self.frameworks[framework.id] = framework
        self.placements.put_framework(framework)
        self.exclusions.add_framework(framework.id, excluded or {})
        for role in sorted(framework.roles):
            self._track(Client(role, framework.id))
        for place in self._places.get(framework.id, ()):
            for role, held in self.agents[place].held_by(framework.id).items():
                client = Client(role, framework.id)
                self._track(client)
                self.clients.allocate(client, held.scalars, gained=[*volumes(place, held)])
        self.refresh(framework)

    def remove_framework(self, framework: Framework) -> list[str]:
        """Let a framework go, and free at once all that it held; return the agents it was on."""
        places = list(self._places.get(framework.id, ()))
        for place in places:
            agent = self.agents[place]
            for role in agent.held_by(framework.id):
                self._hold(agent, framework.id, role, NOTHING)
        for client in self.clients.of(framework.id):
            self.clients.remove(client)
        del self.frameworks[framework.id]
        self.placements.discard_framework(framework.id)
        self.exclusions.discard_framework(framework.id)
        return places

    def refresh(self, framework: Framework) -> None:
        """Follow a change of whatever the framework says of itself, or of its activity."""
        self.placements.put_framework(framework)
        self.clients.reassign(framework)
        for role in sorted(framework.roles):
            self._track(Client(role, framework.id))
        for client in self.clients.of(framework.id):
            self.note_task(client)
            self.clients.set_wanting(client, wanting=framework.wants(client.role))
            self._forget_if_done(client)

    def note_task(self, client: Client) -> None:
        """Tell the fair shares what is known now of the tasks of a client that is known."""
        demand = self._demands.of(client, self.frameworks[client.framework])
        may_use = self.exclusions.may_use(client, self.placements.may_use(client.framework))
        self.clients.set_task(client, UserTask(demand, may_use))

    def admits(self, client: Client, agent: str) -> bool:
        """Whether neither constraints nor a framework's wish keep a client off an agent."""
        return self.placements.admits(client.framework, agent) and not (
            self.exclusions.excludes(client, agent)
        )

    def task(self, client: Client) -> Quantities | None:
        """Return what is to be given to a client at least, and in multiples; None: nobody knows."""
        demand = self._demands.of(client, self.frameworks[client.framework])
        return demand.times(self.floor.at_a_time(demand)) if demand else None

    def at_a_time(self, client: Client) -> int:
        """Return how many of a client's tasks count as one; 1 where its demand is not known."""
        demand = self._demands.of(client, self.frameworks[client.framework])
        return self.floor.at_a_time(demand) if demand else 1

    def book(
        self, agent: Agent, client: Client, resources: Resources, free: Resources | None
    ) -> tuple[Quantities, Repeats]:
        """Book resources that are available as allocated to a client that is known.

        Args:
            agent: Where they are.
            client: Who is offered them.
            resources: All of them are available.
            free: What is left; None: that must be added up.

        Returns:
            What the client holds more now, which is not counted yet: `clients` must be told. With
            it, what of that its users hold already.
        """
        held = agent.held(client.framework, client.role)
        after = held + resources
        self._note(agent, client.framework, client.role, held, after)
        if free is not None:
            agent.set_available(free)
        if not resources.has_shared:
            return resources.scalars, NO_REPEATS
        repeats = self.clients.repeats(client, (), [*volumes(agent.id, resources)])
        return after.scalars - held.scalars, repeats

    def recover(self, agent: Agent, framework: str, role: str, resources: Resources) -> Resources:
        """Release resources; return what of them had not been allocated, which is passed over."""
        before = agent.held(framework, role)
        complete = resources in before
        if not complete or resources.has_shared:
            self._hold(agent, framework, role, before - resources)
            return NOTHING if complete else resources - before
        free = agent.freed(resources)
        self._note(agent, framework, role, before, before - resources)
        if framework in self.frameworks:
            client = Client(role, framework)
            self.clients.release(client, resources.scalars)
            self._forget_if_done(client)
        if free is not None:
            agent.set_available(free)
        return NOTHING

    def convert(self, agent: Agent, framework: str, role: str, held: Resources) -> None:
        """Say what a framework holds after operations have changed it."""
        self._hold(agent, framework, role, held)

    def _hold(self, agent: Agent, framework: str, role: str, after: Resources) -> None:
        before = agent.held(framework, role)
        self._note(agent, framework, role, before, after)
        if framework in self.frameworks:
            lost, gained = [*volumes(agent.id, before)], [*volumes(agent.id, after)]
            self._count(Client(role, framework), before.scalars, after.scalars, lost, gained)

    def _note(
        self, agent: Agent, framework: str, role: str, before: Resources, after: Resources
    ) -> None:
        agent.hold(framework, role, after)
        if self.quotas:
            self.quotas.note_held(role, before, after)
        if self.running.places:
            self.running.follow(agent, Client(role, framework))
        if self.presumed is not None and not after:
            self.presumed.forget(agent.id, Client(role, framework))
        if after:
            self._places.setdefault(framework, {})[agent.id] = None
        elif not agent.holds(framework):
            places = self._places.get(framework, {})
            places.pop(agent.id, None)
            if not places:
                self._places.pop(framework, None)

    def _count(
        self,
        client: Client,
        before: Quantities,
        after: Quantities,
        lost: Collection[Volume],
        gained: Collection[Volume],
    ) -> None:
        """Follow a change of what a client holds on one agent.

        A volume that several tasks share counts once. The caller therefore passes both sums, and
        the shared volumes held before and after.
        """
        self._track(client)
        if before.contains(after):
            self.clients.release(client, before - after, lost=lost, gained=gained)
            self._forget_if_done(client)
        elif after.contains(before):
            self.clients.allocate(client, after - before, lost=lost, gained=gained)
        else:
            self.clients.release(client, before, lost=lost)
            self.clients.allocate(client, after, gained=gained)

    def _track(self, client: Client) -> None:
        if client not in self.clients:
            self.clients.add(client, self.frameworks[client.framework])
            self.note_task(client)

    def _forget_if_done(self, client: Client) -> None:
        """Forget a role that the framework has left, once nothing is held for it."""
        framework = self.frameworks[client.framework]
        if client.role not in framework.roles and not self.clients.held(client):
            self.clients.remove(client)

    def set_failover(self, failover: Failover | None) -> None:
        """Say that agents are awaited, or, with None, no longer."""
        self._failover = failover
        self._set_capacity(self._capacity)

    def _set_capacity(self, capacity: Quantities) -> None:
        self._capacity = capacity
        if self._failover is not None:
            capacity = self._failover.counted(capacity, len(self.agents))
        self.clients.users.set_capacity(capacity)
