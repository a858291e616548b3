"""Dynamic DRF: least accumulated dominant share first, above a guarantee."""

from typing import ClassVar

from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.dynamic import DynamicPolicy


class DynamicDrf(DynamicPolicy):
    """Dynamic DRF in continuous time.

    After Eq. 6 of "Incentives in Dominant Resource Fair Allocation under Dynamic Demands"
    (Fikioris, Agarwal and Tardos), which divides time into epochs.

    The priority is R(t) / w, with the accumulated dominant share R(t) = ∫ max_r oᵣ dt and the
    weight w. Users that hold less than alpha times their entitlement to each resource come before
    all others.
    """

    name: ClassVar[str] = "dynamic-drf"

    @override
    def rate_of_use(self, account: Account) -> float:
        return account.share
