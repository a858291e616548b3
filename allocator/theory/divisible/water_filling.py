"""Water-filling: MMF, SMMF, DRF and SDRF as one problem (paper Eq. 5, 8, 10).

Each user is a tank that stands on its commitment; the water level x rises until a resource is
used up. How much of a resource all users take together is piecewise linear in x, so the level
is found exactly, by walking from bend to bend.

The paper has all users need something of every resource; then one that is used up stops everybody.
Where some need nothing of it, Eq. 10 to the letter stops them too and leaves unused what only they
could use. Here they go on, as they do in a live cluster and in `optimum`: else the allocation would
not be Pareto optimal (Proposition 5). `equation_10` keeps to the letter.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

Vector = Sequence[float]


@dataclass(frozen=True)
class Optimum:
    """The allocation at the highest feasible water level."""

    level: float
    """x, at which a resource was used up first, or else everybody had what it demands."""
    levels: list[float]
    """By user, where the water stopped for it: (oᵢ + cᵢ) / wᵢ in dominant shares, if it is neither
    dry nor full. All x, but for users that need nothing of what was used up first."""
    allocations: list[list[float]]
    """oᵢᵣ, users × resources, as fractions of capacity."""
    bottlenecks: frozenset[int]
    """Resources that are used up; empty when all demands are met."""


def sdrf(
    demands: Sequence[Vector],
    commitments: Sequence[Vector] | None = None,
    weights: Vector | None = None,
) -> Optimum:
    """Solve Eq. 10, round after round: the SDRF allocation.

    Args:
        demands: θᵢᵣ, users × resources, as fractions of capacity: finite, ≥ 0, one > 0. Who
            wants without end demands all there is of the dominant resource: 1.
        commitments: cᵢᵣ, users × resources, ≥ 0; None: nobody owes anything.
        weights: wᵢ > 0: how wide a tank is; None: 1.

    Returns:
        The optimum. Cost O(n·m + n log n) for n users and m resources, as often as another
        resource stops some of them.

    Raises:
        ValueError: shapes differ, or a number is out of range.
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
    """Solve Eq. 10 to the letter: the first resource that is used up stops everybody.

    Takes, gives and raises what `sdrf` does, and is the same where all need something of each
    resource.
    """
    tanks = _tanks(demands, commitments, weights)
    level, bottlenecks = _highest_level(tanks, [0.0] * len(tanks[0].direction) if tanks else [])
    return Optimum(level, [level] * len(tanks), [tank.filled(level) for tank in tanks], bottlenecks)


def drf(demands: Sequence[Vector], weights: Vector | None = None) -> Optimum:
    """Solve Eq. 5, with demands that may end: SDRF where nobody owes anything."""
    return sdrf(demands, None, weights)


def smmf(demands: Vector, commitments: Vector, weights: Vector | None = None) -> Optimum:
    """Solve Eq. 8: SDRF with a single resource."""
    return sdrf([[d] for d in demands], [[c] for c in commitments], weights)


def mmf(demands: Vector, weights: Vector | None = None) -> Optimum:
    """Share one resource max-min fairly (§4.1): SMMF where nobody owes anything."""
    return drf([[d] for d in demands], weights)


@dataclass(frozen=True, slots=True)
class _Tank:
    direction: list[float]
    """θ̃ᵢ: the demand with its dominant resource scaled to 1 (Eq. 4)."""
    height: float
    """θᵢ of the dominant resource."""
    base: float
    """c̃ᵢ, the dominant commitment (Eq. 9)."""
    width: float
    """wᵢ"""

    @property
    def wet_from(self) -> float:
        """Level at which water reaches the tank."""
        return self.base / self.width

    @property
    def full_from(self) -> float:
        """Level at which the demand is met."""
        return (self.base + self.height) / self.width

    def filled(self, level: float) -> list[float]:
        """Return oᵢ at a water level (Eq. 10)."""
        dominant = max(0.0, min(self.height, level * self.width - self.base))
        return [dominant * entry for entry in self.direction]


def _tanks(
    demands: Sequence[Vector], commitments: Sequence[Vector] | None, weights: Vector | None
) -> list[_Tank]:
    owed = [0.0] * len(demands) if commitments is None else [max(row) for row in commitments]
    widths = [1.0] * len(demands) if weights is None else list(weights)
    _validate(demands, owed, widths)
    return [
        _Tank([entry / max(demand) for entry in demand], max(demand), base, width)
        for demand, base, width in zip(demands, owed, widths, strict=True)
    ]


def _highest_level(tanks: list[_Tank], taken: Sequence[float]) -> tuple[float, frozenset[int]]:
    """Walk up the bends of the resources' total use; return the level and what stops it.

    Args:
        tanks: Those that still rise.
        taken: Of each resource, what others have.
    """
    resources = range(len(taken))
    used = list(taken)
    rate = [0.0] * len(resources)
    bends = sorted(
        [(tank.wet_from, 1.0, tank) for tank in tanks]
        + [(tank.full_from, -1.0, tank) for tank in tanks],
        key=lambda bend: bend[:2],
    )
    level = bends[0][0] if bends else math.inf
    for bend, sign, tank in bends:
        highest = min(
            (level + (1.0 - used[r]) / rate[r] for r in resources if rate[r] > 0.0),
            default=math.inf,
        )
        if highest <= bend:
            stopped = (
                r
                for r in resources
                if rate[r] > 0.0 and level + (1.0 - used[r]) / rate[r] <= highest
            )
            return highest, frozenset(stopped)
        for r in resources:
            used[r] += rate[r] * (bend - level)
            rate[r] += sign * tank.width * tank.direction[r]
        level = bend
    return level, frozenset()


def _validate(demands: Sequence[Vector], owed: Vector, widths: Vector) -> None:
    if not len(demands) == len(owed) == len(widths):
        raise ValueError(
            f"{len(demands)} demands, {len(owed)} commitments and {len(widths)} weights: "
            "there must be one of each for every user"
        )
    for user, (demand, base, width) in enumerate(zip(demands, owed, widths, strict=True)):
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
