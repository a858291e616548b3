"""Stateful DRF: who used more than its share in the past comes later now."""

import math
import re
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, model_validator
from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.commitment import time_constant, time_constant_of_half_life
from allocator.fairness.policies.policy import Policy
from allocator.fairness.priorities import Envelope, Envelopes, Rank, envelope
from allocator.fairness.ranking import LiveRanking, Ranking, ScanRanking

_REBASE = 300.0
"""Time constants after which phases begin anew; e^±300 is far from what a double can hold."""
_ENVELOPES = Envelopes()
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _seconds(value: object) -> object:
    """Read a duration such as 600 or '10m'."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9.]+)\s*([smhd])\s*", value)
        if match is None:
            raise ValueError(
                f"{value!r} is not a duration; write seconds, or such as '90s', '10m', '1h', '2d'"
            )
        return float(match[1]) * _UNITS[match[2]]
    return value


class Sdrf(Policy):
    """SDRF (Sadok, Campista and Costa; journal paper Algorithm 1, line 5).

    The priority is (max_r oᵣ + max_r cᵣ) / w in the journal's form, max_r (oᵣ + cᵣ) / w in
    the thesis's; of equals the one that grows slower is first, then the one that was
    allocated something less often.
    """

    name: ClassVar[str] = "sdrf"

    delta: float | None = None
    """Discount factor of commitments per second, between 0 and 1; it or `half_life` is needed."""
    half_life: Annotated[float | None, BeforeValidator(_seconds)] = None
    """Time in which a commitment halves: seconds, or such as `"90s"`, `"10m"`, `"1h"`, `"2d"`."""
    form: Literal["journal", "thesis"] = "journal"
    """What is ranked by: max o + max c, or max (o + c)."""
    ranking: Literal["live-tree", "scan"] = "live-tree"
    """`"scan"` is the slow reference that gives the same order."""

    @model_validator(mode="after")
    def _one_time_constant(self) -> Self:
        if (self.delta is None) == (self.half_life is None):
            raise ValueError("give either 'delta' (per second) or 'half_life'")
        _ = self.tau  # refuses values that switch fairness off
        return self

    @cached_property
    @override
    def tau(self) -> float:
        if self.delta is not None:
            return time_constant(self.delta)
        assert self.half_life is not None
        return time_constant_of_half_life(self.half_life)

    @override
    def new_ranking(self, phase: float) -> Ranking[Any, Envelope]:
        if self.ranking == "scan":
            return ScanRanking(_ENVELOPES, phase)
        return LiveRanking(_ENVELOPES, phase)

    @cached_property
    @override
    def rebased_after(self) -> float:
        return _REBASE * self.tau

    @override
    def phase(self, elapsed: float) -> float:
        """Return −s = −e^(−elapsed/τ), in which priorities are linear."""
        return -math.exp(-elapsed / self.tau)

    @override
    def elapsed(self, phase: float) -> float:
        return -self.tau * math.log(-phase)

    @override
    def attribute(self, account: Account, base: float, phase: float) -> Envelope:
        """Return the priority as lines in s = e^(−(t − base)/τ) (Eq. 13)."""
        weight, measured, owed = account.weight, account.measured, account.commitments
        stretch = math.exp((account.settled_at - base) / self.tau) / weight
        if self.form == "journal":
            most = max(measured.values(), default=0.0)
            lines = [
                ((most + rate) / weight, (owed[name] - rate) * stretch)
                for name, rate in account.overuse.items()
            ]
        else:
            lines = [
                ((measured[name] + rate) / weight, (owed[name] - rate) * stretch)
                for name, rate in account.overuse.items()
            ]
        return envelope(lines or [(0.0, 0.0)], -phase, account.count)

    @override
    def rank(self, attribute: Envelope, phase: float) -> tuple[Rank, float]:
        return _ENVELOPES.rank(attribute, phase)

    @override
    def priority(self, account: Account, commitments: dict[str, float], when: float) -> float:
        measured = account.measured
        if self.form == "journal":
            most = max(measured.values(), default=0.0)
            value = most + max((commitments[name] for name in measured), default=0.0)
        else:
            value = max((o + commitments[name] for name, o in measured.items()), default=0.0)
        return value / account.weight
