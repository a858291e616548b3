"""Kueue's admission fair sharing: least decayed use of all resources for its weight first."""

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

    The priority is Σ_r ω_r A_r / w with A ← (1−α)A + αU at each sample, α = 1 − 0.5^(Δ/h), made
    continuous: dA/dt = (U − A) / τ. Kueue adds up what resources amount to in their units, and a
    penalty at admission because the next sample may be minutes away; here resources are parts of
    the cluster at that time, and what is admitted counts from that instant on without a penalty.
    """

    name: ClassVar[str] = "kueue-afs"

    half_life: HalfLife = 604800.0
    """Time in which what was used counts half: seconds, or such as `"4h"`, `"7d"`."""
    resource_weights: ResourceWeights | None = None
    """What counts: `RESOURCE=WEIGHT,...`, weights of the cluster's whole resource; others count
    once, as all do if absent."""

    @cached_property
    def weighed(self) -> dict[str, float]:
        """Weights by resource; those that are missing are 1."""
        return {} if self.resource_weights is None else resource_weights(self.resource_weights)

    @override
    def measure(self, account: Account) -> dict[str, float]:
        weights = self.weighed
        return {USE: sum(weights.get(name, 1.0) * o for name, o in account.shares.items())}
