"""The order of pending jobs: as progressive filling would start them, task by task."""

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeAlias

from allocator.fairness.pool import Pool
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
_COMMON_KINDS = frozenset({"cpus", "mem", TASKS})
"""Resources that all jobs need."""
GroupKey: TypeAlias = tuple[frozenset[str], frozenset[str]]


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

    Users take turns: each time, the user that is first in the policy's order gets the next job of
    its queue, and from then on counts as if the job had started. Turns are separate for each group
    of jobs that compete for the same nodes and kinds of resources. A job that waits for a GPU thus
    does not hold back its user's other jobs. The groups are merged by the priorities of the users
    at each turn.

    Within a user's queue, Slurm's own order holds: by priority without the site factor, then by
    time, then by job id.

    Args:
        tree: The pools of users, with all allocations of the present. It is not changed.
        pending: Pending jobs and their users.
        running_tasks: Number of running tasks of each array.
        nodes: All nodes by name.
        base_priorities: Priorities without the site factor, by job id; jobs without an entry have
            their priority.
        ahead: Maximum number of jobs of one group in the order.
        tasks_ahead: Maximum number of pending tasks of one array in the order.
    """
    order = Order()
    queues: dict[GroupKey, dict[UserPath, list[_Waiting]]] = {}
    components = _linked_partitions(nodes.values())
    linked: dict[tuple[str, ...], frozenset[str]] = {}
    for waiting, user in _queue_entries(pending, running_tasks, tasks_ahead, order.passed_over):
        names = waiting.job.partitions
        partitions = linked.get(names)
        if partitions is None:
            partitions = linked[names] = frozenset(components.get(name, name) for name in names)
        kinds = frozenset(waiting.demand) - _COMMON_KINDS
        queues.setdefault((partitions, kinds), {}).setdefault(user, []).append(waiting)
    groups, pools = [], tree.pools
    for by_user in queues.values():
        for entries in by_user.values():
            entries.sort(key=lambda waiting: _own_order(waiting.job, base_priorities))
        groups.append(islice(_Turns(pools, by_user).take(), ahead))
    for _, waiting, user in heapq.merge(*groups, key=lambda turn: turn[0]):
        order.placed += [PlacedJob(target, waiting.job, user) for target in waiting.targets]
    return order


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


def _linked_partitions(nodes: Iterable[ClusterNode]) -> dict[str, str]:
    """Return for each partition one name that all partitions with common nodes share."""
    links: dict[str, str] = {}

    def root(name: str) -> str:
        while links[name] != name:
            links[name] = links[links[name]]
            name = links[name]
        return name

    for partitions in {node.partitions for node in nodes}:
        for name in partitions:
            links.setdefault(name, name)
            links[root(name)] = root(partitions[0])
    return {name: root(name) for name in links}


def _queue_entries(
    pending: Iterable[tuple[Job, UserPath]],
    running_tasks: Mapping[int, int],
    tasks_ahead: int,
    passed_over: Counter[str],
) -> Iterator[tuple[_Waiting, UserPath]]:
    """Yield the jobs and tasks that can start or keep a place; count the others."""
    heterogeneous: dict[int, list[tuple[Job, UserPath]]] = {}
    tasks_of_array: Counter[int] = Counter()
    for job, user in pending:
        if job.heterogeneous:
            heterogeneous.setdefault(job.heterogeneous, []).append((job, user))
        elif not can_start(job.reason):
            passed_over[job.reason] += 1
        elif not job.tasks:
            target = str(job.number)
            yield _Waiting(job, (target,), job.quantities, is_ready(job.reason)), user
        else:
            limit = array_limit(job.tasks)
            most = tasks_ahead - tasks_of_array[job.array]
            if limit is not None:
                most = min(most, limit - running_tasks.get(job.array, 0))
            for task in islice(array_tasks(job.tasks), max(most, 0)):
                tasks_of_array[job.array] += 1
                target = f"{job.array}_{task}"
                yield _Waiting(job, (target,), job.quantities, is_ready(job.reason)), user
    for components in heterogeneous.values():
        job, user = min(components, key=lambda component: component[0].number)
        blocking = [
            component.reason for component, _ in components if not can_start(component.reason)
        ]
        if blocking:
            passed_over[blocking[0]] += 1
            continue
        demand = sum((component.quantities for component, _ in components), start=Quantities())
        targets = tuple(str(component.number) for component, _ in components)
        ready = all(is_ready(component.reason) for component, _ in components)
        yield _Waiting(job, targets, demand, ready), user


class _Turns:
    """The turns of the users of one group of jobs.

    Args:
        pools: The pools of users, by the node above the users.
        queues: The jobs of each user, in the order in which the user wants them.
    """

    def __init__(
        self, pools: Mapping[UserPath, Pool[str]], queues: Mapping[UserPath, list[_Waiting]]
    ) -> None:
        self._queues = {user: deque(entries) for user, entries in queues.items()}
        self._snapshots = {path: SorterSnapshot(pool) for path, pool in pools.items()}
        self._heaps: dict[UserPath, list[tuple[Position, str]]] = {}
        for user in queues:
            for depth in range(len(user)):
                above, name = user[:depth], user[depth]
                heap = self._heaps.setdefault(above, [])
                if depth == len(user) - 1 or (*above, name) not in self._heaps:
                    heap.append((self._position(above, name), name))
        for heap in self._heaps.values():
            heapq.heapify(heap)

    def take(self) -> Iterator[tuple[Position, _Waiting, UserPath]]:
        """Yield the job of each turn, with the position at which its user was."""
        while self._heaps and self._heaps[()]:
            user, position = self._first()
            queue = self._queues[user]
            waiting = queue.popleft()
            yield position, waiting, user
            if waiting.ready:
                for depth in range(len(user)):
                    snapshot, node = self._snapshots[user[:depth]], name_of(user[: depth + 1])
                    snapshot.set_held(node, snapshot.held(node) + waiting.demand, 1)
            self._put_back(user)

    def _first(self) -> tuple[UserPath, Position]:
        """Remove the first child from the heap of each level, and return the path and position."""
        user: UserPath = ()
        positions: list[object] = []
        while not user or user not in self._queues or user in self._heaps:
            position, name = heapq.heappop(self._heaps[user])
            positions += position[:-1]
            user = (*user, name)
        return user, tuple(positions)

    def _put_back(self, user: UserPath) -> None:
        """Sort the user and the nodes above it in again, as far as they have pending jobs."""
        for depth in range(len(user) - 1, -1, -1):
            above, name = user[:depth], user[depth]
            node = (*above, name)
            if self._queues[user] if node == user else self._heaps.get(node):
                heapq.heappush(self._heaps[above], (self._position(above, name), name))

    def _position(self, above: UserPath, name: str) -> Position:
        return self._snapshots[above].sort_key(name_of((*above, name))).position
