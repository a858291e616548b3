"""YARN's fair scheduler: users below their minimum first, then least use over the weight."""

from functools import cached_property
from typing import Annotated, ClassVar

from pydantic import Field
from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.policy import KeyPolicy


class YarnFair(KeyPolicy):
    """`FairSharePolicy` (Apache Hadoop YARN, `FairSharePolicy.java`), of one resource r.

    Users whose share oᵣ is less than their minimum come first, in order of oᵣ / minimum. All other
    users follow in order of oᵣ / w, with the weight w. The displayed priority of a user below its
    minimum is oᵣ / minimum − 1. YARN compares memory and gives each queue a minimum of its own,
    limited to the queue's demand. Here the minimum is the same fraction of each user's entitlement.
    """

    name: ClassVar[str] = "yarn-fair"

    resource: Annotated[str, Field(min_length=1)] = "mem"
    """The resource that is compared; other resources do not count."""
    minimum: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """The minimum, as a fraction of the user's entitlement. Users below it are first."""

    @cached_property
    @override
    def has_guarantees(self) -> bool:
        return self.minimum > 0.0

    @override
    def measure(self, account: Account) -> dict[str, float]:
        return {self.resource: account.shares.get(self.resource, 0.0)}

    @override
    def key(self, account: Account) -> float:
        share = account.shares.get(self.resource, 0.0)
        minimum = self.minimum * account.entitlement_to(self.resource)
        return share / minimum - 1.0 if share < minimum else share / account.weight
