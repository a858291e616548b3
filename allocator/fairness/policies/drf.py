"""Dominant Resource Fairness: least dominant share first, without memory."""

from typing import Any, ClassVar

from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.policy import Policy
from allocator.fairness.ranking import KeyRanking, Ranking


class Drf(Policy):
    """DRF (Ghodsi et al., NSDI 2011) with weights, ordered as Mesos orders it.

    The priority is max_r oᵣ / w; of equals the one that was allocated something less often is
    first.
    """

    name: ClassVar[str] = "drf"

    @override
    def new_ranking(self, phase: float) -> Ranking[Any, tuple[float, int]]:
        return KeyRanking()

    @override
    def attribute(
        self,
        account: Account,
        base: float,
        phase: float,
    ) -> tuple[float, int]:
        return account.share / account.weight, account.count

    @override
    def priority(self, account: Account, commitments: dict[str, float]) -> float:
        return account.share / account.weight
