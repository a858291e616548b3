"""The divisible optimum over time, with commitments: the ideal result of an experiment."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from allocator.fairness.commitment import decayed, overuse
from allocator.theory.divisible.water_filling import Vector, sdrf


@dataclass(frozen=True, slots=True)
class FluidUser:
    """A user whose tasks can be divided arbitrarily: demand, amount of work and start time."""

    demand: Vector
    """θᵢᵣ: the demand for each resource as a fraction of capacity, from `start` on."""
    start: float = 0.0
    """Time at which the user starts to demand resources, in seconds."""
    weight: float = 1.0
    commitment: float = 0.0
    """Commitment to every resource at time 0, as a fraction of capacity."""
    work: float = math.inf
    """Total work in dominant share × seconds; the user leaves when it is done. Infinite: never."""


@dataclass(frozen=True, slots=True)
class FluidTrajectory:
    """Allocations and commitments over time, indexed by sample, user and resource."""

    times: list[float]
    """Time of each sample in seconds, from 0. A sample holds until the next sample."""
    allocations: list[list[list[float]]]
    """oᵢᵣ: the amount that each user holds of each resource, as a fraction of capacity."""
    commitments: list[list[list[float]]]
    """cᵢᵣ: each user's commitment to each resource at the sample, as a fraction of capacity."""


def fluid(
    users: Sequence[FluidUser], *, tau: float | None, end: float, step: float = 0.1
) -> FluidTrajectory:
    """Compute the SDRF optimum over time from 0 to `end` (SDRF paper, Eq. 10 and 12).

    A user's entitlement is its weight, divided by the weights of all users. Users that have not
    started yet, or have finished, are included.

    Within a step, the allocation is constant and commitments change exactly (Eq. 12). The error is
    of order step / τ. A step ends early when a user's work is done.

    Args:
        users: The users. A user that starts later holds nothing before its start.
        tau: Time constant of commitments in seconds. None selects a policy without memory (DRF),
            which ignores initial commitments.
        end: End of the simulation in seconds.
        step: Seconds between samples.

    Raises:
        ValueError: A time is not positive, or a user's numbers are out of range.
    """
    if not (end > 0.0 and step > 0.0 and (tau is None or tau > 0.0)):
        raise ValueError(f"end {end}, step {step} and tau {tau} must be positive")
    total = sum(user.weight for user in users)
    commitments = [[user.commitment if tau else 0.0 for _ in user.demand] for user in users]
    trajectory = FluidTrajectory([], [], [])
    remaining = [user.work for user in users]
    now, index = 0.0, 0
    while index < round(end / step):
        held = _allocations(users, commitments, remaining, now)
        trajectory.times.append(now)
        trajectory.allocations.append(held)
        trajectory.commitments.append(commitments)
        ends = [
            now + work / max(holds)
            for work, holds in zip(remaining, held, strict=True)
            if max(holds)
        ]
        if min(ends, default=math.inf) < (index + 1) * step:
            until = min(ends)
        else:
            index += 1
            until = index * step
        elapsed = until - now
        remaining = [
            0.0 if max(holds) and now + work / max(holds) <= until else work - max(holds) * elapsed
            for work, holds in zip(remaining, held, strict=True)
        ]
        now = until
        if tau is not None:
            commitments = [
                [
                    decayed(commitment, overuse(held_amount, user.weight / total), elapsed, tau)
                    for commitment, held_amount in zip(owed_amounts, holds, strict=True)
                ]
                for user, owed_amounts, holds in zip(users, commitments, held, strict=True)
            ]
    return trajectory


def _allocations(
    users: Sequence[FluidUser], commitments: list[list[float]], remaining: list[float], now: float
) -> list[list[float]]:
    active = [i for i, user in enumerate(users) if user.start <= now and remaining[i] > 0.0]
    optimum = sdrf(
        [users[i].demand for i in active],
        [commitments[i] for i in active],
        [users[i].weight for i in active],
    )
    held = [[0.0] * len(user.demand) for user in users]
    for i, allocation in zip(active, optimum.allocations, strict=True):
        held[i] = allocation
    return held
