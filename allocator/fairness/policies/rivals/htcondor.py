"""HTCondor's user priority: least smoothed use, times the priority factor, first."""

from functools import cached_property
from typing import Annotated, ClassVar

from pydantic import Field
from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.rivals.decayed_use import USE, DecayedUse, HalfLife

_LEAST_SLOTS = 0.5
"""What nobody's real user priority falls below, in slots."""


class HtCondor(DecayedUse):
    """Effective user priority (HTCondor manual, "User Priorities"; `Accountant.cpp`).

    The real priority π moves towards the slots that a user holds, ρ: π ← βπ + (1−β)ρ with
    β = 0.5^(δt/h), and is at least 0.5. The effective one is π times a factor; the factor is 1 / w
    here. The negotiator hands out slots in proportion to 1 / effective priority, users of the
    best one first; as a ranking it is the best one first. Slots are a part of the capacity at that
    time here, and a number there.
    """

    name: ClassVar[str] = "htcondor"

    half_life: HalfLife = 86400.0
    """Time in which what was used counts half: seconds, or such as `"4h"`, `"7d"`."""
    resource: Annotated[str, Field(min_length=1)] = "cpus"
    """The resource that is shared; the others follow as they may."""
    slots: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 1000.0
    """How many slots the cluster has; nobody counts as having used less than half of one."""

    @cached_property
    @override
    def least(self) -> float:
        return _LEAST_SLOTS / self.slots

    @override
    def measure(self, account: Account) -> dict[str, float]:
        return {USE: account.shares.get(self.resource, 0.0)}
