"""Many agents at a time, dealt out whole as far as that goes, where all tasks need the same.

Filling agent after agent, task by task, gives equals a part of every agent: as many offers on each
as it has room for tasks. How many tasks each gets of all agents together is the same however they
are laid on agents, if it is the same for everybody where they are. So they are counted at once, and
whoever is first gets whole agents, until the next one's begin on the agent where its own end.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from allocator.cluster.agents import Agent
from allocator.cluster.allocation.books import Books
from allocator.cluster.allocation.filling import Leaf, Portion, Task
from allocator.cluster.allocation.unanswered import Unanswered
from allocator.cluster.allocation.walk import Walk
from allocator.cluster.allocation.wanting import Wanting
from allocator.cluster.filters import OfferFilters
from allocator.cluster.frameworks import Client
from allocator.cluster.resources import Resources
from allocator.cluster.steps import Steps

_Kind: TypeAlias = tuple[int, bool, str | None, bool, bool]


@dataclass
class Hand:
    """Agents in a row that are the same to everybody."""

    agents: list[Agent]
    may: int
    """Those who may use them, and refuse nothing there."""
    kind: _Kind | None
    """What says that they are; None: an agent that is like no other."""


class Dealing:
    """Deals out agents in one run without quotas, under a policy that ranks on no machine apart.

    Costs O(clients · log tasks) for agents in a row, and O(agents + clients) offers.
    """

    def __init__(
        self,
        filters: OfferFilters,
        books: Books,
        wanting: Wanting,
        walk: Walk,
        unanswered: Unanswered,
    ) -> None:
        self._filters = filters
        self._books = books
        self._wanting = wanting
        self._walk = walk
        self._unanswered = unanswered

    def hands(self, agents: Iterable[Agent], may: Callable[[Agent], int]) -> Iterator[Hand]:
        """Go through agents in order, with those that are the same to everybody taken together.

        Args:
            agents: In the order in which they are visited.
            may: Returns who may use one, and does not refuse all there is.
        """
        hand: Hand | None = None
        for agent in agents:
            those = may(agent)
            kind = self._kind(agent, those)
            if hand is not None and kind is not None and kind == hand.kind:
                hand.agents.append(agent)
                continue
            if hand is not None:
                yield hand
            hand = Hand([agent], those, kind)
        if hand is not None:
            yield hand

    def deal(self, hand: Hand) -> Steps[bool]:
        """Deal agents out; return False, and do nothing, where that could change who gets what."""
        hand.may = self._unanswered.without(hand.may)
        task = self._task(hand)
        if task is None:
            return False
        room = [_copies(agent, task) for agent in hand.agents]
        yield
        portion = self._counted(hand, task, sum(room))
        gifts = [(leaf.client, number) for leaf, number in portion.leaves.items()]
        if not self._unanswered.admits(
            (client, task.multiple(number)[1]) for client, number in gifts
        ):
            return False
        agents = iter(zip(hand.agents, room, strict=True))
        agent, left = next(agents)
        for client, number in gifts:
            yield
            self._books.count(client, task.multiple(number)[1], number)
            wanted = number
            while wanted:
                while not left:
                    agent, left = next(agents)
                given = min(wanted, left)
                self._give(agent, client, self._books.cut(agent, task.needs, given))
                wanted, left = wanted - given, left - given
                yield
        return True

    def _give(self, agent: Agent, client: Client, tasks: Resources) -> None:
        self._books.book(agent, client, tasks)
        self._books.make(agent, client, tasks)

    def _kind(self, agent: Agent, may: int) -> _Kind | None:
        """Return what says that agents are the same to everybody; None: this one is not."""
        if may & self._wanting.unknown or self._filters.any_on(agent.id):
            return None
        free = agent.available
        if not (free.ordinary and free.all_divisible) or free.counted:
            return None
        return may, agent.has_gpus, agent.region, agent.multi_role, agent.hierarchical_role

    def _task(self, hand: Hand) -> Task | None:
        """Return what everybody's task takes; None: not all need the same, or may not have it."""
        found = None
        for client in self._clients(hand.may):
            demand = self._wanting.tasks[client]
            if found is None:
                found = demand
            if demand is not found or self._books.usable(hand.agents[0], client) is None:
                return None
        if found is None:
            return None
        task = Task(dict(found.items()), found)
        for agent in hand.agents:
            if _copies(agent, task):
                one = self._books.cut(agent, task.needs, 1)
                wanted = (self._books.wanted(agent, each, one) for each in self._clients(hand.may))
                return task if all(wanted) else None
        return None

    def _counted(self, hand: Hand, task: Task, number: int) -> Portion:
        """Return what so many tasks come to, given one by one to whoever is next."""
        tree = self._walk.tree(hand.agents[0], hand.may, lambda client, _below: Leaf(client, task))
        assert tree is not None
        return tree.portion(number)

    def _clients(self, those: int) -> Iterator[Client]:
        return (client for client, bit in self._wanting.bit.items() if bit & those)


def _copies(agent: Agent, task: Task) -> int:
    """Return how many tasks fit on an agent."""
    free = agent.available.divisible
    return min(free.get(str(name), 0) // amount for name, amount in task.needs.items())
