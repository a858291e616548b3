"""Rankings: three data structures that keep users in order of priority, with one interface."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import cmp_to_key
from operator import itemgetter
from typing import Generic, TypeVar

from sortedcontainers import SortedList
from typing_extensions import override

from allocator.compilation import mypyc_attr
from allocator.cooperative import Cooperative
from allocator.fairness.live_tree import Crossing, LiveTree, Priorities

Id = TypeVar("Id", bound=Hashable)
K = TypeVar("K")


@mypyc_attr(allow_interpreted_subclasses=True)
class Ranking(ABC, Generic[Id, K]):
    """Interface of all rankings: elements in order of their priorities, the lowest first.

    The phase is the policy's own time coordinate: seconds, or −e^(−t/τ). The attribute of an
    element is its priority as a function of the phase. Ids are unique, hashable and orderable.
    """

    @abstractmethod
    def insert(self, element: Id, attribute: K) -> None:
        """Add an element.

        Args:
            element: A new id.
            attribute: The element's priority, as a function of the phase.
        """

    def insert_all(self, elements: Iterable[tuple[Id, K]]) -> None:
        """Add several elements; this is faster if many of them come one after another in the order.

        Args:
            elements: Pairs of a new id and its priority as a function of the phase.
        """
        for element, attribute in elements:
            self.insert(element, attribute)

    @abstractmethod
    def delete(self, element: Id) -> None:
        """Remove an element. Its id must be present."""

    def fill(self, elements: Iterable[tuple[Id, K]]) -> None:
        """Add elements to an empty ranking; this is faster if they are almost in order.

        Args:
            elements: Pairs of id and priority as a function of the phase.
        """
        for element, attribute in elements:
            self.insert(element, attribute)

    def fill_in_steps(self, elements: Iterable[tuple[Id, K]]) -> Cooperative[None]:
        """Do the same as `fill`, in cooperative steps if the ranking needs any.

        The ranking must not be used until the generator is exhausted.
        """
        self.fill(elements)
        yield

    @abstractmethod
    def __iter__(self) -> Iterator[Id]:
        """Iterate over the elements, lowest priority value first."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of elements."""

    def minimum(self) -> Id:
        """Return the element with the lowest priority. The ranking must not be empty."""
        return next(iter(self))

    def by_level(self, in_order: Callable[[list[Iterable[Id]]], Iterable[Id]]) -> Iterator[Id]:
        """Iterate over the elements in order; a callback sorts nearly equal priorities.

        Only called for policies that treat nearly equal priorities as equal (`Policy.has_levels`).

        Args:
            in_order: Sorts elements as described at `LiveTree.by_level`.
        """
        raise NotImplementedError

    def replace(self, element: Id, attribute: K) -> None:
        """Replace the priority of an element, and so its position. The element must be present.

        Args:
            element: Id of the element.
            attribute: Its new priority, as a function of the phase.
        """
        self.delete(element)
        self.insert(element, attribute)

    def advance(self, now: float) -> None:
        """Move to a later phase. Rankings whose keys do not change with time ignore the phase."""

    @property
    def events(self) -> int:
        """The number of possible swaps of two neighbours that were processed so far."""
        return 0

    def crossings(self) -> Iterator[Crossing[Id]]:
        """Yield upcoming possible swaps of two neighbours in the order, soonest first.

        Rankings that keep no Live Tree yield nothing.
        """
        return iter(())


@mypyc_attr(allow_interpreted_subclasses=True)
class KeyRanking(Ranking[Id, K]):
    """Ranking by a number that does not change with time. A change costs O(log n), a read O(1)."""

    def __init__(self) -> None:
        self._order: SortedList[tuple[K, Id]] = SortedList()
        self._attributes: dict[Id, K] = {}

    @override
    def insert(self, element: Id, attribute: K) -> None:
        self._order.add((attribute, element))
        self._attributes[element] = attribute

    @override
    def fill(self, elements: Iterable[tuple[Id, K]]) -> None:
        self._attributes = dict(elements)
        self._order.update((attribute, element) for element, attribute in self._attributes.items())

    @override
    def delete(self, element: Id) -> None:
        self._order.remove((self._attributes.pop(element), element))

    @override
    def replace(self, element: Id, attribute: K) -> None:
        if attribute != self._attributes[element]:
            super().replace(element, attribute)

    @override
    def __iter__(self) -> Iterator[Id]:
        return map(itemgetter(1), self._order)

    @override
    def __len__(self) -> int:
        return len(self._order)


class LiveRanking(Ranking[Id, K]):
    """Ranking by priorities that change with time; a Live Tree keeps the order."""

    def __init__(self, priorities: Priorities[K], now: float) -> None:
        self.tree: LiveTree[Id, K] = LiveTree(priorities, now)

    @override
    def insert(self, element: Id, attribute: K) -> None:
        self.tree.insert(element, attribute)

    @override
    def insert_all(self, elements: Iterable[tuple[Id, K]]) -> None:
        self.tree.insert_all(elements)

    @override
    def fill(self, elements: Iterable[tuple[Id, K]]) -> None:
        self.tree.fill(elements)

    @override
    def fill_in_steps(self, elements: Iterable[tuple[Id, K]]) -> Cooperative[None]:
        return self.tree.fill_in_steps(elements)

    @override
    def delete(self, element: Id) -> None:
        self.tree.delete(element)

    @override
    def replace(self, element: Id, attribute: K) -> None:
        self.tree.replace(element, attribute)

    @override
    def advance(self, now: float) -> None:
        self.tree.update(now)

    @property
    @override
    def events(self) -> int:
        return self.tree.events

    @override
    def crossings(self) -> Iterator[Crossing[Id]]:
        return self.tree.crossings()

    @override
    def by_level(self, in_order: Callable[[list[Iterable[Id]]], Iterable[Id]]) -> Iterator[Id]:
        return self.tree.by_level(in_order)

    @override
    def __iter__(self) -> Iterator[Id]:
        return iter(self.tree)

    @override
    def __len__(self) -> int:
        return len(self.tree)


class ScanRanking(Ranking[Id, K]):
    """Ranking by priorities that change with time; the order is computed at each read.

    This class is the simple reference for `LiveRanking`. Changes cost O(1), the minimum O(n), and
    all elements in order O(n log n).
    """

    def __init__(self, priorities: Priorities[K], now: float) -> None:
        self._priorities = priorities
        self._now = now
        self._attributes: dict[Id, K] = {}

    @override
    def insert(self, element: Id, attribute: K) -> None:
        self._attributes[element] = attribute

    @override
    def delete(self, element: Id) -> None:
        del self._attributes[element]

    @override
    def advance(self, now: float) -> None:
        self._now = max(self._now, now)

    def _order(self, a: tuple[Id, K], b: tuple[Id, K]) -> int:
        ahead = self._priorities.compare(a[1], b[1], self._now)
        return ahead or (-1 if a[0] < b[0] else 1)  # type: ignore[operator]

    @override
    def minimum(self) -> Id:
        return min(self._attributes.items(), key=cmp_to_key(self._order))[0]

    @override
    def __iter__(self) -> Iterator[Id]:
        ranked = sorted(self._attributes.items(), key=cmp_to_key(self._order))
        return iter([element for element, _ in ranked])

    @override
    def by_level(self, in_order: Callable[[list[Iterable[Id]]], Iterable[Id]]) -> Iterator[Id]:
        return iter(in_order([self._attributes]))

    @override
    def __len__(self) -> int:
        return len(self._attributes)
