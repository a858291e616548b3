"""Numbers that compare simulations: reductions, distributions, gains and speed-ups."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.studies.measures import Floats, JobMeasures, UserMeasures
from allocator.simulation.studies.results import Result

SIZES = (("small", 1, 10), ("medium", 11, 100), ("big", 101, 500), ("huge", 501, None))
"""Bins of jobs by number of tasks: name, minimum and maximum (Task Share Fairness §VI-B2)."""


def reduction(before: float, after: float) -> float:
    """Return the fraction by which a value decreased; 0 if the first value is not positive."""
    return (before - after) / before if before > 0 else 0.0


def distribution(values: Iterable[float], limit: float = np.inf) -> tuple[Floats, Floats]:
    """Return the sorted values and the cumulative fraction of all values at each of them.

    A value that is not a number counts as infinite, because a task that never started waits
    forever.

    Args:
        values: The values.
        limit: Largest value to return; larger values count only in the total.
    """
    array = np.asarray(list(values) if not isinstance(values, np.ndarray) else values, np.float64)
    finite = np.sort(array[np.isfinite(array) & (array <= limit)])
    return finite, np.arange(1, len(finite) + 1) / max(len(array), 1)


@dataclass(frozen=True)
class PolicyGain:
    """Effect of one policy, compared with another policy, on users; arrays have one entry per user.

    Args:
        users: Measures under the other policy; names, tasks and usage are equal under both.
        before: Mean wait in seconds under the other policy.
        after: Mean wait in seconds under this policy.
        slack: Seconds; a smaller change counts as no change.
    """

    users: UserMeasures
    before: Floats
    after: Floats
    slack: float = 1.0

    @property
    def saved(self) -> Floats:
        """Seconds of mean wait that each user saves; negative for a user that loses."""
        return self.before - self.after

    @property
    def gains(self) -> NDArray[np.bool_]:
        """True for each user that waits less."""
        return self.saved > self.slack

    @property
    def loses(self) -> NDArray[np.bool_]:
        """True for each user that waits longer."""
        return self.saved < -self.slack

    def of_half(self, *, lighter: bool) -> float:
        """Return the reduction of the mean wait in one half of users by usage.

        Args:
            lighter: True for the half with less usage, False for the other half.
        """
        selected = self.users.lighter_half()
        selected = (selected if lighter else ~selected) & np.isfinite(self.before + self.after)
        if not selected.any():
            return 0.0
        return reduction(float(self.before[selected].mean()), float(self.after[selected].mean()))

    @property
    def lower_part(self) -> float:
        """Fraction of all saved seconds of mean wait that the half with less usage saves.

        The value exceeds 1 if the other half loses. The value is 0 if all users together save
        nothing.
        """
        light = self.users.lighter_half()
        total, light_total = float(np.nansum(self.saved)), float(np.nansum(self.saved[light]))
        return light_total / total if total > 0.0 else 0.0


def gain(before: Result, after: Result) -> PolicyGain:
    """Compare users under two policies on the same trace."""
    return PolicyGain(before.users, before.users.wait, after.users.wait)


def speedup(alternative: JobMeasures, baseline: JobMeasures) -> Floats:
    """Return the completion time that each job saves, as a fraction of the alternative's."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return (alternative.completion - baseline.completion) / alternative.completion


def by_size(size: NDArray[np.int64], values: Floats) -> dict[str, Floats]:
    """Group the finite values of jobs by the size of the job."""
    finite = np.isfinite(values)
    return {
        name: values[
            finite & (size >= minimum) & (size <= (np.inf if maximum is None else maximum))
        ]
        for name, minimum, maximum in SIZES
    }
