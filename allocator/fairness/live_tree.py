"""Live Tree: elements kept in order while their priorities drift with time.

After §5.3 of "Stateful DRF: Considering the Past in a Multi-Resource Allocation" (Sadok,
Campista and Costa; "the paper"). Its two red-black trees are a sorted list and a heap here.
"""

import heapq
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cmp_to_key, partial
from itertools import count, pairwise
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

Id = TypeVar("Id", bound=Hashable)
K = TypeVar("K")
T = TypeVar("T")


class Priorities(ABC, Generic[K, T]):
    """A family of priority functions: how two of its members order, now and next.

    `T` is time, or any monotone function of it.
    """

    @abstractmethod
    def compare(self, a: K, b: K, now: T) -> int:
        """Order two attributes as they are just after `now`.

        That is by their values at `now` and, where these are equal, by which grows slower
        (§5.3, ≺ₜ). Return a negative number when `a` comes first, a positive one when `b`
        does, and 0 only when they stay equal until they next cross.
        """

    @abstractmethod
    def crossing(self, a: K, b: K, now: T) -> T | None:
        """Return when, after `now`, the order of two attributes may change; None: never.

        The answer may be early, even `now` itself, but must not be late (Eq. 15).
        """

    def same_line(self, a: K, b: K) -> bool:
        """Whether two attributes are the same function, whatever breaks ties."""
        return a == b

    def near(self, a: K, b: K, now: T) -> bool:
        """Whether `b`, which comes after `a`, may equal it but for rounding.

        Only families of policies that set `has_levels` are asked.
        """
        raise NotImplementedError

    def position(self, nodes: "Sequence[Node[Id, K, T]]", node: "Node[Id, K, T]", now: T) -> int:
        """Return how many of some nodes in order come before one. O(log n) comparisons.

        Families that can evaluate an attribute override this, and evaluate that of `node` once.
        """
        low, high = 0, len(nodes)
        while low < high:
            middle = (low + high) // 2
            if self.precedes(nodes[middle], node, now):
                low = middle + 1
            else:
                high = middle
        return low

    def precedes(self, a: "Node[Id, K, T]", b: "Node[Id, K, T]", now: T) -> bool:
        """Whether a node comes before another; where attributes tie, the lesser id does."""
        order = self.compare(a.attribute, b.attribute, now)
        return order < 0 or (order == 0 and a.id < b.id)  # type: ignore[operator]  # ids are ordered


class Node(Generic[Id, K, T]):
    """An element of a Live Tree."""

    __slots__ = ("attribute", "event", "id")

    def __init__(self, element: Id, attribute: K) -> None:
        self.id = element
        self.attribute = attribute
        self.event: tuple[T, int, Node[Id, K, T]] | None = None
        """With the successor, if they may change places: when, and which was booked first."""


_id = attrgetter("id")
_FEW = 64
"""Elements among which one is found by looking at all of them."""


def _has_other_line(same_line: Callable[[K, K], bool], line: K, node: Node[Id, K, T]) -> bool:
    return not same_line(line, node.attribute)


class Crossing(NamedTuple, Generic[T, Id]):
    """Two neighbours that may change places at an instant."""

    when: T
    left: Id
    right: Id


class LiveTree(Generic[Id, K, T]):
    """Elements in order of priority, at a time of its own that only moves forward.

    Methods for changing the tree:

    * :func:`LiveTree.insert`, :func:`LiveTree.fill`
    * :func:`LiveTree.delete`
    * :func:`LiveTree.replace`
    * :func:`LiveTree.update`

    Methods for looking:

    * :func:`LiveTree.minimum`, :func:`LiveTree.maximum`
    * :func:`LiveTree.__iter__`, :func:`LiveTree.__reversed__`
    * :func:`LiveTree.__getitem__`, :func:`LiveTree.__contains__`, :func:`LiveTree.__len__`
    * :func:`LiveTree.crossings`

    Ids must be hashable, and orderable where attributes tie.

    >>> from allocator.fairness.priorities import Line, StraightLines
    >>> tree = LiveTree(StraightLines(), now=0)
    >>> tree.insert("hare", Line(value=0, slope=3))
    >>> tree.insert("tortoise", Line(value=4, slope=1))
    >>> list(tree)
    ['hare', 'tortoise']
    >>> tree.update(2)
    >>> list(tree)
    ['tortoise', 'hare']
    """

    def __init__(self, priorities: Priorities[K, T], now: T) -> None:
        self._priorities = priorities
        self._now = now
        self._nodes: dict[Id, Node[Id, K, T]] = {}
        self._order: list[Node[Id, K, T]] = []
        self._events: list[tuple[T, int, Node[Id, K, T]]] = []
        """A heap; those that are not their node's event any more are passed over."""
        self._serial = count()
        self.events = 0
        """Position-change events processed so far, false ones included."""

    @property
    def now(self) -> T:
        """The instant for which elements are in order."""
        return self._now

    def insert(self, element: Id, attribute: K) -> None:
        """Add an element (the paper's INSERT). O(log n).

        >>> from allocator.fairness.priorities import Line, StraightLines
        >>> tree = LiveTree(StraightLines(), now=0)
        >>> tree.insert("b", Line(value=2, slope=0))
        >>> tree.insert("a", Line(value=1, slope=0))
        >>> list(tree)
        ['a', 'b']

        Raises:
            KeyError: there is one of this id already.
        """
        if element in self._nodes:
            raise KeyError(f"{element!r} is in the tree already; replace() changes its attribute")
        node: Node[Id, K, T] = Node(element, attribute)
        self._nodes[element] = node
        self._put(node)

    def fill(self, elements: Iterable[tuple[Id, K]]) -> None:
        """Add elements to an empty tree: O(n log n) comparisons, O(n) if they come in order.

        >>> from allocator.fairness.priorities import Line, StraightLines
        >>> tree = LiveTree(StraightLines(), now=0)
        >>> tree.fill([("b", Line(value=2, slope=0)), ("a", Line(value=1, slope=0))])
        >>> list(tree)
        ['a', 'b']

        Raises:
            KeyError: it is not empty.
        """
        if self._nodes:
            raise KeyError("the tree is not empty; insert() adds to it")

        def order(a: Node[Id, K, T], b: Node[Id, K, T]) -> int:
            return -1 if self._priorities.precedes(a, b, self._now) else 1

        self._nodes = {element: Node(element, attribute) for element, attribute in elements}
        self._order = sorted(self._nodes.values(), key=cmp_to_key(order))
        self._update_events(0, len(self._order))

    def delete(self, element: Id) -> None:
        """Remove an element (the paper's DELETE). O(log n).

        >>> from allocator.fairness.priorities import Line, StraightLines
        >>> tree = LiveTree(StraightLines(), now=0)
        >>> tree.insert("a", Line(value=1, slope=0))
        >>> tree.delete("a")
        >>> len(tree)
        0

        Raises:
            KeyError: there is none of this id.
        """
        node = self._node(element)
        position = self._position(node)
        del self._nodes[element]
        self._take_out(position, position + 1)

    def replace(self, element: Id, attribute: K) -> None:
        """Give an element another attribute. O(log n).

        >>> from allocator.fairness.priorities import Line, StraightLines
        >>> tree = LiveTree(StraightLines(), now=0)
        >>> tree.insert("a", Line(value=1, slope=0))
        >>> tree.replace("a", Line(value=5, slope=0))
        >>> tree["a"]
        Line(value=5, slope=0)

        Raises:
            KeyError: there is none of this id.
        """
        node = self._node(element)
        order, before = self._order, self._position(node)
        del order[before]
        node.attribute = attribute
        after = self._priorities.position(order, node, self._now)
        order.insert(after, node)
        if before != after:
            self._update_events(before - 1 if before < after else before, 1)
        self._update_events(after - 1, 2)

    def update(self, now: T) -> None:
        """Move to a later time (the paper's UPDATE); an earlier one is passed over.

        O(1) when no event is due; O(log n) for each pair that is. Elements of due events are
        taken out while the tree still stands at the old time, for which its order holds and
        search works, and go back in at the new one. Pairs that become neighbours meanwhile
        are asked for their crossing from the old time on, so nothing is overlooked however
        many crossings lie in between.

        >>> from allocator.fairness.priorities import Line, StraightLines
        >>> tree = LiveTree(StraightLines(), now=0)
        >>> for start in range(4):
        ...     tree.insert(start, Line(value=10 * start, slope=-start))
        >>> list(tree)
        [0, 1, 2, 3]
        >>> tree.update(11)
        >>> list(tree)
        [3, 2, 1, 0]
        """
        if not self._now < now:  # type: ignore[operator]  # T is ordered
            return
        moved: list[Node[Id, K, T]] = []
        while (left := self._due(now)) is not None:
            self.events += 1
            position = self._position(left)
            moved += self._take_out(position, position + 2)
        self._now = now
        for node in moved:
            self._put(node)

    def minimum(self) -> Id:
        """Return the first element. O(1).

        >>> from allocator.fairness.priorities import Line, StraightLines
        >>> tree = LiveTree(StraightLines(), now=0)
        >>> tree.insert("a", Line(value=1, slope=2))
        >>> tree.insert("b", Line(value=2, slope=1))
        >>> tree.minimum()
        'a'

        Raises:
            KeyError: the tree is empty.
        """
        return self._end(0)

    def maximum(self) -> Id:
        """Return the last element. O(1).

        >>> from allocator.fairness.priorities import Line, StraightLines
        >>> tree = LiveTree(StraightLines(), now=0)
        >>> tree.insert("a", Line(value=1, slope=2))
        >>> tree.insert("b", Line(value=2, slope=1))
        >>> tree.maximum()
        'b'

        Raises:
            KeyError: the tree is empty.
        """
        return self._end(-1)

    def crossings(self) -> Iterator[Crossing[T, Id]]:
        """Go through upcoming position changes of neighbours, soonest first. O(log n) each.

        Early ones may turn out to be none.

        >>> from allocator.fairness.priorities import Line, StraightLines
        >>> tree = LiveTree(StraightLines(), now=0)
        >>> tree.insert("hare", Line(value=0, slope=3))
        >>> tree.insert("tortoise", Line(value=4, slope=1))
        >>> [(str(when), left, right) for when, left, right in tree.crossings()]
        [('2', 'hare', 'tortoise')]
        """
        events = self._events.copy()
        while events:
            event = heapq.heappop(events)
            when, _serial, left = event
            if left.event is event:
                yield Crossing(when, left.id, self._order[self._position(left) + 1].id)

    def by_level(self, in_order: Callable[[list[Iterable[Id]]], Iterable[Id]]) -> Iterator[Id]:
        """Go through all elements, first to last, if rounding is not to tell priorities apart.

        The tree must not change meanwhile. Costs O(log n) for each element, or for many
        elements with one and the same line.

        Args:
            in_order: Sorts elements that are near each other; those of each part have one and the
                same line, and are in order.
        """
        order, near, now = self._order, self._priorities.near, self._now
        begin, last = 0, len(order) - 1
        while begin <= last:
            if begin == last or not near(order[begin].attribute, order[begin + 1].attribute, now):
                yield order[begin].id
                begin += 1
            else:
                parts, begin = self._near(begin)
                yield from parts[0] if len(parts) == 1 else in_order(parts)

    def _near(self, begin: int) -> tuple[list[Iterable[Id]], int]:
        """Return elements from a position that are near each other, and where they end.

        Elements with one and the same line are a part.
        """
        order, priorities, size = self._order, self._priorities, len(self._order)
        same_line, parts = priorities.same_line, list[Iterable[Id]]()
        while True:
            line, end, step = order[begin].attribute, begin + 1, 1
            while end + step <= size and same_line(line, order[end + step - 1].attribute):
                end, step = end + step, 2 * step
            if step > 1:  # the part ends before `end + step - 1`
                is_beyond = partial(_has_other_line, same_line, line)
                end = bisect_left(order, True, end, min(end + step - 1, size), key=is_beyond)
            parts.append(map(_id, order[begin:end]))
            begin = end
            if end == size or not priorities.near(line, order[end].attribute, self._now):
                return parts, end

    def __getitem__(self, element: Id) -> K:
        """Return an element's attribute. O(1)."""
        return self._node(element).attribute

    def __contains__(self, element: object) -> bool:
        """Whether there is an element of this id. O(1)."""
        return element in self._nodes

    def __len__(self) -> int:
        """Return the number of elements. O(1)."""
        return len(self._nodes)

    def __iter__(self) -> Iterator[Id]:
        """Go through all elements, first to last; the tree must not change meanwhile."""
        return map(_id, self._order)

    def __reversed__(self) -> Iterator[Id]:
        """Go through all elements, last to first; the tree must not change meanwhile."""
        return map(_id, reversed(self._order))

    def _node(self, element: Id) -> "Node[Id, K, T]":
        try:
            return self._nodes[element]
        except KeyError:
            raise KeyError(f"{element!r} is not in the tree") from None

    def _end(self, position: int) -> Id:
        if not self._order:
            raise KeyError("the tree is empty")
        return self._order[position].id

    def _position(self, node: "Node[Id, K, T]") -> int:
        """Return where a node of the tree is; mostly it is the first that has changed."""
        order = self._order
        if len(order) <= _FEW:  # then to compare objects is quicker than to compare priorities
            return order.index(node)
        return 0 if order[0] is node else self._priorities.position(order, node, self._now)

    def _put(self, node: "Node[Id, K, T]") -> None:
        """Put a node where it belongs now."""
        position = self._priorities.position(self._order, node, self._now)
        self._order.insert(position, node)
        self._update_events(position - 1, 2)

    def _take_out(self, begin: int, end: int) -> "list[Node[Id, K, T]]":
        """Remove the nodes at some positions from the order, with their events."""
        taken = self._order[begin:end]
        del self._order[begin:end]
        for node in taken:
            node.event = None
        self._update_events(begin - 1, 1)
        return taken

    def _update_events(self, first: int, number: int) -> None:
        """Renew the events of successive nodes with their successors (the paper's UPDATEEVENT)."""
        order, last = self._order, len(self._order) - 1
        for position in range(max(first, 0), first + number):
            left = order[position]
            left.event = None
            if position == last:
                break
            when = self._priorities.crossing(
                left.attribute, order[position + 1].attribute, self._now
            )
            if when is not None:
                left.event = (when, next(self._serial), left)
                heapq.heappush(self._events, left.event)
        if len(self._events) > 2 * last + 50:
            self._events = [node.event for node in order if node.event is not None]
            heapq.heapify(self._events)

    def _due(self, now: T) -> "Node[Id, K, T] | None":
        """Return the node whose event is the first, if that is due at an instant."""
        events = self._events
        while events and not now < events[0][0]:  # type: ignore[operator]  # T is ordered
            left = events[0][2]
            if left.event is events[0]:
                return left
            heapq.heappop(events)
        return None

    def _check(self) -> None:
        """Assert every invariant; on failure show the insides."""
        try:
            nodes, precedes = self._order, self._priorities.precedes
            assert {node.id: node for node in nodes} == self._nodes, "look-up and order differ"
            assert len(nodes) == len(self._nodes)
            for left, right in pairwise(nodes):
                assert precedes(left, right, self._now), f"{left.id!r}, {right.id!r} out of order"
                assert not precedes(right, left, self._now), "the order contradicts itself"
                when = self._priorities.crossing(left.attribute, right.attribute, self._now)
                if when is None:
                    assert left.event is None or not self._now < left.event[0]  # type: ignore[operator]
                else:
                    assert left.event is not None, f"{left.id!r} misses its event at {when}"
                    assert left.event[0] <= when, f"the event of {left.id!r} is late"  # type: ignore[operator]
            if nodes:
                assert nodes[-1].event is None, "the last element cannot be overtaken"
            for place, node in enumerate(nodes):
                assert self._priorities.position(nodes, node, self._now) == place
            booked = {node.event[1] for node in nodes if node.event is not None}
            assert booked <= {event[1] for event in self._events}, "an event is not booked"
            assert all(event[2].event is event for event in self._events if event[1] in booked)
            assert all(
                not event < self._events[(place - 1) // 2]
                for place, event in enumerate(self._events[1:], 1)
            ), "the heap is none"
        except AssertionError:
            print("now:", self._now)  # noqa: T201 - for whoever reads the failing test
            for node in self._order:
                print(f"{node.id!r}: {node.attribute!r}, event {node.event and node.event[:2]}")  # noqa: T201
            raise
