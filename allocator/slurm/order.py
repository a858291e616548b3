"""The order of pending jobs: as progressive filling would start them, task by task."""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from operator import attrgetter, itemgetter
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
_KEPT_KINDS = frozenset({"cpus", "gpus"})
"""Resources that an exclusive job keeps from other users."""
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
    user: UserPath
    target: str
    demand: Quantities
    ready: bool
    scopes: tuple[Scope, ...]
    own_order: tuple[float, ...]
    """Orders jobs of one user with the same priority: nice, time, array, task."""
    later_components: tuple[Job, ...] = ()
    """The user's further components of a heterogeneous job."""
    users: int = 1
    """Number of users of a heterogeneous job. Each has an entry for its own components."""

    @property
    def size(self) -> int:
        """The number of places: one for each component, because each gets a site factor."""
        return 1 + len(self.later_components)

    def placed(self) -> list[PlacedJob]:
        """Return the job, or all of the user's components, with their targets."""
        later = [PlacedJob(job.target, job, self.user) for job in self.later_components]
        return [PlacedJob(self.target, self.job, self.user), *later]


_Numbers: TypeAlias = tuple[int, ...]
"""For each scope of a job: the number of its first place among its user's places of the scope, from
1."""
_PlacedEntry: TypeAlias = tuple[Position, _Waiting, _Numbers]
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
    contested: bool = False,
    reader: "QueueReader | None" = None,
) -> Order:
    """Return the order in which pending jobs should start.

    Users take turns: each time, the first user in the policy's order gets the next job of its
    queue, and from then on counts as if the job had started. A job counts for its user's later jobs
    with a common scope: partitions with common nodes, and special resources. A job that waits for a
    GPU, or for other nodes, therefore does not hold back other jobs of its user. A job has a place
    for each of its scopes, and gets the last of these places.

    The components of a heterogeneous job take a turn of each of their users, with the components'
    own demands. The job gets the last of these turns.

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
        ahead: Maximum number of ready jobs of one scope in the order, apart from the additional
            places of `_Places`. Jobs that are not ready are in the order if they would have a place
            with all jobs ready, and only the first ones of each user.
        tasks_ahead: Maximum number of pending tasks of an array in the order.
        contested: Whether each user has places of its own, because jobs without a place start
            before jobs with a place.
        reader: Remembers the queue entries of the reading before.
    """
    order = Order()
    queues = (reader or QueueReader()).read(
        pending, nodes.values(), running_tasks, tasks_ahead, order.passed_over
    )
    for queue in queues.values():
        queue.sort(key=lambda waiting: _place_in_queue(waiting, base_priorities))
    ready = {
        user: _with_shared_nodes([waiting for waiting in queue if waiting.ready])
        for user, queue in queues.items()
    }
    turns = [_Merge(tree, _Places(ahead, contested=contested)).order(ready)]
    if any(len(ready[user]) < len(queue) for user, queue in queues.items()):
        shared = {user: _with_shared_nodes(queue) for user, queue in queues.items()}
        everything = _Merge(tree, _Places(ahead, contested=contested)).order(shared)
        turns.insert(0, _few_not_ready(everything))
    parts: dict[int, list[PlacedJob]] = {}
    missing: dict[int, int] = {}
    for _, waiting, _ in heapq.merge(*turns, key=itemgetter(0)):
        if waiting.users == 1:
            order.placed += waiting.placed()
            continue
        leader = waiting.job.heterogeneous
        parts.setdefault(leader, []).extend(waiting.placed())
        missing[leader] = missing.get(leader, waiting.users) - 1
        if not missing[leader]:
            order.placed += parts[leader]
    return order


def _few_not_ready(turns: Iterable[_PlacedEntry]) -> Iterator[_PlacedEntry]:
    """Yield the first jobs of each user without `is_ready`, out of all jobs."""
    numbers = Counter[UserPath]()
    for turn in turns:
        waiting = turn[1]
        if not waiting.ready and numbers[waiting.user] < _MOST_NOT_READY:
            numbers[waiting.user] += waiting.size
            yield turn


class _Sequence(NamedTuple):
    """Jobs of a node of the tree, in the order of the node."""

    entries: Iterable[tuple[_Waiting, _Numbers]]
    scopes: Counter[Scope]
    """Number of these jobs in each scope."""
    of_user: bool = False
    """Whether the node is a user, so that the numbers rise."""


class _Places:
    """The places in each scope.

    A scope has `ahead` places. At most half of them are for one user: if a user has more places,
    the further places are additional. In a contested order, `ahead` additional places are for the
    first jobs of each user, up to half of `ahead` from each user; then `ahead` places up to a
    quarter, and so on. At last each user has a place for its first job. Users whose ready jobs take
    all places, but cannot start, therefore leave places for all others.

    Args:
        ahead: Number of places of a scope, at least 1.
        contested: Whether each user has places of its own.
    """

    def __init__(self, ahead: int, *, contested: bool) -> None:
        self._ahead = ahead
        self._quotas = [ahead, (ahead + 1) // 2]
        """Maximum numbers of jobs from one user."""
        while self._quotas[-1] > 1:
            self._quotas.append((self._quotas[-1] + 1) // 2)
        self._contested = contested
        self._levels: dict[Scope, int] = {}
        """The present quota, as a place in `_quotas`; without an entry, the first."""
        self._most: dict[Scope, int] = {}
        """The present maximum from one user; without an entry, `ahead`."""
        self._taken: dict[Scope, list[int]] = {}
        """Numbers of jobs in the order, by the last quota that contains each."""

    def most(self, scope: Scope) -> int:
        """Return the maximum number of jobs of a scope from one user."""
        return self._most.get(scope, self._ahead)

    def include(self, scopes: Sequence[Scope], numbers: _Numbers) -> bool:
        """Return whether a job has a place in one of its scopes."""
        for scope, number in zip(scopes, numbers, strict=True):
            if number <= self._most.get(scope, self._ahead):
                return True
        return False

    def take(self, scopes: Sequence[Scope], numbers: _Numbers, size: int) -> None:
        """Count the places of a job of the order."""
        quotas = self._quotas
        for scope, number in zip(scopes, numbers, strict=True):
            taken = self._taken.setdefault(scope, [0] * len(quotas))
            for place in range(number, number + size):
                last = 0
                while last + 1 < len(quotas) and place <= quotas[last + 1]:
                    last += 1
                taken[last] += 1
            level = self._levels.get(scope, 0)
            if level + 1 < len(quotas) and sum(taken[level + 1 :]) >= self._ahead:
                self._levels[scope] = level + 1
                self._most[scope] = quotas[level + 1] if self._contested else 0


class _Merge:
    """Merges the jobs of all users into a single order, from the lowest level of the tree upwards.

    A turn of a user leads to a turn of each node above the user. All jobs count as started.

    Args:
        tree: The pools of users.
        places: The places in each scope.
    """

    def __init__(self, tree: ShareTree, places: _Places) -> None:
        self._tree = tree
        self._places = places

    def order(self, queues: Mapping[UserPath, list[_Waiting]]) -> Iterator[_PlacedEntry]:
        """Yield the jobs with a place, with the position of the user's node below the root.

        Args:
            queues: The jobs of each user, in the order of the user.
        """
        levels: dict[int, dict[UserPath, list[_Sequence]]] = {}
        for user, queue in queues.items():
            levels.setdefault(len(user), {})[user] = _sequences(queue)
        for depth in range(max(levels, default=0), 1, -1):
            for above, streams in self._turns(levels[depth]).items():
                levels.setdefault(depth - 1, {}).setdefault(above, []).extend(_merged(streams))
        places = self._places
        streams = self._turns(levels.get(1, {})).get((), [])
        for turn in heapq.merge(*(turns for turns, _ in streams), key=itemgetter(0)):
            _, waiting, numbers = turn
            if places.include(waiting.scopes, numbers):
                yield turn
                places.take(waiting.scopes, numbers, waiting.size)

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

        Jobs without a place are omitted.

        Args:
            turns: The node's turns.
            sequence: The node's jobs.
        """
        remaining = dict(sequence.scopes)
        places = self._places
        delayed: list[tuple[Position, int, _Waiting, _Numbers]] = []
        """Jobs with possible predecessors among the later jobs of the sequence."""
        for count, (entry, numbers) in enumerate(sequence.entries):
            scopes = entry.scopes
            if places.include(scopes, numbers):
                heapq.heappush(delayed, (turns.position(scopes), count, entry, numbers))
                earliest = turns.earliest(remaining)
                while delayed and delayed[0][0] <= earliest:
                    position, _, first, first_numbers = heapq.heappop(delayed)
                    yield position, first, first_numbers
                turns.count(entry)
            elif sequence.of_user and all(
                turns.started(scope) >= places.most(scope) for scope in remaining
            ):
                break
            for scope in scopes:
                remaining[scope] -= 1
                if not remaining[scope]:
                    del remaining[scope]
        while delayed:
            position, _, first, first_numbers = heapq.heappop(delayed)
            yield position, first, first_numbers


def _sequences(queue: list[_Waiting]) -> list[_Sequence]:
    """Return the jobs of a user, in a sequence for each set of linked scopes."""
    numbers = Counter(map(attrgetter("scopes"), queue))
    links = _linked(numbers)
    counts: dict[Scope, Counter[Scope]] = {}
    for scopes, number in numbers.items():
        counts.setdefault(links[scopes[0]], Counter()).update(dict.fromkeys(scopes, number))
    if len(counts) == 1:
        return [_Sequence(_numbered(queue), count, of_user=True) for count in counts.values()]
    parts: dict[Scope, list[_Waiting]] = {part: [] for part in counts}
    for waiting in queue:
        parts[links[waiting.scopes[0]]].append(waiting)
    return [
        _Sequence(_numbered(parts[part]), count, of_user=True) for part, count in counts.items()
    ]


def _numbered(queue: Iterable[_Waiting]) -> Iterator[tuple[_Waiting, _Numbers]]:
    """Yield the jobs of a user with their numbers in each of their scopes."""
    places: dict[Scope, int] = {}
    """Number of places before the next job."""
    for waiting in queue:
        numbers = tuple([places.get(scope, 0) + 1 for scope in waiting.scopes])
        size = waiting.size
        for scope, number in zip(waiting.scopes, numbers, strict=True):
            places[scope] = number + size - 1
        yield waiting, numbers


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
        entries = map(itemgetter(1, 2), heapq.merge(*merged, key=itemgetter(0)))
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

    def started(self, scope: Scope) -> int:
        """Return the number of earlier jobs in a scope."""
        turn = self._next.get(scope)
        return 0 if turn is None else turn.started

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


def _next_tasks(entry: _Waiting, most: int, running: int) -> list[_Waiting]:
    """Return the entries of the next tasks of an array.

    Args:
        entry: The entry of the array's record.
        most: Maximum number of pending tasks in the order.
        running: Number of running tasks of the array.
    """
    job = entry.job
    limit = array_limit(job.tasks)
    if limit is not None:
        most = min(most, limit - running)
    return [
        entry._replace(target=f"{job.array}_{task}")
        for task in islice(array_tasks(job.tasks), max(most, 0))
    ]


def _place_in_queue(
    waiting: _Waiting, base_priorities: Mapping[int, int]
) -> tuple[int, tuple[float, ...]]:
    job = waiting.job
    priority = base_priorities.get(job.number, job.priority)
    for component in waiting.later_components:  # the job is as urgent as its last component
        priority = min(priority, base_priorities.get(component.number, component.priority))
    # Slurm's priorities are at least 1, so a user's `nice` may be hidden in them.
    return -max(priority, 1), waiting.own_order


def _with_shared_nodes(queue: list[_Waiting]) -> list[_Waiting]:
    """Return the queue of a user, with the demands of exclusive jobs that can share nodes.

    An exclusive job counts with its whole nodes. Further exclusive jobs that fit beside it do not
    count their cores and GPUs once more.
    """
    rooms: dict[tuple[object, ...], dict[str, int]] = {}
    shared = []
    for waiting in queue:
        job = waiting.job
        if not job.spare or job.heterogeneous:
            shared.append(waiting)
            continue
        own = {
            name: amount - job.spare.get(name, 0) if name in _KEPT_KINDS else amount
            for name, amount in job.quantities.items()
            if name in _KEPT_KINDS or name == "mem"
        }
        key = job.user, job.partitions, job.placement
        room = rooms.get(key, {})
        if all(amount <= room.get(name, 0) for name, amount in own.items()):
            rooms[key] = {name: amount - own.get(name, 0) for name, amount in room.items()}
            counted = {
                name: amount
                for name, amount in waiting.demand.items()
                if name not in _KEPT_KINDS and name != TASKS
            }
            shared.append(waiting._replace(demand=Quantities(counted)))
        else:
            rooms[key] = dict(job.spare)
            shared.append(waiting)
    return shared


def _own_order(job: Job) -> tuple[float, ...]:
    time = job.submitted if job.eligible is None else job.eligible
    first_task = next(array_tasks(job.tasks), 0) if job.tasks else 0
    return job.nice, time, job.array, first_task


class QueueReader:
    """Reads pending jobs as entries of their users' queues.

    Most jobs are the same at each reading. A job that was read before yields the same entry. Only
    changed jobs, arrays and heterogeneous jobs cost time.
    """

    def __init__(self) -> None:
        self._links: dict[str, str] = {}
        """Partition → representative of all partitions with common nodes."""
        self._scopes: dict[_Key, tuple[Scope, ...]] = {}
        """Scopes of the jobs that have changed since the reading before."""
        self._entries: dict[int, _Waiting] = {}
        """Entries of the latest reading by job id, without heterogeneous jobs."""

    def read(
        self,
        pending: Iterable[tuple[Job, UserPath]],
        nodes: Iterable[ClusterNode],
        running_tasks: Mapping[int, int],
        tasks_ahead: int,
        passed_over: Counter[str],
    ) -> dict[UserPath, list[_Waiting]]:
        """Return the jobs and tasks with a place by user, and count the remaining jobs.

        Args:
            pending: Pending jobs and their users.
            nodes: All nodes.
            running_tasks: Number of running tasks of each array.
            tasks_ahead: Maximum number of pending tasks of an array in the order.
            passed_over: Number of jobs without a place, by reason. This method adds to it.
        """
        links = _linked({node.partitions for node in nodes})
        former = self._entries if links == self._links else {}
        self._links, self._scopes, self._entries = links, {}, {}
        queues: dict[UserPath, list[_Waiting]] = {}
        heterogeneous: dict[int, list[tuple[Job, UserPath]]] = {}
        tasks_of_array = Counter[int]()
        for job, user in pending:
            entry = former.get(job.number)
            if entry is None or entry.job is not job or entry.user != user:
                if job.heterogeneous:
                    heterogeneous.setdefault(job.heterogeneous, []).append((job, user))
                    continue
                if not can_start(job.reason):
                    passed_over[job.reason] += 1
                    continue
                entry = self._entry((job,), user)
            self._entries[job.number] = entry
            if not job.tasks:
                queues.setdefault(user, []).append(entry)
                continue
            most = tasks_ahead - tasks_of_array[job.array]
            tasks = _next_tasks(entry, most, running_tasks.get(job.array, 0))
            if tasks:
                queues.setdefault(user, []).extend(tasks)
                tasks_of_array[job.array] += len(tasks)
        for components in heterogeneous.values():
            for entry in self._entries_of_components(components, passed_over):
                queues.setdefault(entry.user, []).append(entry)
        return queues

    def _entries_of_components(
        self, components: Sequence[tuple[Job, UserPath]], passed_over: Counter[str]
    ) -> list[_Waiting]:
        """Return the entries of a heterogeneous job: one for the components of each user.

        Args:
            components: All components and their users.
            passed_over: As in `read`.
        """
        blocking = [job.reason for job, _ in components if not can_start(job.reason)]
        if blocking:
            passed_over[blocking[0]] += 1
            return []
        ready = all(is_ready(job.reason) for job, _ in components)
        parts: dict[UserPath, list[Job]] = {}
        for job, user in components:
            parts.setdefault(user, []).append(job)
        return [
            self._entry(jobs, user)._replace(ready=ready, users=len(parts))
            for user, jobs in parts.items()
        ]

    def _entry(self, components: Sequence[Job], user: UserPath) -> _Waiting:
        """Return the entry of a job, or of a user's components of a heterogeneous job."""
        first, *later = sorted(components, key=attrgetter("number"))
        demand = sum((job.quantities for job in components), start=Quantities())
        partitions = tuple(name for job in components for name in job.partitions)
        return _Waiting(
            first,
            user,
            first.target,
            demand,
            ready=is_ready(first.reason),
            scopes=self._scopes_of(partitions, demand),
            own_order=_own_order(first),
            later_components=tuple(later),
        )

    def _scopes_of(self, partitions: tuple[str, ...], demand: Quantities) -> tuple[Scope, ...]:
        """Return the scopes of a job: each of its partitions with each of its special resources."""
        key = partitions, frozenset(demand) - _COMMON_KINDS
        scopes = self._scopes.get(key)
        if scopes is None:
            linked = dict.fromkeys(self._links.get(name, name) for name in partitions)
            scopes = self._scopes[key] = tuple(
                (partition, kind) for partition in linked for kind in sorted(key[1]) or ("",)
            )
        return scopes
