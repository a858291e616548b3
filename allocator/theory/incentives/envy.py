"""Envy under dynamic demands: would a user rather have had what another was allocated?"""

from dataclasses import dataclass
from fractions import Fraction

from allocator.theory.incentives.mechanism import play
from allocator.theory.incentives.profile import Profile

_ZERO = Fraction(0)


@dataclass(frozen=True, slots=True)
class Envy:
    """Somebody who would rather have had what another had, scaled to its weight."""

    user: str
    other: str
    epoch: int
    """By the end of which, counted from 1."""
    has: Fraction
    """Its utility up to then."""
    instead: Fraction
    """What the other's allocations would have been worth to it."""


def envy(profile: Profile) -> Envy | None:
    """Return the first who envies, if all tell the truth; None: nobody does.

    Theorem 4.8 and Corollary 4.9 of the incentives paper say that nobody ever does: after no epoch
    would wᵢ / wⱼ times what j was allocated have been worth more to i. Allocations of an epoch are
    worth min over resources q that i needs of amount / aᵢq, and its demand at most. The theorem has
    the largest ratio of each user be 1; where it is not, units of allocation differ, and users may
    envy.
    """
    allocated = play(profile, {})
    for user in profile.users:
        demands = profile.demands(user)
        for other in profile.users:
            scale, has, instead = user.weight / other.weight, _ZERO, _ZERO
            for number, epoch in enumerate(profile.epochs):
                mine, theirs = profile.ratios(user, epoch), profile.ratios(other, epoch)
                amount = scale * allocated[other.name][number]
                worth = min(amount * theirs.get(q, _ZERO) / need for q, need in mine.items())
                has += allocated[user.name][number]
                instead += min(worth, demands[number])
                if instead > has:
                    return Envy(user.name, other.name, number + 1, has, instead)
    return None
