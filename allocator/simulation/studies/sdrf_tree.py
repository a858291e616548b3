"""Report sections on the SDRF paper (§7.2): the cost of ranking users (Fig. 11 and Table 1)."""

from collections.abc import Iterator, Sequence

import numpy as np

from allocator.simulation.studies import sdrf_figures
from allocator.simulation.studies.sdrf_study import Study
from allocator.simulation.studies.section import Finding, Section, Table, discount


def sections(study: Study, suffix: str) -> Iterator[Section]:
    """Yield a report section for Fig. 11 and one for Table 1, if there are enough results.

    Args:
        study: The results.
        suffix: Text added to the sections' names, to keep names of several studies distinct.
    """
    loads = sorted(load for load in study.sdrf if len(study.counted(load)) > 1)
    if loads:
        yield _events(study, loads, suffix)
    if {"live-tree", "scan"} <= study.timed.keys():
        yield _table_1(study, suffix)


def _events(study: Study, loads: Sequence[float], suffix: str) -> Section:
    curves = {
        load: (
            np.array(forgotten_values),
            [study.events(load, forgotten) for forgotten in forgotten_values],
        )
        for load in loads
        for forgotten_values in [sorted(study.counted(load), reverse=True)]
    }
    lowest = curves[loads[0]]
    falls = all((np.diff([rate.mean for rate in rates]) <= 0).all() for _, rates in curves.values())
    return Section(
        f"sdrf-fig-11{suffix}",
        f"SDRF Fig. 11: Live Tree events ({study.name})",
        figure=sdrf_figures.events(curves),
        claims=(
            Finding(
                "The nearer δ is to 1, the fewer events: at half the mean use fewer than 200 per "
                "1,000 tasks at δ = 1 − 10⁻¹, 0.8 at δ = 1 − 10⁻⁶.",
                f"At {loads[0]:.0%}, per 1,000 tasks: "
                + ", ".join(
                    f"{rate.written()} at {discount(forgotten)}"
                    for forgotten, rate in zip(*lowest, strict=True)
                )
                + ".",
                falls,
                "Each change of order over time is an event, so the number of events depends on "
                "the number of users that wait at once. With few users, a single pair can increase "
                "the number between two values of δ. Agreement here is about the decrease: a "
                "month with fewer tasks has more events for each task at small δ.",
            ),
            *(_less_room_more_events(study, loads) if len(loads) > 1 else ()),
        ),
    )


def _less_room_more_events(study: Study, loads: Sequence[float]) -> Iterator[Finding]:
    shared = study.counted(loads[0]).keys() & study.counted(loads[-1]).keys()
    count = sum(
        study.events(loads[0], forgotten).mean >= study.events(loads[-1], forgotten).mean
        for forgotten in shared
    )
    yield Finding(
        "Less capacity, more events.",
        f"At least as many at {loads[0]:.0%} as at {loads[-1]:.0%} for {count} of "
        f"{len(shared)} values of δ.",
        count == len(shared),
        "With more capacity, users come and go more often while other users wait, and each "
        "arrival may cause events. With little capacity, the same few users wait for days.",
    )


def _table_1(study: Study, suffix: str) -> Section:
    live, scan = study.timed["live-tree"], study.timed["scan"]
    spent = [result.raw["operations"]["seconds"] for result in (scan, live)]
    counts = live.raw["operations"]["count"]
    operations = [name for name in ("minimum", "insert", "delete") if name in counts]
    rows = [
        (
            name.upper(),
            f"{spent[0].get(name, 0.0):.3f}",
            f"{spent[1].get(name, 0.0):.3f}",
            f"{counts[name]:,}",
        )
        for name in operations
    ]
    naive, tree = (sum(seconds.get(name, 0.0) for name in operations) for seconds in spent)
    faster = spent[0].get("minimum", 0.0) > spent[1].get("minimum", 0.0)
    return Section(
        f"sdrf-table-1{suffix}",
        f"SDRF Table 1: time spent on operations ({study.name}, {discount(live.forgotten)})",
        (
            (
                "Times are from the reference simulator in Python, with one run for each ranking. "
                "When a task starts, "
                f"{live.raw.get('users_waiting') or 0.0:.0f} users wait on average."
            ),
        ),
        tables=(
            (
                "Seconds",
                Table(
                    ("operation", "naive", "Live Tree", "count"),
                    [*rows, ("Total", f"{naive:.3f}", f"{tree:.3f}", "")],
                ),
            ),
        ),
        claims=(
            Finding(
                "The Live Tree makes MINIMUM much cheaper, INSERT and DELETE dearer; in all, the "
                "naive way takes 1.65 times as long.",
                f"MINIMUM takes {spent[0].get('minimum', 0.0):.3g} s naively and "
                f"{spent[1].get('minimum', 0.0):.3g} s with the Live Tree; in all, the naive way "
                f"takes {naive / tree:.2f} times as long.",
                faster and naive > tree,
                "The naive ranking examines every waiting user, so it costs little if few users "
                "wait at once.",
            ),
        ),
    )
