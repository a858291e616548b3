"""The divisible optimum followed through time: what an experiment should come out as."""

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


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Allocations and commitments over time, by sample, user and resource."""

    times: list[float]
    """Seconds from 0; what a sample says holds until the next."""
    allocations: list[list[list[float]]]
    """oᵢᵣ as fractions of capacity."""
    commitments: list[list[list[float]]]
    """cᵢᵣ at the time of the sample."""


def fluid(
    users: Sequence[FluidUser], *, tau: float | None, end: float, step: float = 0.1
) -> Trajectory:
    """Follow Eq. 10 and 12 from time 0 to `end`; all users count in n from the start.

    Within a step the allocation is held, and commitments move exactly (Eq. 12); the error is
    of order step / τ.

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
    trajectory = Trajectory([], [], [])
    for index in range(round(end / step)):
        now = index * step
        held = _allocations(users, owed, now)
        trajectory.times.append(now)
        trajectory.allocations.append(held)
        trajectory.commitments.append(owed)
        if tau is not None:
            owed = [
                [
                    decayed(c, overuse(o, user.weight / total), step, tau)
                    for c, o in zip(owes, holds, strict=True)
                ]
                for user, owes, holds in zip(users, owed, held, strict=True)
            ]
    return trajectory


def _allocations(
    users: Sequence[FluidUser], owed: list[list[float]], now: float
) -> list[list[float]]:
    here = [i for i, user in enumerate(users) if user.start <= now]
    optimum = sdrf(
        [users[i].demand for i in here],
        [owed[i] for i in here],
        [users[i].weight for i in here],
    )
    held = [[0.0] * len(user.demand) for user in users]
    for i, allocation in zip(here, optimum.allocations, strict=True):
        held[i] = allocation
    return held
