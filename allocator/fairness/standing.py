"""How users stand, as it is told to people and remembered: now, or later if nothing changes."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from allocator.fairness.account import Account
from allocator.fairness.policies.policy import Policy
from allocator.fairness.quantities import Quantities

User = TypeVar("User", bound=Hashable)


@dataclass(frozen=True)
class Standing(Generic[User]):
    """How a user stands at an instant. Shares and commitments are fractions of capacity."""

    user: User
    weight: float
    entitlement: float
    """wᵢ / Σw, of the pool's part"""
    active: bool
    allocation: Quantities
    shares: dict[str, float]
    share: float
    """Dominant share"""
    measured: dict[str, float]
    """What the policy goes by: shares, or the task share under the name `tasks`"""
    task_share: float | None
    """Tasks held over those it could run alone without constraints; None: the policy does not
    ask, the demand is not known, or no task fits"""
    commitments: dict[str, float]
    """Also of resources that do not count, or that the capacity has lost"""
    inherited: float
    """Commitment for resources that the capacity has not had yet"""
    overuse: dict[str, float]
    """What commitments move towards (Eq. 7); of resources that count"""
    commitment: float
    """Dominant commitment (Eq. 9), of resources that count"""
    priority: float
    """Lowest first"""


class CommitmentTrajectory(NamedTuple):
    """What it takes to say what a user will owe, until something changes (Eq. 12)."""

    since: float
    """Seconds; commitments are those of this instant"""
    commitments: dict[str, float]
    overuse: dict[str, float]
    inherited: float


@dataclass(frozen=True)
class PoolSnapshot(Generic[User]):
    """Users as they were at an instant, whatever happens to their pool later."""

    policy: Policy
    tau: float | None
    capacity: Quantities
    now: float
    accounts: dict[User, Account]

    def standings_at(self, when: float) -> Iterator[Standing[User]]:
        """Go through how all users stand at an instant if nothing changes, in no order."""
        when = max(when, self.now)
        for user, account in self.accounts.items():
            yield standing(self.policy, self.tau, user, account, when)


def standing(
    policy: Policy, tau: float | None, user: User, account: Account, when: float
) -> Standing[User]:
    """Return how the user of an account that is rated stands at an instant."""
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
