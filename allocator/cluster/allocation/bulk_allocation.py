"""Bulk allocation: free agents count as one bin, and a packing places its tasks on agents."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Self, TypeAlias

from allocator.cluster.agents.agent import Agent
from allocator.cluster.allocation.client_index import ClientIndex, ones
from allocator.cluster.allocation.fair_share_stage import Laid, task_of
from allocator.cluster.allocation.offer_builder import OfferBuilder, OutstandingOfferLimit
from allocator.cluster.allocation.progressive_filling import (
    CapacityBudget,
    ClientNode,
    ClientTask,
    Needs,
)
from allocator.cluster.allocation.sorter_view import RoleTreeIterator
from allocator.cluster.cooperative import Cooperative
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.offers.filters import OfferFilters
from allocator.fairness.quantities import Quantities

if TYPE_CHECKING:
    from allocator.cluster.resources import Resources

_NOTHING = ""
"""The name of what no agent has."""
_FAR = 1 << 62
_LOOKS = 8
"""How many agents are looked at in a count, and in a laying, for each that there is."""
_FEWEST = 64
"""What a size has left by those before it, and looks at in any case."""


Wants: TypeAlias = Sequence[tuple[int, int]]
"""What a task takes: of which resource, by its place among the names, how much."""


@dataclass(frozen=True, slots=True)
class IdenticalAgents:
    """Agents with the same left for the same clients."""

    left: tuple[int, ...]
    """In the order of names."""
    on: int
    """Those who can be dealt tasks there."""
    agents: Sequence[int]
    """Their numbers."""
    fitting: int
    """Of those all for whom there is room, and maybe others."""
    exact: bool = False
    """Whether there are no others."""

    def copies(self, wants: Wants) -> int:
        """Return how many tasks fit on one of them."""
        most, left = _FAR, self.left
        for place, amount in wants:
            number = left[place] // amount
            most = min(number, most)
        return most

    def less(self, wants: Wants, number: int, agents: Sequence[int]) -> "IdenticalAgents":
        """Return some of them with so many tasks laid on each."""
        left = list(self.left)
        for place, amount in wants:
            left[place] -= number * amount
        return IdenticalAgents(tuple(left), self.on, agents, self.fitting)


class PackingTable:
    """What agents have left, and what has been laid on them.

    Args:
        free: What each has at first.
        on: Who can be dealt tasks there.
        fitting: Returns for whom there is room in so much.
    """

    def __init__(
        self,
        free: Sequence[Mapping[str, int]],
        on: Iterable[int],
        fitting: Callable[[Mapping[str, int]], int],
    ) -> None:
        self._names = sorted({name for left in free for name in left})
        self._places = {name: place for place, name in enumerate([*self._names, _NOTHING])}
        self._fitting = fitting
        each = [
            (tuple([left.get(name, 0) for name in self._places]), those)
            for left, those in zip(free, on, strict=True)
        ]
        self._runs = [
            IdenticalAgents(*each[number], [number, *others], each[number][1])
            for _, (number, *others) in groupby(range(len(each)), each.__getitem__)
        ]
        self._passed: list[IdenticalAgents] = []
        """Those that no size looks at before they are gathered."""
        self.laid: list[tuple[int, Client, int]] = []
        """On which agent, whose, how many."""

    def copy(self) -> Self:
        """Return one of its own."""
        other = copy(self)
        other._runs = self._runs.copy()  # noqa: SLF001 - of its own kind
        other._passed = self._passed.copy()  # noqa: SLF001 - likewise
        other.laid = self.laid.copy()
        return other

    def gather(self, those: int, useful: Callable[[int], object]) -> int:
        """Take agents with the same left together; return how many there are.

        First come those that the fewest can be dealt tasks on, of these those with most left.

        Args:
            those: Who is to be dealt tasks still.
            useful: Whether agents with room for these are to be kept.
        """

        def key(run: IdenticalAgents) -> tuple[int, int, tuple[int, ...]]:
            on = run.on & those
            return -on.bit_count(), on, run.left

        runs = sorted([*self._passed, *self._runs], key=key, reverse=True)
        self._runs, self._passed = [], []
        for (_, on, _), same in groupby(runs, key):
            first, *others = same
            agents = [*first.agents, *(number for run in others for number in run.agents)]
            fitting = first.fitting & on
            if not first.exact:
                fitting &= self._fitting(dict(zip(self._names, first.left, strict=False)))
            if useful(fitting):
                self._runs.append(IdenticalAgents(first.left, on, agents, fitting, exact=True))
        return sum(len(run.agents) for run in self._runs)

    def rooms(self, sizes: Sequence[tuple[Needs, int]], exact: int) -> Cooperative[list[int]]:
        """Return how many tasks of each size there is room for, were there no other.

        Where sizes and agents are many, and these unlike each other, only some are looked at.

        Args:
            sizes: What they take, and a bit of those who take them.
            exact: Where there is room for fewer, all are looked at.
        """
        agents = sum(len(run.agents) for run in self._runs)
        some = self._runs[:: 1 + len(self._runs) * (len(sizes) - 1) // (_LOOKS * agents + 1)]
        counted = sum(len(run.agents) for run in some)
        rooms = []
        for needs, bit in sizes:
            wants = self._wants(needs)
            room = _room(some, wants, bit) * agents // max(counted, 1)
            if room < exact and counted < agents:
                room = _room(self._runs, wants, bit)
            rooms.append(room)
            yield
        return rooms

    def looks(self, sizes: int) -> int:
        """Return how many runs in vain each of so many sizes is given."""
        return max(_FEWEST, _LOOKS * len(self._runs) // sizes)

    def lay(
        self, needs: Needs, bit: int, tasks: Iterable[tuple[Client, int]], times: int, looks: int
    ) -> bool:
        """Lay tasks of one size; return False, with some of it done, where not all can be laid.

        Args:
            needs: What a task takes.
            bit: One of those who take it.
            tasks: How many of whom, in the order in which they are laid.
            times: As how many each of them counts in what is laid.
            looks: How many runs on which none has fitted the next size looks at.
        """
        wants = self._wants(needs)
        ahead = self._runs[::-1]
        passed: list[IdenticalAgents] = []
        others: list[IdenticalAgents] = []
        for client, number in tasks:
            wanted = number
            while wanted:
                if not ahead:
                    return False
                run = ahead.pop()
                if not run.on & bit:
                    others.append(run)
                    continue
                most = run.copies(wants) if run.fitting & bit else 0
                if not most:
                    passed.append(run)
                    continue
                full = min(wanted // most, len(run.agents))
                rest = run.agents
                if full:
                    some, rest = rest[:full], rest[full:]
                    self.laid += [(agent, client, most * times) for agent in some]
                    passed.append(run.less(wants, most, some))
                    wanted -= full * most
                begun = None
                if wanted and rest:
                    self.laid.append((rest[0], client, wanted * times))
                    begun, rest, wanted = run.less(wants, wanted, rest[:1]), rest[1:], 0
                if rest:
                    ahead.append(IdenticalAgents(run.left, run.on, rest, run.fitting, run.exact))
                if begun:
                    ahead.append(begun)
        self._passed += passed[:-looks]
        self._runs = passed[-looks:] + others + ahead[::-1]
        return True

    def _wants(self, needs: Needs) -> Wants:
        nothing = self._places[_NOTHING]
        return [(self._places.get(str(name), nothing), amount) for name, amount in needs.items()]


def copies(left: Mapping[str, int], needs: Needs) -> int:
    """Return how many tasks there is enough for."""
    return min([left.get(str(name), 0) // amount for name, amount in needs.items()])


def _room(runs: Iterable[IdenticalAgents], wants: Wants, bit: int) -> int:
    """Return how many tasks there is room for."""
    return sum([len(run.agents) * run.copies(wants) for run in runs if run.fitting & bit])


_PLACEMENTS_A_STEP = 50
"""What is looked at in a step: agents, or who may use them."""


class Eligibility:
    """Looks at who may use agents, and at what they have refused there.

    Of an agent of which a client has refused a part it takes no fewer tasks than are more than
    that. So that it gets the same everywhere, it is as many as do on half of the agents that it can
    use, and it can be dealt none where it would have to be more.
    """

    def __init__(self, filters: OfferFilters, books: OfferBuilder, wanting: ClientIndex) -> None:
        self._filters = filters
        self._books = books
        self._wanting = wanting
        self._able: dict[tuple[object, ...], int] = {}
        self._more: dict[tuple[int, int], tuple[int, Resources, ClientTask]] = {}
        """How many tasks are more than what has been refused, by the ids of both, which are kept
        so that these stay theirs."""

    def settle(
        self,
        agents: Sequence[Agent],
        may: Iterable[int],
        fewest: dict[Client, tuple[ClientTask, int]],
    ) -> Cooperative[list[int]]:
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
            if not place % _PLACEMENTS_A_STEP:
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
        self, agent: Agent, able: int, fewest: Mapping[Client, tuple[ClientTask, int]]
    ) -> Iterator[tuple[Client, int]]:
        """Go through parts of an agent that clients have refused, with how many tasks are more.

        0: there is not enough for so many.
        """
        free, rooms = agent.available.divisible, dict[ClientTask, int]()
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


def alike(on: Iterable[int]) -> Cooperative[list[int]]:
    """Return who can be dealt tasks on any agents, parted by on which."""
    different = list(dict.fromkeys(on))
    everybody = 0
    for those in different:
        everybody |= those
    several, single = [everybody], list[int]()
    for number, those in enumerate(different):
        if not number % _PLACEMENTS_A_STEP:
            yield
        parts = [part for each in several for part in (each & those, each & ~those) if part]
        several = [part for part in parts if part & (part - 1)]
        single += [part for part in parts if not part & (part - 1)]
    return several + single


_Kind: TypeAlias = tuple[object, ...]

_ALL = 1 << 128
"""All that is left; in so many parts that rounding makes no task more or less."""
_FEW = 4
"""Where there is room for fewer tasks of a size, one would be much of a stage."""
_SPARE = 8
"""What a stage leaves for what large tasks waste: an agent for each size, and at most such a part
of all."""
_STAGES = 24
_AGENTS_A_STEP = 50
"""Agents that are looked at in a step."""
_TRIES = 3


@dataclass(eq=False)
class AgentGroup:
    """Agents that are dealt out together, or one that is not."""

    agents: list[Agent]
    may: list[int]
    """For each, those who may use it, and do not refuse all there is."""


@dataclass(eq=False)
class TaskShape:
    """What some clients get at a time."""

    task: ClientTask
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
class BulkPlan:
    """How far a hand has been dealt out."""

    hand: AgentGroup
    sizes: list[TaskShape]
    """Those that there may be room for."""
    table: PackingTable
    gifts: list[tuple[Client, Quantities]] = field(default_factory=list)
    """What has been counted for whom."""


class BulkAllocator:
    """Deals out agents in one run without quotas, under a policy that ranks on no machine apart."""

    def __init__(
        self,
        filters: OfferFilters,
        books: OfferBuilder,
        wanting: ClientIndex,
        walk: RoleTreeIterator,
        unanswered: OutstandingOfferLimit,
    ) -> None:
        self._taking = Eligibility(filters, books, wanting)
        self._books = books
        self._wanting = wanting
        self._walk = walk
        self._unanswered = unanswered

    def hands(
        self, agents: Sequence[Agent], may: Callable[[Agent], int], whole_from: int
    ) -> Cooperative[list[AgentGroup]]:
        """Return agents in order, with those that are dealt out together where the first is.

        Args:
            agents: In the order in which they are visited.
            may: Returns who may use one, and does not refuse all there is.
            whole_from: So many are dealt out, fewer are not.
        """
        by_kind: dict[_Kind, AgentGroup] = {}
        visited: list[tuple[AgentGroup, Agent, int]] = []
        for number, agent in enumerate(agents):
            if number and not number % _AGENTS_A_STEP:
                yield
            those = may(agent)
            kind = self._kind(agent, those)
            hand = (
                AgentGroup([], []) if kind is None else by_kind.setdefault(kind, AgentGroup([], []))
            )
            hand.agents.append(agent)
            hand.may.append(those)
            visited.append((hand, agent, those))
        hands: dict[AgentGroup, None] = {}
        for among, agent, those in visited:
            hand = among if len(among.agents) >= whole_from else AgentGroup([agent], [those])
            hands[hand] = None
        return list(hands)

    def deal(self, hand: AgentGroup) -> Cooperative[dict[str, list[Laid]]]:
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

        deal = BulkPlan(hand, sizes, PackingTable(free, on, fitting))
        yield
        for _ in range(_STAGES):
            if not (yield from self._stage(deal)):
                break
        laid: dict[str, list[Laid]] = {}
        for number, client, times in deal.table.laid:
            laid.setdefault(hand.agents[number].id, []).append((client, fewest[client][0], times))
        return laid

    def _stage(self, deal: BulkPlan) -> Cooperative[bool]:
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

    def give(self, deal: BulkPlan, part: int, tries: int) -> Cooperative[bool]:
        """Give so much of what is left, or half of that, and so on; return whether it is given."""
        of = {client: size for size in deal.sizes for client in size.clients}
        tasks = {size: ClientTask({"": _ALL // size.room}, size.scalars) for size in deal.sizes}
        tree = self._walk.tree(
            deal.hand.agents[0],
            self._bits(deal.sizes),
            lambda client, _below: ClientNode(client, tasks[of[client]]),
        )
        assert tree is not None
        for _ in range(tries):
            room = CapacityBudget([("", part)], lambda _name: 0)
            if isinstance(tree, ClientNode):
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
        self, deal: BulkPlan, of: Mapping[Client, TaskShape], given: Mapping[Client, int]
    ) -> Cooperative[PackingTable | None]:
        """Return the table with all this laid on it; None: not all fits."""
        by_size: dict[TaskShape, list[tuple[Client, int]]] = {size: [] for size in deal.sizes}
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

    def _gather(self, deal: BulkPlan, sizes: list[TaskShape], *, out: bool = False) -> int:
        """Leave agents on the table that are of use for some sizes, or, out, those that are not."""
        those = self._bits(sizes)

        def useful(fitting: int) -> bool:
            return bool(fitting & those) is not out

        return deal.table.gather(those | self._bits(deal.sizes), useful)

    def _fewest(self, agent: Agent) -> dict[Client, tuple[ClientTask, int]]:
        """Return what clients get of agents like one, and how often at least."""
        free, tasks, fewest = (
            agent.available,
            dict[int, ClientTask](),
            dict[Client, tuple[ClientTask, int]](),
        )
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

    def _sizes(
        self, fewest: Mapping[Client, tuple[ClientTask, int]], parts: Iterable[int]
    ) -> list[TaskShape]:
        """Return the sizes of those who can be dealt tasks, parted by on which agents."""
        part = {bit: number for number, bits in enumerate(parts) for bit in ones(bits)}
        found: dict[tuple[ClientTask, int, int], TaskShape] = {}
        for client, (task, number) in fewest.items():
            bit = self._wanting.bit[client]
            if bit in part:
                size = found.setdefault((task, number, part[bit]), TaskShape(task, number))
                size.clients.append(client)
        return list(found.values())

    def _bits(self, sizes: Iterable[TaskShape]) -> int:
        return sum(self._wanting.bit[client] for size in sizes for client in size.clients)

    def _kind(self, agent: Agent, may: int) -> _Kind | None:
        """Return what agents have in common that are dealt out together; None: this one is not."""
        free = agent.available
        if not may & ~self._wanting.unknown or not (free.ordinary and free.all_divisible):
            return None
        left = tuple(sorted(free.divisible.items())) if self._wanting.unknown else ()
        return free.counted, left
