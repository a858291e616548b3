"""Exclusions: agents that must not be offered to a framework in a role, by offer constraints."""

from collections.abc import Collection, Iterable, Mapping

from allocator.cluster.frameworks.framework import Client
from allocator.fairness.machines import MayUse


class Exclusions:
    """The pairs of client and agent that offer constraints exclude (Mesos 1.11).

    Only the master can evaluate offer constraints; the master reports the excluded pairs.
    Frameworks and agents may be reported before they are added. The pairs of a removed framework or
    agent are forgotten.
    """

    def __init__(self) -> None:
        self._agents: dict[Client, set[str]] = {}
        self._clients: dict[str, set[Client]] = {}
        self._may_use: dict[Client, tuple[MayUse | None, MayUse]] = {}

    def of(self, agent: str) -> Collection[Client]:
        """Return the clients whose offer constraints exclude an agent."""
        return self._clients.get(agent, ())

    def number(self, client: Client) -> int:
        """Return how many agents a client's offer constraints exclude."""
        return len(self._agents.get(client, ()))

    def excludes(self, client: Client, agent: str) -> bool:
        """Return whether a client's offer constraints exclude an agent."""
        return agent in self._agents.get(client, ())

    def put_agent(self, agent: str, clients: Collection[Client]) -> list[Client]:
        """Replace the clients that exclude an agent; return the clients added or removed."""
        before = self._clients.get(agent, set())
        changed = sorted(before.symmetric_difference(clients))
        for client in changed:
            (self._admit if client in before else self._exclude)(client, agent)
        return changed

    def add_framework(self, framework: str, agents: Mapping[str, Iterable[str]]) -> None:
        """Add the excluded agents of a new framework: role → agent IDs."""
        for role, names in agents.items():
            for agent in names:
                self._exclude(Client(role, framework), agent)

    def put_framework(self, framework: str, agents: Mapping[str, Iterable[str]]) -> None:
        """Replace the excluded agents of a framework: role → agent IDs."""
        self.discard_framework(framework)
        self.add_framework(framework, agents)

    def discard_framework(self, framework: str) -> None:
        """Forget the exclusions of a removed framework."""
        for client in [client for client in self._agents if client.framework == framework]:
            for agent in list(self._agents[client]):
                self._admit(client, agent)

    def may_use(self, client: Client, constraint: MayUse | None) -> MayUse | None:
        """Return a predicate over agent IDs: may the client use the agent? None: all agents.

        The predicate reflects agents that are added or removed later. The method returns the same
        object as long as `constraint` is unchanged and the client excludes an agent.

        Args:
            client: The client.
            constraint: Predicate of the placement constraint, which must hold, too; None: all
                agents.
        """
        if client not in self._agents:
            return constraint
        known = self._may_use.get(client)
        if known is None or known[0] != constraint:

            def predicate(agent: str) -> bool:
                return not self.excludes(client, agent) and (
                    constraint is None or constraint(agent)
                )

            known = self._may_use[client] = constraint, predicate
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
