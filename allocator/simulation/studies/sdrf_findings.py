"""Report sections on the SDRF paper (§7.2): are the findings of Fig. 8, 9 and 10 reproduced?"""

from collections.abc import Iterator, Sequence

import numpy as np

from allocator.simulation.studies import sdrf_figures, sdrf_tree
from allocator.simulation.studies.estimates import all_of
from allocator.simulation.studies.results import Result
from allocator.simulation.studies.sdrf_study import Changes, Study, changes, studies
from allocator.simulation.studies.section import (
    Finding,
    Section,
    Table,
    discount,
    duration,
    power_of_ten,
)

_PUBLISHED_BEST = 1e-6
"""Value of 1 − δ at which the paper found the largest reduction of waits, at each load."""
_MIN_REDUCTION = 0.10
"""Smallest reduction of waits that the paper found at `_PUBLISHED_BEST`."""
_LITTLE = 0.05
"""Change of the upper half's wait that still counts as the paper's "little impact"."""
_MAX_LOSERS = 11 / 627
_MAJORITY = 0.5
_SPREADS = "Standard deviation between traces, with its 90 % interval (χ²)"
_INTERVAL = "Brackets hold 90 % intervals of the mean over traces (Student's t)."


def sections(results: Sequence[Result]) -> Iterator[Section]:
    """Yield a report section for each of Fig. 8 to 11 and Table 1 that has enough results."""
    for number, study in enumerate(studies(results), 1):
        suffix = "" if number == 1 else f"-{number}"
        if study.loads:
            yield from _figures(study, suffix)
        yield from sdrf_tree.sections(study, suffix)


def _figures(study: Study, suffix: str) -> Iterator[Section]:
    if any(len(study.forgotten_values(load)) > 1 for load in study.loads):
        yield _reductions(study, suffix)
    lowest = study.loads[0]
    forgotten_values = study.forgotten_values(lowest)
    chosen = min(forgotten_values, key=lambda forgotten: abs(np.log(forgotten / _PUBLISHED_BEST)))
    pairs = study.pairs(lowest, chosen)
    description = f"{study.name} at {lowest:.0%} of its mean use, {discount(chosen)}"
    effects = changes(study, lowest, chosen)
    yield Section(
        f"sdrf-fig-9{suffix}",
        f"SDRF Fig. 9: waits of light and heavy users ({description})",
        (f"Lines are means over {len(pairs)} traces, bands their 90 % intervals.",)
        if len(pairs) > 1
        else (),
        figure=sdrf_figures.waits_by_half([(before.users, after.users) for before, after in pairs]),
        claims=(_light_users_gain(effects), _heavy_users_hardly_change(effects)),
    )
    yield Section(
        f"sdrf-fig-10{suffix}",
        f"SDRF Fig. 10: task completion ratios ({description})",
        (
            (
                "A task counts as completed if it finishes before the time at which the last task "
                "would finish without any waiting."
            ),
            *(("The figure shows the first trace.",) if len(pairs) > 1 else ()),
        ),
        sdrf_figures.completion_bubbles(pairs[0][0].users, pairs[0][1].users),
        claims=(_most_complete_more(effects), _few_complete_less(effects)),
    )


def _reductions(study: Study, suffix: str) -> Section:
    loads = study.loads
    forgotten_values = sorted(
        {forgotten for load in loads for forgotten in study.forgotten_values(load)}, reverse=True
    )
    values_by_load = {load: study.forgotten_values(load)[::-1] for load in loads}
    curves = {
        load: (np.array(values), [study.reduction(load, forgotten) for forgotten in values])
        for load, values in values_by_load.items()
    }
    rows = [
        (
            f"{load:.0%}",
            *(
                study.reduction(load, forgotten).percent
                if forgotten in values_by_load[load]
                else ""
                for forgotten in forgotten_values
            ),
        )
        for load in loads
    ]
    header = ("capacity", *map(power_of_ten, forgotten_values))
    spreads = [
        (
            f"{load:.0%}",
            *(
                f"{study.reduction(load, forgotten).written_spread('{:.1f}'.format, 100.0)} %"
                if forgotten in values_by_load[load]
                else ""
                for forgotten in forgotten_values
            ),
        )
        for load in loads
    ]
    first = next(iter(study.drf[loads[0]].values()))
    span = float(first.raw["span_s"])
    traces = len(study.drf[loads[0]])
    return Section(
        f"sdrf-fig-8{suffix}",
        f"SDRF Fig. 8: reduction of users' waits ({study.name})",
        (
            f"{first.raw['tasks']:,} tasks of {len(first.users.name)} users over {duration(span)}"
            + (f"; means over {traces} traces. {_INTERVAL}" if traces > 1 else "."),
        ),
        sdrf_figures.reductions(curves),
        (
            (
                "Reduction against DRF, by capacity and 1 − δ",
                Table(header, rows),
            ),
            *(((_SPREADS, Table(header, spreads)),) if traces > 1 else ()),
        ),
        (
            _lowers_waits(study),
            _more_when_overloaded(study),
            _optimum_is_interior(study, span),
            _ends_are_drf(study),
        ),
    )


def _lowers_waits(study: Study) -> Finding:
    best = {load: study.reduction(load, study.best(load)) for load in study.loads}
    return Finding(
        "With the best δ, SDRF lowers the mean of users' mean waits by more than 10 % at every "
        "load.",
        "; ".join(f"{reduction.percent} less at {load:.0%}" for load, reduction in best.items())
        + ".",
        all_of([reduction.exceeds(_MIN_REDUCTION) for reduction in best.values()]),
        "The possible reduction depends on the burstiness and inequality of users. These are "
        "not published for the paper's trace, and they differ between the draws of this one.",
    )


def _more_when_overloaded(study: Study) -> Finding:
    lowest, highest = study.loads[0], study.loads[-1]
    shared = [
        forgotten
        for forgotten in study.forgotten_values(lowest)
        if forgotten in study.forgotten_values(highest)
    ]
    chosen = max(shared, key=lambda forgotten: study.reduction(lowest, forgotten).mean)
    trend = study.trend((lowest, highest), chosen)
    return Finding(
        "The advantage is more evident when the system is overloaded.",
        f"At {discount(chosen)}, {trend.percent} more at {lowest:.0%} than at {highest:.0%}, month "
        "by month.",
        trend.exceeds(0.0),
        "With more capacity fewer users wait, and the remaining waits may be easier or harder "
        "to reduce.",
    )


def _optimum_is_interior(study: Study, span: float) -> Finding:
    best = {load: study.best(load) for load in study.loads}
    published = {
        load: study.nearest(load, _PUBLISHED_BEST)
        for load in study.loads
        if len(study.forgotten_values(load)) > 1
    }
    leads = {
        load: None if forgotten is None else study.lead(load, forgotten)
        for load, forgotten in published.items()
    }
    return Finding(
        "The optimum is inside the range of δ, at 1 − 10⁻⁶ for every load.",
        "; ".join(f"{discount(forgotten)} at {load:.0%}" for load, forgotten in best.items())
        + ". Lead of 1 − 10⁻⁶ over the best of the others: "
        + (
            "; ".join(f"{lead.percent} at {load:.0%}" for load, lead in leads.items() if lead)
            or "not tried"
        )
        + ".",
        all_of([None if lead is None else lead.exceeds(0.0) for lead in leads.values()]),
        "The best memory is about as long as the time over which users' use evens out, and "
        "cannot be longer than the workload. The paper's trace covers 29 days, and with "
        f"δ = 1 − 10⁻⁶ commitments halve in 8 days; this workload covers {duration(span)}. If an "
        "interval contains 0, two values of δ are equally good.",
    )


def _ends_are_drf(study: Study) -> Finding:
    load = study.loads[0]
    values = study.forgotten_values(load)
    best = study.reduction(load, study.best(load))
    ends = [study.reduction(load, forgotten) for forgotten in (values[-1], values[0])]
    half = 0.5 * best.mean
    return Finding(
        "At both ends of the range of δ, SDRF is close to DRF.",
        f"At {load:.0%}: {ends[0].percent} at {discount(values[-1])}, {ends[1].percent} at "
        f"{discount(values[0])}, against {best.percent} at the best.",
        all_of([end.within(half) for end in ends]),
        "Close means less than half of the best reduction. The simulated range may be too "
        "narrow: commitments that last longer than the workload still differ between users, "
        "although they stay small.",
    )


def _light_users_gain(changed: Changes) -> Finding:
    return Finding(
        "Most of the reduction is in the half of users with the lowest usage.",
        f"The lower half saves {changed.lower_part.part} of all saved seconds of mean wait: "
        f"{changed.light_s.written(duration)} for each user, and the upper half "
        f"{changed.heavy_s.written(duration)}.",
        changed.lower_part.exceeds(_MAJORITY),
        "Light users may still gain more in relative terms. But heavy users wait far longer, so "
        "most of the seconds that can be saved are theirs.",
    )


def _heavy_users_hardly_change(changed: Changes) -> Finding:
    heavy = changed.heavy
    return Finding(
        "Users in the upper half suffer little impact.",
        f"The mean wait of the upper half is {heavy.percent} less.",
        heavy.within(_LITTLE),
        "Little means 5 %. If the reduction is larger, the upper half contains many users that "
        "are light for most of the month and wait less too. Only a negative value is a loss.",
    )


def _most_complete_more(changed: Changes) -> Finding:
    return Finding(
        "Most users complete more of their tasks under SDRF.",
        f"{changed.more.part} of users complete more.",
        changed.more.exceeds(_MAJORITY),
        "A user that completes all tasks under DRF cannot complete more. Only users with "
        "unfinished tasks at the trace's end can, and here these are a minority.",
    )


def _few_complete_less(changed: Changes) -> Finding:
    fewer = changed.fewer.exceeds(_MAX_LOSERS)
    return Finding(
        "11 of 627 users (1.8 %) complete fewer, and few fewer.",
        f"{changed.fewer.part} of users complete fewer; the largest loss of a user is "
        f"{changed.loss.part} of its tasks.",
        None if fewer is None else not fewer,
        "When the trace ends, what runs is decided by what is left in the queues; users whose "
        "tasks come late in the trace have no time to be compensated.",
    )
