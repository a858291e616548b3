"""Selects the clients and agents of backfill holds, after an allocation cycle over all agents."""

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

Allocate: TypeAlias = Callable[[Client, Quantities], None]

_MAX_CLIENTS = 100
"""Maximum number of clients examined: the first in turn, or without turns the first in order."""


def choose(cluster: Cluster, order: Callable[[], Iterator[Client]], allocate: Allocate) -> None:
    """Create holds for clients whose next task fits on no agent now, but on an empty agent.

    If `BackfillHolds.by_turns` is set, the client that has waited longest for a hold is first.
    Otherwise, holds are created in rounds, as event logs of earlier versions require. In a round,
    each client gets at most one hold.

    If several holds are allowed at a time, the first client in sorter order gets further holds. The
    held resources are counted as allocated. The client gets holds until it is no longer first.

    Costs O(agents) for each distinct task among the first hundred clients, less if a task fits.
    Each of these clients also costs O(agents that are ready at the same time as the first agent).

    Args:
        cluster: The cluster whose agents are held.
        order: Yields the clients that want offers and have a known task, in sorter order.
        allocate: Counts an allocation in this sorter order, without a real allocation.
    """
    holds = cluster.holds
    if holds.full:
        return
    selector = _AgentSelector(cluster)
    if holds.by_turns:
        _in_turn(holds, selector, order())
    else:
        clients = list(islice(order(), _MAX_CLIENTS))
        _in_rounds(holds, selector, clients)
        if holds.next_round():
            _in_rounds(holds, selector, clients)
    if holds.several:
        _as_long_as_first(holds, selector, order, allocate)


def _in_turn(holds: BackfillHolds, selector: "_AgentSelector", order: Iterator[Client]) -> None:
    """Create a hold for each client that needs one, starting with the longest-waiting client.

    At most a hundred clients are examined. If there are more, examined clients that need no hold
    move to the end of the queue. The next call then examines the clients behind them.

    Args:
        holds: All holds, to which the new holds are added.
        selector: Finds an agent for a hold.
        order: Yields the clients in sorter order.
    """
    clients = holds.in_turn(order)
    not_held = [
        client
        for client in clients[:_MAX_CLIENTS]
        if not holds.full and selector.hold_for(client) is None
    ]
    if len(clients) > _MAX_CLIENTS:
        holds.defer(client for client in not_held if not selector.waits(client))


def _in_rounds(holds: BackfillHolds, selector: "_AgentSelector", clients: list[Client]) -> None:
    """Create a hold for each client that needs one and has had none in the current round of holds.

    A round ends when no client needs a hold. `choose` calls this function unless the client that
    has waited longest is first.

    Args:
        holds: All holds, to which the new holds are added.
        selector: Finds an agent for a hold.
        clients: Clients in sorter order.
    """
    for client in clients:
        if holds.may_begin(client):
            selector.hold_for(client)


def _as_long_as_first(
    holds: BackfillHolds,
    selector: "_AgentSelector",
    order: Callable[[], Iterator[Client]],
    allocate: Allocate,
) -> None:
    """Create further holds for the client that is first in sorter order.

    Held resources count as allocated, so another client may become first. The function ends when
    the first client needs no hold, or is not allowed another one.

    Args:
        holds: All holds, to which the new holds are added.
        selector: Finds an agent for a hold.
        order: Yields clients in sorter order.
        allocate: Counts an allocation in this sorter order, without a real allocation.
    """
    for hold in holds:
        allocate(hold.client, hold.task)
    for _ in range(_MAX_CLIENTS):
        client = next(order(), None)
        if client is None or not holds.may_have_more(client):
            break
        task = selector.hold_for(client)
        if task is None:
            break
        allocate(client, task)


class _Ready(NamedTuple):
    """An agent, and the time at which it is expected to have capacity for a task.

    Objects are sorted by this time, so the smallest one is the agent that is ready first.
    """

    when_ns: int
    in_turn: bool
    """True if the task fits once a single task of another client ends. Then no hold is needed,
    because the sorter order decides which client gets the capacity."""
    agent: str


class _AgentSelector:
    """Finds the agent to hold for a client's task. Equal tasks share cached results."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[tuple[object, ...], list[_Ready]] = {}

    @cached_property
    def _clients_on(self) -> dict[str, frozenset[Client]]:
        """The clients that run tasks on each agent, by agent ID."""
        clients_on = self._cluster.holds.runtime_estimates.clients
        return {agent: clients_on(agent) for agent in self._cluster.ledger.agents}

    def hold_for(self, client: Client) -> Quantities | None:
        """Hold the agent that is expected to be ready first for a client's next task.

        Nothing is held if the task fits on an agent now, or will fit as soon as one task ends.

        Returns:
            The resources of the client's task; None if no agent is held.
        """
        cluster = self._cluster
        task = cluster.ledger.unit_demand(client)
        first = self._first(client, task) if task is not None else None
        if task is None or first is None or first.in_turn:
            return None
        cluster.holds.begin(client, first.agent, task, cluster.now_ns, first.when_ns)
        return task

    def waits(self, client: Client) -> bool:
        """Return whether a client needs a hold, but all agents it could use are held already."""
        task = self._cluster.ledger.unit_demand(client)
        if task is None or self._first(client, task) is not None:
            return False
        holds = self._cluster.holds
        return any(holds.on(ready.agent) is not None for ready in self._possible(client, task))

    def _first(self, client: Client, task: Quantities) -> _Ready | None:
        """Return the agent without a hold that is expected to be ready first for a client's task.

        An agent is ready when it has capacity for the task. The result is None if there is no such
        agent. The client's own tasks are assumed to continue. An agent that runs such tasks is
        therefore ready later for this client than for other clients, so the agent's time is
        estimated again.
        """
        holds, first = self._cluster.holds, None
        for ready in self._possible(client, task):
            if first is not None and first.when_ns < ready.when_ns:
                break
            if holds.on(ready.agent) is not None:
                continue
            own_tasks = client in self._clients_on[ready.agent]
            estimate = self._ready(ready.agent, task, client) if own_tasks else ready
            if estimate is not None and (first is None or estimate < first):
                first = estimate
        return first

    def _possible(self, client: Client, task: Quantities) -> list[_Ready]:
        """Return the agents that could run a client's task later, the earliest ready agent first.

        An agent is ready when enough tasks on it are expected to have ended. The agents are those
        on which the task would fit if they were empty. If the task fits on an agent now, the result
        is empty, because no hold is needed. The times assume that the client itself runs no tasks
        on the agents.
        """
        ledger = self._cluster.ledger
        framework = ledger.frameworks[client.framework]
        key = (
            frozenset(task.items()),
            id(ledger.placements.eligible_agents(client.framework)),
            ledger.exclusions.number(client) and client,
            framework.subscription.capabilities,
            "/" in client.role,
        )
        known = self._known.get(key)
        if known is None:
            results = (self._ready(agent, task) for agent in self._fitting_when_empty(client, task))
            known = self._known[key] = sorted(ready for ready in results if ready is not None)
        return known

    def _fitting_when_empty(self, client: Client, task: Quantities) -> Iterator[str]:
        """Yield the IDs of agents on which a task would fit if the agents were empty.

        If the task fits on an agent now, nothing is yielded, because no hold is needed.
        """
        cluster = self._cluster
        ledger, rules = cluster.ledger, cluster.rules
        framework = ledger.frameworks[client.framework]
        possible = []
        for agent in ledger.agents.values():
            total = agent.total
            if (
                total.ordinary  # reserved resources cannot be held for other clients
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
        """Estimate when an agent will have capacity for a task; None if this cannot be estimated.

        Args:
            agent_id: The agent's ID.
            task: Thousandths that the task needs, by resource.
            own: The client of the task; its own tasks on the agent are assumed to continue.
        """
        cluster = self._cluster
        free = dict(cluster.ledger.agents[agent_id].available.divisible)
        gathered = False
        for when_ns, run in cluster.holds.runtime_estimates.ends(agent_id, cluster.now_ns):
            if run.client == own:
                continue
            in_turn = not gathered and self._one_end_suffices(free, run, task)
            for name, amount in run.amounts.items():
                free[name] = free.get(name, 0) + amount
            gathered = True
            if _covers(free, task):
                return _Ready(when_ns, in_turn, agent_id)
        return None

    def _one_end_suffices(self, free: Mapping[str, int], run: TaskRun, task: Quantities) -> bool:
        """Return whether the end of one task of a run frees enough capacity for a waiting task.

        Args:
            free: The agent's free thousandths, by resource.
            run: Resources that another client was offered at one time, for one or more tasks.
            task: Thousandths that the waiting task needs, by resource.
        """
        ledger = self._cluster.ledger
        known = run.client.framework in ledger.frameworks
        freed = (ledger.unit_demand(run.client) if known else None) or run.amounts
        return all(free.get(name, 0) + freed[name] >= amount for name, amount in task.items())


def fits(agent: Agent, task: Quantities) -> bool:
    """Return whether a task fits into an agent's available unreserved resources."""
    return _covers(agent.available.divisible, task)


def _covers(available: Mapping[str, int], task: Quantities) -> bool:
    """Return whether available thousandths suffice for a task."""
    return all(available.get(name, 0) >= amount for name, amount in task.items())
