"""Means over several random traces of the same workload, with confidence intervals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, ndtr, stdtrit

from allocator.simulation.studies.section import plain

_CONFIDENCE = 0.9


@dataclass(frozen=True)
class Estimate:
    """Mean of a measure over several random traces, with its confidence interval.

    Args:
        mean: Mean over traces.
        low: Lower end of the 90 % interval (Student's t); NaN for a single trace.
        high: Upper end of the 90 % interval; NaN for a single trace.
        draws: Number of traces.
        spread: Standard deviation between the traces; NaN for a single trace.
    """

    mean: float
    low: float
    high: float
    draws: int
    spread: float = float("nan")

    def exceeds(self, bound: float) -> bool | None:
        """Return whether the mean is certainly above (True) or below (False) a bound.

        None (undecided): the confidence interval contains the bound.
        """
        if self.low > bound:
            return True
        return False if self.high < bound else None

    def within(self, bound: float) -> bool | None:
        """Return whether the mean's absolute value is certainly below a bound, or certainly above.

        Returns:
            True if certainly below, False if certainly above. None if the interval contains the
            bound or its negative, or if the mean is of a single trace (undecided).
        """
        if self.low > -bound and self.high < bound:
            return True
        return False if self.low > bound or self.high < -bound else None

    @property
    def spread_ends(self) -> tuple[float, float]:
        """Lower and upper end of the 90 % interval of `spread` (χ²).

        The interval is wide for few traces: for eight traces, it reaches from 0.7 to 1.8 times the
        measured value. If the traces' values differ little by chance, the interval of their mean is
        too narrow as well.
        """
        degrees = self.draws - 1
        low, high = (
            float(np.sqrt(degrees / chdtri(degrees, tail))) * self.spread
            for tail in (0.5 - _CONFIDENCE / 2, 0.5 + _CONFIDENCE / 2)
        )
        return low, high

    @property
    def percent(self) -> str:
        """Mean and interval as text, in percent."""
        return f"{self.written('{:+.1f}'.format, 100.0)} %"

    @property
    def part(self) -> str:
        """Mean and interval as text, in percent without a plus sign."""
        return f"{self.written('{:.1f}'.format, 100.0)} %"

    def written(self, form: Callable[[float], str] = plain, scale: float = 1.0) -> str:
        """Return the mean as text, followed by its interval in brackets.

        Args:
            form: Returns the text of a number.
            scale: Factor by which each number is multiplied.
        """
        ends = (self.low, self.high) if self.draws > 1 else ()  # one trace has no interval
        return _with_interval(self.mean, ends, form, scale)

    def written_spread(self, form: Callable[[float], str] = plain, scale: float = 1.0) -> str:
        """Return the standard deviation between traces as text, with its interval in brackets.

        Args:
            form: Returns the text of a number.
            scale: Factor by which each number is multiplied.
        """
        if self.draws < 2:
            return ""
        return _with_interval(self.spread, self.spread_ends, form, scale)


def _with_interval(
    value: float, ends: Sequence[float], form: Callable[[float], str], scale: float
) -> str:
    text, *bounds = (form(scale * number).replace("-", "−") for number in (value, *ends))
    return f"{text} [{', '.join(bounds)}]" if bounds else text


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of values from independent traces (at least one), with confidence intervals.

    The interval assumes a normally distributed mean, which is roughly valid for eight skewed
    values.
    """
    mean = float(np.mean(values))
    count = len(values)
    if count == 1:
        return Estimate(mean, float("nan"), float("nan"), 1)
    spread = float(np.std(values, ddof=1))
    reach = float(stdtrit(count - 1, 0.5 + _CONFIDENCE / 2)) * spread / float(np.sqrt(count))
    return Estimate(mean, mean - reach, mean + reach, count, spread)


def ratio_estimate(numerators: Sequence[float], denominators: Sequence[float]) -> Estimate:
    """Return Σ numerators / Σ denominators over several samples, with its confidence interval.

    A sample with a large denominator counts more than others, as in the ratio estimator (W. G.
    Cochran, "Sampling Techniques", 3rd edition, 1977, §6.4). The interval is that of the mean of
    the linearised ratio.

    Args:
        numerators: One value for each sample, at least one.
        denominators: One value for each sample; their sum is positive.
    """
    above, below = np.asarray(numerators), np.asarray(denominators)
    ratio = float(above.sum() / below.sum())
    return estimate((ratio + (above - ratio * below) / below.mean()).tolist())


def resampled_ends(resampled: NDArray[np.float64], users: int) -> tuple[float, float]:
    """Return a 90 % interval of a statistic from its bootstrap values, corrected for few users.

    The plain 5 % and 95 % quantiles of the bootstrap are too narrow for few users. For six users,
    the interval of a mean is a quarter narrower than Student's t. So more extreme quantiles are
    used (the expanded percentile interval: T. Hesterberg, "What Teachers Should Know About the
    Bootstrap", The American Statistician 69(4), 2015).

    Args:
        resampled: Value of the statistic for each bootstrap sample of users.
        users: Number of users in a sample, at least two.
    """
    reach = float(stdtrit(users - 1, 0.5 + _CONFIDENCE / 2)) * float(np.sqrt(users / (users - 1)))
    tail = float(ndtr(-reach))
    low, high = np.quantile(resampled, (tail, 1.0 - tail))
    return float(low), float(high)


def all_of(verdicts: Sequence[bool | None]) -> bool | None:
    """Combine verdicts on several claims: return whether all claims hold.

    False if any verdict is False; else None (undecided) if any is None; else True.
    """
    if any(verdict is False for verdict in verdicts):
        return False
    return None if any(verdict is None for verdict in verdicts) else True
