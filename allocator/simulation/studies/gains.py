"""Report sections on any workload: which users wait less or longer under each policy."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from allocator.simulation.studies.comparisons import PolicyGain, gain, reduction
from allocator.simulation.studies.gains_figures import saved_by_user
from allocator.simulation.studies.results import Result
from allocator.simulation.studies.section import Section, Table, duration

_SHOWN = 8
"""Number of users in each table of largest gains or losses."""
_DRAWN = 6
"""Number of policies in a figure: those with the shortest waits."""


def sections(results: Sequence[Result], baseline: str) -> Iterator[Section]:
    """Yield report sections: how much each user waits less or longer than under a baseline policy.

    There is one section for each group of comparable results that includes the baseline. If a
    workload has several seeds, only the first is shown, because other seeds have other users.

    Args:
        results: Results of a sweep's cells.
        baseline: Label of the baseline policy.
    """
    groups: defaultdict[tuple[str, ...], list[Result]] = defaultdict(list)
    for result in results:
        if result.raw["engine"] == "fast":
            groups[(*map(str, result.group[:4]), str(result.group[4]))].append(result)
    for number, group in enumerate(groups.values(), 1):
        first = group[0].raw["trace"]
        same_trace = [result for result in group if result.raw["trace"] == first]
        base = next((result for result in same_trace if result.label == baseline), None)
        compared = [result for result in same_trace if result is not base]
        if base is not None and compared:
            yield _section(f"gains-{number}", base, compared)


def _section(name: str, base: Result, compared: Sequence[Result]) -> Section:
    gains = {result.label: gain(base, result) for result in compared}
    waits = {result.label: result.mean_wait for result in compared}
    order = sorted(gains, key=lambda label: (np.isnan(waits[label]), waits[label]))
    best = order[0]
    place = "on its machines" if base.load is None else f"at {base.load:.0%} of its mean use"
    return Section(
        name,
        f"Gains and losses of users: {base.raw['name']} {place}",
        (
            (
                f"Relative to {base.label}, under which the mean of users' mean waits is "
                f"{duration(base.mean_wait)}. A user gains or loses when its mean wait changes by "
                "more than a second. Light users are the half of users with less dominant use."
            ),
        ),
        saved_by_user({label: gains[label] for label in order[:_DRAWN]}, base.label),
        (
            ("All policies", _overview(base, waits, gains, order)),
            (f"Largest gains under {best}", _users(gains[best], most=True)),
            (f"Largest losses under {best}", _users(gains[best], most=False)),
        ),
    )


def _overview(
    base: Result, waits: dict[str, float], gains: dict[str, PolicyGain], order: Sequence[str]
) -> Table:
    return Table(
        ("policy", "mean wait", "less by", "light users", "heavy users", "gain", "lose"),
        [
            (
                label,
                duration(waits[label]),
                f"{reduction(base.mean_wait, waits[label]):+.1%}",
                f"{gains[label].reduction_of_half(lighter=True):+.1%}",
                f"{gains[label].reduction_of_half(lighter=False):+.1%}",
                str(int(gains[label].gains.sum())),
                str(int(gains[label].loses.sum())),
            )
            for label in order
        ],
    )


def _users(gain: PolicyGain, *, most: bool) -> Table:
    affected = gain.gains if most else gain.loses
    saved = np.where(affected, gain.saved, 0.0)
    order = np.argsort(-saved if most else saved, kind="stable")[: min(_SHOWN, affected.sum())]
    return Table(
        ("user", "tasks", "of all use", "mean wait before", "mean wait now", "saved"),
        [
            (
                gain.users.name[user],
                str(gain.users.tasks[user]),
                f"{gain.users.usage[user]:.2%}",
                duration(gain.before[user]),
                duration(gain.after[user]),
                ("" if most else "−") + duration(abs(gain.saved[user])),
            )
            for user in order
        ],
    )
