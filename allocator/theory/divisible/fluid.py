"""The divisible optimum followed through time: what an experiment should come out as."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from allocator.fairness.commitment import decayed, overuse
from allocator.theory.divisible.water_filling import Vector, sdrf


@dataclass(frozen=True, slots=True)
class FluidUser:
    """A user of the fluid model."""

    demand: Vector
    """θᵢᵣ as fractions of capacity, once the user has started."""
    start: float = 0.0
    """Seconds."""
    weight: float = 1.0
    commitment: float = 0.0
    """Of every resource, at time 0."""
    work: float = math.inf
    """Dominant share × seconds that it has to do; it leaves when that is done."""


@dataclass(frozen=True, slots=True)
class FluidTrajectory:
    """Allocations and commitments over time, by sample, user and resource."""

    times: list[float]
    """Seconds from 0; what a sample says holds until the next."""
    allocations: list[list[list[float]]]
    """oᵢᵣ as fractions of capacity."""
    commitments: list[list[list[float]]]
    """cᵢᵣ at the time of the sample."""


def fluid(
    users: Sequence[FluidUser], *, tau: float | None, end: float, step: float = 0.1
) -> FluidTrajectory:
    """Follow Eq. 10 and 12 from time 0 to `end`; all users count in n from the start.

    Within a step the allocation is held, and commitments move exactly (Eq. 12); the error is
    of order step / τ. A step ends early where somebody's work is done.

    Args:
        users: The users; those that start later hold nothing before.
        tau: Time constant of commitments in seconds; None: the policy has no memory (DRF),
            and initial commitments count for nothing.
        end: Seconds.
        step: Seconds between samples.

    Raises:
        ValueError: a time is not positive, or a user's numbers are out of range.
    """
    if not (end > 0.0 and step > 0.0 and (tau is None or tau > 0.0)):
        raise ValueError(f"end {end}, step {step} and tau {tau} must be positive")
    total = sum(user.weight for user in users)
    owed = [[user.commitment if tau else 0.0 for _ in user.demand] for user in users]
    trajectory = FluidTrajectory([], [], [])
    left = [user.work for user in users]
    now, index = 0.0, 0
    while index < round(end / step):
        held = _allocations(users, owed, left, now)
        trajectory.times.append(now)
        trajectory.allocations.append(held)
        trajectory.commitments.append(owed)
        ends = [now + rest / max(has) for rest, has in zip(left, held, strict=True) if max(has)]
        if min(ends, default=math.inf) < (index + 1) * step:
            until = min(ends)
        else:
            index += 1
            until = index * step
        took = until - now
        left = [
            0.0 if max(has) and now + rest / max(has) <= until else rest - max(has) * took
            for rest, has in zip(left, held, strict=True)
        ]
        now = until
        if tau is not None:
            owed = [
                [
                    decayed(c, overuse(o, user.weight / total), took, tau)
                    for c, o in zip(owes, holds, strict=True)
                ]
                for user, owes, holds in zip(users, owed, held, strict=True)
            ]
    return trajectory


def _allocations(
    users: Sequence[FluidUser], owed: list[list[float]], left: list[float], now: float
) -> list[list[float]]:
    here = [i for i, user in enumerate(users) if user.start <= now and left[i] > 0.0]
    optimum = sdrf(
        [users[i].demand for i in here],
        [owed[i] for i in here],
        [users[i].weight for i in here],
    )
    held = [[0.0] * len(user.demand) for user in users]
    for i, allocation in zip(here, optimum.allocations, strict=True):
        held[i] = allocation
    return held
