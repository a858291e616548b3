"""YARN's fair scheduler: who lacks its minimum first, then least use for its weight."""

from typing import Annotated, ClassVar

from pydantic import Field
from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.policy import KeyPolicy


class YarnFair(KeyPolicy):
    """`FairSharePolicy` (Apache Hadoop YARN, `FairSharePolicy.java`), of one resource r.

    Who holds less than its minimum comes first, in order of oᵣ / minimum; then everybody in order
    of oᵣ / w. The priority that is shown is oᵣ / minimum − 1 for the former. YARN compares memory,
    gives each queue a minimum of its own and takes the smaller of it and of what is wanted; here
    it is the same part of everybody's entitlement.
    """

    name: ClassVar[str] = "yarn-fair"

    resource: Annotated[str, Field(min_length=1)] = "mem"
    """The resource that is compared; the others follow as they may."""
    minimum: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Part of its entitlement below which a user comes before all who have theirs."""

    @override
    def measure(self, account: Account) -> dict[str, float]:
        return {self.resource: account.shares.get(self.resource, 0.0)}

    @override
    def key(self, account: Account) -> float:
        share = account.shares.get(self.resource, 0.0)
        minimum = self.minimum * account.entitlement
        return share / minimum - 1.0 if share < minimum else share / account.weight
