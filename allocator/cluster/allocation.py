"""The allocation run: which free resources are offered to whom (§3)."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from allocator.cluster.agents import Agent
from allocator.cluster.frameworks import Client, Framework
from allocator.cluster.quota import Headroom
from allocator.cluster.resources import NOTHING, Resources
from allocator.cluster.state import Cluster
from allocator.cluster.subscriptions import Alternatives
from allocator.contract import allocator_pb2 as contract
from allocator.fairness.quantities import Quantities


@dataclass(slots=True)
class _Turn:
    """One agent's turn in the second stage."""

    blocked: int
    """A bit for each client that refuses all there is."""
    done: set[Client] = field(default_factory=set)
    """Clients that cannot have more of what is there."""
    tasks: dict[Client, Resources] = field(default_factory=dict)
    """What clients with a known demand have been given so far, task by task."""


class Allocation:
    """Makes offers in one cluster, and books what it offers.

    A run costs, for each agent with something free, O(clients looked at before the agent is
    empty) times O(kinds of resources); an agent that everybody refuses costs O(1).
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ledger = cluster.ledger
        self._users = cluster.ledger.clients.users
        self._filters = cluster.filters
        self._quotas = cluster.ledger.quotas
        self._headroom = Headroom({}, {}, Quantities())
        self._wanting = 0
        self._wanting_version = (-1, -1, -1)
        self._elsewhere: list[tuple[Collection[str], int]] = []
        """For each constraint the agents that meet it, and a bit for each client that has it."""
        self._shared: dict[str, Resources] = {}
        """Shared volumes offered in this run, by agent."""
        self._made: dict[str, dict[tuple[str, str], Resources]] = {}
        """framework → (agent, role) → resources"""

    def run(self, agents: Iterable[Agent]) -> list[contract.Offers]:
        """Offer what agents have free; at most one `Offers` for each framework."""
        open_agents = [agent for agent in agents if self._may_be_offered(agent)]
        self._shared, self._made = {}, {}
        self._renew_wanting()
        if self._quotas:
            self._headroom = self._quotas.headroom()
            for agent in open_agents:
                self._guarantee(agent)
        for agent in open_agents:
            self._share(agent)
        if self._quotas:  # what is held back today may be free to go when the next run looks
            for agent in open_agents:
                if agent.available:
                    self._cluster.marks.change(agent.id)
        return [self._offers(framework, parts) for framework, parts in self._made.items()]

    def _may_be_offered(self, agent: Agent) -> bool:
        whitelist = self._cluster.whitelist
        return (
            agent.active
            and agent.flaw is None
            and (whitelist is None or agent.hostname in whitelist)
            and bool(agent.available)
        )

    def _renew_wanting(self) -> None:
        clients, placements = self._ledger.clients, self._ledger.placements
        version = clients.version, self._filters.version, placements.version
        if self._wanting_version != version:
            self._wanting = 0
            of_framework: dict[str, int] = {}
            for client in clients.wanting:
                bit = 1 << self._filters.slot(client)
                self._wanting |= bit
                of_framework[client.framework] = of_framework.get(client.framework, 0) | bit
            self._elsewhere = [
                (agents, sum(of_framework.get(framework, 0) for framework in frameworks))
                for agents, frameworks in placements.groups()
            ]
            self._wanting_version = clients.version, self._filters.version, placements.version

    def _may_not_use(self, agent: Agent) -> int:
        """Return a bit for each client whose constraint an agent does not meet."""
        mask = 0
        for agents, clients in self._elsewhere:
            if agent.id not in agents:
                mask |= clients
        for client in self._ledger.exclusions.of(agent.id):
            if client in self._ledger.clients:
                mask |= 1 << self._filters.slot(client)
        return mask

    # The first stage: quota guarantees (§3.3).

    def _guarantee(self, agent: Agent) -> None:
        done: set[Client] = set()
        while agent.available and self._guarantee_next(agent, done):
            pass

    def _guarantee_next(self, agent: Agent, done: set[Client]) -> bool:
        for client in self._order(agent):
            if client in done or client.role not in self._quotas:
                continue
            done.add(client)
            framework = self._ledger.frameworks[client.framework]
            usable = self._usable(agent, client, framework)
            if usable is None:
                continue
            towards, give = self._guaranteed_part(client.role, usable)
            if not give:
                continue
            if not self._wanted(agent, client, framework, give):
                continue
            self._headroom.give_guaranteed(client.role, towards.scalars, give.plain.scalars)
            self._give(agent, client, give)
            return True
        return False

    def _guaranteed_part(self, role: str, usable: Resources) -> tuple[Resources, Resources]:
        """Return what helps a role to its guarantee, and that with all that comes along."""
        headroom, plain = self._headroom, usable.plain
        towards = plain.shrunk(headroom.missing(role))
        if headroom.divisible:
            if not towards:
                return NOTHING, NOTHING
            scalars = plain.where(lambda kind: kind.scalar)
            special = usable.where(
                lambda kind: kind.reservation == role or not kind.scalar or kind.revocable
            )
            more = headroom.within(role, scalars - towards, besides=towards)
            return towards, special + towards + more
        reserved = usable.where(lambda kind: kind.reservation == role and not kind.revocable)
        if not reserved and not towards:
            return NOTHING, NOTHING
        guaranteed = headroom.quotas[role].guarantees
        others = plain.where(lambda kind: kind.name not in guaranteed)
        company = others.shrunk(headroom.spare()) + plain.where(lambda kind: not kind.scalar)
        return towards, reserved + towards + company

    # The second stage: fair shares (§3.4).

    def _share(self, agent: Agent) -> None:
        """Serve the clients in order until the agent has nothing left for anybody."""
        blocked = self._filters.blocked(agent.id, agent.available) | self._may_not_use(agent)
        if not self._wanting & ~blocked:
            return
        turn = _Turn(blocked)
        while True:
            while agent.available and self._serve_next(agent, turn):
                pass
            refused = self._refused(agent, turn)
            if not refused:
                break
            for client in refused:
                self._take_back(agent, client, turn.tasks.pop(client))
            turn.blocked |= sum(1 << self._filters.slot(client) for client in refused)
            turn.done.clear()
        for client, tasks in turn.tasks.items():
            self._make(agent, client, tasks)

    def _serve_next(self, agent: Agent, turn: _Turn) -> bool:
        """Give the first client in order that can have something what it is to have now."""
        for client in self._order(agent):
            if turn.blocked >> self._filters.slot(client) & 1 or client in turn.done:
                continue
            if client.role in self._quotas and not self._headroom.divisible:
                continue
            framework = self._ledger.frameworks[client.framework]
            demand = self._cluster.demands.of(client, framework)
            usable = self._usable(agent, client, framework)
            if usable is not None and demand is not None:
                task = self._task(client.role, usable, demand, first=client not in turn.tasks)
                if task:
                    turn.tasks[client] = turn.tasks.get(client, NOTHING) + task
                    self._book(agent, client, task)
                    return True
            turn.done.add(client)
            if usable is not None and demand is None:
                give = self._within_quota(client.role, usable)
                if give and self._wanted(agent, client, framework, give):
                    self._give(agent, client, give)
                    if self._quotas:
                        self._headroom.give(client.role, give.plain.scalars)
                    return True
        return False

    def _usable(self, agent: Agent, client: Client, framework: Framework) -> Resources | None:
        if not (
            self._ledger.admits(client, agent.id)
            and framework.can_use(agent, client.role, self._cluster.rules)
        ):
            return None
        return framework.share_of(self._available(agent), client.role) or None

    def _within_quota(self, role: str, usable: Resources) -> Resources:
        """Leave out what the role's limits forbid, or others' guarantees may still ask for."""
        if not self._quotas or self._headroom.admits(role, usable.plain.scalars):
            return usable
        special = usable.where(lambda kind: not (kind.plain and kind.scalar))
        if not self._headroom.divisible:
            return special
        return special + self._headroom.within(role, usable.plain.where(lambda kind: kind.scalar))

    def _task(
        self, role: str, usable: Resources, demand: Quantities, *, first: bool
    ) -> Resources | None:
        """Return what one more task needs; with the first comes all that is not for everybody."""
        task = usable.plain.taken(demand)
        if task is not None and self._quotas:
            if self._headroom.admits(role, task.scalars):
                self._headroom.give(role, task.scalars)
            else:
                task = None
        if first and not usable.ordinary:
            special = usable.where(lambda kind: not kind.plain)
            return special + task if task is not None else special
        return task

    def _refused(self, agent: Agent, turn: _Turn) -> list[Client]:
        """Return clients to whom all that was put together for them is too little, or unwanted."""
        return [
            client
            for client, tasks in turn.tasks.items()
            if not self._wanted(agent, client, self._ledger.frameworks[client.framework], tasks)
        ]

    def _take_back(self, agent: Agent, client: Client, tasks: Resources) -> None:
        self._ledger.recover(agent, client.framework, client.role, tasks)
        if self._quotas:
            self._headroom.take_back(client.role, tasks.plain.scalars)

    # What both have in common.

    def _order(self, agent: Agent) -> Iterator[Client]:
        if not self._users.per_machine:
            return self._users.order()
        held = {Client(role, name): held.scalars for name, role, held in agent.allocations()}
        return self._users.order(agent.total.scalars, held)

    def _available(self, agent: Agent) -> Resources:
        """Return what is free; a shared volume goes out once in a run (§3.8)."""
        offered = self._shared.get(agent.id)
        return agent.available if offered is None else agent.available - offered

    def _wanted(self, agent: Agent, client: Client, framework: Framework, give: Resources) -> bool:
        alternatives = framework.min_allocatable.get(
            client.role, self._cluster.rules.min_allocatable
        )
        return (
            bool(give)
            and _reaches(give, alternatives)
            and not self._filters.refuses(client, agent.id, give)
        )

    def _give(self, agent: Agent, client: Client, give: Resources) -> None:
        self._book(agent, client, give)
        self._make(agent, client, give)

    def _book(self, agent: Agent, client: Client, give: Resources) -> None:
        self._ledger.allocate(agent, client, give)
        if give.has_shared:
            self._shared[agent.id] = self._shared.get(agent.id, NOTHING) + give.where(
                lambda kind: kind.shared
            )

    def _make(self, agent: Agent, client: Client, give: Resources) -> None:
        parts = self._made.setdefault(client.framework, {})
        place = (agent.id, client.role)
        parts[place] = parts[place] + give if place in parts else give
        self._cluster.demands.note_offer(client, agent.id, parts[place])

    def _offers(self, framework: str, parts: dict[tuple[str, str], Resources]) -> contract.Offers:
        offers = contract.Offers(framework_id=framework)
        for (agent, role), give in parts.items():
            offers.offers.add(role=role, agent_id=agent, resources=give.messages(role))
        return offers


def _reaches(give: Resources, alternatives: Alternatives) -> bool:
    return not alternatives or any(give.quantities.contains(minimum) for minimum in alternatives)
