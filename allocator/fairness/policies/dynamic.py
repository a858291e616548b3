"""Base class of policies that accumulate allocations over all time."""

from functools import cached_property
from typing import Annotated

from pydantic import Field
from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.lines import LinePolicy
from allocator.fairness.priorities import Drift, Level


class DynamicPolicy(LinePolicy):
    """Base class of policies whose priority is the accumulated use over the weight.

    Accumulated use is the integral of a share over time. Users that hold less than `alpha` times
    their entitlement to each measured resource come first.
    """

    moves_at_once = False

    alpha: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Guaranteed fraction of a user's entitlement, whatever the user has used before."""

    @cached_property
    @override
    def has_guarantees(self) -> bool:
        return self.alpha > 0.0

    @override
    def line(self, account: Account) -> tuple[float, float]:
        return account.cumulative / account.weight, account.rate_of_use / account.weight

    @override
    def attribute(self, account: Account, base: float, phase: float) -> Drift:
        slope = account.rate_of_use
        begun = account.cumulative - slope * (account.settled_at - base)
        return Drift(
            guaranteed=self._guaranteed(account),
            value=begun / account.weight,
            slope=slope / account.weight,
            count=account.count,
        )

    @override
    def level(self, account: Account, now: float) -> Level:
        value = account.cumulative_at(now) / account.weight  # rounds as accrual does
        slope = account.rate_of_use / account.weight
        return Level(0 if self._guaranteed(account) else 1, value, slope)

    @override
    def priority(self, account: Account, commitments: dict[str, float], when: float) -> float:
        """Return the accumulated use over the weight, for display.

        For a user that holds less than its guarantee, the result is −1 / (1 + this quotient). So
        such users have negative numbers, in the same order.
        """
        value = super().priority(account, commitments, when)
        return -1.0 / (1.0 + value) if self._guaranteed(account) else value

    def _guaranteed(self, account: Account) -> bool:
        """Return whether a user holds less than its guarantee, `alpha` times its entitlement.

        The guarantee of "Incentives in Dominant Resource Fair Allocation under Dynamic Demands" is
        alpha times the fair share of each resource. A user reaches its guarantee with this part of
        one resource. More resources never place a user below the guarantee.
        """
        if not account.compares_by_resource:
            return account.rate_of_use < self.alpha * account.entitlement
        return self.has_guarantees and all(
            share < self.alpha * account.entitlement_to(resource)
            for resource, share in account.measured.items()
        )
