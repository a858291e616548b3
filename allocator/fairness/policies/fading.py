"""Base class of policies whose priorities are straight lines in s = e^(−t/τ)."""

import math
from abc import abstractmethod
from functools import cached_property
from typing import Any, Literal

from typing_extensions import override

from allocator.fairness.policies.policy import Policy
from allocator.fairness.priorities import Envelope, Envelopes, Rank
from allocator.fairness.ranking import LiveRanking, Ranking, ScanRanking

_ENVELOPES = Envelopes()
_REBASE = 300.0
"""Time constants after which phases begin again; e^±300 is far within the range of a double."""


class DecayPolicy(Policy):
    """Base class without a policy name: priorities are maxima of straight lines in s = e^(−t/τ)."""

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
        """Return the phase −s = −e^(−elapsed/τ), in which priorities are straight lines."""
        return -math.exp(-elapsed / self.tau)

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
        """Return 1 / s = e^(t/τ) for the time t of an account's last accrual.

        Times this factor, a line's slope at the last accrual is its slope for phases from `base`
        on.

        Args:
            settled_at: Time of the account's last accrual in seconds.
            base: Time at which phases begin, in seconds.
        """
        return math.exp((settled_at - base) / self.tau)
