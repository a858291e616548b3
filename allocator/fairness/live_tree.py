"""Live Tree: elements kept in order while their priorities drift with time.

After §5.3 of "Stateful DRF: Considering the Past in a Multi-Resource Allocation" (Sadok,
Campista and Costa; "the paper"). Its two red-black trees are two sorted lists here.
"""

from collections.abc import Hashable, Iterator
from itertools import count, pairwise
from typing import Generic, NamedTuple, Protocol, TypeVar

from sortedcontainers import SortedList

Id = TypeVar("Id", bound=Hashable)
K = TypeVar("K")
T = TypeVar("T")
K_contra = TypeVar("K_contra", contravariant=True)


class Priorities(Protocol[K_contra, T]):
    """A family of priority functions: how two of its members order, now and next.

    `T` is time, or any monotone function of it.
    """

    def compare(self, a: K_contra, b: K_contra, now: T) -> int:
        """Order two attributes as they are just after `now`.

        That is by their values at `now` and, where these are equal, by which grows slower
        (§5.3, ≺ₜ). Return a negative number when `a` comes first, a positive one when `b`
        does, and 0 only when they stay equal until they next cross.
        """
        ...

    def crossing(self, a: K_contra, b: K_contra, now: T) -> T | None:
        """Return when, after `now`, the order of two attributes may change; None: never.

        The answer may be early, even `now` itself, but must not be late (Eq. 15).
        """
        ...


class Crossing(NamedTuple, Generic[T, Id]):
    """Two neighbours that may change places at an instant."""

    when: T
    left: Id
    right: Id


class LiveTree(Generic[Id, K, T]):
    """Elements in order of priority, at a time of its own that only moves forward.

    Methods for changing the tree:

    * :func:`LiveTree.insert`
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
        self._nodes: dict[Id, _Node[Id, K, T]] = {}
        self._elements: SortedList[_Node[Id, K, T]] = SortedList()
        self._events: SortedList[tuple[T, int, _Node[Id, K, T]]] = SortedList()
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
        node = _Node(self, element, attribute)
        position = self._elements.bisect_left(node)
        self._nodes[element] = node
        self._elements.add(node)
        if position:
            self._update_event(self._elements[position - 1], node)
        if position + 1 < len(self._elements):
            self._update_event(node, self._elements[position + 1])

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
        position = self._elements.bisect_left(node)
        del self._elements[position]
        del self._nodes[element]
        self._cancel_event(node)
        if position:
            left = self._elements[position - 1]
            right = self._elements[position] if position < len(self._elements) else None
            self._update_event(left, right)

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
        self.delete(element)
        self.insert(element, attribute)

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
        moved: list[_Node[Id, K, T]] = []
        while self._events and not now < self._events[0][0]:
            left = self._events[0][2]
            right = self._elements[self._elements.bisect_left(left) + 1]
            self.events += 1
            for node in (left, right):
                self.delete(node.id)
                moved.append(node)
        self._now = now
        for node in moved:
            self.insert(node.id, node.attribute)

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
        for when, _serial, left in self._events:
            right = self._elements[self._elements.bisect_left(left) + 1]
            yield Crossing(when, left.id, right.id)

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
        return (node.id for node in self._elements)

    def __reversed__(self) -> Iterator[Id]:
        """Go through all elements, last to first; the tree must not change meanwhile."""
        return (node.id for node in reversed(self._elements))

    def _node(self, element: Id) -> "_Node[Id, K, T]":
        try:
            return self._nodes[element]
        except KeyError:
            raise KeyError(f"{element!r} is not in the tree") from None

    def _end(self, position: int) -> Id:
        if not self._nodes:
            raise KeyError("the tree is empty")
        node: _Node[Id, K, T] = self._elements[position]
        return node.id

    def _update_event(self, left: "_Node[Id, K, T]", right: "_Node[Id, K, T] | None") -> None:
        """Renew the event of an element with its successor (the paper's UPDATEEVENT)."""
        self._cancel_event(left)
        if right is None:
            return
        when = self._priorities.crossing(left.attribute, right.attribute, self._now)
        if when is not None:
            left.event = (when, next(self._serial), left)
            self._events.add(left.event)

    def _cancel_event(self, node: "_Node[Id, K, T]") -> None:
        if node.event is not None:
            self._events.remove(node.event)
            node.event = None

    def _precedes(self, a: "_Node[Id, K, T]", b: "_Node[Id, K, T]") -> bool:
        order = self._priorities.compare(a.attribute, b.attribute, self._now)
        return order < 0 or (order == 0 and a.id < b.id)  # type: ignore[operator]

    def _check(self) -> None:
        """Assert every invariant; on failure show the insides."""
        try:
            self._events._check()  # noqa: SLF001 - the library's own self-test
            nodes = list(self._elements)
            assert {node.id: node for node in nodes} == self._nodes, "look-up and order differ"
            assert len(nodes) == len(self._nodes)
            for left, right in pairwise(nodes):
                assert self._precedes(left, right), f"{left.id!r}, {right.id!r} out of order"
                assert not self._precedes(right, left), "the order contradicts itself"
                when = self._priorities.crossing(left.attribute, right.attribute, self._now)
                if when is None:
                    assert left.event is None or not self._now < left.event[0]
                else:
                    assert left.event is not None, f"{left.id!r} misses its event at {when}"
                    assert not when < left.event[0], f"the event of {left.id!r} is late"
            if nodes:
                assert nodes[-1].event is None, "the last element cannot be overtaken"
            booked = [node.event for node in nodes if node.event is not None]
            assert sorted(e[:2] for e in booked) == [e[:2] for e in self._events]
            assert all(event[2].event is event for event in self._events)
        except AssertionError:
            print("now:", self._now)  # noqa: T201 - for whoever reads the failing test
            for node in self._elements:
                print(f"{node.id!r}: {node.attribute!r}, event {node.event and node.event[:2]}")  # noqa: T201
            raise


class _Node(Generic[Id, K, T]):
    """An element; compares with others at the time of its tree."""

    __slots__ = ("attribute", "event", "id", "tree")

    def __init__(self, tree: LiveTree[Id, K, T], element: Id, attribute: K) -> None:
        self.tree = tree
        self.id = element
        self.attribute = attribute
        self.event: tuple[T, int, _Node[Id, K, T]] | None = None
        """With the successor, if they may change places."""

    def __lt__(self, other: "_Node[Id, K, T]") -> bool:
        return self.tree._precedes(self, other)
