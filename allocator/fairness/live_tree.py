"""Live Tree: keeps elements in order while their priorities change with time.

After §5.3 of "Stateful DRF: Considering the Past in a Multi-Resource Allocation" (Sadok,
Campista and Costa; "the paper"). The paper's two red-black trees are a list of blocks and a heap
here. `sortedcontainers` does not fit: a SortedList compares elements by a fixed key, and the order
here changes with time.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import cmp_to_key, partial
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from operator import attrgetter
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from allocator.cooperative import Cooperative, run_to_completion

Id = TypeVar("Id", bound=Hashable)
K = TypeVar("K")


class Priorities(ABC, Generic[K]):
    """A family of priority functions: compares priorities now, and computes when they cross.

    A Live Tree keeps elements in the order that such a family defines. Time is any number that only
    grows. `K` is an attribute: the priority of one element as a function of time.
    """

    @abstractmethod
    def compare(self, a: K, b: K, now: float) -> int:
        """Compare two attributes (priorities as functions of time) by their order just after `now`.

        The order is by value at `now`. If values are equal, the slower-growing attribute is first
        (≺ₜ in the paper's §5.3).

        Returns:
            A negative number if `a` comes first, a positive number if `b` comes first. The result
            is 0 only if both stay equal until they next cross.
        """

    @abstractmethod
    def crossing(self, a: K, b: K, now: float) -> float | None:
        """Return the time after `now` at which two elements may change their order; None: never.

        The arguments are the elements' priorities as functions of time.

        The result may be too early, even `now` itself, but never too late (the paper's Eq. 15).
        """

    def same_line(self, a: K, b: K) -> bool:
        """Return whether two elements with these attributes have the same priority at all times.

        Their tie-breakers, such as allocation counts, may differ.
        """
        return a == b

    def near(self, a: K, b: K, now: float) -> bool:
        """Return whether the priorities of `a` and `b` may differ only by rounding errors at `now`.

        `b` comes after `a` in the order.

        Only called for policies that treat such priorities as equal (`Policy.has_levels`).
        """
        raise NotImplementedError

    def position(self, nodes: "list[Node[Id, K]]", node: "Node[Id, K]", now: float) -> int:
        """Return the index at which to insert a node into sorted nodes. O(log n) comparisons.

        Subclasses whose priorities are numbers can override this method, to compute the priority of
        `node` only once instead of at each comparison.
        """
        low, high = 0, len(nodes)
        while low < high:
            middle = (low + high) // 2
            if self.precedes(nodes[middle], node, now):
                low = middle + 1
            else:
                high = middle
        return low

    def precedes(self, a: "Node[Id, K]", b: "Node[Id, K]", now: float) -> bool:
        """Return whether node `a` comes before node `b`. If attributes are equal, ids decide."""
        order = self.compare(a.attribute, b.attribute, now)
        return order < 0 or (order == 0 and a.id < b.id)  # type: ignore[operator]  # ids are ordered


class Node(Generic[Id, K]):
    """An element of a Live Tree, with its neighbours and its next possible swap."""

    __slots__ = ("after", "attribute", "before", "block", "event", "id")

    def __init__(self, element: Id, attribute: K) -> None:
        self.id = element
        self.attribute = attribute
        self.event = 0
        """Serial number of the next possible swap with the successor; 0: no swap."""
        self.before = self.after = self
        """The neighbours in the order; at the ends, the tree's sentinel."""
        self.block: list[Node[Id, K]] = []
        """The block of the order that contains this node."""


_Pair: TypeAlias = tuple[Node[Id, K], Node[Id, K], Node[Id, K], Node[Id, K]]
"""The node before two neighbours that may swap, the two neighbours, and the node after them."""
_id: Final = attrgetter("id")
_NEAR: Final = 3
"""Positions after a guess that are tried before a binary search."""
_SORTED_A_STEP = 256
"""Nodes in a cooperative step."""
_LONGEST_BLOCK = 64
"""Nodes of one block at most; a longer block is divided. In such a block, comparing objects finds a
node faster than comparing priorities."""


def _has_other_line(same_line: Callable[[K, K], bool], line: K, node: Node[Id, K]) -> bool:
    return not same_line(line, node.attribute)


class Crossing(NamedTuple, Generic[Id]):
    """The possible swap of two neighbours at the time `when`: `right` then passes `left`."""

    when: float
    left: Id
    right: Id


class LiveTree(Generic[Id, K]):
    """Keeps elements in order of priority while the priorities change with time.

    The tree's time only moves forward. An *event* is the possible swap of two neighbours at the
    time at which their priorities cross.

    Methods that change the tree:

    * :func:`LiveTree.insert`, :func:`LiveTree.insert_all`, :func:`LiveTree.fill`
    * :func:`LiveTree.delete`
    * :func:`LiveTree.replace`
    * :func:`LiveTree.update`

    Methods that read the tree:

    * :func:`LiveTree.minimum`, :func:`LiveTree.maximum`
    * :func:`LiveTree.__iter__`, :func:`LiveTree.__reversed__`
    * :func:`LiveTree.__getitem__`, :func:`LiveTree.__contains__`, :func:`LiveTree.__len__`
    * :func:`LiveTree.crossings`

    Ids must be hashable. Ids of elements with equal attributes must be orderable.

    >>> from allocator.fairness.priorities import PriorityLine, StraightLines
    >>> tree = LiveTree(StraightLines(), now=0)
    >>> tree.insert("hare", PriorityLine(value=0, slope=3))
    >>> tree.insert("tortoise", PriorityLine(value=4, slope=1))
    >>> list(tree)
    ['hare', 'tortoise']
    >>> tree.update(2)
    >>> list(tree)
    ['tortoise', 'hare']
    """

    def __init__(self, priorities: Priorities[K], now: float) -> None:
        self._priorities = priorities
        self._now = now
        self._nodes: dict[Id, Node[Id, K]] = {}
        self._blocks: list[list[Node[Id, K]]] = [[]]
        """All nodes in order, in blocks. Only the block of an empty tree is empty."""
        self._heads: list[Node[Id, K]] = []
        """The first node of each block."""
        self._ends: Node[Id, K] = Node(None, None)  # type: ignore[arg-type]  # in no block
        """The sentinel before the first node and after the last node."""
        self._events: list[tuple[float, int, Node[Id, K]]] = []
        """A heap of events: time, serial number, and node. Events that are no longer their node's
        event are skipped."""
        self._serial = 0
        """Serial number of the latest event."""
        self.events = 0
        """Number of events processed so far, including events that changed nothing."""

    @property
    def now(self) -> float:
        """The tree's time: the elements are in order of their priorities at this time."""
        return self._now

    def insert(self, element: Id, attribute: K) -> None:
        """Add an element (the paper's INSERT). O(log n).

        >>> from allocator.fairness.priorities import PriorityLine, StraightLines
        >>> tree = LiveTree(StraightLines(), now=0)
        >>> tree.insert("b", PriorityLine(value=2, slope=0))
        >>> tree.insert("a", PriorityLine(value=1, slope=0))
        >>> list(tree)
        ['a', 'b']

        Raises:
            KeyError: the tree has an element with this id.
        """
        node = self._new_node(element, attribute)
        self._put(node)
        self._update_events(node.before, node)

    def insert_all(self, elements: Iterable[tuple[Id, K]]) -> None:
        """Add several elements. O(log n) each, or O(1) for an element close to another new element.

        >>> from allocator.fairness.priorities import PriorityLine, StraightLines
        >>> tree = LiveTree(StraightLines(), now=0)
        >>> lines = {"b": PriorityLine(value=2, slope=0), "a": PriorityLine(value=1, slope=0)}
        >>> tree.insert_all(lines.items())
        >>> list(tree)
        ['a', 'b']

        Raises:
            KeyError: the tree has an element with one of these ids.
        """
        nodes = [self._new_node(element, attribute) for element, attribute in elements]
        former: Node[Id, K] | None = None
        for node in run_to_completion(self._sorted(nodes)):
            self._put(node, former)
            former = node
        self._update_events(*dict.fromkeys([*[node.before for node in nodes], *nodes]))

    def fill(self, elements: Iterable[tuple[Id, K]]) -> None:
        """Add all elements to an empty tree. O(n log n) comparisons, or O(n) if they are sorted.

        >>> from allocator.fairness.priorities import PriorityLine, StraightLines
        >>> tree = LiveTree(StraightLines(), now=0)
        >>> lines = {"b": PriorityLine(value=2, slope=0), "a": PriorityLine(value=1, slope=0)}
        >>> tree.fill(lines.items())
        >>> list(tree)
        ['a', 'b']

        Raises:
            KeyError: the tree is not empty.
        """
        run_to_completion(self.fill_in_steps(elements))

    def fill_in_steps(self, elements: Iterable[tuple[Id, K]]) -> Cooperative[None]:
        """Generator form of `fill`. The tree must not be used until the generator is exhausted."""
        if self._nodes:
            raise KeyError("the tree is not empty; insert() adds to it")
        self._nodes = {element: Node(element, attribute) for element, attribute in elements}
        nodes = yield from self._sorted(list(self._nodes.values()))
        size = _LONGEST_BLOCK if len(nodes) <= _LONGEST_BLOCK else _LONGEST_BLOCK // 2
        self._blocks[:] = [nodes[at : at + size] for at in range(0, len(nodes), size)] or [[]]
        self._heads = [block[0] for block in self._blocks if block]
        last = self._ends
        for block in self._blocks:
            for node in block:
                node.block, node.before, last.after, last = block, last, node, node
        last.after, self._ends.before = self._ends, last
        for block in self._blocks:
            self._update_events(*block)
            yield

    def _sorted(self, nodes: "list[Node[Id, K]]") -> "Cooperative[list[Node[Id, K]]]":
        """Return nodes in order. Generator for cooperative steps: runs are sorted, then merged."""

        def order(a: Node[Id, K], b: Node[Id, K]) -> int:
            return -1 if self._priorities.precedes(a, b, self._now) else 1

        runs = list[list[Node[Id, K]]]()
        for at in range(0, len(nodes), _SORTED_A_STEP):
            if at:
                yield
            runs.append(sorted(nodes[at : at + _SORTED_A_STEP], key=cmp_to_key(order)))
        while len(runs) > 1:
            merged = list[list[Node[Id, K]]]()
            for at in range(0, len(runs) - 1, 2):
                merged.append((yield from self._merged(runs[at], runs[at + 1])))
            runs = merged + (runs[-1:] if len(runs) % 2 else [])
        return runs[0] if runs else []

    def _merged(
        self, left: "list[Node[Id, K]]", right: "list[Node[Id, K]]"
    ) -> "Cooperative[list[Node[Id, K]]]":
        """Return the nodes of two sorted lists in order. Generator for cooperative steps.

        Costs O(log n) comparisons if all nodes of the first list precede those of the second list.
        """
        precedes, position, now = self._priorities.precedes, self._priorities.position, self._now
        begin, end = position(left, right[0], now), position(right, left[-1], now)
        first, second = left[begin:][::-1], right[:end][::-1]  # taken from the end
        nodes = left[:begin]
        while first and second:
            nodes.append((first if precedes(first[-1], second[-1], now) else second).pop())
            if not len(nodes) % _SORTED_A_STEP:
                yield
        return nodes + first[::-1] + second[::-1] + right[end:]

    def delete(self, element: Id) -> None:
        """Remove an element (the paper's DELETE). O(log n).

        >>> from allocator.fairness.priorities import PriorityLine, StraightLines
        >>> tree = LiveTree(StraightLines(), now=0)
        >>> tree.insert("a", PriorityLine(value=1, slope=0))
        >>> tree.delete("a")
        >>> len(tree)
        0

        Raises:
            KeyError: the tree has no element with this id.
        """
        node = self._node(element)
        del self._nodes[element]
        self._update_events(self._take_out(node))

    def replace(self, element: Id, attribute: K) -> None:
        """Replace the priority function of an element, and move it to its new position. O(log n).

        >>> from allocator.fairness.priorities import PriorityLine, StraightLines
        >>> tree = LiveTree(StraightLines(), now=0)
        >>> tree.insert("a", PriorityLine(value=1, slope=0))
        >>> tree.replace("a", PriorityLine(value=5, slope=0))
        >>> tree["a"]
        PriorityLine(value=5, slope=0)

        Raises:
            KeyError: the tree has no element with this id.
        """
        node = self._node(element)
        before = self._take_out(node)
        node.attribute = attribute
        self._put(node)
        if node.before is before:
            self._update_events(before, node)
        else:
            self._update_events(before, node.before, node)

    def update(self, now: float) -> None:
        """Move the tree to a later time (the paper's UPDATE). An earlier time has no effect.

        O(1) if no event lies between the old and the new time, else O(log n) for each pair with
        such an event. The pairs leave the order while the tree still has the old time. Other
        elements become neighbours, and their crossings are computed from the old time on. So no
        crossing is missed, however many crossings lie between the two times. Then the pairs return
        at the new time. Most pairs return to the same place, swapped. The elements of other pairs
        are inserted by a search.

        >>> from allocator.fairness.priorities import PriorityLine, StraightLines
        >>> tree = LiveTree(StraightLines(), now=0)
        >>> for start in range(4):
        ...     tree.insert(start, PriorityLine(value=10 * start, slope=-start))
        >>> list(tree)
        [0, 1, 2, 3]
        >>> tree.update(11)
        >>> list(tree)
        [3, 2, 1, 0]
        """
        if now <= self._now:
            return
        first = self._due(now)
        if first is None:
            self._now = now
            return
        pairs: list[_Pair[Id, K]] = []
        while first is not None:
            self.events += 1
            before, second = first.before, first.after
            pairs.append((before, first, second, second.after))
            self._unlink(first, second)
            self._update_events(before)
            first = self._due(now)
        self._now = now
        for _, first, second, _ in [pair for pair in pairs if not self._swap(*pair)]:
            self._remove(first)
            self._remove(second)
        for before, first, second, _ in pairs:
            if first.block:
                self._update_events(second, first.before, first)
            else:
                self._put(first, before)
                self._update_events(first.before, first)
                self._put(second, before)
                self._update_events(second.before, second)

    def minimum(self) -> Id:
        """Return the element with the lowest priority value, which is first. O(1).

        >>> from allocator.fairness.priorities import PriorityLine, StraightLines
        >>> tree = LiveTree(StraightLines(), now=0)
        >>> tree.insert("a", PriorityLine(value=1, slope=2))
        >>> tree.insert("b", PriorityLine(value=2, slope=1))
        >>> tree.minimum()
        'a'

        Raises:
            KeyError: the tree is empty.
        """
        return self._end(0)

    def maximum(self) -> Id:
        """Return the element with the highest priority value, which is last. O(1).

        >>> from allocator.fairness.priorities import PriorityLine, StraightLines
        >>> tree = LiveTree(StraightLines(), now=0)
        >>> tree.insert("a", PriorityLine(value=1, slope=2))
        >>> tree.insert("b", PriorityLine(value=2, slope=1))
        >>> tree.maximum()
        'b'

        Raises:
            KeyError: the tree is empty.
        """
        return self._end(-1)

    def crossings(self) -> Iterator[Crossing[Id]]:
        """Yield the upcoming possible swaps of neighbours, soonest first. O(log n) each.

        At some of these times the two elements turn out not to swap, because a crossing may be
        computed too early.

        >>> from allocator.fairness.priorities import PriorityLine, StraightLines
        >>> tree = LiveTree(StraightLines(), now=0)
        >>> tree.insert("hare", PriorityLine(value=0, slope=3))
        >>> tree.insert("tortoise", PriorityLine(value=4, slope=1))
        >>> [(str(when), left, right) for when, left, right in tree.crossings()]
        [('2.0', 'hare', 'tortoise')]
        """
        events = self._events.copy()
        while events:
            when, serial, left = heappop(events)
            if left.event == serial:
                yield Crossing(when, left.id, left.after.id)

    def by_level(self, in_order: Callable[[list[Iterable[Id]]], Iterable[Id]]) -> Iterator[Id]:
        """Iterate over all elements in order; a callback sorts nearly equal priorities.

        Nearly equal priorities differ only by rounding errors. The tree must not change during the
        iteration. The iteration costs O(log n) for each element, or for each group of elements with
        the same priority function (`Priorities.same_line`).

        Args:
            in_order: Sorts elements with nearly equal priorities. The argument is a list of groups.
                The elements of a group have the same priority function and are already in order.
        """
        priorities, now, ends = self._priorities, self._now, self._ends
        node = ends.after
        while node is not ends:
            after = node.after
            if after is ends or not priorities.near(node.attribute, after.attribute, now):
                yield node.id
                node = after
            else:
                parts, node = self._near(node)
                yield from parts[0] if len(parts) == 1 else in_order(parts)

    def _near(self, node: "Node[Id, K]") -> "tuple[list[Iterable[Id]], Node[Id, K]]":
        """Collect the elements whose priorities nearly equal that of a node.

        Args:
            node: The first of these elements in the order.

        Returns:
            The elements in groups with the same priority function, and the node after the last
            group.
        """
        priorities, parts, now = self._priorities, list[Iterable[Id]](), self._now
        while True:
            part, after = self._part(node)
            parts.append(map(_id, part))
            if after is self._ends or not priorities.near(node.attribute, after.attribute, now):
                return parts, after
            node = after

    def _part(self, node: "Node[Id, K]") -> "tuple[Iterable[Node[Id, K]], Node[Id, K]]":
        """Collect the successive nodes with the same priority function as `node`, which is first.

        O(log n), and O(1) for each block (list of successive nodes) in which all nodes have this
        function.

        Returns:
            These nodes, and the node after the last of them.
        """
        line, same_line, block = node.attribute, self._priorities.same_line, node.block
        begin = 0 if node is block[0] else block.index(node)
        parts: list[list[Node[Id, K]]] = []
        while same_line(line, block[-1].attribute):
            parts.append(block[begin:] if begin else block)
            after = block[-1].after
            if after is self._ends:
                return chain.from_iterable(parts), after
            block, begin = after.block, 0
        end = begin
        if same_line(line, block[begin].attribute):
            is_beyond = partial(_has_other_line, same_line, line)
            end = bisect_left(block, True, begin + 1, key=is_beyond)
            parts.append(block[begin:end])
        return parts[0] if len(parts) == 1 else chain.from_iterable(parts), block[end]

    def __getitem__(self, element: Id) -> K:
        """Return an element's attribute: its priority as a function of time. O(1)."""
        return self._node(element).attribute

    def __contains__(self, element: object) -> bool:
        """Return whether the tree has an element with this id. O(1)."""
        return element in self._nodes

    def __len__(self) -> int:
        """Return the number of elements. O(1)."""
        return len(self._nodes)

    def __iter__(self) -> Iterator[Id]:
        """Iterate over all elements, first to last. The tree must not change meanwhile."""
        return map(_id, chain.from_iterable(self._blocks))

    def __reversed__(self) -> Iterator[Id]:
        """Iterate over all elements, last to first. The tree must not change meanwhile."""
        return map(_id, chain.from_iterable(map(reversed, reversed(self._blocks))))

    def _new_node(self, element: Id, attribute: K) -> "Node[Id, K]":
        """Return the node of a new element, which is not in the order yet.

        Raises:
            KeyError: the tree has an element with this id.
        """
        if element in self._nodes:
            raise KeyError(f"{element!r} is in the tree already; replace() changes its attribute")
        node: Node[Id, K] = Node(element, attribute)
        self._nodes[element] = node
        return node

    def _node(self, element: Id) -> "Node[Id, K]":
        """Return the node of an element.

        Raises:
            KeyError: the tree has no element with this id.
        """
        try:
            return self._nodes[element]
        except KeyError:
            raise KeyError(f"{element!r} is not in the tree") from None

    def _end(self, position: int) -> Id:
        """Return the first element (position 0) or the last element (position −1).

        Raises:
            KeyError: the tree is empty.
        """
        if not self._nodes:
            raise KeyError("the tree is empty")
        return self._blocks[position][position].id

    def _swap(
        self,
        before: "Node[Id, K]",
        first: "Node[Id, K]",
        second: "Node[Id, K]",
        after: "Node[Id, K]",
    ) -> bool:
        """Link two unlinked nodes again between the same nodes, and exchange their elements.

        The two nodes keep their places in the blocks. The caller must recompute the events.

        Args:
            before: The node that was before the two nodes.
            first: The first of the two nodes.
            second: The second node.
            after: The node that was after the two nodes.

        Returns:
            False if this would not give the present order. Then nothing changes.
        """
        priorities, now, ends = self._priorities, self._now, self._ends
        if (
            before.after is not after  # one of the nodes around them was unlinked, too
            or after.before is not before
            or not priorities.precedes(second, first, now)
            or (before is not ends and not priorities.precedes(before, second, now))
            or (after is not ends and not priorities.precedes(first, after, now))
        ):
            return False
        first.id, second.id = second.id, first.id
        first.attribute, second.attribute = second.attribute, first.attribute
        self._nodes[first.id], self._nodes[second.id] = first, second
        before.after, first.after, after.before = first, second, second
        return True

    def _put(self, node: "Node[Id, K]", guess: "Node[Id, K] | None" = None) -> None:
        """Insert a node at its position for the present time.

        O(log n) comparisons, or O(1) if the position is soon after `guess`.

        Args:
            node: A new node, or a node that `_take_out` has removed.
            guess: A node that is probably shortly before the position. None: unknown.
        """
        before = None if guess is None else self._close_behind(guess, node)
        if before is None:
            priorities, blocks, now, number = self._priorities, self._blocks, self._now, 0
            if len(blocks) > 1:
                number = max(priorities.position(self._heads, node, now) - 1, 0)
            block = blocks[number]
            place = priorities.position(block, node, now)
            before = block[place - 1] if place else block[0].before if block else self._ends
        else:
            number, block = -1, before.block
            place = block.index(before) + 1
        after = before.after
        node.before, node.after, node.block = before, after, block
        before.after = after.before = node
        block.insert(place, node)
        if not place:
            self._heads[number : number + 1] = [node]
        if len(block) > _LONGEST_BLOCK:
            self._divide(block)

    def _close_behind(self, guess: "Node[Id, K]", node: "Node[Id, K]") -> "Node[Id, K] | None":
        """Search for the position of a node, only at `guess` and at a few nodes after it.

        Args:
            guess: The node at which the search begins.
            node: The node to insert.

        Returns:
            The node after which to insert `node`. None: the position is elsewhere, so the caller
            must search the whole tree.
        """
        if not guess.block or not self._priorities.precedes(guess, node, self._now):
            return None  # the guess was removed, or comes after the node
        before = guess
        for _ in range(_NEAR):
            after = before.after
            if after is self._ends or self._priorities.precedes(node, after, self._now):
                return before
            before = after
        return None

    def _divide(self, block: "list[Node[Id, K]]") -> None:
        """Divide a block, one of the lists that hold successive nodes, into two blocks.

        Called if a block has become too long after an insertion.
        """
        rest = block[_LONGEST_BLOCK // 2 :]
        del block[_LONGEST_BLOCK // 2 :]
        number = self._heads.index(block[0]) + 1
        self._heads.insert(number, rest[0])
        self._blocks.insert(number, rest)
        for node in rest:
            node.block = rest

    def _behead(self, block: "list[Node[Id, K]]") -> None:
        """Remove the first node of a block, one of the lists that hold successive nodes.

        A block that becomes empty is removed, unless it is the only one.
        """
        number = self._heads.index(block[0])
        del block[0]
        if block:
            self._heads[number] = block[0]
        else:
            del self._heads[number]
            if len(self._blocks) > 1:
                del self._blocks[number]

    def _take_out(self, node: "Node[Id, K]") -> "Node[Id, K]":
        """Remove a node and its event from the order, and return the node's predecessor."""
        before = node.before
        self._unlink(node, node)
        self._remove(node)
        return before

    @staticmethod
    def _unlink(first: "Node[Id, K]", last: "Node[Id, K]") -> None:
        """Link the nodes around one or two neighbours, and cancel the events of these neighbours.

        The neighbours keep their places in the blocks. The first neighbour loses its link to the
        second, so `_swap` recognises the first neighbour as unlinked.
        """
        before, after = first.before, last.after
        before.after, after.before = after, before
        first.event = last.event = 0
        first.after = first

    def _remove(self, node: "Node[Id, K]") -> None:
        """Remove an unlinked node from its block."""
        block = node.block
        if block[0] is node:
            self._behead(block)
        else:
            block.remove(node)
        node.block = []

    def _update_events(self, *nodes: "Node[Id, K]") -> None:
        """Recompute when each of these nodes and its successor may swap (UPDATEEVENT)."""
        ends, priorities, now = self._ends, self._priorities, self._now
        for left in nodes:
            right, left.event = left.after, 0
            if left is not ends is not right:
                when = priorities.crossing(left.attribute, right.attribute, now)
                if when is not None:
                    self._serial += 1
                    left.event = self._serial
                    heappush(self._events, (when, self._serial, left))
        if len(self._events) > 2 * len(self._nodes) + 48:
            self._events = [event for event in self._events if event[2].event == event[1]]
            heapify(self._events)

    def _due(self, now: float) -> "Node[Id, K] | None":
        """Return the node with the earliest event, if this event is at or before `now`, else None.

        The event is the possible swap of the node and its successor.
        """
        events = self._events
        while events:
            when, serial, node = events[0]
            if now < when:
                return None
            if node.event == serial:
                return node
            heappop(events)
        return None

    def _check(self) -> None:
        """Assert all invariants of the tree, for tests. On failure, print the nodes and events."""
        try:
            nodes, precedes = list(chain.from_iterable(self._blocks)), self._priorities.precedes
            times = {serial: when for when, serial, _ in self._events}
            assert all(self._blocks) or self._blocks == [[]], "a block is empty"
            assert self._heads == [block[0] for block in self._blocks if block]
            assert all(node.block is block for block in self._blocks for node in block)
            assert all(len(block) <= _LONGEST_BLOCK for block in self._blocks)
            assert {node.id: node for node in nodes} == self._nodes, "look-up and order differ"
            assert len(nodes) == len(self._nodes)
            for left, right in pairwise([self._ends, *nodes, self._ends]):
                assert left.after is right, "a node does not know its successor"
                assert right.before is left, "a node does not know its predecessor"
            for left, right in pairwise(nodes):
                assert precedes(left, right, self._now), f"{left.id!r}, {right.id!r} out of order"
                assert not precedes(right, left, self._now), "the order contradicts itself"
                when = self._priorities.crossing(left.attribute, right.attribute, self._now)
                if when is None:
                    assert not left.event or times[left.event] <= self._now
                else:
                    assert left.event, f"{left.id!r} misses its event at {when}"
                    assert times[left.event] <= when, f"the event of {left.id!r} is late"
            if nodes:
                assert not nodes[-1].event, "the last element cannot be overtaken"
            for index, node in enumerate(nodes):
                assert self._priorities.position(nodes, node, self._now) == index
            events = {serial: node for _, serial, node in self._events}
            assert all(events.get(node.event) is node for node in nodes if node.event)
            assert all(
                event[:2] > self._events[(index - 1) // 2][:2]
                for index, event in enumerate(self._events[1:], 1)
            ), "the events are not a heap"
        except AssertionError:
            print("now:", self._now)  # noqa: T201 - for whoever reads the failing test
            for node in chain.from_iterable(self._blocks):
                print(f"{node.id!r}: {node.attribute!r}, event {node.event}")  # noqa: T201
            raise
