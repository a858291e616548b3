"""What policies have in common that add up over all time what users were allocated."""

from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.policy import Policy
from allocator.fairness.priorities import Drift, Drifts, Rank
from allocator.fairness.ranking import LiveRanking, Ranking, ScanRanking

_REBASE = 86400.0
"""Seconds; lines that begin near their time are exact to far below a task's share of a second."""


class DynamicPolicy(Policy):
    """Priorities are straight lines in time; not a policy by itself, for it has no name."""

    goes_by_shares: ClassVar[bool] = False

    alpha: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Part of its entitlement that a user is guaranteed whatever it had before."""
    ranking: Literal["live-tree", "scan"] = "live-tree"
    """`"scan"` is the slow reference that gives the same order."""

    @cached_property
    @override
    def rebased_after(self) -> float:
        return _REBASE

    @override
    def new_ranking(self, phase: float) -> Ranking[Any, Drift]:
        if self.ranking == "scan":
            return ScanRanking(Drifts(), phase)
        return LiveRanking(Drifts(), phase)

    @override
    def attribute(self, account: Account, base: float, phase: float) -> Drift:
        slope = account.rate_of_use
        begun = account.cumulative - slope * (account.settled_at - base)
        return Drift(
            guaranteed=self._guaranteed(account),
            value=begun / account.weight,
            slope=slope / account.weight,
            count=account.count,
        )

    @override
    def rank(self, attribute: Drift, phase: float) -> tuple[Rank, float]:
        return Drifts().rank(attribute, phase)

    @override
    def crossing(self, a: Drift, b: Drift, phase: float) -> float | None:
        return Drifts().crossing(a, b, phase)

    @override
    def priority(self, account: Account, commitments: dict[str, float], when: float) -> float:
        """Return what was added up over the weight; below 0 for who lacks its guarantee."""
        value = account.cumulative_at(when) / account.weight
        return -1.0 / (1.0 + value) if self._guaranteed(account) else value

    def _guaranteed(self, account: Account) -> bool:
        return account.rate_of_use < self.alpha * account.entitlement
