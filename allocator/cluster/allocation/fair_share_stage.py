"""The second stage of a run: fair shares (§3.4)."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from allocator.cluster.agents.agent import Agent
from allocator.cluster.allocation.client_index import ClientIndex
from allocator.cluster.allocation.offer_builder import OfferBuilder
from allocator.cluster.allocation.progressive_filling import (
    CapacityBudget,
    ClientNode,
    ClientTask,
    Name,
    Needs,
    TaskBatch,
)
from allocator.cluster.allocation.sorter_view import RoleTreeIterator
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.quota import top_level
from allocator.cluster.resources import NOTHING, Resources
from allocator.fairness.quantities import Quantities

Laid: TypeAlias = tuple[Client, ClientTask, int]
"""So many tasks of a client, which have been counted, and which one agent has room for."""


@dataclass(slots=True)
class _AgentAllocation:
    """One agent's turn."""

    agent: Agent
    may: int
    """Those who do not refuse all there is, and may use the agent."""
    room: dict[str, int]
    """What can still be taken for tasks, by name."""
    done: int = 0
    """Those who cannot have more of what is there."""
    counted: dict[Client, tuple[ClientTask, int]] = field(default_factory=dict)
    """Tasks that have been given but not been cut out of what the agent has free."""
    tasks: dict[Client, Resources] = field(default_factory=dict)
    """What clients with a known demand have been given otherwise, in order of the first of it.
    Whoever is in here, or counted, has what it would take an offer of."""

    def count(self, client: Client, task: ClientTask, number: int) -> None:
        """Note tasks that are not cut out yet."""
        before = self.counted.get(client)
        self.counted[client] = task, number + (before[1] if before is not None else 0)


class FairShareStage:
    """Serves the clients in order, on one agent after the other."""

    def __init__(self, books: OfferBuilder, wanting: ClientIndex, walk: RoleTreeIterator) -> None:
        self._books = books
        self._wanting = wanting
        self._walk = walk
        self._quotas = bool(books.quotas)
        self._stride = 1
        """One task less than the first got the last time: agents are alike, and what is left is
        found at once, where too much would have to be halved."""
        self._tasks: dict[tuple[int, frozenset[str], str], ClientTask] = {}

    def serve(self, agent: Agent, may: int, laid: Iterable[Laid] = ()) -> None:
        """Serve those who may use an agent until it has nothing left for anybody.

        Args:
            agent: The agent.
            may: Those who may use it.
            laid: What is given before.
        """
        turn = _AgentAllocation(agent, may, _room(agent))
        for client, task, number in laid:
            turn.count(client, task, number)
            for name, amount in task.needs.items():
                turn.room[str(name)] -= number * amount
        self._fill(turn)
        for client, tasks in turn.tasks.items():
            self._books.make(agent, client, tasks)

    def _fill(self, turn: _AgentAllocation) -> None:
        """Give in order, until nobody is left who can have anything."""
        while free := turn.agent.available:
            room = self._room(turn)
            live = self._live(turn, free, room)
            if not live:
                break
            if live & ~self._wanting.unknown and self._wanting.room_for_two(room):
                tree = self._walk.tree(
                    turn.agent, live, lambda client, below: self._leaf(turn, client, below=below)
                )
                if tree is None:
                    continue  # who has been found out not to be able to use it is done
                portion = tree.fill(CapacityBudget(room.items(), self._limit), self._stride)
                if portion.number:
                    self._stride = max(next(iter(portion.leaves.values())) - 1, 1)
                    self._count(turn, portion)
                    continue
            self._step(turn, live)
        if turn.counted:
            self._cut(turn)

    def _room(self, turn: _AgentAllocation) -> dict[str, int]:
        """Return how much of what an agent has can be taken for tasks under all guarantees."""
        room = dict(turn.room)
        if self._quotas:
            slack = self._books.headroom.slack(room)
            if slack is None:
                return {}
            for name, amount in slack.items():
                room[name] = min(room[name], amount)
        return room

    def _limit(self, name: Name) -> int:
        """Return how much can be taken within a role's limits; of what is not there, nothing."""
        if isinstance(name, str):
            return 0
        return self._books.headroom.left(*name) or 0

    def _live(self, turn: _AgentAllocation, free: Resources, room: dict[str, int]) -> int:
        """Return those who may get something now, as far as that can be told of all at once."""
        may = turn.may & ~turn.done
        live = may & self._wanting.fitting(room)
        if any(turn.room.values()) or not free.all_divisible:
            live |= may & self._wanting.unknown
        if not free.ordinary:  # what is not for everybody comes with the first task
            fresh = may & ~self._wanting.unknown & ~live
            for client in (*turn.tasks, *turn.counted):
                fresh &= ~self._wanting.bit[client]
            live |= fresh
        return live

    def _leaf(self, turn: _AgentAllocation, client: Client, *, below: bool) -> ClientNode | None:
        agent = turn.agent
        if self._books.usable(agent, client) is None:
            turn.done |= self._wanting.bit[client]
            return None
        demand = self._wanting.tasks.get(client)
        if demand is None:
            return ClientNode(client, None)
        task = self._task_of(client, demand, agent.available.counted)
        fresh = client not in turn.tasks and client not in turn.counted
        if fresh and (
            below
            or not agent.available.ordinary
            or not self._books.surely_wanted(agent, client, task.needs)
        ):
            return ClientNode(client, None)
        return ClientNode(client, task)

    def _task_of(self, client: Client, demand: Quantities, counted: frozenset[str]) -> ClientTask:
        """Return what a task takes of agents where so much is counted, and of a role's limits."""
        top = top_level(client.role)
        limited = frozenset[str]()
        if self._quotas and top in self._books.quotas:
            left = self._books.headroom.left
            limited = frozenset(name for name in demand if left(top, name) is not None)
        key = id(demand), counted, top if limited else ""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = task_of(demand, counted, top, limited)
        return task

    def _count(self, turn: _AgentAllocation, portion: TaskBatch) -> None:
        """Give tasks, which are cut out of what the agent has free when somebody needs to know."""
        for name in turn.room:
            turn.room[name] -= portion.needs.get(name, 0)
        for leaf, number in portion.leaves.items():
            assert leaf.task is not None
            client, (_needs, scalars, _gifts) = leaf.client, leaf.task.multiple(number)
            self._books.count(client, scalars, number)
            if self._quotas:
                self._books.headroom.give(client.role, scalars)
            turn.count(client, leaf.task, number)
        if self._walk.per_machine:
            self._cut(turn)

    def _cut(self, turn: _AgentAllocation) -> None:
        for client, (task, number) in turn.counted.items():
            tasks = self._books.cut(turn.agent, task.needs, number)
            self._books.book(turn.agent, client, tasks)
            before = turn.tasks.get(client)
            turn.tasks[client] = tasks if before is None else before + tasks
        turn.counted.clear()

    def _step(self, turn: _AgentAllocation, live: int) -> None:
        """Give the first client in order that can have something what it is to have now."""
        if turn.counted:
            self._cut(turn)
        agent, books = turn.agent, self._books
        for client in self._walk.clients(agent, live):
            bit = self._wanting.bit[client]
            usable = books.usable(agent, client)
            demand = self._wanting.tasks.get(client)
            if usable is not None and demand is not None:
                give = self._next(turn, client, usable, demand)
                if give:
                    before = turn.tasks.get(client, NOTHING)
                    turn.tasks[client] = before + give
                    books.charge(agent, client, give)
                    turn.room = _room(agent)
                    return
            turn.done |= bit
            if usable is not None and demand is None:
                give = self._within_quota(client.role, usable)
                if give and books.wanted(agent, client, give):
                    books.give(agent, client, give)
                    if self._quotas:
                        books.headroom.give(client.role, give.plain.scalars)
                    turn.room = _room(agent)
                    return
        turn.done |= live

    def _within_quota(self, role: str, usable: Resources) -> Resources:
        """Leave out what the role's limits forbid, or others' guarantees may still ask for."""
        headroom = self._books.headroom
        if not self._quotas or headroom.admits(role, usable.plain.scalars):
            return usable
        special = usable.where(lambda kind: not (kind.plain and kind.scalar))
        if not headroom.divisible:
            return special
        return special + headroom.within(role, usable.plain.where(lambda kind: kind.scalar))

    def _next(
        self, turn: _AgentAllocation, client: Client, usable: Resources, demand: Quantities
    ) -> Resources:
        """Return what one more task takes.

        At first it is the least number of tasks that the client would take an offer of, with all
        that is not for everybody.
        """
        books = self._books
        give = usable.plain.taken(demand)
        if give is None or not self._admits(client.role, give):
            give = NOTHING
        if client not in turn.tasks:
            special = NOTHING if usable.ordinary else usable.where(lambda kind: not kind.plain)
            several, give = bool(give), special + give
            if not books.wanted(turn.agent, client, give):
                give = self._least(turn, client, special, demand) if several else NOTHING
        if self._quotas:
            books.headroom.give(client.role, give.plain.scalars)
        return give

    def _admits(self, role: str, give: Resources) -> bool:
        return not self._quotas or self._books.headroom.admits(role, give.scalars)

    def _least(
        self, turn: _AgentAllocation, client: Client, special: Resources, demand: Quantities
    ) -> Resources:
        """Return the least number of tasks, more than one, that a client takes beside the rest."""
        agent, books = turn.agent, self._books
        task = self._task_of(client, demand, agent.available.counted)
        most = (
            ClientNode(client, task)
            .fill(CapacityBudget(self._room(turn).items(), self._limit))
            .number
        )

        def tasks(number: int) -> Resources:
            return special + books.cut(agent, task.needs, number)

        number = 2 + bisect_left(
            range(2, most + 1), True, key=lambda n: books.wanted(agent, client, tasks(n))
        )
        return tasks(number) if number <= most else NOTHING


def _room(agent: Agent) -> dict[str, int]:
    return dict(agent.available.divisible.items())


def task_of(
    demand: Quantities,
    counted: frozenset[str],
    top: str = "",
    limited: frozenset[str] = frozenset(),
) -> ClientTask:
    """Return what a task takes of agents where so much is counted, and of a role's limits."""
    needs: Needs = {
        name: -(-amount // 1000) * 1000 if name in counted else amount
        for name, amount in demand.items()
    }
    scalars = Quantities({name: n for name, n in demand.items() if name not in counted})
    needs |= {(top, name): amount for name, amount in scalars.items() if name in limited}
    return ClientTask(needs, scalars)
