"""Formulas that compare two simulations: reductions, distributions, gains and speed-ups."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from allocator.simulation import fastest
from allocator.simulation.holding import Blocking
from allocator.simulation.outcome import Outcome
from allocator.simulation.setting import Setting
from allocator.simulation.studies.estimates import resampled_ends
from allocator.simulation.studies.measures import Floats, JobMeasures, UserMeasures
from allocator.simulation.studies.results import Result
from allocator.simulation.trace import Trace

SIZES = (("small", 1, 10), ("medium", 11, 100), ("big", 101, 500), ("huge", 501, None))
"""Classes of jobs by number of tasks: (name, minimum, maximum), as in the TSF paper (§VI-B2)."""


LEAST_USERS = 5
"""Least number of users that gives an interval over users.

All values of four users lie on one side of their median in an eighth of the cases. So not even the
range of four values is a 90 % interval.
"""
_RESAMPLES = 1000
"""Number of bootstrap samples of users."""
_SAME_S = 60.0
"""Difference in seconds up to which a simulated and a recorded mean wait count as equal."""
_FIFO_RULES: tuple[Blocking, ...] = ("head-of-line", "skip", "hold")
"""Rules for the comparison of a record with jobs in order of submission."""
_FIFO_TASKS = 20_000
"""Maximum number of tasks of the comparison; bounds the CPU time to a few seconds."""
_FITS = 0.8
"""A simulation reproduces a record if the shorter mean wait is this fraction of the longer one."""


def reduction(before: float, after: float) -> float:
    """Return the relative decrease from one value to another: 1 − after / before.

    The result is 0 if the first value is 0 or negative.
    """
    return (before - after) / before if before > 0 else 0.0


def reduction_interval(waits: Sequence[tuple[Floats, Floats]]) -> tuple[float, float]:
    """Return a 90 % confidence interval of the reduction of the mean wait, by bootstrap over users.

    Args:
        waits: For each trace, users' mean waits under the baseline and under the policy.

    Returns:
        The ends of the interval; NaN for fewer than `LEAST_USERS` users that started.
    """
    generator = np.random.default_rng(1)
    before, after = np.zeros(_RESAMPLES), np.zeros(_RESAMPLES)
    users = 0
    for before_waits, after_waits in waits:
        started = np.isfinite(before_waits + after_waits)
        count = int(started.sum())
        if not count:
            continue
        draws = generator.integers(count, size=(_RESAMPLES, count))
        before += before_waits[started][draws].mean(axis=1)
        after += after_waits[started][draws].mean(axis=1)
        users += count
    if users < LEAST_USERS:
        return float("nan"), float("nan")
    with np.errstate(divide="ignore", invalid="ignore"):
        reductions = np.where(before > 0.0, 1.0 - after / before, 0.0)
    return resampled_ends(reductions, users)


@dataclass(frozen=True)
class RecordCheck:
    """Simulated waits, compared with the waits that the trace's source records.

    Means are over users, of each user's mean wait over the tasks that started and have a record.

    Args:
        tasks: Number of these tasks.
        users: Number of users with such a task.
        recorded_wait_s: Mean of the recorded waits, in seconds.
        simulated_wait_s: Mean of the simulated waits, in seconds.
        ratio: Simulated divided by recorded mean; None if no recorded task waited.
        low: Lower end of the ratio's 90 % interval, by bootstrap over users; None for fewer than
            `LEAST_USERS` users.
        high: Upper end of this interval.
        near: Number of users whose simulated and recorded means differ by at most a factor of 2, or
            at most a minute.
    """

    tasks: int
    users: int
    recorded_wait_s: float
    simulated_wait_s: float
    ratio: float | None
    low: float | None
    high: float | None
    near: int


def check_record(outcome: Outcome, recorded: Floats | None) -> RecordCheck | None:
    """Compare simulated with recorded waits; return None if no task has both.

    Args:
        outcome: The simulated tasks.
        recorded: Each task's recorded wait in seconds, NaN if unknown; None: there is no record.
    """
    if recorded is None:
        return None
    users = len(outcome.trace.users)
    known = np.isfinite(recorded) & np.isfinite(outcome.wait)
    tasks = np.bincount(outcome.trace.user[known], minlength=users)
    present = tasks > 0
    if not present.any():
        return None
    before, after = (
        np.bincount(outcome.trace.user[known], waits[known], users)[present] / tasks[present]
        for waits in (recorded, outcome.wait)
    )
    mean = float(before.mean())
    low, high = reduction_interval([(before, after)])
    has_interval = mean > 0.0 and np.isfinite(low)
    near = (np.maximum(before, after) <= 2.0 * np.minimum(before, after)) | (
        np.abs(before - after) <= _SAME_S
    )
    return RecordCheck(
        int(known.sum()),
        int(present.sum()),
        mean,
        float(after.mean()),
        float(after.mean()) / mean if mean > 0.0 else None,
        1.0 - high if has_interval else None,
        1.0 - low if has_interval else None,
        int(near.sum()),
    )


@dataclass(frozen=True)
class RuleCheck:
    """Recorded waits, compared with jobs in order of submission (`fifo`, per job).

    Args:
        checks: Comparisons by the rule for tasks without room.
    """

    checks: Mapping[Blocking, RecordCheck]

    @property
    def reproduces(self) -> Blocking | None:
        """The rule with the mean wait closest to the record; None if all differ by over 20 %."""
        fits = {
            rule: min(check.ratio, 1.0 / check.ratio)
            for rule, check in self.checks.items()
            if check.ratio
        }
        best = max(fits, key=lambda rule: fits[rule], default=None)
        return best if best is not None and fits[best] >= _FITS else None


def check_rules(
    trace: Trace, capacity: tuple[float, ...] | None, recorded: Floats | None
) -> RuleCheck | None:
    """Simulate jobs in order of submission under three rules, and compare them with the record.

    Only the trace's first 20,000 tasks are simulated.

    Args:
        trace: The trace.
        capacity: The pool's capacity; None: the trace's machines.
        recorded: Each task's recorded wait in seconds, NaN if unknown; None: there is no record.

    Returns:
        The comparisons; None if no task has a recorded and a simulated wait.
    """
    if recorded is None:
        return None
    first = slice(_FIFO_TASKS)
    columns = ("submitted", "runtime", "user", "job", "demand", "constraint")
    trace = replace(trace, **{name: getattr(trace, name)[first] for name in columns})
    checks = {}
    for rule in _FIFO_RULES:
        setting = Setting("fifo", capacity=capacity, blocking=rule, per="job")
        check = check_record(fastest.simulate(trace, setting, events=False), recorded[first])
        if check is not None:
            checks[rule] = check
    return RuleCheck(checks) if checks else None


def distribution(values: Iterable[float], limit: float = np.inf) -> tuple[Floats, Floats]:
    """Return an empirical distribution: the sorted values, and the fraction of values up to each.

    NaN counts as infinite, because a task that never started waits forever.

    Args:
        values: The values.
        limit: Largest value to return; larger values count only in the total.
    """
    array = np.asarray(list(values) if not isinstance(values, np.ndarray) else values, np.float64)
    finite = np.sort(array[np.isfinite(array) & (array <= limit)])
    return finite, np.arange(1, len(finite) + 1) / max(len(array), 1)


@dataclass(frozen=True)
class PolicyGain:
    """How much longer or shorter each user waits under a policy than under another policy.

    Arrays have one entry per user.

    Args:
        users: Results under the other policy. Names, tasks and usage do not depend on the policy.
        before: Mean wait in seconds under the other policy.
        after: Mean wait in seconds under this policy.
        slack: Change in seconds up to which a user counts as unaffected.
    """

    users: UserMeasures
    before: Floats
    after: Floats
    slack: float = 1.0

    @property
    def saved(self) -> Floats:
        """Each user's reduction of its mean wait in seconds.

        Negative for a user that waits longer.
        """
        return self.before - self.after

    @property
    def gains(self) -> NDArray[np.bool_]:
        """Mask of users that wait less, by more than `slack`."""
        return self.saved > self.slack

    @property
    def loses(self) -> NDArray[np.bool_]:
        """Mask of users that wait longer, by more than `slack`."""
        return self.saved < -self.slack

    def reduction_of_half(self, *, lighter: bool) -> float:
        """Return the reduction of the mean wait for one half of the users by usage.

        Args:
            lighter: True for the half with the lowest usage, False for the half with the highest.
        """
        selected = self._half(lighter=lighter)
        if not selected.any():
            return 0.0
        return reduction(float(self.before[selected].mean()), float(self.after[selected].mean()))

    def interval_of_half(self, *, lighter: bool) -> tuple[float, float]:
        """Return the interval of `reduction_of_half`, as `reduction_interval` does."""
        selected = self._half(lighter=lighter)
        return reduction_interval([(self.before[selected], self.after[selected])])

    def _half(self, *, lighter: bool) -> NDArray[np.bool_]:
        selected = self.users.lighter_half()
        return (selected if lighter else ~selected) & np.isfinite(self.before + self.after)

    @property
    def lower_part(self) -> float:
        """Fraction of all users' saved seconds that goes to the half with the lowest usage.

        The value exceeds 1 if the other half waits longer. The value is 0 if all users together
        save nothing.
        """
        light = self.users.lighter_half()
        total, light_total = float(np.nansum(self.saved)), float(np.nansum(self.saved[light]))
        return light_total / total if total > 0.0 else 0.0


def gain(before: Result, after: Result) -> PolicyGain:
    """Compare users' waits under two policies, simulated on the same trace.

    Args:
        before: Result under the policy to compare with.
        after: Result under the policy of interest.
    """
    return PolicyGain(before.users, before.users.wait, after.users.wait)


def speedup(alternative: JobMeasures, baseline: JobMeasures) -> Floats:
    """Return how much earlier each job completes under a baseline policy than under an alternative.

    The result is a fraction of the job's completion time under the alternative.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return (alternative.completion - baseline.completion) / alternative.completion


def by_size(size: NDArray[np.int64], values: Floats) -> dict[str, Floats]:
    """Group jobs' values by size class (`SIZES`). Values that are not finite are left out.

    Args:
        size: Number of tasks of each job.
        values: Value of each job.
    """
    finite = np.isfinite(values)
    return {
        name: values[
            finite & (size >= minimum) & (size <= (np.inf if maximum is None else maximum))
        ]
        for name, minimum, maximum in SIZES
    }
