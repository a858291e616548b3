"""Dynamic max-min fairness: least accumulated use of one resource first, above a guarantee."""

from typing import Annotated, ClassVar

from pydantic import Field
from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.dynamic import DynamicPolicy


class DynamicMmf(DynamicPolicy):
    """Dynamic MMF in continuous time.

    After §3 (with weights: §5.1) of "Incentives in Dominant Resource Fair Allocation under Dynamic
    Demands" (Fikioris, Agarwal and Tardos), which divides time into epochs.

    The priority is R(t) / w, with the accumulated share R(t) = ∫ oᵣ dt of one resource r and the
    weight w. Users that hold less of this resource than alpha times their entitlement come before
    all others.
    """

    name: ClassVar[str] = "dynamic-mmf"

    resource: Annotated[str, Field(min_length=1)] = "cpus"
    """The resource that is shared fairly; other resources do not count."""

    @override
    def measure(self, account: Account) -> dict[str, float]:
        return {self.resource: account.shares.get(self.resource, 0.0)}

    @override
    def rate_of_use(self, account: Account) -> float:
        return account.shares.get(self.resource, 0.0)
