"""What policies have in common that go by what was used lately, and by nothing else."""

import math
from functools import cached_property
from typing import Annotated, ClassVar

from pydantic import AfterValidator
from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.commitment import decayed, time_constant_of_half_life
from allocator.fairness.policies.duration import Duration
from allocator.fairness.policies.fading import FadingPolicy
from allocator.fairness.priorities import Envelope, Level, envelope, forty_bits

USE = "use"
"""What decayed use is called among commitments."""


def resource_weights(text: str) -> dict[str, float]:
    """Read weights of resources: `cpus=1,mem=0.25`.

    Raises:
        ValueError: the text does not have that form, or all weights are 0.
    """
    weights: dict[str, float] = {}
    for entry in text.split(","):
        name, _equals, number = (part.strip() for part in entry.partition("="))
        try:
            weights[name] = float(number)
        except ValueError:
            weights[name] = -1.0
        if not name or not 0.0 <= weights[name] < math.inf:
            raise ValueError(f"{entry!r} is not RESOURCE=WEIGHT with a weight ≥ 0, as in 'cpus=1'")
    if not any(weights.values()):
        raise ValueError(f"{text!r} gives no resource a weight above 0")
    return weights


def _checked(text: str) -> str:
    resource_weights(text)
    return text


ResourceWeights = Annotated[str, AfterValidator(_checked)]
"""Weights of resources as text, checked."""


def _half_life(seconds: float) -> float:
    time_constant_of_half_life(seconds)  # refuses what would forget at once, or never
    return seconds


HalfLife = Annotated[Duration, AfterValidator(_half_life)]
"""A duration that is positive and finite."""


class DecayedUse(FadingPolicy):
    """The priority is what was used, forgotten by half every half-life, over the weight.

    With ρ what is held now and U what was, dU/dt = (ρ − U) / τ: the same as a commitment (Eq. 6)
    that has no part free of charge, so that is what U is kept as. Between changes of ρ it is a
    straight line in s = e^(−t/τ): ρ + (U₀ − ρ)·s. Of equals the one that holds less for its
    weight is first, then the one that was allocated something less often. Priorities that only
    rounding tells apart are equal.
    """

    goes_by_shares = False
    moves_at_once = False
    has_levels: ClassVar[bool] = True

    half_life: HalfLife
    """Time in which what was used counts half: seconds, or such as `"4h"`, `"7d"`."""

    @cached_property
    @override
    def tau(self) -> float:
        return time_constant_of_half_life(self.half_life)

    @override
    def free_of_charge(self, account: Account) -> float:
        return 0.0

    @override
    def attribute(self, account: Account, base: float, phase: float) -> Envelope:
        held, owed, least = account.measured[USE], account.commitments[USE], self.least
        stretch = self.stretch(account.settled_at, base)
        lines = []
        # it goes from what is owed to what is held, so one line may be all there is from now on
        if max(held, owed) > least:
            lines.append((held / account.weight, (owed - held) * stretch / account.weight))
        if min(held, owed) < least or not lines:
            lines.append((least / account.weight, 0.0))
        attribute = envelope(lines, -phase, account.count)
        if least:
            attribute.held = forty_bits(held / account.weight)
        return attribute

    @override
    def level(self, account: Account, now: float) -> Level:
        held, owed, weight = account.measured[USE], account.commitments[USE], account.weight
        use = decayed(owed, held, now - account.settled_at, self.tau)
        return Level(0, max(use, self.least) / weight, held / weight)

    @override
    def priority(self, account: Account, commitments: dict[str, float], when: float) -> float:
        return max(commitments[USE], self.least) / account.weight
