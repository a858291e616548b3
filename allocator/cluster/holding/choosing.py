"""Chooses for whom an agent is held back, and which: once a tick, where somebody waits in vain."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from allocator.cluster.agents import Agent
from allocator.cluster.frameworks import Client
from allocator.cluster.state import Cluster
from allocator.fairness.quantities import Quantities

_LOOKED_AT = 100
"""Clients at most, the first in order; whoever comes after them is not next."""


_SAMPLED = 200
"""Agents at most that are asked whether one task that ends there would do."""


def choose(cluster: Cluster, order: Iterable[Client]) -> None:
    """Hold back agents for clients whose task fits on none now, but would if one were empty.

    Costs O(agents) for each different task among the first hundred clients, less where one fits.

    Args:
        cluster: Whose agents.
        order: Clients that want offers and whose task is known, the next one first.
    """
    if cluster.holds.full:
        return
    chooser = _Chooser(cluster)
    clients = list(islice(order, _LOOKED_AT))
    for client in clients:
        chooser.hold_for(client)
    if cluster.holds.next_round():
        for client in clients:
            chooser.hold_for(client)


class _Chooser:
    """Looks for agents; what has been found for one task holds for others like it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stuck: dict[tuple[object, ...], list[Agent]] = {}

    def hold_for(self, client: Client) -> None:
        """Hold back an agent for a client, if it may have one and one would help it."""
        cluster = self._cluster
        task = cluster.ledger.task(client)
        if task is None or not cluster.holds.may_begin(client):
            return
        possible = self._possible(client, task)
        if self._comes_in_turn(client, task, possible[:_SAMPLED]):
            return
        ready = [
            (when, agent.id)
            for agent in possible
            if cluster.holds.on(agent.id) is None
            for when in self._ready(agent, task)
        ]
        if ready:
            when, agent_id = min(ready)
            cluster.holds.begin(client, agent_id, task, cluster.now_ns, when)

    def _comes_in_turn(self, client: Client, task: Quantities, agents: list[Agent]) -> bool:
        """Whether one task of somebody else that ends makes room enough.

        Then the order says who gets that, and nothing has to gather first.
        """
        ledger, stays = self._cluster.ledger, self._cluster.holds.run_times.on
        for agent in agents:
            free = agent.available.divisible
            for stay in stays(agent.id):
                other = stay.client
                if other == client or other.framework not in ledger.frameworks:
                    continue
                ends = ledger.task(other) or stay.amounts
                if all(free.get(name, 0) + ends[name] >= n for name, n in task.items()):
                    return True
        return False

    def _possible(self, client: Client, task: Quantities) -> list[Agent]:
        """Return the agents on which a task would fit if they were empty; none if one fits now."""
        ledger = self._cluster.ledger
        framework = ledger.frameworks[client.framework]
        key = (
            frozenset(task.items()),
            id(ledger.placements.met_by(client.framework)),
            ledger.exclusions.number(client) and client,
            framework.said.capabilities,
        )
        found = self._stuck.get(key)
        if found is None:
            found = self._stuck[key] = list(self._look(client, task))
        return found

    def _look(self, client: Client, task: Quantities) -> Iterator[Agent]:
        cluster = self._cluster
        ledger, rules = cluster.ledger, cluster.rules
        framework = ledger.frameworks[client.framework]
        possible = []
        for agent in ledger.agents.values():
            total = agent.total
            if (
                total.ordinary  # what is reserved for somebody is nobody else's to be held back
                and cluster.is_offered(agent)
                and _covers(total.divisible, task)
                and ledger.admits(client, agent.id)
                and framework.can_use(agent, client.role, rules)
            ):
                if cluster.holds.on(agent.id) is None and fits(agent, task):
                    return
                possible.append(agent)
        yield from possible

    def _ready(self, agent: Agent, task: Quantities) -> Iterator[int]:
        """Find when an agent is expected to have room for a task, if that can be told."""
        now_ns = self._cluster.now_ns
        free = dict(agent.available.divisible)
        for when, amounts in self._cluster.holds.run_times.ends(agent.id, now_ns):
            for name, amount in amounts.items():
                free[name] = free.get(name, 0) + amount
            if _covers(free, task):
                yield when
                return


def fits(agent: Agent, task: Quantities) -> bool:
    """Whether an agent has room for a task in what it has free for everybody."""
    return _covers(agent.available.divisible, task)


def _covers(room: Mapping[str, int], task: Quantities) -> bool:
    return all(room.get(name, 0) >= amount for name, amount in task.items())
