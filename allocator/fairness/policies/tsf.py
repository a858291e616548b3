"""Task Share Fairness: least task share first, whatever machines the tasks may run on."""

from typing import ClassVar

from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.policy import KeyPolicy


class Tsf(KeyPolicy):
    """TSF (TSF paper, Definition 7 and §V-D): the priority is nᵢ / (hᵢ·wᵢ).

    n is how many tasks a user runs, h how many it could run on all machines if it were alone
    and had no constraints, in whole tasks. A user whose demand is not known, or whose task
    fits on no machine, is ranked by its dominant share instead: on one big machine, the same.
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
    """Return the task share under the name `tasks`; shares of resources where there is none."""
    share = account.task_share
    return account.shares if share is None else {"tasks": share}
