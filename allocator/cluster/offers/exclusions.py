"""Which agents frameworks want no offers of, role by role, as the master's side tells."""

from collections.abc import Collection, Iterable, Mapping

from allocator.cluster.frameworks.framework import Client
from allocator.fairness.machines import MayUse


class Exclusions:
    """Pairs of client and agent that never meet: the offer constraints of Mesos 1.11.

    Only the master's side can evaluate them; here is what it said. Frameworks and agents may be
    named before they are known, and whoever goes is forgotten.
    """

    def __init__(self) -> None:
        self._agents: dict[Client, set[str]] = {}
        self._clients: dict[str, set[Client]] = {}
        self._may_use: dict[Client, tuple[MayUse | None, MayUse]] = {}

    def of(self, agent: str) -> Collection[Client]:
        """Return the clients that want no offers of an agent."""
        return self._clients.get(agent, ())

    def number(self, client: Client) -> int:
        """Return of how many agents a client wants no offers."""
        return len(self._agents.get(client, ()))

    def excludes(self, client: Client, agent: str) -> bool:
        """Whether a client wants no offers of an agent."""
        return agent in self._agents.get(client, ())

    def put_agent(self, agent: str, clients: Collection[Client]) -> list[Client]:
        """Say anew who wants no offers of an agent; return who has changed its mind."""
        before = self._clients.get(agent, set())
        changed = sorted(before.symmetric_difference(clients))
        for client in changed:
            (self._admit if client in before else self._exclude)(client, agent)
        return changed

    def add_framework(self, framework: str, agents: Mapping[str, Iterable[str]]) -> None:
        """Say of which agents, by role, a framework wants no offers; what is known stays."""
        for role, names in agents.items():
            for agent in names:
                self._exclude(Client(role, framework), agent)

    def put_framework(self, framework: str, agents: Mapping[str, Iterable[str]]) -> None:
        """Say anew of which agents, by role, a framework wants no offers."""
        self.discard_framework(framework)
        self.add_framework(framework, agents)

    def discard_framework(self, framework: str) -> None:
        """Forget a framework."""
        for client in [client for client in self._agents if client.framework == framework]:
            for agent in list(self._agents[client]):
                self._admit(client, agent)

    def may_use(self, client: Client, constraint: MayUse | None) -> MayUse | None:
        """Return on which agents a client's tasks may run, under a constraint as well; None: all.

        It stays the same while the constraint does and the client excludes anything at all, and
        follows agents that come and go.
        """
        if client not in self._agents:
            return constraint
        known = self._may_use.get(client)
        if known is None or known[0] != constraint:

            def both(agent: str) -> bool:
                return not self.excludes(client, agent) and (
                    constraint is None or constraint(agent)
                )

            known = self._may_use[client] = constraint, both
        return known[1]

    def _exclude(self, client: Client, agent: str) -> None:
        self._agents.setdefault(client, set()).add(agent)
        self._clients.setdefault(agent, set()).add(client)

    def _admit(self, client: Client, agent: str) -> None:
        self._agents[client].discard(agent)
        if not self._agents[client]:
            del self._agents[client]
            self._may_use.pop(client, None)
        self._clients[agent].discard(client)
        if not self._clients[agent]:
            del self._clients[agent]
