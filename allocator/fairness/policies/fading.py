"""Base class of policies whose priorities are straight lines in s = e^(−t/τ)."""

import math
from abc import abstractmethod
from functools import cached_property
from typing import Any, Literal

from typing_extensions import override

from allocator.fairness.commitment import decay_phase, stretch
from allocator.fairness.policies.policy import Policy
from allocator.fairness.priorities import Envelope, Envelopes, Rank
from allocator.fairness.ranking import LiveRanking, Ranking, ScanRanking

_ENVELOPES = Envelopes()
_REBASE = 300.0
"""Time constants after which phases begin again; e^±300 is far within the range of a double."""


class DecayPolicy(Policy):
    """Base class of policies whose priorities are maxima of straight lines in s = e^(−t/τ).

    s is the decay factor of commitments, which falls from 1 towards 0 as time passes.
    """

    ranking: Literal["live-tree", "scan"] = "live-tree"
    """Data structure that keeps the order. `"scan"` is a slow reference with the same order."""

    @cached_property
    @abstractmethod
    @override
    def tau(self) -> float:
        """Time constant of the decay of commitments in seconds."""

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
        """Return −e^(−elapsed/τ), the policy's time coordinate: it grows from −1 towards 0.

        As functions of this phase, priorities are maxima of straight lines.
        """
        return decay_phase(elapsed, self.tau)

    @override
    def elapsed(self, phase: float) -> float:
        return -self.tau * math.log(-phase)

    @override
    def rank(self, attribute: Envelope, phase: float) -> tuple[Rank, float]:
        return _ENVELOPES.rank(attribute, phase)

    @override
    def crossing(self, a: Envelope, b: Envelope, phase: float) -> float | None:
        return Envelopes().crossing(a, b, phase)

    def stretch(self, settled_at: float, base: float) -> float:
        """Return the factor of the slope of a priority's line (`commitment.stretch`)."""
        return stretch(settled_at, base, self.tau)
