"""Slurm's Fair Tree: among siblings, least decayed use over their shares first."""

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


class SlurmFairTree(DecayedUse):
    """Fair Tree (Slurm, `doc/html/fair_tree.shtml`; `priority/multifactor/fair_tree.c`).

    Slurm ranks siblings by level fairshare, (Sᵢ / ΣS) / (Uᵢ / ΣU), the highest first. S are the
    siblings' weights and U their decayed use. Siblings are the users of a pool: the children of one
    role. So the order is that of Uᵢ / wᵢ. U accumulates Σ_r ω_r o_r, with the billing weight ω_r
    and the share o_r of each resource r, and halves every `PriorityDecayHalfLife`. Slurm bills CPUs
    unless `TRESBillingWeights` sets other weights. Slurm's weights are for one unit of a resource;
    the weights here are for the cluster's whole resource at that time. So the order may differ
    after a change of the capacity.
    """

    name: ClassVar[str] = "slurm-fair-tree"

    half_life: HalfLife = 604800.0
    """Time after which past use counts half: seconds, or text such as `"4h"`, `"7d"`."""
    billing: ResourceWeights = "cpus=1"
    """Billing weights: `RESOURCE=WEIGHT,...`, each for the cluster's whole resource."""

    @cached_property
    def billed(self) -> dict[str, float]:
        """The parsed parameter `billing`: weights by resource."""
        return resource_weights(self.billing)

    @override
    def measure(self, account: Account) -> dict[str, float]:
        shares = account.shares
        return {USE: sum(weight * shares.get(name, 0.0) for name, weight in self.billed.items())}
