"""Base class of other systems' policies that rank users only by decayed past use."""

import math
from functools import cached_property
from typing import Annotated, ClassVar

from pydantic import AfterValidator
from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.commitment import decayed, time_constant_of_half_life
from allocator.fairness.policies.duration import Duration
from allocator.fairness.policies.fading import DecayPolicy
from allocator.fairness.priorities import Envelope, Level, envelope, forty_bits

USE = "use"
"""Key under which an account's commitments contain the decayed use."""


def resource_weights(text: str) -> dict[str, float]:
    """Parse weights of resources from text such as `cpus=1,mem=0.25`.

    Raises:
        ValueError: the text does not have this form, or all weights are 0.
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
"""Weights of resources as validated text."""


def _half_life(seconds: float) -> float:
    time_constant_of_half_life(seconds)  # rejects extreme half-lives
    return seconds


HalfLife = Annotated[Duration, AfterValidator(_half_life)]
"""A positive, finite duration."""


class DecayedUse(DecayPolicy):
    """Base class of policies whose priority is decayed use over the weight.

    Past use halves every half-life. With the measured allocation ρ and the decayed use U, dU/dt =
    (ρ − U) / τ. This equals a commitment (SDRF paper, Eq. 6) without an amount free of charge, so U
    is stored as a commitment. Between changes of ρ, U is a straight line in s = e^(−t/τ): ρ + (U₀ −
    ρ)·s. Equal priorities are ordered by allocation over weight, then by allocation count, the
    lowest first. Priorities that differ only by rounding are equal.
    """

    goes_by_shares = False
    moves_at_once = False
    has_levels: ClassVar[bool] = True

    half_life: HalfLife
    """Time after which past use counts half: seconds, or text such as `"4h"`, `"7d"`."""

    @cached_property
    @override
    def tau(self) -> float:
        return time_constant_of_half_life(self.half_life)

    @override
    def free_of_charge(self, account: Account) -> float:
        return 0.0

    @override
    def attribute(self, account: Account, base: float, phase: float) -> Envelope:
        held, use, least = account.measured[USE], account.commitments[USE], self.least
        stretch = self.stretch(account.settled_at, base)
        lines = []
        # The use moves from `use` to `held`, so a single line may suffice from now on.
        if max(held, use) > least:
            lines.append((held / account.weight, (use - held) * stretch / account.weight))
        if min(held, use) < least or not lines:
            lines.append((least / account.weight, 0.0))
        attribute = envelope(lines, -phase, account.count)
        if least:
            attribute.held = forty_bits(held / account.weight)
        return attribute

    @override
    def level(self, account: Account, now: float) -> Level:
        held, earlier_use, weight = account.measured[USE], account.commitments[USE], account.weight
        use = decayed(earlier_use, held, now - account.settled_at, self.tau)
        return Level(0, max(use, self.least) / weight, held / weight)

    @override
    def priority(self, account: Account, commitments: dict[str, float], when: float) -> float:
        return max(commitments[USE], self.least) / account.weight
