"""DRF in heterogeneous clusters (DRFH): least share of the resource that a task needs most of."""

from typing import ClassVar

from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.policy import KeyPolicy


class Drfh(KeyPolicy):
    """DRFH (TSF paper, §IV-2): the priority is the tasks' global dominant share over the weight.

    A task's dominant resource is the resource of which it needs the largest fraction of the
    cluster's total. Held resources that the task does not need do not count, unlike under `drf`. A
    user with an unknown demand is ranked by its dominant share.
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
