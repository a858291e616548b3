"""Task Share Fairness: least task share first, whatever machines the tasks may run on.

After "Multi-Resource Fair Sharing for Datacenter Jobs with Placement Constraints" (Wang, Li, Liang
and Li, SC 2016; "the TSF paper").
"""

from typing import ClassVar

from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.policy import KeyPolicy

TASKS = "tasks"
"""The key of the task share in measured values and commitments."""


class Tsf(KeyPolicy):
    """TSF (TSF paper, Definition 7 and §V-D): the priority is nᵢ / (hᵢ·wᵢ), with weight wᵢ.

    n is the number of tasks that a user runs. h is the number of whole tasks that the user could
    run on all machines, alone and without constraints. If the demand is unknown or no task fits on
    any machine, the user is ranked by its dominant share. On one large machine, both shares are
    equal.
    """

    name: ClassVar[str] = "tsf"
    counts_tasks: ClassVar[bool] = True

    @override
    def measure(self, account: Account) -> dict[str, float]:
        return task_share(account)

    @override
    def key(self, account: Account) -> float:
        return max(account.measured.values(), default=0.0) / account.weight


def task_share(account: Account) -> dict[str, float]:
    """Return the values that TSF policies compare with the entitlement.

    If the user's task share is known, it is the only value, with the key `TASKS`. Otherwise the
    values are the user's shares by resource.
    """
    share = account.task_share
    return account.shares if share is None else {TASKS: share}
