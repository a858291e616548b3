"""The second stage of a run: fair shares (§3.4)."""

from dataclasses import dataclass, field

from allocator.cluster.agents import Agent
from allocator.cluster.allocation.books import Books
from allocator.cluster.allocation.filling import Leaf, Room
from allocator.cluster.allocation.walk import Walk
from allocator.cluster.allocation.wanting import Wanting
from allocator.cluster.frameworks import Client
from allocator.cluster.resources import NOTHING, Resources
from allocator.fairness.quantities import Quantities


@dataclass(slots=True)
class _Turn:
    """One agent's turn."""

    agent: Agent
    may: int
    """Those who do not refuse all there is, and may use the agent."""
    room: dict[str, int]
    """What can still be taken for tasks, by name."""
    done: int = 0
    """Those who cannot have more of what is there."""
    counted: dict[Client, tuple[Leaf, int]] = field(default_factory=dict)
    """Tasks that have been given but not been cut out of what the agent has free."""
    tasks: dict[Client, Resources] = field(default_factory=dict)
    """What clients with a known demand have been given otherwise, in order of the first of it."""


class Sharing:
    """Serves the clients in order, on one agent after the other."""

    def __init__(self, books: Books, wanting: Wanting, walk: Walk) -> None:
        self._books = books
        self._wanting = wanting
        self._walk = walk
        self._needs: dict[tuple[int, frozenset[str]], tuple[dict[str, int], Quantities]] = {}

    def serve(self, agent: Agent, may: int) -> None:
        """Serve those who may use an agent until it has nothing left for anybody."""
        turn = _Turn(agent, may, dict(agent.available.divisible))
        while True:
            self._fill(turn)
            refused = [
                client
                for client, tasks in turn.tasks.items()
                if not self._books.wanted(agent, client, tasks)
            ]
            if not refused:
                break
            for client in refused:
                self._books.take_back(agent, client, turn.tasks.pop(client))
                turn.may &= ~self._wanting.bit[client]
            turn.room = dict(agent.available.divisible)
            turn.done = 0
        for client, tasks in turn.tasks.items():
            self._books.make(agent, client, tasks)

    def _fill(self, turn: _Turn) -> None:
        """Give in order, until nobody is left who can have anything."""
        while True:
            room = self._room(turn)
            live = self._live(turn, room)
            if not live:
                break
            if live & ~self._wanting.unknown:
                tree = self._walk.tree(
                    turn.agent, live, lambda client, below: self._leaf(turn, client, below=below)
                )
                if tree is None:
                    continue  # who has been found out not to be able to use it is done
                portion = tree.fill(Room(room))
                if portion.number:
                    self._count(turn, portion.leaves)
                    continue
            self._step(turn, live)
        self._cut(turn)

    def _room(self, turn: _Turn) -> dict[str, int]:
        """Return how much can be taken for tasks without harm to what is guaranteed."""
        room = dict(turn.room)
        if self._books.quotas:
            slack = self._books.headroom.slack()
            if slack is None:
                return {}
            for name, amount in slack.items():
                if name in room:
                    room[name] = min(room[name], amount)
        return room

    def _live(self, turn: _Turn, room: dict[str, int]) -> int:
        """Return those who may get something now, as far as that can be told of all at once."""
        free = turn.agent.available
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

    def _leaf(self, turn: _Turn, client: Client, *, below: bool) -> Leaf | None:
        agent = turn.agent
        if self._books.usable(agent, client) is None:
            turn.done |= self._wanting.bit[client]
            return None
        task = self._wanting.tasks.get(client)
        if task is None:
            return Leaf(client, {}, Quantities(), special=True)
        fresh = client not in turn.tasks and client not in turn.counted
        key = id(task), agent.available.counted
        known = self._needs.get(key)
        if known is None:
            known = self._needs[key] = _needs(task, agent.available.counted)
        special = fresh and (below or not agent.available.ordinary)
        return Leaf(client, *known, special=special)

    def _count(self, turn: _Turn, leaves: dict[Leaf, int]) -> None:
        """Give tasks, which are cut out of what the agent has free when somebody needs to know."""
        per_machine = self._walk.per_machine
        for leaf, number in leaves.items():
            for name, amount in leaf.needs.items():
                turn.room[name] -= number * amount
            scalars = leaf.scalars.times(number)
            self._books.count(leaf.client, scalars, number)
            if self._books.quotas:
                self._books.headroom.give(scalars)
            before = turn.counted.get(leaf.client)
            turn.counted[leaf.client] = leaf, number + (before[1] if before is not None else 0)
        if per_machine:
            self._cut(turn)

    def _cut(self, turn: _Turn) -> None:
        for client, (leaf, number) in turn.counted.items():
            tasks = self._books.cut(turn.agent, leaf.needs, number)
            self._books.book(turn.agent, client, tasks)
            before = turn.tasks.get(client)
            turn.tasks[client] = tasks if before is None else before + tasks
        turn.counted.clear()

    def _step(self, turn: _Turn, live: int) -> None:
        """Give the first client in order that can have something what it is to have now."""
        self._cut(turn)
        agent, books = turn.agent, self._books
        for client in self._walk.clients(agent, live):
            bit = self._wanting.bit[client]
            usable = books.usable(agent, client)
            task = self._wanting.tasks.get(client)
            if usable is not None and task is not None:
                give = self._task(usable, task, first=client not in turn.tasks)
                if give:
                    before = turn.tasks.get(client, NOTHING)
                    turn.tasks[client] = before + give
                    books.count(client, books.book(agent, client, give), 1)
                    turn.room = dict(agent.available.divisible)
                    return
            turn.done |= bit
            if usable is not None and task is None:
                give = self._kept_within_headroom(usable)
                if give and books.wanted(agent, client, give):
                    books.give(agent, client, give)
                    books.headroom.give(give.plain.scalars)
                    turn.room = dict(agent.available.divisible)
                    return
        turn.done |= live

    def _kept_within_headroom(self, usable: Resources) -> Resources:
        """Leave out all that quota may ask for if guarantees could not be met without it."""
        books = self._books
        if not books.quotas or books.headroom.admits(usable.plain.scalars):
            return usable
        return usable.where(lambda kind: not (kind.plain and kind.scalar))

    def _task(self, usable: Resources, demand: Quantities, *, first: bool) -> Resources | None:
        """Return what one more task needs; with the first comes all that is not for everybody."""
        task = usable.plain.taken(demand)
        if task is not None and self._books.quotas:
            if self._books.headroom.admits(task.scalars):
                self._books.headroom.give(task.scalars)
            else:
                task = None
        if first and not usable.ordinary:
            special = usable.where(lambda kind: not kind.plain)
            return special + task if task is not None else special
        return task


def _needs(task: Quantities, counted: frozenset[str]) -> tuple[dict[str, int], Quantities]:
    """Return what a task takes by name, whole ones of what is counted, and what is held of it."""
    needs = {
        name: -(-amount // 1000) * 1000 if name in counted else amount
        for name, amount in task.items()
    }
    scalars = Quantities({name: n for name, n in needs.items() if name not in counted})
    return needs, scalars
