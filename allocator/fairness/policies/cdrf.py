"""CDRF (DRF with constraints): least ratio of running tasks to tasks that could run alone first."""

from typing import ClassVar

from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.policy import KeyPolicy


class Cdrf(KeyPolicy):
    """CDRF (TSF paper, §IV-3): the priority is nᵢ / (gᵢ·wᵢ), with user i's weight wᵢ.

    A user runs n tasks. Alone in the cluster, the user could run g tasks on the machines that its
    constraints allow. If n / g is unknown, the priority is the dominant share over the weight.
    """

    name: ClassVar[str] = "cdrf"
    counts_tasks: ClassVar[bool] = True

    @override
    def measure(self, account: Account) -> dict[str, float]:
        slowdown = account.tasks_of(account.constrained_monopoly)
        return account.shares if slowdown is None else {"tasks": slowdown}

    @override
    def key(self, account: Account) -> float:
        return max(account.measured.values(), default=0.0) / account.weight
