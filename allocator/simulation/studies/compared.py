"""Compares several policies on one trace, as table rows and as a figure."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from allocator.files import csv_cell, whole
from allocator.simulation.outcome import NEVER, Outcome
from allocator.simulation.studies.comparisons import (
    PolicyGain,
    distribution,
    reduction,
    reduction_interval,
)
from allocator.simulation.studies.drawing import legend, new_figure, styles, time_axis
from allocator.simulation.studies.estimates import Estimate, ratio_estimate
from allocator.simulation.studies.measures import Floats, UserMeasures
from allocator.simulation.trace import MICROSECONDS, Trace

USER_COLUMNS = (
    *("policy", "user", "half", "usage", "tasks", "baseline_wait_s", "wait_s"),
    *("saved_s", "saved_low_s", "saved_high_s"),
)
"""Columns of the CSV of `write_users`."""


@dataclass(frozen=True)
class ComparisonRow:
    """Effect of one policy on users, compared with the first policy.

    Args:
        policy: The policy as named by the user.
        mean_user_wait_s: Mean over users of each user's mean wait, in seconds.
        reduction: Fraction by which this mean is lower than under the first policy.
        reduction_low, reduction_high: 90 % interval of the reduction (bootstrap over users). None:
            first policy, or fewer than five users.
        light: The same reduction for the half of the users with the lowest usage.
        light_low, light_high: 90 % interval of `light`, as for the reduction.
        heavy: The same reduction for the half of the users with the highest usage.
        gain: Number of users whose mean wait is shorter by more than a second.
        lose: Number of users whose mean wait is longer by more than a second.
        mean_user_completion_ratio: Mean of users' completion ratios.
        saved_s: For each user counted in `gain` or `lose`, the seconds by which its mean wait is
            shorter, largest first; negative if its wait is longer.
    """

    policy: str
    mean_user_wait_s: float
    reduction: float
    reduction_low: float | None
    reduction_high: float | None
    light: float
    light_low: float | None
    light_high: float | None
    heavy: float
    gain: int
    lose: int
    mean_user_completion_ratio: float
    saved_s: dict[str, float]

    @property
    def is_equal(self) -> bool:
        """True if no user's mean wait differs by more than a second from the first policy."""
        return self.gain == self.lose == 0


@dataclass(frozen=True)
class PeriodComparison:
    """Waits under one policy in equal periods of a trace, compared with the first policy.

    Args:
        ends: Borders of the periods in seconds, one more than there are periods.
        waits: Mean wait in each period (`waits_by_period`), in seconds.
        reductions: Fraction by which this wait is lower than under the first policy, by period; NaN
            without a wait under the first policy.
        overall: The same fraction over all periods, with a 90 % interval (Student's t over
            periods); all NaN without a wait under the first policy.
    """

    ends: tuple[float, ...]
    waits: tuple[float, ...]
    reductions: tuple[float, ...]
    overall: Estimate


@dataclass(frozen=True)
class GroupComparison:
    """Waits of a group of users under one policy, compared with the first policy.

    Args:
        users: Number of users of the group.
        mean_user_wait_s: Mean over these users of each user's mean wait, in seconds; NaN if none
            of their tasks started.
        reduction: Fraction by which this mean is lower than under the first policy.
        low, high: 90 % interval of the reduction (bootstrap over users). NaN: first policy, or
            fewer than five users.
        periods: The same comparison by period; None: not computed.
    """

    users: int
    mean_user_wait_s: float
    reduction: float
    low: float
    high: float
    periods: PeriodComparison | None

    def verdict(self, *, named: bool = False) -> Literal["less", "longer", "undecided"]:
        """Return whether these users wait less or longer than under the first policy.

        All intervals must be on one side of 0. An unknown interval decides nothing.

        Args:
            named: True for named users: other users do not matter. Then the interval over periods,
                if known, and the sign of the reduction decide.
        """
        known = named and self.periods is not None
        ends = [(self.reduction, self.reduction) if known else (self.low, self.high)]
        if self.periods is not None:
            ends.append((self.periods.overall.low, self.periods.overall.high))
        if all(low > 0.0 for low, _high in ends):
            return "less"
        return "longer" if all(high < 0.0 for _low, high in ends) else "undecided"


def period_ends(trace: Trace, periods: int) -> Floats:
    """Return the borders of equal periods, from the first to the last submission, in seconds.

    Args:
        trace: The trace, with at least one task.
        periods: Number of periods.

    Returns:
        One value more than there are periods.
    """
    first, last = int(trace.submitted[0]), int(trace.submitted[-1])
    return np.linspace(first, last, periods + 1) / MICROSECONDS


def user_sums_by_period(outcome: Outcome, periods: int) -> tuple[Floats, Floats]:
    """Return each user's sum of waits in seconds, and number of tasks, in each period.

    A task belongs to the period of its submission (`period_ends`). Tasks that never started are
    left out.

    Args:
        outcome: The simulated tasks, at least one.
        periods: Number of periods.

    Returns:
        Two arrays of shape (periods, users).
    """
    trace = outcome.trace
    ran = outcome.started != NEVER
    borders = period_ends(trace, periods)[1:-1]
    period = np.searchsorted(borders, trace.submitted[ran] / MICROSECONDS, side="right")
    users = len(trace.users)
    cell = period * users + trace.user[ran]
    tasks = np.bincount(cell, minlength=periods * users).reshape(periods, users)
    total = np.bincount(cell, outcome.wait[ran], periods * users).reshape(periods, users)
    return total.astype(np.float64), tasks.astype(np.float64)


def waits_by_period(total: Floats, tasks: Floats) -> Floats:
    """Return the mean over users of their mean waits in each period, in seconds.

    The value of a period without started tasks is NaN.

    Args:
        total: Sums of waits, from `user_sums_by_period`.
        tasks: Numbers of tasks, from the same call.
    """
    with np.errstate(invalid="ignore"):
        means = np.where(tasks > 0, total / tasks, 0.0)
        waits: Floats = means.sum(axis=1) / (tasks > 0).sum(axis=1)
    return waits


def by_period(trace: Trace, waits: Mapping[str, Floats]) -> dict[str, PeriodComparison]:
    """Compare each policy with the first one, period by period.

    Args:
        trace: The simulated trace.
        waits: Waits in each period (`waits_by_period`), by policy. May be empty.
    """
    first = next(iter(waits.values()), np.empty(0))
    ends = tuple(period_ends(trace, len(first)).tolist()) if len(first) else ()
    present = np.isfinite(first)
    ever_waits = bool((first[present] > 0.0).any())
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            policy: PeriodComparison(
                ends,
                tuple(wait.tolist()),
                tuple(np.where(first > 0.0, 1.0 - wait / first, np.nan).tolist()),
                ratio_estimate((first - wait)[present].tolist(), first[present].tolist())
                if ever_waits
                else Estimate(np.nan, np.nan, np.nan, int(present.sum())),
            )
            for policy, wait in waits.items()
        }


def group(
    trace: Trace,
    fared: Mapping[str, UserMeasures],
    sums: Mapping[str, tuple[Floats, Floats]],
    members: NDArray[np.bool_],
) -> dict[str, GroupComparison]:
    """Compare each policy with the first one for some of the users. Return a result per policy.

    Args:
        trace: The simulated trace.
        fared: Users' results under each policy, by name of the policy.
        sums: Sums by period (`user_sums_by_period`), by policy. Empty: there are no periods.
        members: Mask of these users.
    """
    first = next(iter(fared.values())).selected(members)
    waits = {
        policy: waits_by_period(total[:, members], tasks[:, members])
        for policy, (total, tasks) in sums.items()
    }
    periods = by_period(trace, waits)
    compared: dict[str, GroupComparison] = {}
    for policy, users in fared.items():
        selected = users.selected(members)
        low, high = reduction_interval([(first.wait, selected.wait)] if compared else [])
        compared[policy] = GroupComparison(
            int(members.sum()),
            selected.mean_wait(),
            reduction(first.mean_wait(), selected.mean_wait()),
            low,
            high,
            periods.get(policy),
        )
    return compared


def rows(fared: Mapping[str, UserMeasures]) -> list[ComparisonRow]:
    """Compare each policy with the first one. Return one row per policy.

    Args:
        fared: Users' results under each policy, by name of the policy.
    """
    first = next(iter(fared.values()))
    compared = []
    for policy, users in fared.items():
        gain = PolicyGain(first, first.wait, users.wait)
        low, high = reduction_interval([(first.wait, users.wait)])
        light_low, light_high = gain.interval_of_half(lighter=True)
        known = users is not first and np.isfinite(low)
        light_known = users is not first and np.isfinite(light_low)
        compared.append(
            ComparisonRow(
                policy,
                users.mean_wait(),
                reduction(first.mean_wait(), users.mean_wait()),
                low if known else None,
                high if known else None,
                gain.reduction_of_half(lighter=True),
                light_low if light_known else None,
                light_high if light_known else None,
                gain.reduction_of_half(lighter=False),
                int(gain.gains.sum()),
                int(gain.loses.sum()),
                float(np.nanmean(users.completion)) if np.isfinite(users.completion).any() else 1.0,
                _saved(gain),
            )
        )
    return compared


def _saved(gain: PolicyGain) -> dict[str, float]:
    saved = gain.saved
    changed = np.flatnonzero(gain.gains | gain.loses)
    ranked = changed[np.argsort(-saved[changed], kind="stable")].tolist()
    return {gain.users.name[user]: float(saved[user]) for user in ranked}


def write_users(
    fared: Mapping[str, UserMeasures], sums: Mapping[str, tuple[Floats, Floats]], path: Path
) -> None:
    """Write a CSV with a row for each user under each policy but the first.

    Columns: `policy`, `user`, `half` (light or heavy), `usage`, `tasks`; the mean wait in seconds
    under the first policy (`baseline_wait_s`) and under this policy (`wait_s`); the difference
    `saved_s`, with a 90 % interval from `saved_low_s` to `saved_high_s` (Student's t over the
    periods in which the user submitted tasks). A value that is unknown is empty.

    Args:
        fared: Users' results under each policy, by name of the policy.
        sums: Sums by period (`user_sums_by_period`), by policy. Empty: there are no intervals.
        path: The file, which is replaced.

    Raises:
        OSError: The file cannot be written.
    """
    (first, base), *alternatives = fared.items()
    half = np.where(base.lighter_half(), "light", "heavy").tolist()
    with whole(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(USER_COLUMNS)
        for policy, users in alternatives:
            for user, name in enumerate(users.name):
                before, after = float(base.wait[user]), float(users.wait[user])
                saved = Estimate(before - after, np.nan, np.nan, 1)
                if sums:
                    tasks = sums[first][1][:, user]
                    came = tasks > 0
                    change = (sums[first][0] - sums[policy][0])[:, user]
                    if came.any():
                        saved = ratio_estimate(change[came].tolist(), tasks[came].tolist())
                numbers = (before, after, before - after, saved.low, saved.high)
                writer.writerow(
                    (
                        csv_cell(policy),
                        csv_cell(name),
                        half[user],
                        float(base.usage[user]),
                        int(base.tasks[user]),
                        *(number if np.isfinite(number) else "" for number in numbers),
                    )
                )


def figure_of(fared: Mapping[str, UserMeasures], title: str) -> Figure:
    """Draw users' waits under each policy, and each user's change relative to the first policy.

    Args:
        fared: Users' results under each policy, by name of the policy.
        title: Title of the figure.
    """
    figure, (waits, saved) = new_figure(title, panels=2)
    drawn = styles(fared)
    first, base = next(iter(fared.items()))
    for policy, users in fared.items():
        waits.step(*distribution(users.wait), where="post", label=policy, **drawn[policy])
        if policy == first:
            continue
        seconds = base.wait - users.wait
        ranked = np.sort(seconds[np.isfinite(seconds)])[::-1]
        rank = np.arange(1, len(ranked) + 1) / max(len(ranked), 1)
        saved.step(rank, ranked, where="post", label=policy, **drawn[policy])
    waits.set_xlim(left=0.0)
    time_axis(waits, "x")
    waits.set_ylim(0.0, 1.0)
    waits.set_xlabel("Mean wait of a user")
    waits.set_ylabel("Fraction of users")
    time_axis(saved, "y", linear=10.0)
    saved.axhline(0.0, color="0.3", linewidth=0.8)
    saved.set_xlabel("Fraction of users, largest gain first")
    saved.set_ylabel(f"Mean wait saved relative to {first}")
    legend(waits)
    return figure
