"""Allocation task by task, in the plainest form: the reference for the real allocator."""

from collections.abc import Iterable, Iterator, Mapping

from typing_extensions import override

from allocator.cluster.agents.agent import Agent
from allocator.cluster.allocation import Allocator
from allocator.cluster.allocation.answer import Answer
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.resources import NOTHING, Resources
from allocator.cluster.state import Cluster
from allocator.cluster.users import User, Users
from allocator.cooperative import Cooperative
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from tests.cluster.quota_reference import QuotaReference
from tests.fairness.reference import after_gifts, priority_in


def order(
    users: Users,
    agent: Quantities | None = None,
    held: Mapping[Client, Quantities] | None = None,
    at_first: "AtFirst | None" = None,
) -> Iterator[Client]:
    """Yield the clients that want offers, in the current order of the pools."""
    yield from _below(users, users.root, agent or Quantities(), held or {}, at_first or AtFirst())


class AtFirst:
    """Initial priorities, for policies whose priorities do not change at once with allocations."""

    def __init__(self) -> None:
        self._priorities: dict[tuple[int, str], tuple[object, ...]] = {}

    def note(self, users: Users, user: User) -> None:
        """Record all priorities below a user."""
        assert user.sub_pool is not None
        if not user.sub_pool.policy.moves_at_once:
            for name in user.sub_pool:
                self._priorities[id(user.sub_pool), name] = priority_in(user.sub_pool, name)
        for child in user.children.values():
            if child.sub_pool is not None:
                self.note(users, child)

    def sorted(self, pool: Pool[str], names: Iterable[str]) -> Iterable[str]:
        """Return names by their initial priorities, so that rounding moves no client."""

        def at_first(name: str) -> tuple[object, ...]:
            return self._priorities.get((id(pool), name)) or priority_in(pool, name)

        return after_gifts(pool, names, at_first)


def _below(
    users: Users,
    user: User,
    agent: Quantities,
    held: Mapping[Client, Quantities],
    at_first: AtFirst,
) -> Iterator[Client]:
    assert user.sub_pool is not None
    names = user.sub_pool.order_on(agent, users.allocations_on(user, held))
    for name in at_first.sorted(user.sub_pool, names):
        child = user.children.get(name, user)
        if child is not user and child.sub_pool is not None:
            yield from _below(users, child, agent, held, at_first)
        else:
            yield from users.clients_of(child)


class OneByOne(Allocator):
    """Replaces the engine's `Allocator`, with the same interface; asks pools after each task."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._quotas = cluster.ledger.quotas

    @override
    def open_agents(self, agents: Iterable[Agent]) -> Cooperative[list[Agent]]:
        yield
        whitelist = self._cluster.whitelist
        return [
            agent
            for agent in agents
            if agent.active
            and (whitelist is None or agent.info.hostname in whitelist)
            and agent.available
        ]

    @override
    def run(self, open_agents: list[Agent], answer: Answer) -> Cooperative[int]:
        self._shared: dict[str, Resources] = {}
        self._made: dict[str, dict[tuple[str, str], Resources]] = {}
        self._quota = QuotaReference(self._quotas.items(), self._ledger.agents.values())
        self._at_first = AtFirst()
        self._at_first.note(self._ledger.clients.users, self._ledger.clients.users.root)
        if self._quotas:
            for agent in open_agents:
                done: set[Client] = set()
                while agent.available and self._guarantee(agent, done):
                    pass
        for agent in open_agents:
            self._share(agent)
            yield
        if self._quotas:
            for agent in open_agents:
                if agent.available:
                    self._cluster.candidates.mark_changed(agent.id)
        for framework, parts in self._made.items():
            offers = answer.last.offers.add(framework_id=framework)
            for (name, role), give in parts.items():
                offers.offers.add(role=role, agent_id=name, resources=give.messages(role))
        return sum(len(parts) for parts in self._made.values())

    def _order(self, agent: Agent) -> Iterator[Client]:
        users = self._ledger.clients.users
        held = {Client(role, name): bag.scalars for name, role, bag in agent.allocations()}
        return order(users, agent.total.scalars, held, self._at_first)

    def _guarantee(self, agent: Agent, done: set[Client]) -> bool:
        for client in self._order(agent):
            if client.role not in self._quotas or client in done:
                continue
            done.add(client)
            usable = self._usable(agent, client)
            if usable is None:
                continue
            give, towards = self._quota.guarantee(client.role, usable)
            if not give or not self._wanted(agent, client, give):
                continue
            self._quota.book_guarantee(client.role, give, towards)
            self._give(agent, client, give)
            return True
        return False

    def _share(self, agent: Agent) -> None:
        blocked = {
            client
            for client in self._ledger.clients.wanting_offers
            if self._cluster.filters.refuses(client, agent.id, agent.available)
        }
        tasks: dict[Client, Resources] = {}
        done: set[Client] = set()
        while agent.available and self._serve(agent, blocked | done, done, tasks):
            pass
        for client, bag in tasks.items():
            self._make(agent, client, bag)

    def _serve(
        self, agent: Agent, out: set[Client], done: set[Client], tasks: dict[Client, Resources]
    ) -> bool:
        for client in self._order(agent):
            if client in out or client in done:
                continue
            if client.role in self._quotas and self._quota.guarantee_is_limit:
                continue
            usable = self._usable(agent, client)
            demand = self._ledger.unit_demand(client)
            if usable is not None and demand is not None:
                task = self._task(client.role, usable, demand)
                if client not in tasks:
                    task = self._first(agent, client, usable, demand)
                if task:
                    self._quota.book(client.role, task)
                    tasks[client] = tasks.get(client, NOTHING) + task
                    self._book(agent, client, task)
                    return True
            done.add(client)
            if usable is not None and demand is None:
                give = self._quota.admitted(client.role, usable)
                if give and self._wanted(agent, client, give):
                    self._give(agent, client, give)
                    self._quota.book(client.role, give)
                    return True
        return False

    def _task(self, role: str, usable: Resources, demand: Quantities) -> Resources | None:
        task = usable.plain.take_demand(demand)
        if task is not None and not self._quota.admits(role, task):
            return None
        return task

    def _first(
        self, agent: Agent, client: Client, usable: Resources, demand: Quantities
    ) -> Resources | None:
        """Return the smallest number of tasks of an offer, together with reserved resources."""
        give = usable.where(lambda kind: not kind.plain)
        while task := self._task(client.role, usable, demand):
            give, usable = give + task, usable - task
            if self._quota.admits(client.role, give):
                if self._wanted(agent, client, give):
                    return give
            else:
                return None
        return give if not give.plain and self._wanted(agent, client, give) else None

    def _usable(self, agent: Agent, client: Client) -> Resources | None:
        framework = self._ledger.frameworks[client.framework]
        if not (
            self._ledger.admits(client, agent.id)
            and framework.can_use(agent, client.role, self._cluster.rules)
        ):
            return None
        offered = self._shared.get(agent.id)
        free = agent.available if offered is None else agent.available - offered
        return framework.usable_part(free, client.role) or None

    def _wanted(self, agent: Agent, client: Client, give: Resources) -> bool:
        framework = self._ledger.frameworks[client.framework]
        least = framework.min_allocatable.get(client.role, self._cluster.rules.min_allocatable)
        return (
            bool(give)
            and (not least or any(give.quantities.contains(minimum) for minimum in least))
            and not self._cluster.filters.refuses(client, agent.id, give)
        )

    def _give(self, agent: Agent, client: Client, give: Resources) -> None:
        self._book(agent, client, give)
        self._make(agent, client, give)

    def _book(self, agent: Agent, client: Client, give: Resources) -> None:
        held = agent.held(client.framework, client.role)
        free = None if give.has_shared else agent.available - give
        self._ledger.convert(agent, client.framework, client.role, held + give)
        if free is not None:
            agent.set_available(free)
        if give.has_shared:
            shared = give.where(lambda kind: kind.shared)
            self._shared[agent.id] = self._shared.get(agent.id, NOTHING) + shared

    def _make(self, agent: Agent, client: Client, give: Resources) -> None:
        parts = self._made.setdefault(client.framework, {})
        parts[agent.id, client.role] = parts.get((agent.id, client.role), NOTHING) + give
        self._cluster.demands.note_offer(client, agent.id, parts[agent.id, client.role])
