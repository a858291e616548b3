"""Kueue's admission fair sharing: least decayed use of all resources over the weight first."""

from functools import cached_property
from typing import ClassVar

from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.rivals.decayed_use import (
    USE,
    DecayedUse,
    HalfLife,
    ResourceWeights,
    resource_weights,
)


class KueueAfs(DecayedUse):
    """Admission fair sharing (Kueue, KEP-4136; `admission_fair_sharing.go`).

    The priority is Σ_r ω_r A_r / w: the decayed use A of each resource r, with resource weights ω,
    over the weight w. Kueue updates A ← (1−α)A + αU at each sample, with α = 1 − 0.5^(Δ/h). Here U
    is the present use, h the half-life and Δ the time between samples. In continuous time this is
    dA/dt = (U − A) / τ. Kueue sums amounts in the units of each resource. Here resources are
    fractions of the cluster at that time. Kueue adds a penalty at admission, because its next
    sample may be minutes later. Here an allocation counts at once, without a penalty.
    """

    name: ClassVar[str] = "kueue-afs"

    half_life: HalfLife = 604800.0
    """Time after which past use counts half: seconds, or text such as `"4h"`, `"7d"`."""
    resource_weights: ResourceWeights | None = None
    """Weights of resources: `RESOURCE=WEIGHT,...`, each for the cluster's whole resource. Resources
    without a weight have weight 1."""

    @cached_property
    def weighed(self) -> dict[str, float]:
        """The parsed parameter `resource_weights`: weights by resource, 1 without an entry."""
        return {} if self.resource_weights is None else resource_weights(self.resource_weights)

    @override
    def measure(self, account: Account) -> dict[str, float]:
        weights = self.weighed
        return {USE: sum(weights.get(name, 1.0) * share for name, share in account.shares.items())}
