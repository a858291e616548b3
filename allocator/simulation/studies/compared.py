"""Compares several policies on one trace, as table rows and as a figure."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from allocator.simulation.studies.comparisons import (
    PolicyGain,
    distribution,
    reduction,
    reduction_interval,
)
from allocator.simulation.studies.drawing import legend, new_figure, styles, time_axis
from allocator.simulation.studies.measures import UserMeasures


@dataclass(frozen=True)
class ComparisonRow:
    """Effect of one policy on users, compared with the first policy.

    Args:
        policy: The policy as named by the user.
        mean_user_wait_s: Mean over users of each user's mean wait, in seconds.
        reduction: Fraction by which this mean is lower than under the first policy.
        reduction_low, reduction_high: 90 % interval of the reduction, from 1,000 draws of the users
            with replacement; None for the first policy, and for fewer than two users.
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
