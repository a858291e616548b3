"""A mean over traces that chance has drawn, and how sure it is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

_PART = 0.9


@dataclass(frozen=True)
class Estimate:
    """What several draws of a workload show.

    Args:
        mean: Over draws.
        low: The lower end of its 90 % interval (Student's t); not a number for one draw.
        high: The upper end.
        draws: How many.
    """

    mean: float
    low: float
    high: float
    draws: int

    def exceeds(self, bound: float) -> bool | None:
        """Tell whether it is above a bound; None if the interval holds the bound."""
        if self.low > bound:
            return True
        return False if self.high < bound else None

    def within(self, bound: float) -> bool | None:
        """Tell whether it is nearer to 0 than a bound; None if the interval holds bound or −bound.

        One draw has no interval, and tells nothing.
        """
        if self.low > -bound and self.high < bound:
            return True
        return False if self.low > bound or self.high < -bound else None

    @property
    def percent(self) -> str:
        """Write it in percent."""
        return f"{self.written('{:+.1f}', 100.0)} %"

    def written(self, form: str = "{:.3g}", scale: float = 1.0) -> str:
        """Write the mean and, in brackets, the interval."""
        mean = form.format(scale * self.mean)
        if self.draws < 2:  # one draw has no interval
            return mean
        return f"{mean} [{form.format(scale * self.low)}, {form.format(scale * self.high)}]"


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of at least one value, and its interval.

    Values are of independent draws. Their mean is taken for normal, which eight skewed values
    bear out roughly.
    """
    mean = float(np.mean(values))
    count = len(values)
    if count == 1:
        return Estimate(mean, float("nan"), float("nan"), 1)
    error = float(np.std(values, ddof=1)) / float(np.sqrt(count))
    reach = float(stdtrit(count - 1, 0.5 + _PART / 2)) * error
    return Estimate(mean, mean - reach, mean + reach, count)


def all_of(verdicts: Sequence[bool | None]) -> bool | None:
    """Return whether all hold: no if one does not, else None if one cannot be told."""
    if any(verdict is False for verdict in verdicts):
        return False
    return None if any(verdict is None for verdict in verdicts) else True
