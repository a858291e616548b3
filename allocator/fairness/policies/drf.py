"""Dominant Resource Fairness: least dominant share first; past use does not matter."""

from typing import ClassVar

from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.policy import KeyPolicy


class Drf(KeyPolicy):
    """DRF (Ghodsi et al., NSDI 2011) with weights, in Mesos's order.

    The priority is max_r oᵣ / w: the user's dominant share over its weight.
    """

    name: ClassVar[str] = "drf"

    @override
    def key(self, account: Account) -> float:
        return account.share / account.weight
