"""Volcano's fair share: least decayed use of one resource first."""

from typing import Annotated, ClassVar

from pydantic import Field
from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.rivals.decayed_use import USE, DecayedUse, HalfLife


class Volcano(DecayedUse):
    """The plugin `fairshare` (Volcano 1.16, pull request 5161; `plugins/fairshare/fairshare.go`).

    The priority is U / w: decayed use over the weight. Volcano updates U ← U·2^(−Δ/h) + use·Δ each
    cycle, for one resource r, with the half-life h and Δ seconds since the last cycle. In Volcano
    all weights are 1. Volcano treats uses that differ by less than a resource-second as equal, and
    ranks equal users by present allocation, the smallest first. Here uses are equal only within
    rounding. Here use is a fraction of the present capacity; in Volcano it is in resource-seconds.
    """

    name: ClassVar[str] = "volcano"

    half_life: HalfLife = 14400.0
    """Time after which past use counts half: seconds, or text such as `"4h"`, `"7d"`."""
    resource: Annotated[str, Field(min_length=1)] = "cpus"
    """The resource that is shared fairly; other resources do not count."""

    @override
    def measure(self, account: Account) -> dict[str, float]:
        return {USE: account.shares.get(self.resource, 0.0)}
