"""The adapter for Slurm: what the shared parts of the service need to know about one Slurm."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from typing_extensions import override

from allocator.contract import operator_pb2 as operator
from allocator.cooperative import Cooperative, run_to_completion
from allocator.fairness.metering import AccountCheckpoint, Meter
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.slurm.jobs import Job
from allocator.slurm.order import can_start
from allocator.slurm.reasons import ReasonGroup, group_of
from allocator.slurm.shares import ShareTree, Users, name_of
from allocator.slurm.state import ClusterState, PendingJob
from allocator.slurm.task_shares import TASKS
from allocator.slurm.timelines import UserPath
from allocator.slurm.wording import SlurmWording
from allocator.users.adapter import ClusterCounts, MachineSummary, SchedulerAdapter
from allocator.users.memory import MemoryChanges
from allocator.users.metering import hand_over_meter, write_checkpoints
from allocator.users.orders import LONGEST_BOOST, InvalidOrder, carry_out, named_users

MOST_DEMANDS = 5
"""Maximum number of different demands of one user, for displays."""
LONGEST_NAME = 4096
"""Maximum length of a user's name in bytes: a path of 16 of Slurm's longest names."""
_JOBS_A_STEP = 200
"""Jobs examined in one cooperative step."""


@dataclass(frozen=True, slots=True)
class JobWait:
    """The reason why one job is pending."""

    job: Job
    reason: ReasonGroup

    @property
    def client(self) -> int:
        """The job's id."""
        return self.job.number

    @property
    def idle(self) -> bool:
        """Whether the job holds no resources: always, because it is pending."""
        return True

    @property
    def lacking_resources(self) -> frozenset[str]:
        """Empty, because Slurm does not report for which resources a job waits."""
        return frozenset()

    @property
    def is_reported(self) -> bool:
        """Whether the job can never start unless a person acts."""
        return self.reason == "invalid"


class SlurmAdapter(SchedulerAdapter):
    """Shows the present state of one Slurm, and carries out operators' orders.

    Displays read the *present* tree, which has all changes that are known. The memory, the accounts
    and the shadow policies follow the *settled* tree, whose changes are final.

    Args:
        state: The state, which a bridge keeps up to date.
        meter: Meter of the users' accounts; None without accounting.
    """

    role_meter = None

    def __init__(self, state: ClusterState, meter: Meter | None = None) -> None:
        self.wording = SlurmWording(self)
        self._state = state
        self._meter = meter
        self._readings = 0
        self._orders = 0
        self._present: ShareTree = state.present()
        self._pending: dict[int, PendingJob] = {}
        if meter is not None:
            run_to_completion(hand_over_meter(meter, None, state.settled.tree))

    def show(self, present: ShareTree) -> None:
        """Show what a reading of Slurm has changed.

        Args:
            present: The users with all changes that are known.
        """
        self._readings += 1
        self._present = present
        self._pending = {pending.job.number: pending for pending in self._state.pending}

    def follow(self, former: Users) -> None:
        """Follow the present settled users, if the state has begun again with new users.

        Args:
            former: The settled users until then.
        """
        settled = self._state.settled.tree
        if settled is not former:
            if self._meter is not None:
                run_to_completion(hand_over_meter(self._meter, former, settled))
            self.show(self._state.present())

    @property
    @override
    def _users(self) -> Users:
        return self._present.tree

    @property
    @override
    def now(self) -> float:
        return self._present.now

    @property
    @override
    def settled_at(self) -> float:
        return self._state.settled.now

    @property
    @override
    def followed_pool(self) -> Pool[str]:
        return self._state.settled.tree.pool

    @property
    @override
    def is_tree(self) -> bool:
        return self._state.settings.has_tree

    @property
    @override
    def declared_users(self) -> frozenset[str]:
        return frozenset(user.name for user in self._state.settings.declared)

    @property
    @override
    def has_followed(self) -> bool:
        return self._readings > 0

    @property
    @override
    def revision(self) -> tuple[int, int]:
        return self._readings, self._orders

    @property
    @override
    def longest_name(self) -> int:
        return LONGEST_NAME

    @property
    @override
    def messages(self) -> int:
        return self._readings + self._orders

    @override
    def counts(self) -> ClusterCounts:
        jobs = self._state.running + len(self._state.pending)
        return ClusterCounts(len(self._state.nodes), jobs)

    @override
    def demands(self) -> dict[str, list[Quantities]]:
        """Return the different demands of pending jobs, at most `MOST_DEMANDS` for each user."""
        demands: dict[str, list[Quantities]] = {}
        for job, path in self._pending.values():
            known = demands.setdefault(name_of(path), [])
            if len(known) < MOST_DEMANDS and job.quantities not in known:
                known.append(job.quantities)
        return demands

    @override
    def constraints(self) -> dict[str, dict[str, None]]:
        """Return the partitions in which each user's pending jobs may run."""
        partitions: dict[str, dict[str, None]] = {}
        for job, path in self._pending.values():
            known = partitions.setdefault(name_of(path), {})
            known.update(dict.fromkeys(f"partition {name}" for name in job.partitions))
        return partitions

    @override
    def offered(self) -> None:
        """Return None: Slurm makes no offers."""

    @override
    def machine_summaries(self) -> Iterator[MachineSummary]:
        """Yield nothing, because the adapter does not read which nodes a job holds."""
        yield from ()

    @override
    def clients(self, user: str | None = None) -> list[int]:
        """Return the ids of the pending jobs of all users, or of one user and its descendants."""
        return [
            number
            for number, (_, path) in self._pending.items()
            if user is None or user in _names(path)
        ]

    @override
    def users_of(self, client: int) -> list[str]:
        pending = self._pending.get(client)
        return [] if pending is None else list(_names(pending.user))

    @override
    def survey(self) -> "Cooperative[JobSurvey]":
        yield from ()
        return JobSurvey(self._state, self._present, dict(self._pending))

    @override
    def could_be_served(self, user: str) -> bool:
        """Return whether a pending job of the user could start as the first job."""
        return any(
            can_start(job.reason) and user in _names(path) for job, path in self._pending.values()
        )

    @override
    def changes_in_steps(self) -> Cooperative[MemoryChanges]:
        return self._state.settled.tree.changes_in_steps()

    @override
    def close_accounts(self) -> Cooperative[dict[str, AccountCheckpoint]]:
        users = self._state.settled.tree
        users.count_capacity()
        checkpoints = {} if self._meter is None else self._meter.close()
        yield from write_checkpoints(users, checkpoints)
        return checkpoints

    @override
    def order(self, order: operator.Order) -> None:
        """Carry out an operator's command on the settled users, and show its effect at once.

        A boost begins at the settled time, and ends when it should by the present time.

        Raises:
            InvalidOrder: The command is malformed, or names unknown users or resources.
        """
        self._orders += 1
        settled = self._state.settled
        carried_out = operator.Order()
        carried_out.CopyFrom(order)
        change = carried_out.set_weight
        if order.WhichOneof("order") == "set_weight" and 0.0 < change.seconds <= LONGEST_BOOST:
            change.seconds = min(change.seconds + self.now - settled.now, LONGEST_BOOST)
        named = [name for name in named_users(order) if name in self._present.tree]
        if order.WhichOneof("order") == "forget_users":
            self._require_without_jobs(named)
        for name in named:
            settled.add(self._present.path_of(name))
        carry_out(carried_out, settled.tree, self._state.settings.policy)
        settled.tree.update_entitlements()
        if order.WhichOneof("order") == "forget_users":
            self._state.forget(
                self._present.path_of(name)
                for name in self._present.tree.names()
                if name not in settled.tree
            )
        self._present = self._state.present()

    def _require_without_jobs(self, users: Iterable[str]) -> None:
        """Check that no job counts for a user, or for a user below.

        Raises:
            InvalidOrder: A user has jobs.
        """
        busy = {name for path in self._state.busy_users() for name in _names(path)}
        for user in users:
            if user in busy:
                raise InvalidOrder(
                    f"user {user!r} has jobs, so it would come back at once; wait until the jobs "
                    "have ended and Slurm has forgotten them, or set its commitments to zero with "
                    "`commitments reset`"
                )

    def pending_by_group(self, user: str) -> Counter[ReasonGroup]:
        """Return the number of pending records of a user's jobs, by the group of their reasons."""
        return Counter(
            group_of(job.reason) for job, path in self._pending.values() if user in _names(path)
        )


class JobSurvey:
    """The pending jobs at one time.

    Args:
        state: The state, of which nodes and capacity are read at once.
        present: The users at this time.
        pending: Pending jobs by id.
    """

    def __init__(
        self, state: ClusterState, present: ShareTree, pending: dict[int, PendingJob]
    ) -> None:
        self._pending = pending
        held, capacity = present.tree.pool.held(), present.capacity
        self._free = Quantities(
            {name: max(amount - held[name], 0) for name, amount in capacity.items()}
        )
        self._nodes = [node.quantities for node in state.nodes.values() if node.counts]

    def explain(self, client: int, *, closely: bool = False) -> Cooperative[JobWait | None]:  # noqa: ARG002
        """Return why a job is pending; None if it is not pending any more."""
        yield from ()
        pending = self._pending.get(client)
        return None if pending is None else JobWait(pending.job, group_of(pending.job.reason))

    def passed_over(self, *, declining: bool = False) -> Cooperative[frozenset[str]]:  # noqa: ARG002
        """Return the users, at all levels, whose pending jobs cannot start whatever the order."""
        waiting, servable = set[str](), set[str]()
        for number, (job, path) in enumerate(self._pending.values()):
            if number % _JOBS_A_STEP == 0:
                yield
            names = _names(path)
            waiting.update(names)
            if can_start(job.reason):
                servable.update(names)
        return frozenset(waiting - servable)

    def task_capacity(
        self,
        clients: Iterable[int],  # noqa: ARG002
        demand: Quantities,
    ) -> Cooperative[tuple[int, int]]:
        """Return how many jobs fit into the free resources, and how many on all nodes.

        The first number is an upper bound: the free resources may be spread over nodes.
        """
        yield from ()
        largest = sum(_fitting(node, demand) for node in self._nodes)
        return min(_fitting(self._free, demand), largest), largest

    def others_are_smaller(self, task: Quantities) -> bool:
        """Return whether a pending job needs less than a task, and no resource more."""
        demands = (job.quantities for job, _ in self._pending.values())
        return any(demand != task and task.contains(demand) for demand in demands)


@lru_cache(4096)
def _names(path: UserPath) -> tuple[str, ...]:
    """Return the names of a user and of the nodes above it, the user first."""
    return tuple(name_of(path[:depth]) for depth in range(len(path), 0, -1))


def _fitting(available: Quantities, demand: Quantities) -> int:
    """Return how many times a demand fits into available resources."""
    amounts = [(name, amount) for name, amount in demand.items() if amount and name != TASKS]
    return min((available[name] // amount for name, amount in amounts), default=0)
