"""Volcano's fair share: least decayed use of one resource first."""

from typing import Annotated, ClassVar

from pydantic import Field
from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.rivals.decayed_use import USE, DecayedUse, HalfLife


class Volcano(DecayedUse):
    """The plugin `fairshare` (Volcano 1.16, pull request 5161; `plugins/fairshare/fairshare.go`).

    The priority is U / w with U ← U·2^(−Δ/h) + use·Δ each cycle, of one resource r. In
    Volcano all weights are 1. It takes uses that differ by less than a resource-second for equal,
    and of equals who holds less now comes first; here uses are equal only within rounding. Use is
    a part of the capacity at that time here, and resource-seconds there.
    """

    name: ClassVar[str] = "volcano"

    half_life: HalfLife = 14400.0
    """Time in which what was used counts half: seconds, or such as `"4h"`, `"7d"`."""
    resource: Annotated[str, Field(min_length=1)] = "cpus"
    """The resource that is shared; the others follow as they may."""

    @override
    def measure(self, account: Account) -> dict[str, float]:
        return {USE: account.shares.get(self.resource, 0.0)}
