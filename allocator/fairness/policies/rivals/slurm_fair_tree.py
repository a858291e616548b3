"""Slurm's Fair Tree: among siblings, least decayed use for its shares first."""

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

    Level fairshare is (Sᵢ / ΣS) / (Uᵢ / ΣU) among siblings, the highest first. S are weights here,
    and siblings are the users of a pool, which in a tree of roles are those of one parent; so the
    order is that of Uᵢ / wᵢ. U is what is billed, Σ_r ω_r o_r, decayed by half every
    `PriorityDecayHalfLife`. Slurm bills CPUs unless `TRESBillingWeights` says something else; its
    weights are of a unit of a resource, these of the whole cluster's at that time. So the order may
    be another one after the capacity has changed.
    """

    name: ClassVar[str] = "slurm-fair-tree"

    half_life: HalfLife = 604800.0
    """Time in which what was used counts half: seconds, or such as `"4h"`, `"7d"`."""
    billing: ResourceWeights = "cpus=1"
    """What is billed: `RESOURCE=WEIGHT,...`, weights of the cluster's whole resource."""

    @cached_property
    def billed(self) -> dict[str, float]:
        """Weights by resource."""
        return resource_weights(self.billing)

    @override
    def measure(self, account: Account) -> dict[str, float]:
        shares = account.shares
        return {USE: sum(weight * shares.get(name, 0.0) for name, weight in self.billed.items())}
