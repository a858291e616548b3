"""Stateful Task Share Fairness: combines commitments with placement constraints."""

from typing import ClassVar

from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.sdrf import Sdrf
from allocator.fairness.policies.tsf import task_share


class Stsf(Sdrf):
    """STSF, new in Longshare: the priority is (Tᵢ + cᵢ) / wᵢ with the task share Tᵢ = nᵢ / hᵢ.

    The commitment is in units of task share and moves as SDRF's does (SDRF paper, Eq. 6, 7, 12):
    dc/dt = (ō − c) / τ with ō = max(Tᵢ − wᵢ/Σw, 0). If users count by their use, wᵢ/Σw differs
    between resources. It is replaced by the dominant share at which the user's tasks reach the
    first of these entitlements. Without commitments the policy is `tsf`. If task shares equal
    dominant shares, the policy is `sdrf`. A user without a task share is ranked as under `sdrf`.
    """

    name: ClassVar[str] = "stsf"
    counts_tasks: ClassVar[bool] = True

    @override
    def measure(self, account: Account) -> dict[str, float]:
        return task_share(account)
