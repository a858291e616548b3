"""The order of pending jobs: as progressive filling would start them, task by task."""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from operator import itemgetter
from typing import NamedTuple, TypeAlias, TypeVar

from allocator.fairness.quantities import Quantities
from allocator.fairness.sorter_snapshot import Position, SorterSnapshot
from allocator.slurm.jobs import ClusterNode, Job, array_limit, array_tasks
from allocator.slurm.shares import ShareTree, name_of
from allocator.slurm.task_shares import TASKS
from allocator.slurm.timelines import UserPath

READY = frozenset({"None", "Priority", "Resources", "Prolog"})
"""Reasons of jobs that start as soon as they are first and resources are free."""
_COMPETING = frozenset(
    {
        "Licenses",
        "ReqNodeNotAvail",
        "Reservation",
        "Nodes",
        "NodeDown",
        "BurstBufferResources",
        "QOSResourceLimit",
        "AssociationResourceLimit",
    }
)
_COMPETING_PREFIXES = ("QOSGrp", "AssocGrp")
"""Reasons of jobs that wait for something that several users share: a limit of a group, licenses,
certain nodes. Such jobs keep their place, but do not count as started."""
_MOST_NOT_READY = 20
"""Maximum number of jobs of a user with a place but without `is_ready`: enough for the starts
between the end of their reason and the next reading."""
_COMMON_KINDS = frozenset({"cpus", "mem", TASKS})
"""Resources that all jobs need."""
Scope: TypeAlias = tuple[str, str]
"""Common resources of competing jobs: a partition, as the name of all partitions with common nodes,
and a special resource such as `gpus`, or "" for jobs without special resources."""
Element = TypeVar("Element")
_Key: TypeAlias = tuple[tuple[str, ...], frozenset[str]]


class PlacedJob(NamedTuple):
    """A pending job, or a task of an array, in the order."""

    target: str
    """The job as `scontrol` knows it: `123`, or `100_4` for a task of an array."""
    job: Job
    user: UserPath


@dataclass
class Order:
    """The order of pending jobs, and the jobs outside the order."""

    placed: list[PlacedJob] = field(default_factory=list)
    """The first job comes first. Only so many jobs as may start before the next reading."""
    passed_over: Counter[str] = field(default_factory=Counter)
    """Number of pending jobs that cannot start, by Slurm's reason."""


class _Waiting(NamedTuple):
    """A pending job in the queue of its user."""

    job: Job
    targets: tuple[str, ...]
    """One target. A heterogeneous job has one for each component."""
    demand: Quantities
    ready: bool
    scopes: tuple[Scope, ...]


_Entry: TypeAlias = tuple[_Waiting, UserPath]
"""A pending job and its user."""
_PlacedEntry: TypeAlias = tuple[Position, _Entry]
"""A pending job, with the position of a node of the tree at the job's turn."""


def order_jobs(  # noqa: PLR0913 - each is a separate input
    tree: ShareTree,
    pending: Iterable[tuple[Job, UserPath]],
    running_tasks: Mapping[int, int],
    nodes: Mapping[str, ClusterNode],
    base_priorities: Mapping[int, int],
    *,
    ahead: int,
    tasks_ahead: int,
) -> Order:
    """Return the order in which pending jobs should start.

    Users take turns: each time, the first user in the policy's order gets the next job of its
    queue, and from then on counts as if the job had started. A job counts for its user's later jobs
    with a common scope: partitions with common nodes, and special resources. A job that waits for a
    GPU, or for other nodes, therefore does not hold back other jobs of its user. A job has a place
    for each of its scopes, and gets the last of these places.

    Jobs without `is_ready` keep a place, but do not count for ready jobs. Their place is the one
    for the case of all jobs being ready.

    Within a user's queue, Slurm's own order holds: by priority without the site factor, then by
    time, then by job id.

    Args:
        tree: The pools of users, with all allocations of the present. It is not changed.
        pending: Pending jobs and their users.
        running_tasks: Number of running tasks of each array.
        nodes: All nodes by name.
        base_priorities: Priorities without the site factor, by job id; jobs without an entry have
            their priority.
        ahead: Maximum number of ready jobs of one scope in the order. Jobs that are not ready are
            in the order if fewer than `ahead` jobs would precede them with all jobs ready, and only
            the first ones of each user.
        tasks_ahead: Maximum number of pending tasks of an array in the order.
    """
    order = Order()
    queues: dict[UserPath, list[_Waiting]] = {}
    entries = _QueueEntries(nodes.values(), running_tasks, tasks_ahead, order.passed_over)
    for waiting, user in entries.read(pending):
        queues.setdefault(user, []).append(waiting)
    for queue in queues.values():
        queue.sort(key=lambda waiting: _own_order(waiting.job, base_priorities))
    ready = {
        user: [waiting for waiting in queue if waiting.ready] for user, queue in queues.items()
    }
    turns = [_Merge(tree, ahead).order(ready)]
    if any(len(ready[user]) < len(queue) for user, queue in queues.items()):
        everything = _Merge(tree, ahead).order(queues)
        turns.insert(0, _few_not_ready(everything))
    for _, (waiting, user) in heapq.merge(*turns, key=itemgetter(0)):
        order.placed += [PlacedJob(target, waiting.job, user) for target in waiting.targets]
    return order


def _few_not_ready(turns: Iterable[_PlacedEntry]) -> Iterator[_PlacedEntry]:
    """Yield the first jobs of each user without `is_ready`, out of all jobs."""
    numbers = Counter[UserPath]()
    for turn in turns:
        waiting, user = turn[1]
        if not waiting.ready and numbers[user] < _MOST_NOT_READY:
            numbers[user] += 1
            yield turn


class _Sequence(NamedTuple):
    """Jobs of a node of the tree, in the order of the node."""

    entries: Iterable[_Entry]
    scopes: Counter[Scope]
    """Number of these jobs in each scope."""


class _Merge:
    """Merges the jobs of all users into a single order, from the lowest level of the tree upwards.

    A turn of a user leads to a turn of each node above the user. All jobs count as started.

    Args:
        tree: The pools of users.
        ahead: Maximum number of jobs of a scope.
    """

    def __init__(self, tree: ShareTree, ahead: int) -> None:
        self._tree = tree
        self._ahead = ahead
        self._full: set[Scope] = set()
        """Scopes with enough jobs in the order."""

    def order(self, queues: Mapping[UserPath, list[_Waiting]]) -> Iterator[_PlacedEntry]:
        """Yield the first jobs of each scope, with the position of the user's node below the root.

        Args:
            queues: The jobs of each user, in the order of the user.
        """
        levels: dict[int, dict[UserPath, list[_Sequence]]] = {}
        for user, queue in queues.items():
            levels.setdefault(len(user), {})[user] = _sequences(user, queue)
        for depth in range(max(levels, default=0), 1, -1):
            for above, streams in self._turns(levels[depth]).items():
                levels.setdefault(depth - 1, {}).setdefault(above, []).extend(_merged(streams))
        placed = Counter[Scope]()
        streams = self._turns(levels.get(1, {})).get((), [])
        for turn in heapq.merge(*(turns for turns, _ in streams), key=itemgetter(0)):
            scopes = turn[1][0].scopes
            if not self._full.issuperset(scopes):
                yield turn
                placed.update(scopes)
                self._full.update(scope for scope in scopes if placed[scope] >= self._ahead)

    def _turns(
        self, level: Mapping[UserPath, list[_Sequence]]
    ) -> dict[UserPath, list[tuple[Iterator[_PlacedEntry], Counter[Scope]]]]:
        """Return the jobs of all nodes of a level by position, for each node above."""
        snapshots: dict[UserPath, SorterSnapshot[str]] = {}
        streams: dict[UserPath, list[tuple[Iterator[_PlacedEntry], Counter[Scope]]]] = {}
        for path, sequences in level.items():
            name, above = name_of(path), path[:-1]
            if above not in snapshots:
                snapshots[above] = SorterSnapshot(self._tree.tree.get(name).siblings)
            streams.setdefault(above, []).extend(
                (self._take_turns(_Turns(snapshots[above], name), sequence), sequence.scopes)
                for sequence in sequences
            )
        return streams

    def _take_turns(self, turns: "_Turns", sequence: _Sequence) -> Iterator[_PlacedEntry]:
        """Yield the jobs of a node of the tree by position: the node's position at the job's turn.

        Jobs behind enough other jobs in each of their scopes are omitted.

        Args:
            turns: The node's turns.
            sequence: The node's jobs.
        """
        remaining = Counter(sequence.scopes)
        delayed: list[tuple[Position, int, _Entry]] = []
        """Jobs with possible predecessors among the later jobs of the sequence."""
        for number, entry in enumerate(sequence.entries):
            if self._full.issuperset(remaining):
                break
            scopes = entry[0].scopes
            if turns.fewest(scopes) < self._ahead and not self._full.issuperset(scopes):
                heapq.heappush(delayed, (turns.position(scopes), number, entry))
                earliest = turns.earliest(remaining)
                while delayed and delayed[0][0] <= earliest:
                    position, _, first = heapq.heappop(delayed)
                    yield position, first
                turns.count(entry[0])
            for scope in scopes:
                remaining[scope] -= 1
                if not remaining[scope]:
                    del remaining[scope]
        while delayed:
            position, _, first = heapq.heappop(delayed)
            yield position, first


def _sequences(user: UserPath, queue: list[_Waiting]) -> list[_Sequence]:
    """Return the jobs of a user, in a sequence for each set of linked scopes."""
    links = _linked({waiting.scopes for waiting in queue})
    parts: dict[Scope, list[_Entry]] = {}
    for waiting in queue:
        parts.setdefault(links[waiting.scopes[0]], []).append((waiting, user))
    return [
        _Sequence(part, Counter(scope for waiting, _ in part for scope in waiting.scopes))
        for part in parts.values()
    ]


def _merged(
    streams: Iterable[tuple[Iterator[_PlacedEntry], Counter[Scope]]],
) -> Iterator[_Sequence]:
    """Yield the jobs of a node of the tree, whose children take turns.

    Args:
        streams: The jobs of each child by position, and the number of these jobs in each scope.
    """
    links = _linked({tuple(scopes) for _, scopes in streams})
    parts: dict[Scope, list[Iterator[_PlacedEntry]]] = {}
    scopes_of: dict[Scope, Counter[Scope]] = {}
    for turns, scopes in streams:
        part = links[next(iter(scopes))]
        parts.setdefault(part, []).append(turns)
        scopes_of.setdefault(part, Counter()).update(scopes)
    for part, merged in parts.items():
        entries = map(itemgetter(1), heapq.merge(*merged, key=itemgetter(0)))
        yield _Sequence(entries, scopes_of[part])


def _linked(groups: Iterable[Sequence[Element]]) -> dict[Element, Element]:
    """Return a representative for each element. Elements with a common group share theirs."""
    links: dict[Element, Element] = {}

    def root(element: Element) -> Element:
        while links[element] != element:
            links[element] = links[links[element]]
            element = links[element]
        return element

    for group in groups:
        for element in group:
            links.setdefault(element, element)
            links[root(element)] = root(group[0])
    return {element: root(element) for element in links}


class _Turn(NamedTuple):
    """A node's position at its next job, and the allocation for this position."""

    position: Position
    held: Quantities
    started: int
    """Number of earlier jobs. They count as started."""


class _Turns:
    """The next turn of a node of the tree in each scope.

    Args:
        snapshot: The order of the node and its siblings.
        name: The node's name.
    """

    def __init__(self, snapshot: SorterSnapshot[str], name: str) -> None:
        self._snapshot = snapshot
        self._name = name
        self._next: dict[Scope, _Turn] = {}
        """Turns after the first. Scopes with the same earlier jobs share an object."""

    @cached_property
    def _first(self) -> _Turn:
        position = self._snapshot.sort_key(self._name).position
        return _Turn(position, self._snapshot.held(self._name), 0)

    def position(self, scopes: Iterable[Scope]) -> Position:
        """Return the position of a job: the last of the positions for its scopes."""
        return max([self._next.get(scope, self._first).position for scope in scopes])

    def earliest(self, scopes: Iterable[Scope]) -> Position:
        """Return the first of the positions for scopes. No later job precedes this position."""
        return min([self._next.get(scope, self._first).position for scope in scopes])

    def fewest(self, scopes: Iterable[Scope]) -> int:
        """Return the number of earlier jobs in the scope with the fewest."""
        return min([self._next.get(scope, self._first).started for scope in scopes])

    def count(self, waiting: _Waiting) -> None:
        """Count a job as started in its scopes."""
        after: dict[int, _Turn] = {}
        for scope in waiting.scopes:
            turn = self._next.get(scope, self._first)
            if id(turn) not in after:
                held, started = turn.held + waiting.demand, turn.started + 1
                position = self._snapshot.holding(self._name, held, started).position
                after[id(turn)] = _Turn(max(turn.position, position), held, started)
            self._next[scope] = after[id(turn)]


def is_ready(reason: str) -> bool:
    """Return whether a job with this reason starts once it is first and resources are free."""
    return reason in READY


def can_start(reason: str) -> bool:
    """Return whether a job with this reason can start, or keeps its place in the order."""
    return is_ready(reason) or keeps_place(reason)


def keeps_place(reason: str) -> bool:
    """Return whether a job that cannot start with this reason keeps its place in the order."""
    return reason in _COMPETING or reason.startswith(_COMPETING_PREFIXES)


def _own_order(job: Job, base_priorities: Mapping[int, int]) -> tuple[float, ...]:
    time = job.submitted if job.eligible is None else job.eligible
    first_task = next(array_tasks(job.tasks), 0) if job.tasks else 0
    # Slurm's priorities are at least 1, so a user's `nice` may be hidden in them.
    base = max(base_priorities.get(job.number, job.priority), 1)
    return (-base, job.nice, time, job.array, first_task)


class _QueueEntries:
    """Reads pending jobs as entries of their users' queues.

    Args:
        nodes: All nodes.
        running_tasks: Number of running tasks of each array.
        tasks_ahead: Maximum number of pending tasks of an array in the order.
        passed_over: Number of jobs without a place, by reason.
    """

    def __init__(
        self,
        nodes: Iterable[ClusterNode],
        running_tasks: Mapping[int, int],
        tasks_ahead: int,
        passed_over: Counter[str],
    ) -> None:
        self._linked = _linked({node.partitions for node in nodes})
        self._running_tasks = running_tasks
        self._tasks_ahead = tasks_ahead
        self._passed_over = passed_over
        self._scopes: dict[_Key, tuple[Scope, ...]] = {}
        self._tasks_of_array: Counter[int] = Counter()

    def read(self, pending: Iterable[tuple[Job, UserPath]]) -> Iterator[tuple[_Waiting, UserPath]]:
        """Yield the jobs and tasks with a place; count the remaining jobs."""
        heterogeneous: dict[int, list[tuple[Job, UserPath]]] = {}
        for job, user in pending:
            if job.heterogeneous:
                heterogeneous.setdefault(job.heterogeneous, []).append((job, user))
            elif not can_start(job.reason):
                self._passed_over[job.reason] += 1
            else:
                scopes = self._scopes_of(job.partitions, job.quantities)
                ready = is_ready(job.reason)
                for target in self._targets(job):
                    yield _Waiting(job, (target,), job.quantities, ready, scopes), user
        for components in heterogeneous.values():
            job, user = min(components, key=lambda component: component[0].number)
            jobs = [component for component, _ in components]
            blocking = [component.reason for component in jobs if not can_start(component.reason)]
            if blocking:
                self._passed_over[blocking[0]] += 1
                continue
            demand = sum((component.quantities for component in jobs), start=Quantities())
            targets = tuple(str(component.number) for component in jobs)
            ready = all(is_ready(component.reason) for component in jobs)
            partitions = tuple(name for component in jobs for name in component.partitions)
            scopes = self._scopes_of(partitions, demand)
            yield _Waiting(job, targets, demand, ready, scopes), user

    def _targets(self, job: Job) -> Iterable[str]:
        """Return the job's number, or the next tasks of an array."""
        if not job.tasks:
            return (str(job.number),)
        most = self._tasks_ahead - self._tasks_of_array[job.array]
        limit = array_limit(job.tasks)
        if limit is not None:
            most = min(most, limit - self._running_tasks.get(job.array, 0))
        targets = [f"{job.array}_{task}" for task in islice(array_tasks(job.tasks), max(most, 0))]
        self._tasks_of_array[job.array] += len(targets)
        return targets

    def _scopes_of(self, partitions: tuple[str, ...], demand: Quantities) -> tuple[Scope, ...]:
        """Return the scopes of a job: each of its partitions with each of its special resources."""
        key = partitions, frozenset(demand) - _COMMON_KINDS
        scopes = self._scopes.get(key)
        if scopes is None:
            linked = dict.fromkeys(self._linked.get(name, name) for name in partitions)
            scopes = self._scopes[key] = tuple(
                (partition, kind) for partition in linked for kind in sorted(key[1]) or ("",)
            )
        return scopes
