"""DRF in heterogeneous clusters (DRFH): least share of the resource that a task needs most of."""

from typing import ClassVar

from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.policy import KeyPolicy


class Drfh(KeyPolicy):
    """DRFH (TSF paper, §IV-2): the priority is the global dominant share over the weight.

    The global dominant share is the largest share of the whole cluster that the user holds of a
    resource. Only resources that the user's tasks need are counted, unlike under `drf`. If the
    tasks' demand is unknown, all resources are counted.
    """

    name: ClassVar[str] = "drfh"
    counts_tasks: ClassVar[bool] = True

    @override
    def measure(self, account: Account) -> dict[str, float]:
        if account.demand is None:
            return account.shares
        return {name: share for name, share in account.shares.items() if name in account.demand}

    @override
    def key(self, account: Account) -> float:
        return max(account.measured.values(), default=0.0) / account.weight
