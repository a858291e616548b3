"""What every policy has to answer."""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict
from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.priorities import Level, Rank
from allocator.fairness.quantities import Quantities
from allocator.fairness.ranking import KeyRanking, Ranking

Id = TypeVar("Id", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a policy is from that does not come with Longshare."""

    file: str
    """Its path, for people."""
    sha256: str
    """Of the file's content."""
    source: str
    """The file's content."""


@dataclass(slots=True)
class Faults:
    """What went wrong in a policy, as `allocator.fairness.plugin_sandbox` has it."""

    count: int = 0
    latest: str = ""
    """What, and where in its file."""


class Policy(BaseModel, ABC):
    """How users are ranked. The fields of a policy are its validated parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: ClassVar[str]
    counts_tasks: ClassVar[bool] = False
    """Whether it asks for tasks and monopolies: `demand`, `monopoly`, `constrained_monopoly`."""
    goes_by_shares: ClassVar[bool] = True
    """Whether a priority is what is measured and what is owed, over the weight."""
    queues: ClassVar[bool] = False
    """Whether it asks for the place in the queue: `turn`."""
    per_machine: ClassVar[bool] = False
    """Whether the order on a machine is of what users hold there."""
    moves_at_once: ClassVar[bool] = True
    """Whether what a user is given changes its priority at that instant; else only how it goes
    on."""
    has_levels: ClassVar[bool] = False
    """Whether `level` says which users are equal but for rounding."""
    origin: ClassVar[Origin | None] = None
    """Where it is from; None: it comes with Longshare."""

    @cached_property
    def faults(self) -> Faults:
        """What went wrong in it so far; no decision depends on this."""
        return Faults()

    @cached_property
    def tau(self) -> float | None:
        """Time constant of commitments in seconds; None: the policy has no memory."""
        return None

    @cached_property
    def least(self) -> float:
        """What a commitment is raised to, if it is less, when its user holds something."""
        return 0.0

    @cached_property
    def rebased_after(self) -> float:
        """Seconds after which phases begin anew."""
        return math.inf

    def phase(self, elapsed: float) -> float:
        """Return the time that the ranking counts in; it grows with the seconds elapsed."""
        return elapsed

    def elapsed(self, phase: float) -> float:
        """Return the seconds that belong to a phase."""
        return phase

    def measure(self, account: Account) -> dict[str, float]:
        """Return what is compared with the user's entitlement: fractions by name."""
        return account.shares

    def free_of_charge(self, account: Account) -> float:
        """Return how much of what is measured makes no debts: the entitlement (Eq. 7)."""
        return account.entitlement

    def welcome(self, account: Account, others: Collection[Account]) -> None:
        """Say what a user begins with, beside settled others; by default nothing."""

    def rate_of_use(self, account: Account) -> float:  # noqa: ARG002 - for others
        """Return what is added to the account's `cumulative` in a second."""
        return 0.0

    @abstractmethod
    def new_ranking(self, phase: float) -> Ranking[Any, Any]:
        """Return an empty ranking that stands at a phase."""

    @abstractmethod
    def attribute(self, account: Account, base: float, phase: float) -> Any:  # noqa: ANN401 - its own
        """Return what the ranking orders a settled and rated account by.

        Args:
            account: The user's account.
            base: Instant at which phases begin, in seconds.
            phase: The present phase.
        """

    @abstractmethod
    def rank(self, attribute: Any, phase: float) -> tuple[Rank, float]:  # noqa: ANN401 - its own
        """Return what sorts attributes at a phase as the ranking does, and how blurred it is.

        Counts are left out: of equal ranks the lower count comes first. What a user holds more
        never ranks it lower, but for rounding; the blur is far beyond that. 0: there is none.
        """

    def crossing(self, a: Any, b: Any, phase: float) -> float | None:  # noqa: ANN401, ARG002 - for others
        """Return a phase not before this one at which two attributes may meet next; None: never."""
        return None

    def level(self, account: Account, now: float) -> Level:
        """Return the priority of a rated account at an instant not before `settled_at`.

        Accounts that were settled at other instants get the same value as if they were settled now.
        Only policies that set `has_levels` are asked.
        """
        raise NotImplementedError

    @abstractmethod
    def priority(self, account: Account, commitments: dict[str, float], when: float) -> float:
        """Return the priority value at an instant; the lowest is served first.

        Args:
            account: The user's account.
            commitments: Those of the instant, by resource.
            when: The instant in seconds.
        """


class KeyPolicy(Policy):
    """A policy whose priorities time does not change.

    The least key is first; of equals the one that was allocated something less often.
    """

    @abstractmethod
    def key(self, account: Account) -> float:
        """Return the priority of a rated account."""

    @override
    def new_ranking(self, phase: float) -> Ranking[Any, tuple[float, int]]:
        return KeyRanking()

    @override
    def attribute(self, account: Account, base: float, phase: float) -> tuple[float, int]:
        return self.key(account), account.count

    @override
    def rank(self, attribute: tuple[float, int], phase: float) -> tuple[Rank, float]:
        return (0, attribute[0], (), 0.0), 0.0

    @override
    def priority(self, account: Account, commitments: dict[str, float], when: float) -> float:
        return self.key(account)


def local_share(account: Account, held: Quantities, machine: Quantities) -> float:
    """Return the weighted dominant share of what a user holds of one machine's resources."""
    names = account.shares
    shares = held.shares(machine)
    return max((o for name, o in shares.items() if name in names), default=0.0) / account.weight
