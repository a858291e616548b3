"""Tests Dynamic DRF for envy: would a user prefer the allocations of another user?"""

from dataclasses import dataclass
from fractions import Fraction

from allocator.theory.incentives.mechanism import play
from allocator.theory.incentives.profile import Profile

_ZERO = Fraction(0)


@dataclass(frozen=True, slots=True)
class Envy:
    """A case of envy: a user would prefer another user's allocations, multiplied by wᵢ / wⱼ.

    Here wᵢ is the weight of the envious user, and wⱼ that of the other user.
    """

    user: str
    other: str
    epoch: int
    """Number of the epoch, from 1, after which the user envies."""
    has: Fraction
    """Utility of the user's own allocations in all epochs up to `epoch`."""
    instead: Fraction
    """Utility that the other user's scaled allocations would have for the envious user."""


def envy(profile: Profile) -> Envy | None:
    """Return the first case of envy, or None. All users are assumed to tell the truth.

    Theorem 4.8 and Corollary 4.9 of "Incentives in Dominant Resource Fair Allocation under Dynamic
    Demands" state that envy never occurs. After every epoch, user i values its own allocations at
    least as much as wᵢ / wⱼ times the allocations of j. Here wᵢ is the weight of user i.

    aᵢq is the amount of resource q that one unit of allocation of i needs. In an epoch, the value
    of an allocation to i is the minimum of amount / aᵢq over the resources q that i needs. It is at
    most the demand of i.

    The theorem assumes that the largest aᵢq of each user is 1. Without this assumption, a unit of
    allocation means different amounts for different users, and a user may envy.
    """
    allocated = play(profile, {})
    for user in profile.users:
        demands = profile.demands(user)
        for other in profile.users:
            scale, has, instead = user.weight / other.weight, _ZERO, _ZERO
            for number, epoch in enumerate(profile.epochs):
                own_ratios, other_ratios = profile.ratios(user, epoch), profile.ratios(other, epoch)
                amount = scale * allocated[other.name][number]
                worth = min(
                    amount * other_ratios.get(resource, _ZERO) / need
                    for resource, need in own_ratios.items()
                )
                has += allocated[user.name][number]
                instead += min(worth, demands[number])
                if instead > has:
                    return Envy(user.name, other.name, number + 1, has, instead)
    return None
