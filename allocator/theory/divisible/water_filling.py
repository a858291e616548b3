"""Water-filling: MMF, SMMF, DRF and SDRF as one problem (SDRF paper, Eq. 5, 8, 10).

Each user is pictured as a tank, whose width is the user's weight. The user's commitment fills the
base of the tank, and the water above the base is the user's dominant share. The water level x rises
in all tanks until a resource is exhausted.

The total use of a resource is piecewise linear in x, so the exact level is found by visiting the
breakpoints in order.

The paper assumes that every user needs some of every resource. Then the first exhausted resource
stops all users. If some users need nothing of that resource, Eq. 10 to the letter stops them too,
and leaves resources idle that only they could use.

Here these users continue, as in a live cluster and in `optimum`. Otherwise the allocation would not
be Pareto optimal (Proposition 5). `equation_10` follows the equation to the letter.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

Vector = Sequence[float]


@dataclass(frozen=True)
class Optimum:
    """The allocation that water-filling finds; lists have one entry per user."""

    level: float
    """Water level x at which the first resource is exhausted, or at which all demands are met."""
    levels: list[float]
    """Level at which each user stops.

    For a user with some but not all of its demand, the level is (oᵢ + cᵢ) / wᵢ in dominant shares.
    All levels equal x, except those of users that need nothing of the resource exhausted first.
    """
    allocations: list[list[float]]
    """oᵢᵣ: the amount that each user holds of each resource, as a fraction of capacity."""
    bottlenecks: frozenset[int]
    """Indices of exhausted resources; empty when all demands are met."""


def sdrf(
    demands: Sequence[Vector],
    commitments: Sequence[Vector] | None = None,
    weights: Vector | None = None,
) -> Optimum:
    """Compute the SDRF allocation (SDRF paper, Eq. 10).

    The water level rises in rounds. At the end of a round, the exhausted resource stops all users
    that need it; all other users continue in the next round.

    Args:
        demands: θᵢᵣ, users × resources, as fractions of capacity. Entries are finite and ≥ 0; one
            entry for each user is > 0. A user with unlimited demand has the entry 1 for its
            dominant resource.
        commitments: cᵢᵣ, users × resources, ≥ 0; None means that all commitments are 0.
        weights: wᵢ > 0, by user; None means that all weights are 1.

    Returns:
        The optimum. The cost is O(n·m + n log n) for n users and m resources in each round. There
        is one round for each time that an exhausted resource stops users.

    Raises:
        ValueError: Shapes differ, or a number is out of range.
    """
    tanks = _tanks(demands, commitments, weights)
    first, bottlenecks = _highest_level(tanks, [0.0] * len(tanks[0].direction) if tanks else [])
    levels = [first] * len(tanks)
    rising = set(range(len(tanks)))
    level, stopping = first, bottlenecks
    while stopping:
        stopped = {i for i in rising if any(tanks[i].direction[r] > 0.0 for r in stopping)}
        for i in stopped:
            levels[i] = level
        rising -= stopped
        used = [
            math.fsum(tanks[i].filled(levels[i])[r] for i in range(len(tanks)) if i not in rising)
            for r in range(len(tanks[0].direction))
        ]
        level, stopping = _highest_level([tanks[i] for i in sorted(rising)], used)
        bottlenecks |= stopping
        for i in rising:
            levels[i] = level
    return Optimum(
        first,
        levels,
        [tank.filled(level) for tank, level in zip(tanks, levels, strict=True)],
        bottlenecks,
    )


def equation_10(
    demands: Sequence[Vector],
    commitments: Sequence[Vector] | None = None,
    weights: Vector | None = None,
) -> Optimum:
    """Solve Eq. 10 of the SDRF paper to the letter: the first exhausted resource stops all users.

    Arguments, result and errors are as for `sdrf`. The result is the same if all users need some of
    every resource.
    """
    tanks = _tanks(demands, commitments, weights)
    level, bottlenecks = _highest_level(tanks, [0.0] * len(tanks[0].direction) if tanks else [])
    return Optimum(level, [level] * len(tanks), [tank.filled(level) for tank in tanks], bottlenecks)


def drf(demands: Sequence[Vector], weights: Vector | None = None) -> Optimum:
    """Compute the DRF allocation with bounded demands (SDRF paper, Eq. 5).

    This is `sdrf` with all commitments 0; arguments have the same meaning.
    """
    return sdrf(demands, None, weights)


def smmf(demands: Vector, commitments: Vector, weights: Vector | None = None) -> Optimum:
    """Compute the SMMF allocation of a single resource with commitments (SDRF paper, Eq. 8).

    Args:
        demands: Each user's demand, as a fraction of the capacity.
        commitments: Each user's commitment.
        weights: Each user's weight, above 0; None means 1.
    """
    return sdrf([[d] for d in demands], [[c] for c in commitments], weights)


def mmf(demands: Vector, weights: Vector | None = None) -> Optimum:
    """Compute the max-min fair allocation of a single resource (SDRF paper, §4.1).

    This is `smmf` with all commitments 0; arguments have the same meaning.
    """
    return drf([[d] for d in demands], weights)


@dataclass(frozen=True, slots=True)
class _Tank:
    direction: list[float]
    """θ̃ᵢ: the demand, scaled so that the entry of its dominant resource is 1 (Eq. 4)."""
    height: float
    """The user's demand for its dominant resource, as a fraction of capacity."""
    base: float
    """c̃ᵢ: the user's dominant commitment, at which its water starts (Eq. 9)."""
    width: float
    """The user's weight wᵢ."""

    @property
    def reached_level(self) -> float:
        """Water level at which the user's share starts to rise: commitment divided by weight.

        Below this level, the user receives nothing.
        """
        return self.base / self.width

    @property
    def full_level(self) -> float:
        """Water level at which the user's whole demand is met."""
        return (self.base + self.height) / self.width

    def filled(self, level: float) -> list[float]:
        """Return the user's allocation of each resource at a water level, as fractions of capacity.

        This is Eq. 10 of the SDRF paper.
        """
        dominant = max(0.0, min(self.height, level * self.width - self.base))
        return [dominant * entry for entry in self.direction]


def _tanks(
    demands: Sequence[Vector], commitments: Sequence[Vector] | None, weights: Vector | None
) -> list[_Tank]:
    bases = [0.0] * len(demands) if commitments is None else [max(row) for row in commitments]
    widths = [1.0] * len(demands) if weights is None else list(weights)
    _validate(demands, bases, widths)
    return [
        _Tank([entry / max(demand) for entry in demand], max(demand), base, width)
        for demand, base, width in zip(demands, bases, widths, strict=True)
    ]


def _highest_level(tanks: list[_Tank], taken: Sequence[float]) -> tuple[float, frozenset[int]]:
    """Find the highest feasible water level: the first at which a resource is exhausted.

    Args:
        tanks: Users whose shares rise with the level.
        taken: Amount of each resource that all other users hold, as a fraction of capacity.

    Returns:
        The level, and the indices of the resources exhausted there. The set is empty if all demands
        are met.
    """
    resources = range(len(taken))
    used = list(taken)
    rate = [0.0] * len(resources)
    breakpoints = sorted(
        [(tank.reached_level, 1.0, tank) for tank in tanks]
        + [(tank.full_level, -1.0, tank) for tank in tanks],
        key=lambda breakpoint_level: breakpoint_level[:2],
    )
    level = breakpoints[0][0] if breakpoints else math.inf
    for breakpoint_level, sign, tank in breakpoints:
        highest = min(
            (level + (1.0 - used[r]) / rate[r] for r in resources if rate[r] > 0.0),
            default=math.inf,
        )
        if highest <= breakpoint_level:
            stopped = (
                r
                for r in resources
                if rate[r] > 0.0 and level + (1.0 - used[r]) / rate[r] <= highest
            )
            return highest, frozenset(stopped)
        for r in resources:
            used[r] += rate[r] * (breakpoint_level - level)
            rate[r] += sign * tank.width * tank.direction[r]
        level = breakpoint_level
    return level, frozenset()


def _validate(demands: Sequence[Vector], bases: Vector, widths: Vector) -> None:
    if not len(demands) == len(bases) == len(widths):
        raise ValueError(
            f"{len(demands)} demands, {len(bases)} commitments and {len(widths)} weights: "
            "there must be one of each for every user"
        )
    for user, (demand, base, width) in enumerate(zip(demands, bases, widths, strict=True)):
        if len(demand) != len(demands[0]):
            raise ValueError(
                f"user {user} demands {len(demand)} resources, user 0 {len(demands[0])}"
            )
        if not (all(0.0 <= entry < math.inf for entry in demand) and max(demand) > 0.0):
            raise ValueError(f"user {user}: demands must be finite, ≥ 0 and one > 0: {demand}")
        if not 0.0 <= base < math.inf:
            raise ValueError(f"user {user}: commitment {base} is not a finite number ≥ 0")
        if not 0.0 < width < math.inf:
            raise ValueError(f"user {user}: weight {width} is not a finite number > 0")
