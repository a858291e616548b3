"""Constrained max-min fairness (CMMF) on one resource, as in the scheduler Choosy."""

from typing import Annotated, ClassVar

from pydantic import Field
from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.policy import KeyPolicy


class Cmmf(KeyPolicy):
    """CMMF (Choosy; TSF paper, §IV): the priority is the share of one resource over the weight.

    Constrained max-min fairness. The resource is the parameter `resource`.
    """

    name: ClassVar[str] = "cmmf"

    resource: Annotated[str, Field(min_length=1)] = "cpus"
    """The resource that is shared fairly; other resources do not count."""

    @override
    def measure(self, account: Account) -> dict[str, float]:
        return {self.resource: account.shares.get(self.resource, 0.0)}

    @override
    def key(self, account: Account) -> float:
        return account.shares.get(self.resource, 0.0) / account.weight
