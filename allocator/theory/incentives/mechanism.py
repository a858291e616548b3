"""Dynamic DRF, epoch by epoch in exact fractions; with one resource it is Dynamic MMF."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from allocator.theory.incentives.profile import Profile

_ZERO = Fraction(0)


@dataclass(slots=True)
class Claim:
    """What a user asks for in an epoch, and how it stands."""

    ratios: Mapping[str, Fraction]
    """Of each resource for a unit of allocation, more than 0."""
    demand: Fraction
    weight: Fraction
    before: Fraction
    """What it was allocated in all epochs before."""
    guarantee: Fraction
    """It gets so much, whatever it had before; not more than its demand."""


def share_epoch(claims: Sequence[Claim], capacity: Fraction) -> list[Fraction]:
    """Allocate one epoch: problem (6) of the incentives paper, and (1) with one resource.

    Totals over weights are raised together from the lowest; a user stops at its demand, or when a
    resource that it needs is used up.

    Args:
        claims: Those of each user; guarantees fit into the capacity together.
        capacity: What there is of each resource.

    Returns:
        Allocations. O(n) for each of at most 2 n + m events of n users and m resources.
    """
    got = [claim.guarantee for claim in claims]
    left = {resource: capacity for claim in claims for resource in claim.ratios}
    for claim in claims:
        for resource, ratio in claim.ratios.items():
            left[resource] -= ratio * claim.guarantee
    going = {i for i, claim in enumerate(claims) if claim.demand > claim.guarantee}
    while going := {i for i in going if all(left[resource] > 0 for resource in claims[i].ratios)}:
        heights = {i: (claims[i].before + got[i]) / claims[i].weight for i in going}
        level = min(heights.values())
        rising = [i for i in going if heights[i] == level]
        rates: dict[str, Fraction] = {}
        for i in rising:
            for resource, ratio in claims[i].ratios.items():
                rates[resource] = rates.get(resource, _ZERO) + ratio * claims[i].weight
        by = min(
            [left[resource] / rate for resource, rate in rates.items()]
            + [(claims[i].demand - got[i]) / claims[i].weight for i in rising]
            + [heights[i] - level for i in going if heights[i] > level]
        )
        for i in rising:
            got[i] += by * claims[i].weight
        for resource, rate in rates.items():
            left[resource] -= by * rate
        going = {i for i in going if got[i] < claims[i].demand}
    return got


def play(
    profile: Profile,
    reports: Mapping[str, Sequence[Fraction]],
    shapes: Mapping[str, Sequence[Mapping[str, Fraction]]] | None = None,
) -> dict[str, list[Fraction]]:
    """Return each user's allocation in each epoch.

    Args:
        profile: The users and epochs.
        reports: Demands in each epoch that users claim to have; who is absent tells the truth.
        shapes: Likewise, in which proportions they claim to need resources, those above 0.
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
            fair = epoch.capacity * user.weight / total
            claims.append(
                Claim(
                    ratios=shapes[user.name][number]
                    if user.name in shapes
                    else profile.ratios(user, epoch),
                    demand=demand,
                    weight=user.weight,
                    before=before[user.name],
                    guarantee=min(demand, profile.alpha * fair),
                )
            )
        got = dict.fromkeys(claimed, _ZERO)
        for user, amount in zip(asking, share_epoch(claims, epoch.capacity), strict=True):
            got[user.name] = amount
        for name, amount in got.items():
            allocated[name].append(amount)
            before[name] += amount
    return allocated
