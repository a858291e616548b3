"""Laying tasks on many agents: those of a client in a row, those of scarce sizes first.

Agents with the same left are handled as one, so that a client's tasks are laid on any number of
them in one step; and what larger tasks leave is looked at first for smaller ones.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import groupby
from typing import Self, TypeAlias

from allocator.cluster.allocation.portions import Needs
from allocator.cluster.frameworks import Client
from allocator.cluster.steps import Steps

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
class Run:
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

    def less(self, wants: Wants, number: int, agents: Sequence[int]) -> "Run":
        """Return some of them with so many tasks laid on each."""
        left = list(self.left)
        for place, amount in wants:
            left[place] -= number * amount
        return Run(tuple(left), self.on, agents, self.fitting)


class Table:
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
            Run(*each[number], [number, *others], each[number][1])
            for _, (number, *others) in groupby(range(len(each)), each.__getitem__)
        ]
        self._passed: list[Run] = []
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

        def key(run: Run) -> tuple[int, int, tuple[int, ...]]:
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
                self._runs.append(Run(first.left, on, agents, fitting, exact=True))
        return sum(len(run.agents) for run in self._runs)

    def rooms(self, sizes: Sequence[tuple[Needs, int]], exact: int) -> Steps[list[int]]:
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
        passed: list[Run] = []
        others: list[Run] = []
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
                    ahead.append(Run(run.left, run.on, rest, run.fitting, run.exact))
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


def _room(runs: Iterable[Run], wants: Wants, bit: int) -> int:
    """Return how many tasks there is room for."""
    return sum([len(run.agents) * run.copies(wants) for run in runs if run.fitting & bit])
