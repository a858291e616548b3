"""Numbers that compare simulations: reductions, distributions, gains and speed-ups."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.studies.measures import Floats, JobMeasures, UserMeasures
from allocator.simulation.studies.results import Result

SIZES = (("small", 1, 10), ("medium", 11, 100), ("big", 101, 500), ("huge", 501, None))
"""Bins of jobs by tasks, from and to (Task Share Fairness §VI-B2)."""


def reduction(before: float, after: float) -> float:
    """Return by which fraction something went down; 0 if there was nothing to reduce."""
    return (before - after) / before if before > 0 else 0.0


def distribution(values: Iterable[float], limit: float = np.inf) -> tuple[Floats, Floats]:
    """Return sorted values and, at each, the fraction of all that are at most that.

    What is not a number counts as beyond every value: a task that never started waits forever.
    """
    all_ = np.asarray(list(values) if not isinstance(values, np.ndarray) else values, np.float64)
    known = np.sort(all_[np.isfinite(all_) & (all_ <= limit)])
    return known, np.arange(1, len(known) + 1) / max(len(all_), 1)


@dataclass(frozen=True)
class PolicyGain:
    """What a policy instead of another means to users; arrays have one entry per user.

    Args:
        users: Under the other policy; names, tasks and usage are the same under both.
        before: Mean seconds of waiting under the other policy.
        after: Under this one.
        slack: Seconds; a smaller change is none.
    """

    users: UserMeasures
    before: Floats
    after: Floats
    slack: float = 1.0

    @property
    def saved(self) -> Floats:
        """Return the seconds of mean wait that each user saves; negative: loses."""
        return self.before - self.after

    @property
    def gains(self) -> NDArray[np.bool_]:
        """Tell who waits less."""
        return self.saved > self.slack

    @property
    def loses(self) -> NDArray[np.bool_]:
        """Tell who waits longer."""
        return self.saved < -self.slack

    def of_half(self, *, lighter: bool) -> float:
        """Return the reduction of the mean wait of the half of users with less or more usage."""
        chosen = self.users.lighter_half()
        chosen = (chosen if lighter else ~chosen) & np.isfinite(self.before + self.after)
        if not chosen.any():
            return 0.0
        return reduction(float(self.before[chosen].mean()), float(self.after[chosen].mean()))

    @property
    def lower_part(self) -> float:
        """Return which part of all saved seconds of mean wait the half with less usage saves.

        Above 1 where the other half loses; 0 where all together save nothing.
        """
        light = self.users.lighter_half()
        in_all, in_half = float(np.nansum(self.saved)), float(np.nansum(self.saved[light]))
        return in_half / in_all if in_all > 0.0 else 0.0


def gain(before: Result, after: Result) -> PolicyGain:
    """Compare users under two policies on the same trace."""
    return PolicyGain(before.users, before.users.wait, after.users.wait)


def speedup(alternative: JobMeasures, baseline: JobMeasures) -> Floats:
    """Return for each job by which fraction of its time under the alternative it ends earlier."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return (alternative.completion - baseline.completion) / alternative.completion


def by_size(size: NDArray[np.int64], values: Floats) -> dict[str, Floats]:
    """Sort what is known of jobs into bins by size."""
    known = np.isfinite(values)
    return {
        name: values[known & (size >= least) & (size <= (np.inf if most is None else most))]
        for name, least, most in SIZES
    }
