"""DRF in heterogeneous clusters: least share of the resource that a task needs most of."""

from typing import ClassVar

from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.policy import KeyPolicy


class Drfh(KeyPolicy):
    """DRFH (TSF paper, §IV-2): the priority is the global dominant share of tasks, over w.

    The dominant resource is the one of which a task needs the largest part of the cluster's
    total. What is held without the task's needing it does not count, unlike under `drf`. A
    user whose demand is not known is ranked by its dominant share.
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
