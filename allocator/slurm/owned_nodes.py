"""Idle resources of nodes that jobs with `--exclusive=user` keep for one user.

Slurm allocates to such a job only the requested cores. But while the job runs, no job of
another user starts on its nodes. The idle cores and GPUs of these nodes count for the user, too.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from allocator.fairness.quantities import Quantities
from allocator.slurm.jobs import ClusterNode, Job, JobKey
from allocator.slurm.timelines import UserPath
from allocator.slurm_notation import node_names

_KINDS = ("cpus", "gpus")
"""Resources that an owner of nodes keeps from other users. Memory counts as requested."""


class PresentJob(NamedTuple):
    """A running job, as far as it matters for its nodes."""

    started: float
    """The start in seconds since 1970."""
    nodes: str
    """The nodes in Slurm's notation."""
    parts: tuple[int, ...]
    """Thousandths of each of `_KINDS` on each node. Slurm tells only the sum over all nodes."""
    user: UserPath
    exclusive: bool
    """Whether no other user's jobs may start on the nodes."""


class NodeEvent(NamedTuple):
    """A job starts or ends on its nodes."""

    time: float
    """Seconds since 1970."""
    key: JobKey
    job: PresentJob
    starts: bool


class _OwnedNode:
    """Jobs on one node."""

    __slots__ = ("owners", "used")

    def __init__(self) -> None:
        self.used = [0] * len(_KINDS)
        """Allocated thousandths of each of `_KINDS`."""
        self.owners: dict[JobKey, UserPath] = {}
        """Jobs that keep other users away. The node's idle resources count for the first job."""


class OwnedNodes:
    """Follows the starts and ends of jobs, and sums up the idle resources of owned nodes by user.

    A start or an end costs as many steps as the job has nodes.
    """

    def __init__(self) -> None:
        self.jobs: dict[JobKey, PresentJob] = {}
        """The running jobs; empty until a job keeps other users away."""
        self._sizes: dict[str, tuple[int, ...]] = {}
        self._totals = [0] * len(_KINDS)
        self._nodes: dict[str, _OwnedNode] = {}
        self._idle: dict[UserPath, list[int]] = {}

    def set_nodes(self, nodes: Iterable[ClusterNode]) -> set[UserPath]:
        """Replace the nodes of the cluster; return the users with other idle resources."""
        sizes = {
            node.name: tuple(node.quantities.get(kind, 0) for kind in _KINDS)
            for node in nodes
            if node.counts
        }
        if sizes == self._sizes:
            return set()
        users = set(self._idle)
        self._sizes = sizes
        self._totals = [sum(amounts) for amounts in zip(*sizes.values(), strict=True)]
        self._idle = {}
        for name, node in self._nodes.items():
            self._count(name, node, 1)
        return users | set(self._idle)

    def apply(self, events: Iterable[NodeEvent]) -> set[UserPath]:
        """Apply starts and ends; return the users whose idle resources may have changed."""
        users = set()
        for _, key, job, starts in events:
            if starts:
                self.jobs[key] = job
            else:
                self.jobs.pop(key, None)
            for name in node_names(job.nodes):
                node = self._nodes.setdefault(name, _OwnedNode())
                users |= self._count(name, node, -1)
                sign = 1 if starts else -1
                node.used = [
                    used + sign * part for used, part in zip(node.used, job.parts, strict=True)
                ]
                if starts and job.exclusive:
                    node.owners[key] = job.user
                elif not starts:
                    node.owners.pop(key, None)
                users |= self._count(name, node, 1)
                if not any(node.used) and not node.owners:
                    del self._nodes[name]
        return users

    def idle(self, user: UserPath) -> Quantities:
        """Return the idle resources of the user's nodes."""
        amounts = self._idle.get(user, [])
        return Quantities(
            {kind: amount for kind, amount in zip(_KINDS, amounts, strict=False) if amount}
        )

    def share(self, resources: Mapping[str, int]) -> tuple[int, int]:
        """Return the largest share of the cluster's resources, as numerator and denominator."""
        shares = [
            (resources.get(kind, 0), total)
            for kind, total in zip(_KINDS, self._totals, strict=True)
            if total
        ]
        return max(shares, key=lambda share: share[0] / share[1], default=(0, 1))

    def _count(self, name: str, node: _OwnedNode, sign: int) -> set[UserPath]:
        """Add a node's idle resources to its owner's, or subtract them; return the owner."""
        user = next(iter(node.owners.values()), None)
        size = self._sizes.get(name)
        if user is None or size is None:
            return set()
        idle = self._idle.setdefault(user, [0] * len(_KINDS))
        for place, (total, used) in enumerate(zip(size, node.used, strict=True)):
            idle[place] += sign * max(total - used, 0)
        if not any(idle):
            del self._idle[user]
        return {user}


def present_job(job: Job, user: UserPath) -> PresentJob | None:
    """Return a job as it is on its nodes; None for a job without a start or nodes."""
    if job.started is None or not job.nodes:
        return None
    count = max(len(node_names(job.nodes)), 1)
    parts = tuple(job.quantities.get(kind, 0) // count for kind in _KINDS)
    return PresentJob(job.started, job.nodes, parts, user, job.exclusive)
