"""Task shares of jobs, for Task Share Fairness (TSF).

A user's task share is n/h (TSF paper, Definition 7 and §V-D), with n running tasks. The user could
run h tasks alone on all nodes, without constraints. In the paper, all tasks of a user have one
size. A user of Slurm has jobs of many sizes, so each running job adds 1/h of its own size. For jobs
of one size, the sum is n/h. Pending jobs change no task share.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import TypeAlias

from allocator.fairness.policies.policy import Policy
from allocator.fairness.policies.stsf import Stsf
from allocator.fairness.policies.tsf import Tsf
from allocator.fairness.quantities import Quantities
from allocator.slurm.jobs import ClusterNode, quantities
from allocator.slurm_notation import number, trackable_resources

TASKS = "tasks"
"""The resource that task shares are amounts of. The cluster has a million of it."""
ALL_TASKS = Quantities({TASKS: 10**9})
Measure: TypeAlias = Callable[[str], Quantities]
"""Converts a job's trackable resources to quantities."""
_MOST_CACHED = 4096


def reason_against(policy: Policy) -> str | None:
    """Return why a policy cannot order the jobs of Slurm; None if it can."""
    if policy.per_machine:
        return f"{policy.name} ranks users per machine, and Slurm has one order"
    if policy.counts_tasks and not isinstance(policy, Tsf | Stsf):
        return (
            f"{policy.name} needs one task size and one set of machines for each user, but a user "
            "of Slurm has jobs of many kinds; choose tsf or stsf to count tasks"
        )
    return None


class TaskShareMeasure:
    """Adds the task share of a job to its quantities, as an amount of the resource `TASKS`.

    All configured nodes count, including nodes that are down, whatever partitions and features the
    job asks for. So a task share changes only with the configuration of the cluster.

    Args:
        excluded: Names of resources that do not count.
    """

    def __init__(self, excluded: Collection[str] = ()) -> None:
        self._excluded = frozenset(excluded)
        self._nodes: Counter[frozenset[tuple[str, int]]] = Counter()
        """The number of nodes by their resources in thousandths."""
        self._cached: dict[str, Quantities] = {}

    def set_nodes(self, nodes: Iterable[ClusterNode]) -> bool:
        """Replace the nodes of the cluster; return whether their resources have changed."""
        counted = Counter(frozenset(node.quantities.items()) for node in nodes)
        if counted == self._nodes:
            return False
        self._nodes = counted
        self._cached.clear()
        return True

    def measure(self, text: str) -> Quantities:
        """Convert trackable resources as `quantities` does, and add the job's task share.

        Args:
            text: A list such as `cpu=4,mem=16G,node=2`, or a text for no value.

        Raises:
            NotationError: The text is no such list.
        """
        known = self._cached.get(text)
        if known is None:
            if len(self._cached) >= _MOST_CACHED:
                self._cached.clear()
            nodes = number(trackable_resources(text).get("node", "1"), "nodes")
            resources = quantities(text)
            known = self._cached[text] = resources + self._share(resources, max(int(nodes), 1))
        return known

    def _share(self, resources: Quantities, nodes: int) -> Quantities:
        """Return the task share of a job that runs on some nodes at once."""
        demand = {name: amount for name, amount in resources.items() if name not in self._excluded}
        jobs = self._most_jobs(
            {name: -(-amount // nodes) for name, amount in demand.items()}, nodes
        )
        whole = ALL_TASKS[TASKS]
        if jobs:
            return Quantities({TASKS: max(round(whole / jobs), 1)})
        # The job's parts are unequal, or its resources unknown: its dominant share counts.
        totals = Counter[str]()
        for node, count in self._nodes.items():
            for name, amount in node:
                totals[name] += amount * count
        shares = [whole * amount // totals[name] for name, amount in demand.items() if totals[name]]
        return Quantities({TASKS: largest}) if (largest := max(shares, default=0)) else Quantities()

    def _most_jobs(self, part: dict[str, int], nodes: int) -> int:
        """Return how many jobs fit on the empty cluster, each with equal parts on some nodes.

        A node holds at most one part of each job. If f parts fit on a node, k jobs use at most
        min(f, k) of them. So k jobs of m parts fit if and only if these sum up to k·m or more.

        Args:
            part: The resources that a job needs on each of its nodes, in thousandths.
            nodes: The number of nodes of a job.
        """
        if not part:
            return 0
        fits = Counter[int]()
        for node, count in self._nodes.items():
            has = dict(node)
            fits[min(has.get(name, 0) // amount for name, amount in part.items())] += count
        least, most = 0, sum(fit * count for fit, count in fits.items()) // nodes
        while least < most:
            middle = (least + most + 1) // 2
            if sum(min(fit, middle) * count for fit, count in fits.items()) >= middle * nodes:
                least = middle
            else:
                most = middle - 1
        return least
