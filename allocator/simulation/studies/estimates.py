"""A mean over traces that chance has drawn, and how sure it is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, ndtr, stdtrit

_PART = 0.9


@dataclass(frozen=True)
class Estimate:
    """What several draws of a workload show.

    Args:
        mean: Over draws.
        low: The lower end of its 90 % interval (Student's t); not a number for one draw.
        high: The upper end.
        draws: How many.
        spread: Standard deviation between draws; not a number for one draw.
    """

    mean: float
    low: float
    high: float
    draws: int
    spread: float = float("nan")

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
    def spread_ends(self) -> tuple[float, float]:
        """Return the 90 % interval of the standard deviation (χ²).

        Few draws tell little about it: eight draws leave from 0.7 to 1.8 times what they show. If
        they happen to differ little, the interval of their mean is too narrow as well.
        """
        degrees = self.draws - 1
        low, high = (
            float(np.sqrt(degrees / chdtri(degrees, beyond))) * self.spread
            for beyond in (0.5 - _PART / 2, 0.5 + _PART / 2)
        )
        return low, high

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

    def written_spread(self, form: str = "{:.3g}", scale: float = 1.0) -> str:
        """Write the standard deviation between draws and, in brackets, its interval."""
        if self.draws < 2:
            return ""
        low, high = (form.format(scale * end) for end in self.spread_ends)
        return f"{form.format(scale * self.spread)} [{low}, {high}]"


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of at least one value, and its interval.

    Values are of independent draws. Their mean is taken for normal, which eight skewed values
    bear out roughly.
    """
    mean = float(np.mean(values))
    count = len(values)
    if count == 1:
        return Estimate(mean, float("nan"), float("nan"), 1)
    spread = float(np.std(values, ddof=1))
    reach = float(stdtrit(count - 1, 0.5 + _PART / 2)) * spread / float(np.sqrt(count))
    return Estimate(mean, mean - reach, mean + reach, count, spread)


def resampled_ends(resampled: NDArray[np.float64], users: int) -> tuple[float, float]:
    """Return the ends of a 90 % interval from a statistic of users drawn with replacement.

    The plain 5 % and 95 % quantiles of the bootstrap are too narrow where users are few: of six,
    the interval of a mean is a quarter narrower than Student's t. So they are taken further out
    (the expanded percentile interval: T. Hesterberg, "What Teachers Should Know About the
    Bootstrap", The American Statistician 69(4), 2015).

    Args:
        resampled: The statistic in each draw.
        users: How many users are drawn from, at least two.
    """
    reach = float(stdtrit(users - 1, 0.5 + _PART / 2)) * float(np.sqrt(users / (users - 1)))
    beyond = float(ndtr(-reach))
    low, high = np.quantile(resampled, (beyond, 1.0 - beyond))
    return float(low), float(high)


def all_of(verdicts: Sequence[bool | None]) -> bool | None:
    """Return whether all hold: no if one does not, else None if one cannot be told."""
    if any(verdict is False for verdict in verdicts):
        return False
    return None if any(verdict is None for verdict in verdicts) else True
