"""Many agents at a time, dealt out whole as far as that goes.

Filling agent after agent, task by task, gives equals a part of every agent: as many offers on each
as it has room for tasks. So what many agents have is counted at once, as progressive filling gives
it, and laid in a row for each client, until the next one's begin where its own end.

For how many tasks of one size there is room is the same however they are laid, so everybody gets
exactly what it would have got, if all may use the same agents. Those who may use others than the
rest, or have refused some, have a size of their own. With several sizes it depends, and agents are
dealt in stages. Were there no other, there would be room for so many tasks of a size, on agents
that are for it: one takes that part of all there is, and almost so many are given as come to all.
If they cannot be laid it is half as much; with what is left then it goes on. So whatever a stage
gives is what giving one by one to whoever is next would have come to, and no framework gains by
what it says that it needs. Agents with room for few tasks of some size, where one would be much of
a stage, are set apart, and what stages leave is shared agent by agent, as fewer agents are: nothing
is left that somebody could use.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from allocator.cluster.agents import Agent
from allocator.cluster.allocation.books import Books
from allocator.cluster.allocation.budgets import Room
from allocator.cluster.allocation.laying import Table
from allocator.cluster.allocation.portions import Leaf, Needs, Task
from allocator.cluster.allocation.sharing import Laid, task_of
from allocator.cluster.allocation.taking import Taking, alike, ones
from allocator.cluster.allocation.unanswered import Unanswered
from allocator.cluster.allocation.walk import Walk
from allocator.cluster.allocation.wanting import Wanting
from allocator.cluster.filters import OfferFilters
from allocator.cluster.frameworks import Client
from allocator.cluster.steps import Steps
from allocator.fairness.quantities import Quantities

_Kind: TypeAlias = tuple[object, ...]

_ALL = 1 << 128
"""All that is left; in so many parts that rounding makes no task more or less."""
_FEW = 4
"""Where there is room for fewer tasks of a size, one would be much of a stage."""
_SPARE = 8
"""What a stage leaves for what large tasks waste: an agent for each size, and at most such a part
of all."""
_STAGES = 24
_STRETCH = 50
"""Agents that are looked at in a step."""
_TRIES = 3


@dataclass(eq=False)
class Hand:
    """Agents that are dealt out together, or one that is not."""

    agents: list[Agent]
    may: list[int]
    """For each, those who may use it, and do not refuse all there is."""


@dataclass(eq=False)
class Size:
    """What some clients get at a time."""

    task: Task
    number: int
    """Of tasks: the fewest of which they would take an offer."""
    clients: list[Client] = field(default_factory=list)
    room: int = 0
    """How often there is room for that, were there no other size."""

    @property
    def needs(self) -> Needs:
        """Of an agent."""
        return self.task.multiple(self.number)[0]

    @property
    def scalars(self) -> Quantities:
        """What of it counts as held."""
        return self.task.multiple(self.number)[1]


@dataclass
class Deal:
    """How far a hand has been dealt out."""

    hand: Hand
    sizes: list[Size]
    """Those that there may be room for."""
    table: Table
    gifts: list[tuple[Client, Quantities]] = field(default_factory=list)
    """What has been counted for whom."""


class Dealing:
    """Deals out agents in one run without quotas, under a policy that ranks on no machine apart."""

    def __init__(
        self,
        filters: OfferFilters,
        books: Books,
        wanting: Wanting,
        walk: Walk,
        unanswered: Unanswered,
    ) -> None:
        self._taking = Taking(filters, books, wanting)
        self._books = books
        self._wanting = wanting
        self._walk = walk
        self._unanswered = unanswered

    def hands(
        self, agents: Sequence[Agent], may: Callable[[Agent], int], whole_from: int
    ) -> Steps[list[Hand]]:
        """Return agents in order, with those that are dealt out together where the first is.

        Args:
            agents: In the order in which they are visited.
            may: Returns who may use one, and does not refuse all there is.
            whole_from: So many are dealt out, fewer are not.
        """
        by_kind: dict[_Kind, Hand] = {}
        visited: list[tuple[Hand, Agent, int]] = []
        for number, agent in enumerate(agents):
            if number and not number % _STRETCH:
                yield
            those = may(agent)
            kind = self._kind(agent, those)
            hand = Hand([], []) if kind is None else by_kind.setdefault(kind, Hand([], []))
            hand.agents.append(agent)
            hand.may.append(those)
            visited.append((hand, agent, those))
        hands: dict[Hand, None] = {}
        for among, agent, those in visited:
            hand = among if len(among.agents) >= whole_from else Hand([agent], [those])
            hands[hand] = None
        return list(hands)

    def deal(self, hand: Hand) -> Steps[dict[str, list[Laid]]]:
        """Count what agents are dealt out; return by agent what is to be given there."""
        fewest = self._fewest(hand.agents[0])
        may = [self._unanswered.without(those) for those in hand.may]
        on = yield from self._taking.settle(hand.agents, may, fewest)
        sizes = self._sizes(fewest, (yield from alike(on)))
        free = [agent.available.divisible for agent in hand.agents]
        whole = free[0]  # of each, where that is somebody's task

        def fitting(left: Mapping[str, int]) -> int:
            unknown = self._wanting.unknown if left == whole else 0
            return self._wanting.fitting(left) | unknown

        deal = Deal(hand, sizes, Table(free, on, fitting))
        yield
        for _ in range(_STAGES):
            if not (yield from self._stage(deal)):
                break
        laid: dict[str, list[Laid]] = {}
        for number, client, times in deal.table.laid:
            laid.setdefault(hand.agents[number].id, []).append((client, fewest[client][0], times))
        return laid

    def _stage(self, deal: Deal) -> Steps[bool]:
        """Give a part of what is left, or set agents apart; return whether that may go on."""
        several = len(deal.sizes) > 1
        part = _ALL
        if several:
            agents = self._gather(deal, deal.sizes)
            part -= _ALL * min(_SPARE * len(deal.sizes), agents) // max(_SPARE * agents, 1)
        least = _FEW if several else 1
        rooms = yield from deal.table.rooms(
            [(size.needs, self._wanting.bit[size.clients[0]]) for size in deal.sizes], least
        )
        for size, room in zip(deal.sizes, rooms, strict=True):
            size.room = room
        few = [size for size in deal.sizes if size.room < least]
        if few:
            deal.sizes = [size for size in deal.sizes if size.room >= least]
            self._gather(deal, few, out=True)
            return bool(deal.sizes)
        deal.sizes.sort(key=lambda size: size.room)
        return bool(deal.sizes) and (yield from self.give(deal, part, _TRIES if several else 1))

    def give(self, deal: Deal, part: int, tries: int) -> Steps[bool]:
        """Give so much of what is left, or half of that, and so on; return whether it is given."""
        of = {client: size for size in deal.sizes for client in size.clients}
        tasks = {size: Task({"": _ALL // size.room}, size.scalars) for size in deal.sizes}
        tree = self._walk.tree(
            deal.hand.agents[0],
            self._bits(deal.sizes),
            lambda client, _below: Leaf(client, tasks[of[client]]),
        )
        assert tree is not None
        for _ in range(tries):
            room = Room([("", part)], lambda _name: 0)
            if isinstance(tree, Leaf):
                portion = tree.fill(room)
            else:  # where all go on alike there is nothing to foresee
                portion = yield from tree.filling(room, 0 if len(deal.sizes) > 1 else 1)
            given = {leaf.client: number for leaf, number in portion.leaves.items()}
            yield
            more = [
                (client, tasks[of[client]].multiple(number)[1]) for client, number in given.items()
            ]
            table = yield from self._laid(deal, of, given)
            if table is not None and self._unanswered.admits([*deal.gifts, *more]):
                for client, scalars in more:
                    self._books.count(client, scalars, given[client])
                deal.table = table
                deal.gifts += more
                return bool(more)
            part //= 2
        return False

    def _laid(
        self, deal: Deal, of: Mapping[Client, Size], given: Mapping[Client, int]
    ) -> Steps[Table | None]:
        """Return the table with all this laid on it; None: not all fits."""
        by_size: dict[Size, list[tuple[Client, int]]] = {size: [] for size in deal.sizes}
        for client, number in given.items():
            by_size[of[client]].append((client, number))
        table = deal.table.copy()
        looks = table.looks(len(by_size))
        for size, those in by_size.items():
            bit = self._wanting.bit[size.clients[0]]
            if those and not table.lay(size.needs, bit, those, size.number, looks):
                return None
            yield
        return table

    def _gather(self, deal: Deal, sizes: list[Size], *, out: bool = False) -> int:
        """Leave agents on the table that are of use for some sizes, or, out, those that are not."""
        those = self._bits(sizes)

        def useful(fitting: int) -> bool:
            return bool(fitting & those) is not out

        return deal.table.gather(those | self._bits(deal.sizes), useful)

    def _fewest(self, agent: Agent) -> dict[Client, tuple[Task, int]]:
        """Return what clients get of agents like one, and how often at least."""
        free, tasks, fewest = agent.available, dict[int, Task](), dict[Client, tuple[Task, int]]()
        whole = Quantities(free.divisible)
        for client in self._wanting.bit:
            demand = self._wanting.tasks.get(client, whole)
            task = tasks.get(id(demand))
            if task is None:
                task = tasks[id(demand)] = task_of(demand, free.counted)
            number = self._books.fewest(client, task.needs)
            if number:
                fewest[client] = task, number
        return fewest

    def _sizes(self, fewest: Mapping[Client, tuple[Task, int]], parts: Iterable[int]) -> list[Size]:
        """Return the sizes of those who can be dealt tasks, parted by on which agents."""
        part = {bit: number for number, bits in enumerate(parts) for bit in ones(bits)}
        found: dict[tuple[Task, int, int], Size] = {}
        for client, (task, number) in fewest.items():
            bit = self._wanting.bit[client]
            if bit in part:
                size = found.setdefault((task, number, part[bit]), Size(task, number))
                size.clients.append(client)
        return list(found.values())

    def _bits(self, sizes: Iterable[Size]) -> int:
        return sum(self._wanting.bit[client] for size in sizes for client in size.clients)

    def _kind(self, agent: Agent, may: int) -> _Kind | None:
        """Return what agents have in common that are dealt out together; None: this one is not."""
        free = agent.available
        if not may & ~self._wanting.unknown or not (free.ordinary and free.all_divisible):
            return None
        left = tuple(sorted(free.divisible.items())) if self._wanting.unknown else ()
        return free.counted, left
