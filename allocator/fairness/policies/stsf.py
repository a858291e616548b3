"""Stateful Task Share Fairness: history and placement constraints honoured together."""

from typing import ClassVar

from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.sdrf import Sdrf
from allocator.fairness.policies.tsf import task_share


class Stsf(Sdrf):
    """STSF, ours: the priority is (Tᵢ + cᵢ) / wᵢ with the task share Tᵢ = nᵢ / hᵢ.

    The commitment is in units of task share, and moves as SDRF's does (Eq. 6, 7, 12):
    dc/dt = (ō − c) / τ with ō = max(Tᵢ − wᵢ/Σw, 0). Without debts it is `tsf`; where task
    shares are dominant shares it is `sdrf`. Who has no task share is treated as under `sdrf`.
    """

    name: ClassVar[str] = "stsf"
    counts_tasks: ClassVar[bool] = True

    @override
    def measure(self, account: Account) -> dict[str, float]:
        return task_share(account)
