"""The interface of a scheduler adapter, which the shared parts of the service read.

The shared parts are the store, accounting, metrics, the status page, explanations, forecasts,
operators' orders and shadow policies. The shared parts know no scheduler. An adapter is a package
with pure functions for one scheduler. Its main class implements `SchedulerAdapter`.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from allocator.contract import operator_pb2 as operator
from allocator.cooperative import Cooperative, run_to_completion
from allocator.fairness.metering import AccountCheckpoint, UsageAccumulator
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.users.memory import MemoryChanges
from allocator.users.view import UserView
from allocator.users.wording import ClientWait, Wording


class ClusterCounts(NamedTuple):
    """Numbers of known machines and applications."""

    machines: int
    applications: int
    """Applications are the frameworks of Mesos, or the jobs of a batch scheduler."""


@dataclass(frozen=True, slots=True)
class MachineSummary:
    """One machine's state and resources, and the users that hold these resources, for displays."""

    machine: str
    """The scheduler's unique name of the machine."""
    hostname: str
    state: str
    """Whether the free resources may be used; if not, the reason."""
    total: Quantities
    free: Quantities
    held: dict[str, Quantities]
    """Held resources by user."""


class WaitSurvey(Protocol):
    """The machines at one time, examined to explain why clients get nothing more.

    A client is the smallest unit that holds resources for a user; each adapter has its own type.
    All methods but `others_are_smaller` are generators for cooperative steps.
    """

    def explain(self, client: Any, *, closely: bool = False) -> Cooperative[ClientWait | None]:  # noqa: ANN401
        """Return why a client gets nothing more; None for an unknown client.

        Args:
            client: The client.
            closely: Whether to examine details that cost more.
        """

    def passed_over(self, *, declining: bool = False) -> Cooperative[frozenset[str]]:
        """Return the active users, at all levels, without a machine to serve them.

        Args:
            declining: Whether to include users that decline every machine.
        """

    def task_capacity(
        self, clients: Iterable[Any], demand: Quantities
    ) -> Cooperative[tuple[int, int]]:
        """Return how many tasks of a demand fit into what is free now, and on all machines.

        Args:
            clients: The clients that may run the tasks.
            demand: Resources of one task.
        """

    def others_are_smaller(self, task: Quantities) -> bool:
        """Return whether smaller tasks of further clients may fill each gap first."""


class RoleUsage(Protocol):
    """Meter of a second grouping of usage, such as roles if users are not roles."""

    beginning: dict[str, AccountCheckpoint] | None
    """Account checkpoints at the start of metering, until the accountant takes them."""

    def add_up_in_steps(self) -> Cooperative[None]:
        """Add up recorded changes, in cooperative steps."""

    def close_period(
        self, now: float
    ) -> Cooperative[tuple[UsageAccumulator, dict[str, AccountCheckpoint]]]:
        """Return the usage since the last closed period, and the checkpoints of all accounts."""

    def bridge(
        self, before: Mapping[str, AccountCheckpoint], after: Mapping[str, AccountCheckpoint]
    ) -> None:
        """Count the time between two checkpoints of the same accounts."""


class SchedulerAdapter(UserView):
    """Follows one cluster's scheduler: its users, their allocations, and the reasons for waiting.

    The shared parts of the service read an adapter between two changes, and change it by operators'
    orders only. Answers about users come from the tree of users (`UserView`).
    """

    wording: Wording
    """Texts about the scheduler's clients."""
    role_meter: RoleUsage | None
    """Meter of a second grouping of usage, for `longshare usage --by role`; None for none."""

    @property
    @abstractmethod
    def now(self) -> float:
        """The scheduler's clock at the latest event, in seconds since the Unix epoch."""

    @property
    def settled_at(self) -> float:
        """The time up to which allocations are final, in seconds since the Unix epoch.

        The memory and the accounts belong to this time. It is before `now` if the scheduler tells
        of changes late.
        """
        return self.now

    @property
    def followed_pool(self) -> Pool[str]:
        """The pool of top-level users whose changes shadow policies follow, up to `settled_at`."""
        return self.pool

    @property
    @abstractmethod
    def is_tree(self) -> bool:
        """Whether slashes in users' names separate the levels of a tree."""

    @property
    @abstractmethod
    def longest_name(self) -> int:
        """Maximum length of a user's name, in bytes of UTF-8."""

    @property
    @abstractmethod
    def declared_users(self) -> frozenset[str]:
        """Names of the users that the configuration declares."""

    @property
    @abstractmethod
    def has_followed(self) -> bool:
        """Whether the adapter has known the cluster's state since the service's start."""

    @property
    @abstractmethod
    def revision(self) -> tuple[int, int]:
        """Two numbers; one of them differs after each change of the memory."""

    @property
    @abstractmethod
    def messages(self) -> int:
        """Number of messages and orders that the adapter has received."""

    @abstractmethod
    def counts(self) -> ClusterCounts:
        """Return the numbers of known machines and applications."""

    @abstractmethod
    def demands(self) -> dict[str, list[Quantities]]:
        """Return the known demands of tasks, in thousandths, of each user's clients."""

    @abstractmethod
    def constraints(self) -> dict[str, dict[str, None]]:
        """Return descriptions of the placement constraints of each user's clients.

        Each distinct description is a key of the inner dictionary. Users without constraints are
        absent.
        """

    @abstractmethod
    def offered(self) -> dict[str, Quantities] | None:
        """Return the resources that each user has been offered, but does not use.

        The result is None if the scheduler makes no offers, or does not report used resources.
        """

    def filters_by_role(self) -> dict[str, int]:
        """Return the number of offer filters in force by role, for roles that have any.

        Schedulers without offers have no filters, so an adapter for one keeps this default.
        """
        return {}

    @abstractmethod
    def machine_summaries(self) -> Iterator[MachineSummary]:
        """Yield each machine, with the resources that users hold on it.

        Events may be applied between two items. Each item shows the state at its time.
        """

    @abstractmethod
    def clients(self, user: str | None = None) -> list[Any]:
        """Return all clients, or only the clients of one user and of the users below it."""

    @abstractmethod
    def users_of(self, client: Any) -> list[str]:  # noqa: ANN401 - an adapter's own type
        """Return a client's user and all users above it; empty if the client is gone."""

    @abstractmethod
    def survey(self) -> Cooperative[WaitSurvey]:
        """Return a survey of the machines at this time, in cooperative steps."""

    def unservable_users(self, *, declining: bool = False) -> Cooperative[frozenset[str]]:
        """Return the users, at all levels, that are active but cannot be served by any machine.

        Tasks may have to end before a machine can serve a user. Generator for cooperative steps.

        Args:
            declining: Whether to include users that decline every machine.
        """
        survey = yield from self.survey()
        return (yield from survey.passed_over(declining=declining))

    @abstractmethod
    def could_be_served(self, user: str) -> bool:
        """Return whether at least one machine could serve a user, now or after tasks end."""

    def changes(self) -> MemoryChanges:
        """Return what has changed in the memory since the last call, for the store."""
        return run_to_completion(self.changes_in_steps())

    @abstractmethod
    def changes_in_steps(self) -> Cooperative[MemoryChanges]:
        """Generator form of `changes`. The adapter must not change until it is exhausted."""

    @abstractmethod
    def close_accounts(self) -> Cooperative[dict[str, AccountCheckpoint]]:
        """Close all users' accounts in the meter at the end of an accounting period.

        Generator for cooperative steps. Events may be applied between two steps.
        """

    @abstractmethod
    def order(self, order: operator.Order) -> None:
        """Carry out an operator's command, at the time of the latest event.

        Raises:
            InvalidOrder: The command is malformed, or names unknown users or resources.
        """
