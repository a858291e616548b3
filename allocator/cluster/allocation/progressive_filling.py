"""Progressive filling: the first client in sorter order gets the next task, until no task fits.

Allocating one task at a time is slow, so a filling computes the same result in larger steps. The
clients form a tree of nodes (`ClientNode`, `InnerNode`). The members of an inner node are users or
clients with their nodes. A *level* is a sort key. A member's *batch* for a level is the number of
tasks that the member gets before its sort key reaches the level. A filling searches for the highest
level at which the batches of all members fit into a `Budget`.

A task can be *counted ahead* if its needs are known, and if its client accepts any part of the
agent that meets the needs. The filling stops as soon as the first member in order has no such task,
or its next task does not fit. `FairShareStage` then allocates one share on its own, or excludes
clients, and begins another filling, until no task fits.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, Literal, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from allocator.cluster.frameworks.framework import Client
from allocator.cooperative import Cooperative, run_to_completion
from allocator.fairness.quantities import Quantities
from allocator.fairness.sorter_snapshot import Position, SortKey

Name: TypeAlias = str | tuple[str, str]
"""The name of a limited amount: a resource, or a (role, resource) pair for the role's quota
limit."""
Needs: TypeAlias = dict[Name, int]
"""Amounts in thousandths, by name."""


class ClientTask:
    """The needs of one task, and cached multiples of them. Tasks are compared by identity.

    Args:
        needs: Demand of one task in thousandths, by name. Resources that exist in whole units only
            have multiples of 1000.
        scalars: The quantities by which one task increases the client's allocation, as the sorter
            counts it.
    """

    __slots__ = ("_multiples", "needs", "scalars")

    def __init__(self, needs: Needs, scalars: Quantities) -> None:
        self.needs = needs
        self.scalars = scalars
        self._multiples: dict[int, tuple[Needs, Quantities, int]] = {}

    def multiple(self, number: int) -> tuple[Needs, Quantities, int]:
        """Return the total needs of several tasks, and how they change the client's allocation.

        Args:
            number: The number of tasks.

        Returns:
            The total needs, the increase of the client's allocation, and the allocation count. The
            count is the number of tasks, or 0 if the tasks have no scalars, because the sorter then
            ignores them.
        """
        known = self._multiples.get(number)
        if known is None:
            needs = {name: number * amount for name, amount in self.needs.items()}
            scalars = self.scalars.times(number)
            known = self._multiples[number] = needs, scalars, number if scalars else 0
        return known


@dataclass(frozen=True, slots=True, eq=False)
class TaskBatch:
    """A set of tasks that a progressive filling has allocated, or might allocate.

    A batch has the number of tasks of each client, and sums over all tasks.
    """

    number: int
    counts: "dict[ClientNode, int]"
    """Number of tasks of each client."""
    needs: Needs
    """Thousandths taken of an agent, by name."""
    scalars: Quantities
    """The quantities by which the tasks increase the clients' allocations."""
    allocations: int
    """The number of tasks that need scalar resources. The sorter counts only these tasks."""


NONE = TaskBatch(0, {}, {}, Quantities(), 0)
"""A batch without tasks."""


class ClientNode:
    """A leaf of the tree: one client, whose tasks all have the same needs.

    Args:
        client: The client of this node.
        task: The client's next task and all later ones. It is None if the filling must not allocate
            the next task, because its needs are unknown or the client may refuse it.
    """

    __slots__ = ("_batches", "client", "task")

    def __init__(self, client: Client, task: ClientTask | None) -> None:
        self.client = client
        self.task = task
        self._batches: dict[int, TaskBatch] = {0: NONE}

    def batch(self, number: int) -> TaskBatch:
        """Return the batch with this number of the client's tasks.

        The batch is empty if the node has no task, because the client's demand is unknown or an
        offer of one task may be refused.
        """
        batch = self._batches.get(number)
        if batch is None:
            if self.task is None:
                return NONE
            needs, scalars, allocations = self.task.multiple(number)
            batch = self._batches[number] = TaskBatch(
                number, {self: number}, needs, scalars, allocations
            )
        return batch

    def fill(self, budget: "CapacityBudget") -> TaskBatch:
        """Return the largest batch of the client's tasks that the budget admits.

        Nothing is subtracted from the budget.
        """
        if self.task is None:
            return NONE
        number = min(budget.left[name] // amount for name, amount in self.task.needs.items())
        return self.batch(max(number, 0))


def combined(batches: list[TaskBatch]) -> TaskBatch:
    """Return the sum of several batches; no client may have tasks in two of them."""
    batches = [batch for batch in batches if batch.number]
    if len(batches) == 1:
        return batches[0]
    counts: dict[ClientNode, int] = {}
    tasks: dict[ClientTask, int] = {}
    for batch in batches:
        for node, number in batch.counts.items():
            assert node.task is not None
            counts[node] = number
            tasks[node.task] = tasks.get(node.task, 0) + number
    needs: Needs = {}
    scalars, allocations = Quantities(), 0
    for task, number in tasks.items():  # few: many clients have the same task
        task_needs, held, count = task.multiple(number)
        scalars, allocations = scalars + held, allocations + count
        for name, amount in task_needs.items():
            needs[name] = needs.get(name, 0) + amount
    return TaskBatch(sum(counts.values()), counts, needs, scalars, allocations)


class Budget(Protocol):
    """A limit on the tasks that a filling may still allocate, for example an agent's capacity.

    A filling allocates tasks to the members of a role node. A member's batch grows in steps, and
    only its growth is subtracted from the budget. Methods therefore take two batches: `batch`, the
    member's batch after the step, and `given`, the same member's batch before the step.
    """

    depth: int
    """The number of level budgets nested in this budget."""

    def copy(self) -> Self:
        """Return a copy of the budget; spending the copy leaves this budget unchanged."""

    def admits(self, batch: TaskBatch, given: TaskBatch) -> bool:
        """Return whether the budget suffices to extend a member's batch.

        Args:
            batch: The member's batch after the extension.
            given: The member's batch before the extension, which has been subtracted already.
        """

    def spend(self, batch: TaskBatch, given: TaskBatch) -> None:
        """Subtract the extension of a member's batch from the budget.

        Args:
            batch: The member's batch after the extension.
            given: The member's batch before the extension, which has been subtracted already.
        """

    def repeats(self, earlier: Self) -> float:
        """Return how many times the remaining budget contains the amount spent since a copy.

        The filling repeats similar steps, and uses this number to estimate the size of the next
        step.

        Args:
            earlier: A copy of the budget from before the amount was spent.

        Returns:
            The number of times, which need not be whole.
        """

    def shares(self, batch: TaskBatch, given: TaskBatch) -> dict[Name, float]:
        """Return the fraction of the remaining budget that the extension of a batch would take.

        Args:
            batch: The member's batch after the extension.
            given: The member's batch before the extension, which has been subtracted already.

        Returns:
            The fraction by resource name, from 0 to infinity.
        """


class _Left(dict[Name, int]):
    """Remaining amounts by resource name.

    The function `unasked` is called to look up each name that the mapping does not contain.
    """

    __slots__ = ("unasked",)

    def __init__(self, left: Iterable[tuple[Name, int]], unasked: Callable[[Name], int]) -> None:
        super().__init__(left)
        self.unasked = unasked

    def __missing__(self, name: Name) -> int:
        return self.unasked(name)


class CapacityBudget:
    """A budget limited by the remaining capacity of an agent.

    Args:
        remaining: Remaining thousandths of the agent's resources, by name.
        unasked: Returns the remaining amount of any other name, for example within a role's quota
            limit.
    """

    __slots__ = ("left",)
    depth = 0

    def __init__(
        self, remaining: Iterable[tuple[Name, int]], unasked: Callable[[Name], int]
    ) -> None:
        self.left = _Left(remaining, unasked)

    def copy(self) -> "CapacityBudget":
        """Return a copy of the budget; spending the copy leaves this budget unchanged."""
        return CapacityBudget(self.left.items(), self.left.unasked)

    def admits(self, batch: TaskBatch, given: TaskBatch) -> bool:
        """Return whether the capacity suffices to extend a batch from `given` to `batch`."""
        needs = given.needs
        for name, amount in batch.needs.items():
            if amount - needs.get(name, 0) > self.left[name]:
                return False
        return True

    def spend(self, batch: TaskBatch, given: TaskBatch) -> None:
        """Subtract the needs of the tasks in `batch` that are not in `given` from the capacity."""
        needs = given.needs
        for name, amount in batch.needs.items():
            if amount:
                self.left[name] -= amount - needs.get(name, 0)

    def repeats(self, earlier: "CapacityBudget") -> float:
        """Return how many times the remaining capacity contains the amount spent since a copy.

        The scarcest resource decides.

        Args:
            earlier: A copy of the budget from before the amount was spent.
        """
        return min(
            free / (earlier.left[name] - free)
            for name, free in self.left.items()
            if free < earlier.left[name]
        )

    def shares(self, batch: TaskBatch, given: TaskBatch) -> dict[Name, float]:
        """Return the fraction of the remaining capacity that the extension of a batch would take.

        Args:
            batch: The member's batch after the extension.
            given: The member's batch before the extension, which has been subtracted already.

        Returns:
            The fraction by resource name; infinity if nothing of a needed resource remains.
        """
        needs = given.needs
        return {
            name: (amount - needs.get(name, 0)) / free if (free := self.left[name]) else inf
            for name, amount in batch.needs.items()
            if amount > needs.get(name, 0)
        }


class CountBudget:
    """A budget limited by a number of tasks, whatever their needs."""

    __slots__ = ("left",)
    depth = 0

    def __init__(self, left: int) -> None:
        self.left = left

    def copy(self) -> "CountBudget":
        """Return a copy of the budget; spending the copy leaves this budget unchanged."""
        return CountBudget(self.left)

    def admits(self, batch: TaskBatch, given: TaskBatch) -> bool:
        """Return whether enough tasks remain to extend a batch from `given` to `batch`."""
        return batch.number - given.number <= self.left

    def spend(self, batch: TaskBatch, given: TaskBatch) -> None:
        """Subtract the tasks in `batch` that are not in `given` from the number of tasks."""
        self.left -= batch.number - given.number

    def repeats(self, earlier: "CountBudget") -> float:
        """Return how many times the remaining tasks contain the number spent since a copy.

        Args:
            earlier: A copy of the budget from before the tasks were spent.
        """
        return self.left / (earlier.left - self.left)

    def shares(self, batch: TaskBatch, given: TaskBatch) -> dict[Name, float]:
        """Return the fraction of the remaining tasks that extending `given` to `batch` would take.

        Returns:
            The fraction under the key "", because this budget does not distinguish resources.
        """
        return {"": (batch.number - given.number) / self.left}


class LevelBudget:
    """A budget for one member of a role node: its sort key must stay before a given sort key.

    The given sort key is the *level*. The member's batches must also fit within another budget,
    such as the agent's capacity.

    Args:
        level: The sort key that the member must stay before, even if sort keys are rounded.
        key_of: Returns the member's sort key for given holdings and a number of new allocations.
        holds: The member's current holdings.
        allocations: The number of allocations that the member has received in this filling.
        within: The other budget.
    """

    __slots__ = (
        "_allocations",
        "_cached_key",
        "_holds",
        "_key_of",
        "_last",
        "_level",
        "_within",
        "depth",
    )

    def __init__(
        self,
        level: SortKey,
        key_of: Callable[[Quantities, int], SortKey],
        holds: Quantities,
        allocations: int,
        within: Budget,
    ) -> None:
        self._level = level
        self._key_of = key_of
        self._holds = holds
        self._allocations = allocations
        self._within = within
        self._cached_key: SortKey | None = None
        """The member's current sort key; None until computed."""
        self._last: tuple[TaskBatch, TaskBatch, tuple[Quantities, int, SortKey]] | None = None
        """The last batch that `admits` examined, and its result. `spend` usually follows with
        that batch."""
        self.depth = within.depth + 1

    def copy(self) -> "LevelBudget":
        """Return a copy of the budget; spending the copy leaves this budget unchanged."""
        within = self._within.copy()
        budget = LevelBudget(self._level, self._key_of, self._holds, self._allocations, within)
        budget._cached_key = self._cached_key
        return budget

    def admits(self, batch: TaskBatch, given: TaskBatch) -> bool:
        """Return whether the member's batch may be extended from `given` to `batch`.

        The extension must fit within the other budget, and the member's sort key must stay before
        the level.
        """
        return self._within.admits(batch, given) and self._key_with(batch, given).surely_before(
            self._level
        )

    def spend(self, batch: TaskBatch, given: TaskBatch) -> None:
        """Subtract a batch's extension from the other budget, and update the member's holdings.

        Args:
            batch: The member's batch after the extension.
            given: The member's batch before the extension, which has been subtracted already.
        """
        self._within.spend(batch, given)
        self._holds, self._allocations, self._cached_key = self._holding_with(batch, given)
        self._last = None

    def repeats(self, earlier: "LevelBudget") -> float:
        """Return how many times the steps since a copy could be repeated within the budget.

        The number need not be whole. It assumes that equal steps change the sort key's priority
        equally.

        Args:
            earlier: A copy of the budget from before these steps.
        """
        times = self._within.repeats(earlier._within)  # noqa: SLF001 - same class
        moved, ahead = earlier._key().distance_to(self._key()), self._key().distance_to(self._level)  # noqa: SLF001
        return times if not moved or ahead is None else min(times, ahead / moved)

    def shares(self, batch: TaskBatch, given: TaskBatch) -> dict[Name, float]:
        """Return the fraction of the remaining budget that the extension of a batch would take.

        Args:
            batch: The member's batch after the extension.
            given: The member's batch before the extension, which has been subtracted already.

        Returns:
            The fractions of the other budget by resource name. A further key has the fraction of
            the distance from the member's sort key to the level.
        """
        shares = self._within.shares(batch, given)
        key, ahead = self._key(), self._key().distance_to(self._level)
        if ahead is not None:
            step = key.distance_to(self._key_with(batch, given))
            shares["", str(self.depth)] = step / ahead if ahead and step is not None else inf
        return shares

    def _key(self) -> SortKey:
        if self._cached_key is None:
            self._cached_key = self._key_of(self._holds, self._allocations)
        return self._cached_key

    def _key_with(self, batch: TaskBatch, given: TaskBatch) -> SortKey:
        """Return the sort key that the member would have if its batch grew to `batch`.

        Args:
            batch: The member's batch after the growth.
            given: The member's batch before the growth, which its current holdings include.
        """
        holds, allocations, key = self._holding_with(batch, given)
        if key is None:
            key = self._key_of(holds, allocations)
            self._last = batch, given, (holds, allocations, key)
        return key

    def _holding_with(
        self, batch: TaskBatch, given: TaskBatch
    ) -> tuple[Quantities, int, SortKey | None]:
        """Return the holdings that the member would have if its batch grew to `batch`.

        Args:
            batch: The member's batch after the growth.
            given: The member's batch before the growth, which its current holdings include.

        Returns:
            The holdings, the number of allocations, and the sort key. The sort key is None if it
            has not been computed yet.
        """
        last = self._last
        if last is not None and last[0] is batch and last[1] is given:
            return last[2]
        allocations = self._allocations + batch.allocations - given.allocations
        return self._holds.exchanged(given.scalars, batch.scalars), allocations, None


_HALVINGS = 20
_TRAJECTORIES_A_STEP = 50
"""With more trajectories than this number, the bisection yields after each evaluation."""


class Trajectory(NamedTuple):
    """The linear growth of one member's priority and of its use of the budget, per further task.

    `find_water_level` uses trajectories to predict how far all members can be filled.
    """

    level: float
    """Current priority of the member: the number by which the sorter ranks it."""
    slope: float
    """Increase of the priority by one task."""
    demand: float
    """Fraction of the remaining budget that one task takes."""


def find_water_level(
    trajectories: Sequence[Trajectory], end: float, limit: float = 1.0
) -> Cooperative[float]:
    """Return the highest priority to which all members can be filled within the budget.

    A member is filled to a priority by allocating tasks until it has this priority. The result is
    found by bisection.

    Args:
        trajectories: The members whose priority is below `end`, sorted by priority.
        end: The highest priority to return.
        limit: The fraction of the budget that all members may take together.
    """
    low, middle = trajectories[0].level, end
    for _ in range(_HALVINGS):
        if _demand(trajectories, middle) > limit:
            end = middle
        elif middle == end:
            return end
        else:
            low = middle
        if len(trajectories) > _TRAJECTORIES_A_STEP:
            yield
        middle = (low + end) / 2
    return low


def _demand(paths: Sequence[Trajectory], end: float) -> float:
    """Return the fraction of the budget that all members need together to reach a priority.

    Args:
        paths: The members' trajectories, sorted by priority.
        end: The priority to reach; members beyond it need nothing.
    """
    return sum([share * -((level - end) // slope) for level, slope, share in paths if level < end])


Member = TypeVar("Member")
User_contra = TypeVar("User_contra", contravariant=True)


class Ranks(Protocol[User_contra]):
    """Protocol for the sort keys of a pool's users, now and after further allocations.

    `SorterSnapshot` implements it.
    """

    def sort_key(self, user: User_contra) -> SortKey:
        """Return the current sort key of a user."""

    def sort_key_after(self, user: User_contra, more: Quantities, times: int) -> SortKey:
        """Return the sort key that a user would have after further allocations.

        Args:
            user: The user to rank.
            more: The total quantities of these allocations.
            times: The number of these allocations.
        """

    def held(self, user: User_contra) -> Quantities:
        """Return the quantities that are allocated to a user now."""

    def holding(self, user: User_contra, total: Quantities, times: int) -> SortKey:
        """Return the sort key that a user would have if its holdings were `total`.

        Args:
            user: The user to rank.
            total: The quantities that the user would hold.
            times: The number of further allocations by which the user reaches these holdings.
        """


_MEMBERS_A_STEP = 50
"""Members processed in one step."""
_SAMPLE_TASKS = 8
"""Tasks sampled to estimate the average task of a member with heterogeneous tasks."""
_SAFETY = 0.95
"""Fraction of the budget that an estimated level may use, so that the level is rarely too high."""
_RETRY_SAFETY = 0.7
"""Factor on this fraction after an estimated level was too high."""
_MAX_TASKS = 1 << 40
"""More tasks than any budget admits."""


class InnerNode(Generic[Member]):
    """An inner node of the tree: users of one pool, or clients of one user, each with its own node.

    Args:
        members: Members in sorter order with their nodes, without members that can be allocated
            nothing.
        ranks: The sort keys of the members.
    """

    def __init__(self, members: Iterator[tuple[Member, "Node"]], ranks: Ranks[Member]) -> None:
        self._unread = members
        self._members: list[tuple[Member, Node]] = []
        self._ranks = ranks
        self._batches: dict[int, TaskBatch] = {}
        self._numbers: list[int] = []
        self._fillings: dict[int, _Filling[Member]] = {}
        """The filling that produced each batch, by number of tasks."""

    def batch(self, number: int) -> TaskBatch:
        """Return the batch with this number of tasks, allocated to the members in sorter order.

        The batch is smaller if it would need a task that cannot be counted ahead. Such a task has
        unknown needs, or the client may not accept it as an offer.
        """
        return self._batches.get(number) or run_to_completion(self.batch_in_steps(number))

    def batch_in_steps(self, number: int) -> Cooperative[TaskBatch]:
        """Generator form of `batch`. Afterwards, `batch` returns the cached result."""
        batch = self._batches.get(number)
        if batch is None:
            index = bisect_left(self._numbers, number) - 1
            if index >= 0:
                known = self._numbers[index]
                filling = self._fillings[known].copy(CountBudget(number - known))
            else:
                filling = _Filling(self, CountBudget(number))
            if index >= 0 and number - known == 1:
                batch = filling.one_more()
            else:
                batch = yield from filling.run(1)
            self._batches[number] = batch
            if batch.number == number:
                insort(self._numbers, number)
                self._fillings[number] = filling
        return batch

    def extend(self, taken: TaskBatch, budget: Budget) -> Cooperative[TaskBatch]:
        """Continue a batch of this node with as many further tasks as a budget admits.

        Args:
            taken: A batch that this node returned earlier.
            budget: The limit on the further tasks. The method subtracts them from the budget.

        Returns:
            The extended batch, including `taken`.
        """

        def too_much(number: int) -> bool:
            return not budget.admits(self._batches[number], taken)

        first = bisect_right(self._numbers, taken.number)
        end = bisect_left(self._numbers, True, first, key=too_much)
        given = taken if end == first else self._batches[self._numbers[end - 1]]
        budget.spend(given, taken)
        filling = _Filling(self, budget)
        if given.number:
            filling = self._fillings[given.number].copy(budget)
        batch = yield from filling.run(0)
        if batch.number not in self._batches:
            insort(self._numbers, batch.number)
            self._batches[batch.number] = batch
            self._fillings[batch.number] = filling
        return batch

    def fill(self, budget: Budget, stride: int = 0) -> TaskBatch:
        """Return the largest batch within a budget, allocated in sorter order.

        Filling ends when the first member in order cannot be allocated one more task.

        Args:
            budget: The limit on the tasks. The method subtracts the batch from the budget.
            stride: An estimate of the first member's number of tasks. With 0, the filling predicts
                from the members' sort keys how far the budget suffices. The stride affects the
                speed only.
        """
        return run_to_completion(self.fill_in_steps(budget, stride))

    def fill_in_steps(self, budget: Budget, stride: int = 0) -> Cooperative[TaskBatch]:
        """Generator form of `fill`. Each step processes a few members, also in the nodes below."""
        return _Filling(self, budget).run(stride)

    def member(self, index: int) -> "tuple[Member, Node] | None":
        """Return a member and its node by index in the initial sorter order; None past the end.

        The initial order is the order before a filling allocates anything.
        """
        while index >= len(self._members):
            member = next(self._unread, None)
            if member is None:
                return None
            self._members.append(member)
        return self._members[index]

    def key(self, user: Member, batch: TaskBatch) -> SortKey:
        """Return the sort key that a member would have if a filling had allocated it a batch."""
        if not batch.number:
            return self._ranks.sort_key(user)
        return self._ranks.sort_key_after(user, batch.scalars, batch.allocations)

    def level_budget(
        self, user: Member, level: SortKey, budget: Budget, batch: TaskBatch
    ) -> LevelBudget:
        """Return a budget that stops a member's batch before its sort key reaches a level.

        Args:
            user: The member of this node.
            level: The sort key that the member must stay before.
            budget: The budget of the whole filling, which the member's batch must fit, too.
            batch: The batch that the member has been allocated already.
        """
        held = self._ranks.held(user) + batch.scalars

        def key_of(total: Quantities, allocations: int) -> SortKey:
            return self._ranks.holding(user, total, allocations)

        return LevelBudget(level, key_of, held, batch.allocations, budget)


Node: TypeAlias = ClientNode | InnerNode  # type: ignore[type-arg]  # any kind of user
_End: TypeAlias = Literal["level", "special", "full"]


class _Entry(Generic[Member]):
    """A member of a role node during a filling, and the batch allocated to it so far."""

    __slots__ = ("key", "node", "taken", "user")

    def __init__(self, user: Member, node: Node, key: SortKey) -> None:
        self.user = user
        self.node = node
        self.taken = NONE
        self.key = key

    def copy(self) -> "_Entry[Member]":
        """Return a copy to which tasks can be allocated independently."""
        entry = _Entry(self.user, self.node, self.key)
        entry.taken = self.taken
        return entry


class _Step(NamedTuple, Generic[Member]):
    """A possible extension of one member's batch up to a level; nothing is allocated yet.

    The level is the sort key that members are filled up to. `_Filling._give` carries out the step.
    """

    entry: _Entry[Member]
    number: int
    """Number of additional tasks. If the budget ends first, the smallest number that exceeds the
    budget."""
    batch: TaskBatch
    """The member's whole batch after the step, with tasks of earlier steps."""
    key: SortKey
    end: _End
    """The reason to stop: level reached, no further task can be counted ahead, or budget
    exceeded."""


class _Filling(Generic[Member]):
    """The progressive filling of one inner node within a budget: a loop of rounds.

    Each round chooses a *level*, which is a sort key, and allocates tasks to every member before
    that level. The level is chosen in one of two ways.

    With a *stride*, which is a number of tasks, the level is the sort key that the first member
    would have after that many tasks. The remaining budget determines the stride of the next round.
    If the budget does not suffice for the level, the stride is halved.

    Without a stride, a large allocation is expected, and the water level is predicted: the level at
    which the budget is used up. If a member has heterogeneous tasks, the prediction is uncertain
    and uses only a part of the budget. The part shrinks after each predicted level that was too
    high.
    """

    def __init__(self, node: InnerNode[Member], budget: Budget) -> None:
        self._node = node
        self._budget = budget
        self._entries: list[_Entry[Member]] = []
        """Members visited so far, in sorter order."""
        self._served: dict[_Entry[Member], None] = {}
        """Entries with an allocation, in the order of their first allocation."""
        self._next = 0
        """Index of the next member to visit, in the initial order."""
        self._pending: _Entry[Member] | None = None
        """The next member to visit, if it is known."""
        self._too_high: Position = (_MAX_TASKS,)
        """The lowest level known to exceed the budget."""
        self._is_estimate = False
        """True if the predicted level is an estimate, because a member has heterogeneous tasks."""
        self._share = _SAFETY
        """Fraction of the budget that the filling up to an estimated level may use now."""

    def copy(self, budget: Budget) -> "_Filling[Member]":
        """Return a copy of the filling that continues independently, with another budget."""
        filling = _Filling(self._node, budget)
        copies = {entry: entry.copy() for entry in self._entries}
        filling._entries = list(copies.values())
        filling._served = {copies[entry]: None for entry in self._served}
        filling._next = self._next
        if self._pending is not None:
            filling._pending = self._pending.copy()
        return filling

    def run(self, stride: int) -> Cooperative[TaskBatch]:
        """Continue the filling until the first member in sorter order cannot get one more task.

        Args:
            stride: The number of tasks after which the first member's sort key becomes the first
                level. If 0, the first level is predicted.

        Returns:
            All tasks that the filling has allocated.
        """
        pick: _Entry[Member] | None = None
        may_predict = predict = not stride
        while True:
            first = self._entry(0)
            if first is None:
                break
            batch = first.node.batch(first.taken.number + 1)
            if batch.number == first.taken.number or not self._budget.admits(batch, first.taken):
                break
            if predict:
                alone = int(1 / max(self._budget.shares(batch, first.taken).values()))
                level = yield from self._predicted_level(first, pick or first, stride or alone)
            else:
                level = yield from self._key_ahead(pick or first, stride)
            trial, failed = yield from self._attempt(level)
            if failed is not None:
                self._too_high = min(self._too_high, level.position)
                self._share *= _RETRY_SAFETY
                predict = predict and self._is_estimate
            if failed is None:
                self._share = _SAFETY
                # if rounding put the level before every member, allocate one task
                trial = trial or [self._one_task(first)]
                earlier = self._budget.copy()
                self._give(trial)
                repeats = self._budget.repeats(earlier)
                # priorities are piecewise linear: use the achieved step, not the initial slope
                predict = may_predict and (repeats < 1 or not predict)
                repeats = min(trial[0].number * repeats, _MAX_TASKS)
                pick, stride = None, 1 + int(2 * repeats) if predict else max(1, int(repeats))
            elif all(step.number == 1 for step in trial):
                self._give(trial)
                if failed.number == 1:
                    break
                pick, stride = None, failed.number // 2
            else:
                longest = max([*trial, failed], key=lambda step: step.number)
                pick, stride = longest.entry, longest.number // 2
        return combined([entry.taken for entry in self._served])

    def one_more(self) -> TaskBatch:
        """Allocate one task to the first member in sorter order; the budget must admit this task.

        Nothing is allocated if the task's needs are unknown, or its client may not accept it as an
        offer.

        Returns:
            All tasks that the filling has allocated so far.
        """
        first = self._entry(0)
        if first is not None:
            self._give([self._one_task(first)])
        return combined([entry.taken for entry in self._served])

    def _entry(self, index: int) -> _Entry[Member] | None:
        """Return the member with this index in the current sorter order; None past the end.

        Entries are created on demand, so entries with smaller indices must be read first.
        """
        pending = self._pending
        if pending is None:
            member = self._node.member(self._next)
            if member is not None:
                user, node = member
                pending = _Entry(user, node, self._node.key(user, NONE))
        if pending is not None and (
            index == len(self._entries) or pending.key.position < self._entries[index].key.position
        ):
            self._entries.insert(index, pending)
            self._next += 1
            pending = None
        self._pending = pending
        return self._entries[index] if index < len(self._entries) else None

    def _count_in_steps(self, entry: _Entry[Member], number: int) -> Cooperative[None]:
        """Compute an inner node's larger batch in cooperative steps, for the cache of `batch`.

        For a client node, nothing is done, because its batches are computed at once.

        Args:
            entry: The member whose batch will be computed.
            number: The number of tasks in addition to those allocated already.
        """
        if isinstance(entry.node, InnerNode):
            yield
            yield from entry.node.batch_in_steps(entry.taken.number + number)

    def _key_ahead(self, entry: _Entry[Member], number: int) -> Cooperative[SortKey]:
        """Return the sort key that a member would have after a number of further tasks.

        If an earlier task has unknown needs or may be refused, only the tasks before it are
        counted.

        Args:
            entry: The member.
            number: The number of tasks in addition to those allocated already.
        """
        yield from self._count_in_steps(entry, number)
        return self._key(entry, entry.node.batch(entry.taken.number + number))

    def _predicted_level(
        self, first: _Entry[Member], pick: _Entry[Member], number: int
    ) -> Cooperative[SortKey]:
        """Return a sort key that all members can probably reach within the budget.

        The prediction assumes that priorities change linearly with the number of tasks. The result
        is never after the sort key that `pick` would have with `number` further tasks.

        Args:
            first: The first member in sorter order.
            pick: The member that bounds the result.
            number: The number of further tasks of `pick` at the bound.
        """
        start = pick.key
        slope, _ = yield from self._slope(pick)
        end = start.priority + number * slope
        paths: dict[Name, list[Trajectory]] = {}
        self._is_estimate = False
        count = 0
        while (
            slope
            and (entry := self._entry(count)) is not None
            and entry.key.position[:2] < (start.position[0], end)
        ):
            count += 1
            if not count % _MEMBERS_A_STEP:
                yield
            slope, shares = yield from self._slope(entry)
            if slope and entry.key.position[0] == start.position[0]:
                self._is_estimate = self._is_estimate or isinstance(entry.node, InnerNode)
                for name, share in shares.items():
                    paths.setdefault(name, []).append(Trajectory(entry.key.priority, slope, share))
        yield
        for group in paths.values():
            end = yield from find_water_level(group, end, self._share if self._is_estimate else 1.0)
        level = SortKey((start.position[0], end), 0.0)
        if paths and first.key.position < level.position < self._too_high:
            return level
        return (yield from self._key_ahead(pick, number))

    def _slope(self, entry: _Entry[Member]) -> Cooperative[tuple[float, dict[Name, float]]]:
        """Return how much one further task changes a member's priority and takes of the budget.

        If the member's tasks are heterogeneous, both results are averages of several tasks.

        Returns:
            The change of priority per task, which is 0 if unknown; and the fractions of the
            remaining budget per task, by resource name.
        """
        key, given = entry.key, entry.taken
        if not isinstance(entry.node, InnerNode):
            sample = entry.node.batch(given.number + 1)
        elif given.number < _SAMPLE_TASKS:
            sample = yield from entry.node.batch_in_steps(given.number + _SAMPLE_TASKS)
        else:
            key, given, sample = self._key(entry, NONE), NONE, entry.taken
        number, distance = sample.number - given.number, key.distance_to(self._key(entry, sample))
        if not number or distance is None:
            return 0.0, {}
        shares = self._budget.shares(sample, given)
        return max(distance, 0.0) / number, {name: share / number for name, share in shares.items()}

    def _attempt(
        self, level: SortKey
    ) -> Cooperative[tuple[list[_Step[Member]], _Step[Member] | None]]:
        """Compute the steps that would bring all members up to a level, without allocating them.

        The filling cannot allocate a task of unknown needs or uncertain acceptance. If this is a
        member's next task, the level is lowered to that member's sort key.

        Args:
            level: The sort key to reach.

        Returns:
            The members' steps in sorter order; and the step of the first member that exceeds the
            budget, or None.
        """
        while True:
            budget = self._budget.copy()
            trial: list[_Step[Member]] = []
            lowered = False
            failed: _Step[Member] | None = None
            number = 0
            while True:
                entry = self._entry(number)
                if entry is None or not entry.key.position < level.position:
                    break
                number += 1
                if not number % _MEMBERS_A_STEP:
                    yield
                step = yield from self._reach(entry, level, budget)
                if step.end == "full":
                    failed = step
                    break
                if step.end == "special":
                    level, lowered = step.key, True
                if step.number:
                    budget.spend(step.batch, entry.taken)
                    trial.append(step)
            if not lowered:
                return trial, failed

    def _one_task(self, entry: _Entry[Member]) -> _Step[Member]:
        """Return a step with one task for a member; the budget must admit this task.

        If the sorter does not count the member's tasks, because they need only ports for example,
        the step has all tasks that fit.
        """
        number = _first_false(lambda number: self._is_unseen(entry, number), 1) - 1
        if number > 1:
            batch = entry.node.batch(entry.taken.number + number)
            return _Step(entry, number, batch, entry.key, "level")
        batch = entry.node.batch(entry.taken.number + 1)
        return _Step(entry, 1, batch, self._key(entry, batch), "level")

    def _is_unseen(self, entry: _Entry[Member], number: int) -> bool:
        """Return whether a member's next tasks fit the budget, but are not counted by the sorter.

        The sorter does not count tasks without scalar resources. They leave the sort key unchanged.

        Args:
            entry: The member that gets the tasks.
            number: The number of further tasks.
        """
        total = entry.taken.number + number
        batch = entry.node.batch(total)
        is_unseen = batch.number == total and batch.allocations == entry.taken.allocations
        return is_unseen and self._budget.admits(batch, entry.taken)

    def _reach(
        self, entry: _Entry[Member], level: SortKey, budget: Budget
    ) -> Cooperative[_Step[Member]]:
        """Return the longest step of a member towards a level.

        The step ends at the level, at the end of the budget, or before a task of unknown needs or
        uncertain acceptance, whichever comes first.
        """
        node, taken = entry.node, entry.taken
        if isinstance(node, InnerNode):
            level_budget = self._node.level_budget(entry.user, level, budget.copy(), taken)
            batch = yield from node.extend(taken, level_budget)
            number = batch.number - taken.number + 1
        else:
            guess = self._guess(entry, level)
            number = _first_false(
                lambda number: self._surely_continues(entry, number, level, budget), guess
            )
        while (step := self._step(entry, number, level, budget)) is None:
            number += 1  # rounding may decide: test each number
        return step

    def _step(
        self, entry: _Entry[Member], number: int, level: SortKey, budget: Budget
    ) -> _Step[Member] | None:
        """Return a member's step with this number of tasks if it must end there; otherwise None.

        A step ends at the level, at the end of the budget, or before a task of unknown needs or
        uncertain acceptance. `_reach` calls this method with increasing numbers until a step is
        returned.

        Args:
            entry: The member that gets the tasks.
            number: The number of further tasks.
            level: The sort key that ends the step.
            budget: The limit on the further tasks.
        """
        total = entry.taken.number + number
        batch = entry.node.batch(total)
        key = self._key(entry, batch)
        if batch.number < total:
            return _Step(entry, batch.number - entry.taken.number, batch, key, "special")
        if not budget.admits(batch, entry.taken):
            return _Step(entry, number, batch, key, "full")
        if key.position < level.position:
            return None
        return _Step(entry, number, batch, key, "level")

    def _surely_continues(
        self, entry: _Entry[Member], number: int, level: SortKey, budget: Budget
    ) -> bool:
        """Return whether a member, after a number of further tasks, is surely still before a level.

        The budget must also admit these tasks. A true result holds in spite of rounding errors; a
        false result may be caused by them.

        Args:
            entry: The member that gets the tasks.
            number: The number of further tasks.
            level: The sort key that ends the step.
            budget: The limit on these tasks.
        """
        total = entry.taken.number + number
        batch = entry.node.batch(total)
        return (
            batch.number == total
            and self._key(entry, batch).surely_before(level)
            and budget.admits(batch, entry.taken)
        )

    def _guess(self, entry: _Entry[Member], level: SortKey) -> int:
        """Estimate how many tasks a member can get before its sort key reaches a level.

        The estimate assumes that each task changes the priority by the same amount.
        """
        next_task = entry.node.batch(entry.taken.number + 1)
        step, distance = (
            entry.key.distance_to(self._key(entry, next_task)),
            entry.key.distance_to(level),
        )
        if not step or distance is None or distance < step:
            return 1
        return round(min(distance / step, _MAX_TASKS))

    def _key(self, entry: _Entry[Member], batch: TaskBatch) -> SortKey:
        """Return the sort key that a member would have if the filling had allocated it a batch."""
        return self._node.key(entry.user, batch)

    def _give(self, trial: list[_Step[Member]]) -> None:
        """Allocate the steps that `_attempt` returned.

        The method subtracts their batches from the budget, and sorts the members by their new sort
        keys.

        Args:
            trial: Steps that the budget admits together.
        """
        for step in trial:
            entry = step.entry
            self._served[entry] = None
            self._budget.spend(step.batch, entry.taken)
            entry.taken, entry.key = step.batch, step.key
        self._entries.sort(key=lambda entry: entry.key.position)


def _first_false(condition: Callable[[int], bool], guess: int) -> int:
    """Return a number n ≥ 1 for which a condition is false, although it is true for n − 1.

    The condition counts as true for 0. The search is faster if `guess` is near the result.
    """
    low, high, step = 0, guess, 1
    if condition(guess):
        low, high = guess, guess + 1
        while condition(high):
            step *= 2
            low, high = high, high + step
    else:
        while high > 1 and not condition(max(high - step, 1)):
            high = max(high - step, 1)
            step *= 2
        low = max(high - step, 0 if high == 1 else 1)
    while high - low > 1:
        middle = (low + high) // 2
        if condition(middle):
            low = middle
        else:
            high = middle
    return high
