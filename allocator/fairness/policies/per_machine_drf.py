"""Per-machine DRF: on each machine, least dominant share of that machine first."""

from typing import ClassVar

from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.policy import KeyPolicy


class PerMachineDrf(KeyPolicy):
    """DRF on each machine (TSF paper, §IV-1).

    A user has one priority per machine: max_r oᵣ / w. Here oᵣ is the fraction of the machine's
    resource r that the user holds, and w is the user's weight. Users with equal priorities are
    ordered by DRF on the whole cluster, also users that hold nothing on the machine. The displayed
    priority is that of `drf`.
    """

    name: ClassVar[str] = "per-machine-drf"
    per_machine: ClassVar[bool] = True

    @override
    def key(self, account: Account) -> float:
        return account.share / account.weight
