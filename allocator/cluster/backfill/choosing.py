"""Chooses for whom an agent is held back, and which.

That is once after each run over all agents, where somebody waits in vain.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import NamedTuple, TypeAlias

from allocator.cluster.agents.agent import Agent
from allocator.cluster.backfill.holds import BackfillHolds
from allocator.cluster.backfill.runtime_estimates import TaskRun
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.state import Cluster
from allocator.fairness.quantities import Quantities

Give: TypeAlias = Callable[[Client, Quantities], None]

_LOOKED_AT = 100
"""Clients at most, the first in turn; without turns the first in order."""


def choose(cluster: Cluster, order: Callable[[], Iterator[Client]], give: Give) -> None:
    """Hold back agents for clients whose task fits on none now, but would if one were empty.

    Clients have a hold in turn (`BackfillHolds.by_turns`). In event logs of former versions, each
    client has one hold a round. If several holds are allowed, the first client in order gets
    further agents, as long as the client would still be first with the held resources allocated.

    Costs O(agents) for each different task among the first hundred clients, less where one fits,
    and for each of them O(agents that are ready when the first of them is).

    Args:
        cluster: Whose agents.
        order: Goes through clients that want offers and whose task is known, the next one first.
        give: Changes the order as if a client had got something.
    """
    holds = cluster.holds
    if holds.full:
        return
    chooser = _Chooser(cluster)
    if holds.by_turns:
        _in_turn(holds, chooser, order())
    else:
        clients = list(islice(order(), _LOOKED_AT))
        _in_rounds(holds, chooser, clients)
        if holds.next_round():
            _in_rounds(holds, chooser, clients)
    if holds.several:
        _as_long_as_first(holds, chooser, order, give)


def _in_turn(holds: BackfillHolds, chooser: "_Chooser", order: Iterator[Client]) -> None:
    """Hold back an agent for each client in turn.

    If there are more clients than one look takes, clients that need no hold give up their places.
    Then the next look reaches the clients behind them.
    """
    clients = holds.in_turn(order)
    refused = [
        client
        for client in clients[:_LOOKED_AT]
        if not holds.full and chooser.hold_for(client) is None
    ]
    if len(clients) > _LOOKED_AT:
        holds.defer(client for client in refused if not chooser.waits(client))


def _in_rounds(holds: BackfillHolds, chooser: "_Chooser", clients: list[Client]) -> None:
    for client in clients:
        if holds.may_begin(client):
            chooser.hold_for(client)


def _as_long_as_first(
    holds: BackfillHolds, chooser: "_Chooser", order: Callable[[], Iterator[Client]], give: Give
) -> None:
    for hold in holds:
        give(hold.client, hold.task)
    for _ in range(_LOOKED_AT):
        first = next(order(), None)
        if first is None or not holds.may_have_more(first):
            break
        task = chooser.hold_for(first)
        if task is None:
            break
        give(first, task)


class _Ready(NamedTuple):
    """When an agent is expected to have room for a task; what is ready first is the least."""

    when_ns: int
    in_turn: bool
    """Whether that takes no more than one task of somebody else that ends: then the order says who
    gets that, and nothing has to gather first."""
    agent: str


class _Chooser:
    """Looks for agents; what has been found for one task holds for others like it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stuck: dict[tuple[object, ...], list[_Ready]] = {}

    @cached_property
    def _on(self) -> dict[str, frozenset[Client]]:
        """By agent, who has tasks there."""
        of = self._cluster.holds.run_times.clients
        return {agent: of(agent) for agent in self._cluster.ledger.agents}

    def hold_for(self, client: Client) -> Quantities | None:
        """Hold back an agent for a client, if one would help it; return what for."""
        cluster = self._cluster
        task = cluster.ledger.task(client)
        first = self._first(client, task) if task is not None else None
        if task is None or first is None or first.in_turn:
            return None
        cluster.holds.begin(client, first.agent, task, cluster.now_ns, first.when_ns)
        return task

    def waits(self, client: Client) -> bool:
        """Whether a client has no hold because others hold each agent that it could use."""
        task = self._cluster.ledger.task(client)
        if task is None or self._first(client, task) is not None:
            return False
        holds = self._cluster.holds
        return any(holds.on(ready.agent) is not None for ready in self._possible(client, task))

    def _first(self, client: Client, task: Quantities) -> _Ready | None:
        """Return which agent, held for nobody, has room for a task first.

        A client's own tasks are not waited for, so where it has some it is ready later than for
        others: only those are looked at again.
        """
        holds, first = self._cluster.holds, None
        for ready in self._possible(client, task):
            if first is not None and first.when_ns < ready.when_ns:
                break
            if holds.on(ready.agent) is not None:
                continue
            mine = client in self._on[ready.agent]
            found = self._ready(ready.agent, task, client) if mine else ready
            if found is not None and (first is None or found < first):
                first = found
        return first

    def _possible(self, client: Client, task: Quantities) -> list[_Ready]:
        """Return the agents on which a task would fit if they were empty; none if one fits now.

        The first of them is ready first for clients that have no tasks there.
        """
        ledger = self._cluster.ledger
        framework = ledger.frameworks[client.framework]
        key = (
            frozenset(task.items()),
            id(ledger.placements.met_by(client.framework)),
            ledger.exclusions.number(client) and client,
            framework.said.capabilities,
            "/" in client.role,
        )
        found = self._stuck.get(key)
        if found is None:
            each = (self._ready(agent, task) for agent in self._look(client, task))
            found = self._stuck[key] = sorted(ready for ready in each if ready is not None)
        return found

    def _look(self, client: Client, task: Quantities) -> Iterator[str]:
        cluster = self._cluster
        ledger, rules = cluster.ledger, cluster.rules
        framework = ledger.frameworks[client.framework]
        possible = []
        for agent in ledger.agents.values():
            total = agent.total
            if (
                total.ordinary  # what is reserved for somebody is nobody else's to be held back
                and cluster.withheld(agent) is None
                and _covers(total.divisible, task)
                and ledger.admits(client, agent.id)
                and framework.can_use(agent, client.role, rules)
            ):
                if cluster.holds.on(agent.id) is None and fits(agent, task):
                    return
                possible.append(agent.id)
        yield from possible

    def _ready(self, agent_id: str, task: Quantities, own: Client | None = None) -> _Ready | None:
        """Find when an agent is expected to have room for a task beside its own client's."""
        cluster = self._cluster
        free = dict(cluster.ledger.agents[agent_id].available.divisible)
        gathered = False
        for when, stay in cluster.holds.run_times.ends(agent_id, cluster.now_ns):
            if stay.client == own:
                continue
            in_turn = not gathered and self._one_is_enough(free, stay, task)
            for name, amount in stay.amounts.items():
                free[name] = free.get(name, 0) + amount
            gathered = True
            if _covers(free, task):
                return _Ready(when, in_turn, agent_id)
        return None

    def _one_is_enough(self, free: Mapping[str, int], stay: TaskRun, task: Quantities) -> bool:
        ledger = self._cluster.ledger
        known = stay.client.framework in ledger.frameworks
        ends = (ledger.task(stay.client) if known else None) or stay.amounts
        return all(free.get(name, 0) + ends[name] >= amount for name, amount in task.items())


def fits(agent: Agent, task: Quantities) -> bool:
    """Whether an agent has room for a task in what it has free for everybody."""
    return _covers(agent.available.divisible, task)


def _covers(room: Mapping[str, int], task: Quantities) -> bool:
    return all(room.get(name, 0) >= amount for name, amount in task.items())
