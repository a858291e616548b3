"""Base class of policies whose priorities are straight lines in time, ordered by a Live Tree."""

from abc import abstractmethod
from functools import cached_property
from typing import Any, ClassVar, Literal

from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.policy import Policy
from allocator.fairness.priorities import Drift, Drifts, Level, Rank
from allocator.fairness.ranking import LiveRanking, Ranking, ScanRanking

_REBASE = 86400.0
"""Seconds. Lines that begin near the present are exact to far below a task's share × seconds."""


class LinePolicy(Policy):
    """A policy whose priorities change at constant rates until an allocation or parameter changes.

    The lowest priority is first. Equal priorities are ordered by growth, the slowest first, then by
    allocation count, the lowest first. Priorities that differ only by rounding are equal.
    """

    goes_by_shares: ClassVar[bool] = False
    has_levels: ClassVar[bool] = True

    ranking: Literal["live-tree", "scan"] = "live-tree"
    """Data structure that keeps the order. `"scan"` is a slow reference with the same order."""

    @abstractmethod
    def line(self, account: Account) -> tuple[float, float]:
        """Return a user's priority at the time `account.settled_at`, and its growth per second.

        The account's shares and over-use have been computed for its present allocation.
        `account.cumulative` is the integral of `rate_of_use` up to `settled_at`.
        """

    @cached_property
    @override
    def rebased_after(self) -> float:
        return _REBASE

    @override
    def new_ranking(self, phase: float) -> Ranking[Any, Drift]:
        if self.ranking == "scan":
            return ScanRanking(Drifts(), phase)
        return LiveRanking(Drifts(), phase)

    @override
    def attribute(self, account: Account, base: float, phase: float) -> Drift:
        value, slope = self.line(account)
        begun = value - slope * (account.settled_at - base)
        return Drift(guaranteed=False, value=begun, slope=slope, count=account.count)

    @override
    def rank(self, attribute: Drift, phase: float) -> tuple[Rank, float]:
        return Drifts().rank(attribute, phase)

    @override
    def crossing(self, a: Drift, b: Drift, phase: float) -> float | None:
        return Drifts().crossing(a, b, phase)

    @override
    def level(self, account: Account, now: float) -> Level:
        value, slope = self.line(account)
        return Level(1, value + slope * (now - account.settled_at), slope)

    @override
    def priority(self, account: Account, commitments: dict[str, float], when: float) -> float:
        value, slope = self.line(account)
        return value + slope * (when - account.settled_at)
