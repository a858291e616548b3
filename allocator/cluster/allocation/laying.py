"""Laying tasks on many agents: those of a client in a row, those of scarce sizes first.

Agents with the same left are handled as one, so that a client's tasks are laid on any number of
them in one step; and what larger tasks leave is looked at first for smaller ones.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import groupby
from typing import Self

from allocator.cluster.allocation.filling import Needs
from allocator.cluster.frameworks import Client
from allocator.cluster.steps import Steps

_LOOKS = 8
"""How many agents are looked at in a count, and in a laying, for each that there is."""
_FEWEST = 64
"""What a size has left by those before it, and looks at in any case."""


@dataclass(frozen=True, slots=True)
class Run:
    """Agents with the same left."""

    left: Mapping[str, int]
    """By name, in the order of names."""
    agents: Sequence[int]
    """Their numbers."""

    def copies(self, needs: Needs) -> int:
        """Return how many tasks fit on one of them."""
        get = self.left.get
        return min([get(str(name), 0) // amount for name, amount in needs.items()])

    def less(self, needs: Needs, number: int, agents: Sequence[int]) -> "Run":
        """Return some of them with so many tasks laid on each."""
        left = {name: size - number * needs.get(name, 0) for name, size in self.left.items()}
        return Run(left, agents)


class Table:
    """What agents have left, and what has been laid on them.

    Args:
        free: What each has at first.
    """

    def __init__(self, free: Iterable[Mapping[str, int]]) -> None:
        left = [dict(sorted(each.items())) for each in free]
        self._runs = [
            Run(left[number], [number, *others])
            for _, (number, *others) in groupby(range(len(left)), left.__getitem__)
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

    def gather(self, useful: Callable[[Mapping[str, int]], object]) -> int:
        """Take agents with the same left together, most first; return how many there are.

        Args:
            useful: Whether those with so much left are to be kept.
        """

        def key(run: Run) -> tuple[tuple[str, int], ...]:
            return tuple(run.left.items())

        runs = sorted([*self._passed, *self._runs], key=key, reverse=True)
        self._runs, self._passed = [], []
        for _, alike in groupby(runs, key):
            first, *others = alike
            if useful(first.left):
                agents = [*first.agents, *(number for run in others for number in run.agents)]
                self._runs.append(Run(first.left, agents))
        return sum(len(run.agents) for run in self._runs)

    def rooms(self, sizes: Sequence[Needs]) -> Steps[list[int]]:
        """Return how many tasks of each size there is room for, were there no other.

        Where sizes and agents are many, and these unlike each other, only some are looked at.
        """
        agents = sum(len(run.agents) for run in self._runs)
        some = self._runs[:: 1 + len(self._runs) * (len(sizes) - 1) // (_LOOKS * agents + 1)]
        counted = sum(len(run.agents) for run in some)
        rooms = []
        for needs in sizes:
            room = sum([len(run.agents) * run.copies(needs) for run in some])
            rooms.append(room * agents // counted if room else 0)
            yield
        return rooms

    def looks(self, sizes: int) -> int:
        """Return how many runs in vain each of so many sizes is given."""
        return max(_FEWEST, _LOOKS * len(self._runs) // sizes)

    def lay(
        self, needs: Needs, tasks: Iterable[tuple[Client, int]], times: int, looks: int
    ) -> bool:
        """Lay tasks of one size; return False, with some of it done, where not all can be laid.

        Args:
            needs: What a task takes.
            tasks: How many of whom, in the order in which they are laid.
            times: As how many each of them counts in what is laid.
            looks: How many runs on which none has fitted the next size looks at.
        """
        ahead = self._runs[::-1]
        passed: list[Run] = []
        for client, number in tasks:
            wanted = number
            while wanted:
                if not ahead:
                    return False
                run = ahead.pop()
                most = run.copies(needs)
                if not most:
                    passed.append(run)
                    continue
                full = min(wanted // most, len(run.agents))
                rest = run.agents
                if full:
                    some, rest = rest[:full], rest[full:]
                    self.laid += [(agent, client, most * times) for agent in some]
                    passed.append(run.less(needs, most, some))
                    wanted -= full * most
                begun = None
                if wanted and rest:
                    self.laid.append((rest[0], client, wanted * times))
                    begun, rest, wanted = run.less(needs, wanted, rest[:1]), rest[1:], 0
                if rest:
                    ahead.append(Run(run.left, rest))
                if begun:
                    ahead.append(begun)
        self._passed += passed[:-looks]
        self._runs = passed[-looks:] + ahead[::-1]
        return True
