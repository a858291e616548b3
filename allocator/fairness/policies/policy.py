"""The interface of all policies, which rank the users of a pool."""

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable
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
    """The source of an external policy, recorded so that replays can use the same version."""

    file: str
    """Path of the file, for messages to people."""
    sha256: str
    """SHA-256 of the file's content, in hexadecimal."""
    source: str
    """The file's content."""


@dataclass(slots=True)
class Faults:
    """Failures of an external policy, which `allocator.fairness.plugin_sandbox` has caught."""

    count: int = 0
    latest: str = ""
    """The latest error, with its file and line."""


class Policy(BaseModel, ABC):
    """A rule that ranks users. The fields of a policy are its validated parameters.

    A *phase* is the policy's own time coordinate: seconds, or −s with s = e^(−t/τ). As functions of
    the phase, priorities are straight lines. An *attribute* is a user's priority as a function of
    the phase, which the ranking stores. A *level* is a user's priority at one time, for users that
    are equal except for rounding.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: ClassVar[str]
    counts_tasks: ClassVar[bool] = False
    """Whether the policy reads task counts of accounts: `demand`, `monopoly`,
    `constrained_monopoly`."""
    goes_by_shares: ClassVar[bool] = True
    """Whether a priority depends only on measured values and commitments, divided by the weight."""
    queues: ClassVar[bool] = False
    """Whether the policy reads a user's place in the queue, `Account.turn`."""
    per_machine: ClassVar[bool] = False
    """Whether the order on a machine depends on the resources that users hold there."""
    moves_at_once: ClassVar[bool] = True
    """Whether an allocation changes the user's priority at that time. If not, an allocation changes
    only the growth of the priority."""
    has_levels: ClassVar[bool] = False
    """Whether the policy defines `level`, which treats priorities that differ only by rounding as
    equal."""
    begins_at_mean: ClassVar[bool] = False
    """Whether a new user begins with the mean accumulated use of the other users (`cumulative`
    divided by the weight). If not, a new user begins with 0."""
    origin: ClassVar[Origin | None] = None
    """Source of an external policy. None: the policy comes with Longshare."""

    @cached_property
    def faults(self) -> Faults:
        """Failures of the policy so far, for reports. No decision depends on them."""
        return Faults()

    @cached_property
    def tau(self) -> float | None:
        """Time constant of commitments in seconds. None: the policy creates no commitments."""
        return None

    @cached_property
    def least(self) -> float:
        """Lower bound of a user's commitment for each resource that the user holds; usually 0."""
        return 0.0

    @cached_property
    def has_guarantees(self) -> bool:
        """Whether users that hold less than a part of their entitlement come first."""
        return False

    @cached_property
    def rebased_after(self) -> float:
        """Seconds after which the pool sets `base`, the time at which phases begin, to the present.

        Otherwise phases would leave the range in which floats are accurate. Infinite: the pool
        never changes `base`.
        """
        return math.inf

    def phase(self, elapsed: float) -> float:
        """Return the phase (the policy's time coordinate) at a time. It grows with time.

        Args:
            elapsed: The time, in seconds since the begin of phases (`base` in other methods).
        """
        return elapsed

    def elapsed(self, phase: float) -> float:
        """Return the time of a phase, in seconds since the begin of phases; inverse of `phase`."""
        return phase

    def measure(self, account: Account) -> dict[str, float]:
        """Return the values that are compared with the entitlement, such as shares by resource."""
        return account.shares

    def free_of_charge(self, account: Account) -> float:
        """Return the amount of each measured value that creates no commitment.

        By default this is the entitlement. The over-use is the measured value minus this amount, or
        0 if the difference is negative.
        """
        return account.entitlement

    def rate_of_use(self, account: Account) -> float:  # noqa: ARG002 - overridden
        """Return the growth per second of the account's `cumulative`, for example the share.

        The growth is constant until the allocation changes.
        """
        return 0.0

    @abstractmethod
    def new_ranking(self, phase: float) -> Ranking[Any, Any]:
        """Return an empty ranking of the policy's kind, which begins at the phase `phase`."""

    @abstractmethod
    def attribute(self, account: Account, base: float, phase: float) -> Any:  # noqa: ANN401 - policy-specific
        """Return a user's priority as a function of the phase, which the ranking stores.

        Args:
            account: The user's account. Its commitments are those at the present time, and its
                shares and over-use are computed from its allocation.
            base: Time at which phases begin, in seconds.
            phase: The present phase.
        """

    @abstractmethod
    def rank(self, attribute: Any, phase: float) -> tuple[Rank, float]:  # noqa: ANN401 - policy-specific
        """Return a user's sort key at a phase, and the key's tolerance.

        The key does not include the allocation count; among equal keys, the lower count comes
        first. A larger allocation never ranks a user earlier, except by rounding errors. The
        tolerance is far above these errors; tolerance 0 means that no rounding occurs.

        Args:
            attribute: The user's priority as a function of the phase.
            phase: The phase.
        """

    def crossing(self, a: Any, b: Any, phase: float) -> float | None:  # noqa: ANN401, ARG002 - policy-specific
        """Return the next phase, not before `phase`, at which two users may swap; None: never.

        Args:
            a: Priority of the user that is first now, as a function of the phase.
            b: Priority of the other user.
            phase: The present phase.
        """
        return None

    def level(self, account: Account, now: float) -> Level:
        """Return a user's priority at the time `now` in seconds, not before `account.settled_at`.

        Policies with `has_levels` treat priorities as equal if they differ only by rounding. The
        result sorts users with such priorities. So the result must not depend on the time at which
        the account's commitments were last moved forward.
        """
        raise NotImplementedError

    @abstractmethod
    def priority(self, account: Account, commitments: dict[str, float], when: float) -> float:
        """Return the number by which a user is ranked, for display. The lowest is served first.

        Args:
            account: The user's account.
            commitments: Commitments at the time `when`, by resource.
            when: The time in seconds.
        """


class KeyPolicy(Policy):
    """A policy whose priorities do not change with time.

    The lowest key is first. Equal keys are ordered by allocation count, the lowest first.
    """

    @abstractmethod
    def key(self, account: Account) -> float:
        """Return a user's priority: the user with the lowest is served first."""

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


def accumulates(policy: Policy) -> bool:
    """Return whether a policy ranks by accumulated use, so it defines `rate_of_use`.

    The priorities of a `KeyPolicy` do not change with time, so they depend on no accumulated use.
    """
    return not isinstance(policy, KeyPolicy) and type(policy).rate_of_use is not Policy.rate_of_use


def local_share(account: Account, held: Quantities, machine: Quantities) -> float:
    """Return a user's dominant share of one machine, divided by the user's weight.

    Args:
        account: The user's account.
        held: Resources that the user holds on the machine.
        machine: Total resources of the machine.
    """
    names = account.shares
    shares = held.shares(machine)
    return max((o for name, o in shares.items() if name in names), default=0.0) / account.weight
