"""Who holds what where: the one place that keeps agents and fair shares in step."""

from allocator.cluster.agents import Agent
from allocator.cluster.clients import Client, Clients
from allocator.cluster.frameworks import Framework
from allocator.cluster.resources import Resources
from allocator.fairness.quantities import Quantities


class Ledger:
    """Agents, frameworks, and what the latter hold of the former.

    The agents' side is the only one that is written: what a framework, a role and a user
    hold is derived from it, so nothing is ever counted twice (§1.4). Resources of frameworks
    that are not known (yet) are booked on the agent and counted when the framework comes.
    """

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self.agents: dict[str, Agent] = {}
        self.frameworks: dict[str, Framework] = {}
        self._places: dict[str, set[str]] = {}
        """framework → agents on which it holds something"""
        self._capacity = Quantities()

    def add_agent(self, agent: Agent) -> None:
        """Take in an agent with all that is allocated on it."""
        self.agents[agent.id] = agent
        self._set_capacity(self._capacity + agent.total.scalars)
        for framework, role, held in agent.allocations():
            self._places.setdefault(framework, set()).add(agent.id)
            self._count(framework, role, held.scalars)

    def remove_agent(self, agent: Agent) -> None:
        """Let an agent go, and free at once all that was held on it."""
        for framework, role, held in list(agent.allocations()):
            self.recover(agent, framework, role, held)
        del self.agents[agent.id]
        self._set_capacity(self._capacity - agent.total.scalars)

    def add_framework(self, framework: Framework) -> None:
        """Take in a framework: its roles, and what it already holds."""
        self.frameworks[framework.id] = framework
        for role in sorted(framework.roles):
            self._track(Client(role, framework.id))
        for place in sorted(self._places.get(framework.id, ())):
            for role, held in self.agents[place].held_by(framework.id).items():
                self._count(framework.id, role, held.scalars)
        self.refresh(framework)

    def remove_framework(self, framework: Framework) -> None:
        """Let a framework go, and free at once all that it held."""
        for place in sorted(self._places.get(framework.id, ())):
            agent = self.agents[place]
            for role, held in agent.held_by(framework.id).items():
                self.recover(agent, framework.id, role, held)
        for client in self.clients.of(framework.id):
            self.clients.remove(client)
        del self.frameworks[framework.id]

    def refresh(self, framework: Framework) -> None:
        """Follow a change of the framework's roles, name, activity or suppression."""
        self.clients.reassign(framework)
        for role in sorted(framework.roles):
            self._track(Client(role, framework.id))
        for client in self.clients.of(framework.id):
            self.clients.set_wanting(client, wanting=framework.wants(client.role))
            self._forget_if_done(client)

    def allocate(self, agent: Agent, client: Client, resources: Resources) -> None:
        """Book resources as allocated to a client."""
        before = agent.held(client.framework, client.role).scalars
        agent.allocate(client.framework, client.role, resources)
        self._places.setdefault(client.framework, set()).add(agent.id)
        after = agent.held(client.framework, client.role).scalars
        self._count(client.framework, client.role, after - before)

    def recover(self, agent: Agent, framework: str, role: str, resources: Resources) -> bool:
        """Release resources; return whether all of them had been allocated."""
        before = agent.held(framework, role).scalars
        complete = agent.recover(framework, role, resources)
        after = agent.held(framework, role).scalars
        if not agent.held_by(framework):
            places = self._places.get(framework, set())
            places.discard(agent.id)
            if not places:
                self._places.pop(framework, None)
        client = Client(role, framework)
        if client in self.clients:
            self.clients.release(client, before - after)
            self._forget_if_done(client)
        return complete

    def _count(self, framework: str, role: str, scalars: Quantities) -> None:
        if framework in self.frameworks:
            client = Client(role, framework)
            self._track(client)
            self.clients.allocate(client, scalars)

    def _track(self, client: Client) -> None:
        if client not in self.clients:
            self.clients.add(client, self.frameworks[client.framework])

    def _forget_if_done(self, client: Client) -> None:
        """Forget a role that the framework has left, once nothing is held for it."""
        framework = self.frameworks[client.framework]
        if client.role not in framework.roles and not self.clients.held(client):
            self.clients.remove(client)

    def _set_capacity(self, capacity: Quantities) -> None:
        self._capacity = capacity
        self.clients.set_capacity(capacity)
