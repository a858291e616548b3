"""HTCondor's user priority: least smoothed use, times the priority factor, first."""

from functools import cached_property
from typing import Annotated, ClassVar

from pydantic import Field
from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.rivals.decayed_use import USE, DecayedUse, HalfLife

_LEAST_SLOTS = 0.5
"""Lower bound of a real user priority, in slots."""


class HtCondor(DecayedUse):
    """Effective user priority (HTCondor manual, "User Priorities"; `Accountant.cpp`).

    The real priority π approaches the number of slots that a user holds, ρ: π ← βπ + (1−β)ρ with β
    = 0.5^(δt/h), with the half-life h and the time δt between updates. π is at least 0.5. The
    effective priority is π times a factor; here the factor is 1 / w. HTCondor's negotiator hands
    out slots in proportion to 1 / effective priority, to users with the best priority first. This
    ranking only puts the best priority first. Here ρ is a fraction of the present capacity; in
    HTCondor it is a number of slots.
    """

    name: ClassVar[str] = "htcondor"

    half_life: HalfLife = 86400.0
    """Time after which past use counts half: seconds, or text such as `"4h"`, `"7d"`."""
    resource: Annotated[str, Field(min_length=1)] = "cpus"
    """The resource that is shared fairly; other resources do not count."""
    slots: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 1000.0
    """Number of slots in the cluster. The decayed use of a user counts as at least half a slot."""

    @cached_property
    @override
    def least(self) -> float:
        return _LEAST_SLOTS / self.slots

    @override
    def measure(self, account: Account) -> dict[str, float]:
        return {USE: account.shares.get(self.resource, 0.0)}
