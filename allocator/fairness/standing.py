"""Standings: each user's shares, commitments and priority at one time, for display and records."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from allocator.fairness.account import Account
from allocator.fairness.policies.policy import Policy
from allocator.fairness.quantities import Quantities

User = TypeVar("User", bound=Hashable)


@dataclass(frozen=True)
class Standing(Generic[User]):
    """A user's shares, commitments and priority at a time. Fractions are of the capacity."""

    user: User
    weight: float
    entitlement: float
    """wᵢ / Σw, times the fraction of the capacity that the pool's users share"""
    active: bool
    allocation: Quantities
    shares: dict[str, float]
    share: float
    """Dominant share"""
    measured: dict[str, float]
    """Values that the policy ranks by: shares, or the task share under the name `tasks`"""
    task_share: float | None
    """Tasks held over the tasks that the user could run alone without constraints. None: the policy
    does not count tasks, the demand is unknown, or no task fits"""
    commitments: dict[str, float]
    """Commitments by resource, including resources that do not count or are gone from the
    capacity"""
    inherited: float
    """Commitment for resources that have not been part of the capacity yet"""
    overuse: dict[str, float]
    """Values that commitments approach (SDRF paper, Eq. 7), by resource that counts"""
    commitment: float
    """Dominant commitment (SDRF paper, Eq. 9), of resources that count"""
    priority: float
    """Lowest first"""


class CommitmentTrajectory(NamedTuple):
    """A user's commitments at a time, and the over-use that they approach.

    Commitments at any later time follow from these values until the allocation changes (SDRF paper,
    Eq. 12).
    """

    since: float
    """Time of the commitments in seconds"""
    commitments: dict[str, float]
    overuse: dict[str, float]
    inherited: float


@dataclass(frozen=True)
class PoolSnapshot(Generic[User]):
    """A copy of all accounts of a pool at one time. Later changes of the pool do not affect it."""

    policy: Policy
    tau: float | None
    capacity: Quantities
    now: float
    accounts: dict[User, Account]

    def standings_at(self, when: float) -> Iterator[Standing[User]]:
        """Yield the standings of all users at a later time, in no particular order.

        The standings hold if no allocation or parameter changes until then.

        Args:
            when: The time in seconds, not before `now`.
        """
        when = max(when, self.now)
        for user, account in self.accounts.items():
            yield standing(self.policy, self.tau, user, account, when)


def standing(
    policy: Policy, tau: float | None, user: User, account: Account, when: float
) -> Standing[User]:
    """Compute the standing of a user at a time from the user's account.

    Args:
        policy: The pool's policy.
        tau: Time constant of the decay in seconds. None: commitments do not decay.
        user: The user's id.
        account: The user's account, with shares and over-use of its present allocation.
        when: The time in seconds.
    """
    commitments = account.commitments_at(when, tau)
    return Standing(
        user=user,
        weight=account.weight,
        entitlement=account.entitlement,
        active=account.active,
        allocation=account.allocation,
        shares=dict(account.shares),
        share=account.share,
        measured=dict(account.measured),
        task_share=account.task_share if policy.counts_tasks else None,
        commitments=commitments,
        inherited=account.inherited_at(when, tau),
        overuse=dict(account.overuse),
        commitment=max((commitments.get(name, 0.0) for name in account.measured), default=0.0),
        priority=policy.priority(account, commitments, when),
    )
