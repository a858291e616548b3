"""Per-machine DRF: on each machine, least dominant share of that machine first."""

from typing import ClassVar

from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.policy import KeyPolicy


class PerMachineDrf(KeyPolicy):
    """DRF on each machine (TSF paper, §IV-1).

    On machine m, the priority is max_r oᵢₘᵣ / w: the dominant share of the machine, over the
    weight. Users that hold nothing on a machine come first there. These users, and users with equal
    priorities, are in the order of DRF on the whole cluster. The displayed priority is that of
    `drf`.
    """

    name: ClassVar[str] = "per-machine-drf"
    per_machine: ClassVar[bool] = True

    @override
    def key(self, account: Account) -> float:
        return account.share / account.weight
