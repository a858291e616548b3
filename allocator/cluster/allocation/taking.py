"""Who can be dealt tasks on which of many agents, and how many of them at a time at least."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from allocator.cluster.agents import Agent
from allocator.cluster.allocation.books import Books
from allocator.cluster.allocation.laying import copies
from allocator.cluster.allocation.portions import Task
from allocator.cluster.allocation.wanting import Wanting
from allocator.cluster.filters import OfferFilters
from allocator.cluster.frameworks import Client
from allocator.cluster.steps import Steps

if TYPE_CHECKING:
    from allocator.cluster.resources import Resources

_STRETCH = 50
"""What is looked at in a step: agents, or who may use them."""


class Taking:
    """Looks at who may use agents, and at what they have refused there.

    Of an agent of which a client has refused a part it takes no fewer tasks than are more than
    that. So that it gets the same everywhere, it is as many as do on half of the agents that it can
    use, and it can be dealt none where it would have to be more.
    """

    def __init__(self, filters: OfferFilters, books: Books, wanting: Wanting) -> None:
        self._filters = filters
        self._books = books
        self._wanting = wanting
        self._able: dict[tuple[object, ...], int] = {}
        self._more: dict[tuple[int, int], tuple[int, Resources, Task]] = {}
        """How many tasks are more than what has been refused, by the ids of both, which are kept
        so that these stay theirs."""

    def settle(
        self, agents: Sequence[Agent], may: Iterable[int], fewest: dict[Client, tuple[Task, int]]
    ) -> Steps[list[int]]:
        """Return who can be dealt tasks on each agent.

        Args:
            agents: The agents.
            may: Those who may use each, and do not refuse all there is.
            fewest: What clients get at a time, and how often at least; that is raised.
        """
        takers = sum(self._wanting.bit[client] for client in fewest)
        on: list[int] = []
        asked: dict[Client, dict[int, int]] = {}
        for place, (agent, those) in enumerate(zip(agents, may, strict=True)):
            if not place % _STRETCH:
                yield
            able = those & takers & self._able_to_use(agent)
            for client, number in self._asked(agent, able, fewest):
                if not number:
                    able &= ~self._wanting.bit[client]
                elif number > fewest[client][1]:
                    numbers = asked.setdefault(client, {})
                    numbers[place] = max(number, numbers.get(place, 0))
            on.append(able)
        for client, found in asked.items():
            yield
            bit, (task, number) = self._wanting.bit[client], fewest[client]
            numbers = {place: least for place, least in found.items() if on[place] & bit}
            others = sum([1 for those in on if those & bit]) - len(numbers)
            if others < len(numbers):
                number = sorted(numbers.values())[(len(numbers) - others - 1) // 2]
                fewest[client] = task, number
            for place, least in numbers.items():
                if least > number:
                    on[place] &= ~bit
        return on

    def _asked(
        self, agent: Agent, able: int, fewest: Mapping[Client, tuple[Task, int]]
    ) -> Iterator[tuple[Client, int]]:
        """Go through parts of an agent that clients have refused, with how many tasks are more.

        0: there is not enough for so many.
        """
        free, rooms = agent.available.divisible, dict[Task, int]()
        able &= ~self._wanting.unknown
        for mask, refused in self._filters.on(agent.id):
            for bit in ones(mask & able):
                client = self._wanting.client[bit]
                task, _ = fewest[client]
                known = self._more.get((id(refused), id(task)))
                if known is None:
                    number = 1 + copies(refused.plain.divisible, task.needs)
                    known = self._more[id(refused), id(task)] = number, refused, task
                number = known[0]
                room = rooms.get(task)
                if room is None:
                    room = rooms[task] = copies(free, task.needs)
                yield client, number if number <= room else 0

    def _able_to_use(self, agent: Agent) -> int:
        """Return those whose frameworks fit together with an agent."""
        key = agent.has_gpus, agent.region, agent.multi_role, agent.hierarchical_role
        able = self._able.get(key)
        if able is None:
            able = self._able[key] = sum(
                bit
                for client, bit in self._wanting.bit.items()
                if self._books.usable(agent, client) is not None
            )
        return able


def alike(on: Iterable[int]) -> Steps[list[int]]:
    """Return who can be dealt tasks on any agents, parted by on which."""
    different = list(dict.fromkeys(on))
    everybody = 0
    for those in different:
        everybody |= those
    several, single = [everybody], list[int]()
    for number, those in enumerate(different):
        if not number % _STRETCH:
            yield
        parts = [part for each in several for part in (each & those, each & ~those) if part]
        several = [part for part in parts if part & (part - 1)]
        single += [part for part in parts if not part & (part - 1)]
    return several + single


def ones(bits: int) -> Iterator[int]:
    """Go through the bits of a number."""
    while bits:
        low = bits & -bits
        yield low
        bits ^= low
