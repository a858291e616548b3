"""Computes Dynamic DRF epoch by epoch in exact fractions.

Dynamic DRF favours users with small total allocations in earlier epochs. With one resource, it is
called Dynamic MMF.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from allocator.theory.incentives.profile import Profile

_ZERO = Fraction(0)


@dataclass(slots=True)
class Claim:
    """One user's weight, reported demand and past allocations, as input of `share_epoch`."""

    ratios: Mapping[str, Fraction]
    """Amount of each resource that one unit of allocation needs, above 0."""
    demand: Fraction
    weight: Fraction
    before: Fraction
    """Sum of the user's allocations in all earlier epochs."""
    guarantee: Fraction
    """Allocation that the user receives in any case, whatever it received before.

    At most its demand.
    """


def share_epoch(claims: Sequence[Claim], capacity: Fraction) -> list[Fraction]:
    """Allocate the resources of one epoch by Dynamic DRF.

    This solves problem (6) of "Incentives in Dominant Resource Fair Allocation under Dynamic
    Demands"; with one resource, problem (1).

    A user's total is its allocation in all epochs so far, divided by its weight. First, each user
    receives its guarantee. Then the lowest totals are raised together. A user's total stops rising
    when the user's demand in this epoch is met, or when a resource that it needs is exhausted.

    The cost is O(n) for each of at most 2 n + m steps, for n users and m resources.

    Args:
        claims: One claim per user. All guarantees together fit into the capacity.
        capacity: Available amount, the same for each resource.

    Returns:
        Each user's allocation in the epoch, in the order of the claims.
    """
    allocated = [claim.guarantee for claim in claims]
    remaining = {resource: capacity for claim in claims for resource in claim.ratios}
    for claim in claims:
        for resource, ratio in claim.ratios.items():
            remaining[resource] -= ratio * claim.guarantee
    growing = {i for i, claim in enumerate(claims) if claim.demand > claim.guarantee}
    while growing := {
        i for i in growing if all(remaining[resource] > 0 for resource in claims[i].ratios)
    }:
        heights = {i: (claims[i].before + allocated[i]) / claims[i].weight for i in growing}
        level = min(heights.values())
        rising = [i for i in growing if heights[i] == level]
        rates: dict[str, Fraction] = {}
        for i in rising:
            for resource, ratio in claims[i].ratios.items():
                rates[resource] = rates.get(resource, _ZERO) + ratio * claims[i].weight
        step = min(
            [remaining[resource] / rate for resource, rate in rates.items()]
            + [(claims[i].demand - allocated[i]) / claims[i].weight for i in rising]
            + [heights[i] - level for i in growing if heights[i] > level]
        )
        for i in rising:
            allocated[i] += step * claims[i].weight
        for resource, rate in rates.items():
            remaining[resource] -= step * rate
        growing = {i for i in growing if allocated[i] < claims[i].demand}
    return allocated


def play(
    profile: Profile,
    reports: Mapping[str, Sequence[Fraction]],
    shapes: Mapping[str, Sequence[Mapping[str, Fraction]]] | None = None,
) -> dict[str, list[Fraction]]:
    """Compute each user's allocation in each epoch under Dynamic DRF, given what users report.

    Args:
        profile: The users' true demands in all epochs.
        reports: By user name, the demand that the user reports in each epoch. Users left out tell
            the truth.
        shapes: By user name, the resource ratios that the user reports in each epoch, above 0.
            Users left out tell the truth.

    Returns:
        By user name, the allocation in each epoch.
    """
    shapes = shapes or {}
    total = sum((user.weight for user in profile.users), _ZERO)
    claimed = {user.name: reports.get(user.name) or profile.demands(user) for user in profile.users}
    before = dict.fromkeys(claimed, _ZERO)
    allocated: dict[str, list[Fraction]] = {name: [] for name in claimed}
    for number, epoch in enumerate(profile.epochs):
        asking = [user for user in profile.users if claimed[user.name][number]]
        claims = []
        for user in asking:
            demand = claimed[user.name][number]
            fair_share = epoch.capacity * user.weight / total
            claims.append(
                Claim(
                    ratios=shapes[user.name][number]
                    if user.name in shapes
                    else profile.ratios(user, epoch),
                    demand=demand,
                    weight=user.weight,
                    before=before[user.name],
                    guarantee=min(demand, profile.alpha * fair_share),
                )
            )
        received = dict.fromkeys(claimed, _ZERO)
        for user, amount in zip(asking, share_epoch(claims, epoch.capacity), strict=True):
            received[user.name] = amount
        for name, amount in received.items():
            allocated[name].append(amount)
            before[name] += amount
    return allocated
