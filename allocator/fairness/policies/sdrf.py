"""Stateful DRF: adds to a user's share a commitment, a decaying charge for past over-use."""

from functools import cached_property
from typing import ClassVar, Literal, Self

from pydantic import model_validator
from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.commitment import time_constant, time_constant_of_half_life
from allocator.fairness.policies.duration import Duration
from allocator.fairness.policies.fading import DecayPolicy
from allocator.fairness.priorities import Envelope, Level, commitment_envelope, level_of


class Sdrf(DecayPolicy):
    """SDRF (Sadok, Campista and Costa; journal paper Algorithm 1, line 5).

    With shares o, commitments c and weight w, the priority is (max_r oᵣ + max_r cᵣ) / w in the
    journal's form, max_r (oᵣ + cᵣ) / w in the form of Sadok's thesis. Equal priorities are ordered
    by growth, the slowest first, then by allocation count, the lowest first. Priorities that differ
    only by rounding are equal.
    """

    name: ClassVar[str] = "sdrf"
    has_levels: ClassVar[bool] = True

    delta: float | None = None
    """Discount factor of commitments per second, between 0 and 1. Give either `delta` or
    `half_life`."""
    half_life: Duration | None = None
    """Time in which a commitment halves: seconds, or text such as `"90s"`, `"10m"`, `"1h"`,
    `"2d"`."""
    form: Literal["journal", "thesis"] = "journal"
    """Formula of the priority: max o + max c (journal), or max (o + c) (thesis)."""

    @model_validator(mode="after")
    def _one_time_constant(self) -> Self:
        if (self.delta is None) == (self.half_life is None):
            raise ValueError(
                "give either 'delta' (per second) or 'half_life', such as half_life = 1d"
            )
        _ = self.tau  # rejects values that switch fairness off
        return self

    @cached_property
    @override
    def tau(self) -> float:
        if self.delta is not None:
            return time_constant(self.delta)
        assert self.half_life is not None
        return time_constant_of_half_life(self.half_life)

    @override
    def attribute(self, account: Account, base: float, phase: float) -> Envelope:
        """Return a user's priority as a maximum of lines in the decay factor s = e^(−(t − base)/τ).

        The lines follow from the SDRF paper's Eq. 13.
        """
        stretch = self.stretch(account.settled_at, base) / account.weight
        return commitment_envelope(account, stretch, -phase, thesis=self.form == "thesis")

    @override
    def level(self, account: Account, now: float) -> Level:
        return level_of(self.attribute(account, now, -1.0))  # the phase at `now` is −1

    @override
    def priority(self, account: Account, commitments: dict[str, float], when: float) -> float:
        measured = account.measured
        if self.form == "journal":
            dominant = max(measured.values(), default=0.0)
            value = dominant + max((commitments[name] for name in measured), default=0.0)
        else:
            value = max((part + commitments[name] for name, part in measured.items()), default=0.0)
        return value / account.weight
