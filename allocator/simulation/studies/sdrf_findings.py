"""A report's part about Stateful DRF §7.2: its figures, its table, and its findings."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from allocator.simulation.studies import sdrf_figures
from allocator.simulation.studies.comparisons import gain, over_seeds
from allocator.simulation.studies.results import Result
from allocator.simulation.studies.section import Claim, Section, Table, discount, duration

Several = list[Result]
"""The same on traces of several seeds."""

_PAPERS_BEST = 1e-6
"""1 − δ that lowered waits most in the paper, at each load."""


@dataclass
class _Study:
    """DRF and SDRF on one workload, by load and 1 − δ."""

    name: str
    drf: defaultdict[float, Several] = field(default_factory=lambda: defaultdict(list))
    sdrf: defaultdict[float, defaultdict[float, Several]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    timed: dict[str, Result] = field(default_factory=dict)
    """By ranking: "live-tree" and "scan", from the reference."""

    def reduction(self, load: float, forgotten: float) -> float:
        return over_seeds(
            self.drf[load], self.sdrf[load][forgotten], lambda result: result.mean_wait
        )

    def events(self, load: float, forgotten: float) -> float:
        return float(np.mean([result.events for result in self.sdrf[load][forgotten]]))

    def best(self, load: float) -> float:
        """Return the 1 − δ that lowers waits most."""
        return max(self.sdrf[load], key=lambda forgotten: self.reduction(load, forgotten))

    def is_interior(self, load: float) -> bool:
        tried = sorted(self.sdrf[load])
        return tried[0] < self.best(load) < tried[-1]


def sections(results: Sequence[Result]) -> Iterator[Section]:
    """Go through the figures that the results are enough for."""
    for number, study in enumerate(_studies(results), 1):
        suffix = "" if number == 1 else f"-{number}"
        loads = sorted(load for load in study.sdrf if study.drf.get(load))
        if loads:
            yield from _figures(study, loads, suffix)
        several = sorted(load for load in study.sdrf if len(study.sdrf[load]) > 1)
        if several:
            yield _events(study, several, suffix)
        if {"live-tree", "scan"} <= study.timed.keys():
            yield _table_1(study, suffix)


def _studies(results: Sequence[Result]) -> list[_Study]:
    """Sort results by workload and rules."""
    studies: dict[tuple[str, ...], _Study] = {}
    for result in results:
        if result.load is None or result.policy not in {"drf", "sdrf"}:
            continue
        name, blocking, users, per, load = result.group
        study = studies.setdefault((name, blocking, users, per), _Study(name))
        if result.raw["engine"] == "reference" and "ranking" in result.parameters:
            study.timed[str(result.parameters["ranking"])] = result
        elif result.policy == "drf":
            study.drf[load].append(result)
        elif result.parameters.keys() <= {"delta", "half_life"}:
            study.sdrf[load][result.forgotten].append(result)
    return list(studies.values())


def _figures(study: _Study, loads: Sequence[float], suffix: str) -> Iterator[Section]:
    if max(len(study.sdrf[load]) for load in loads) > 1:
        yield _reductions(study, loads, suffix)
    lowest, best = loads[0], study.best(loads[0])
    drf, sdrf = study.drf[lowest][0], study.sdrf[lowest][best][0]
    at = f"{study.name} at {lowest:.0%} of its mean use, {discount(best)}"
    yield Section(
        f"sdrf-fig-9{suffix}",
        f"SDRF Fig. 9: waits of light and heavy users ({at})",
        figure=sdrf_figures.waits_by_half(drf.users, sdrf.users),
        claims=(_light_users_gain(drf, sdrf),),
    )
    yield Section(
        f"sdrf-fig-10{suffix}",
        f"SDRF Fig. 10: task completion ratios ({at})",
        (
            (
                "A task counts as completed when it finishes before the last task would have, had "
                "none ever waited."
            ),
        ),
        sdrf_figures.completion_bubbles(drf.users, sdrf.users),
        claims=(_few_complete_less(drf, sdrf),),
    )


def _reductions(study: _Study, loads: Sequence[float], suffix: str) -> Section:
    tried = sorted({forgotten for load in loads for forgotten in study.sdrf[load]}, reverse=True)
    curves = {
        load: (
            np.array(sorted(study.sdrf[load], reverse=True)),
            np.array([study.reduction(load, f) for f in sorted(study.sdrf[load], reverse=True)]),
        )
        for load in loads
    }
    rows = [
        (
            f"{load:.0%}",
            *(f"{study.reduction(load, f):+.1%}" if f in study.sdrf[load] else "" for f in tried),
        )
        for load in loads
    ]
    span = float(study.drf[loads[0]][0].raw["span_s"])
    seeds = len(study.drf[loads[0]])
    return Section(
        f"sdrf-fig-8{suffix}",
        f"SDRF Fig. 8: how much shorter users wait ({study.name})",
        (
            f"{study.drf[loads[0]][0].raw['tasks']:,} tasks of "
            f"{len(study.drf[loads[0]][0].users.name)} users over {duration(span)}"
            + (f"; means over {seeds} seeds." if seeds > 1 else "."),
        ),
        sdrf_figures.reductions(curves),
        (
            (
                "Reduction against DRF, by capacity and 1 − δ",
                Table(("capacity", *(f"{f:.2g}" for f in tried)), rows),
            ),
        ),
        (
            _lowers_waits(study, loads),
            _optimum_is_interior(study, loads, span),
            _ends_are_drf(study, loads),
        ),
    )


def _lowers_waits(study: _Study, loads: Sequence[float]) -> Claim:
    best = {load: study.reduction(load, study.best(load)) for load in loads}
    return Claim(
        "With the best δ, SDRF lowers the mean of users' mean waits by more than 10 % at every "
        "load, and more the more the system is overloaded.",
        "; ".join(f"{share:.1%} less at {load:.0%}" for load, share in best.items()) + ".",
        all(share > 0.1 for share in best.values()) and best[loads[0]] >= best[loads[-1]],
        "The nearer the capacity is to the mean use, the less anybody waits and the less there is "
        "to share out; how fast that goes depends on how bursty a workload is and how unequal its "
        "users are, and this one is not the paper's trace.",
    )


def _optimum_is_interior(study: _Study, loads: Sequence[float], span: float) -> Claim:
    best = {load: study.best(load) for load in loads}
    return Claim(
        "The optimum is inside the range of δ, at 1 − 10⁻⁶ for every load.",
        "; ".join(f"{discount(f)} at {load:.0%}" for load, f in best.items())
        + (
            "; inside the range everywhere."
            if all(map(study.is_interior, loads))
            else "; at the range's edge for "
            + ", ".join(f"{load:.0%}" for load in loads if not study.is_interior(load))
            + "."
        ),
        all(study.is_interior(load) and 0.3 < best[load] / _PAPERS_BEST < 3.0 for load in loads),
        "The best memory is about as long as the time over which users' use evens out, and cannot "
        f"be longer than the workload. The paper's trace is of 29 days, where δ = 1 − 10⁻⁶ forgets "
        f"half in 8 days; this workload is of {duration(span)}, and its best δ at "
        f"{loads[0]:.0%} forgets half in {duration(np.log(2.0) / best[loads[0]])}.",
    )


def _ends_are_drf(study: _Study, loads: Sequence[float]) -> Claim:
    load = loads[0]
    tried = sorted(study.sdrf[load])
    least, most = (study.reduction(load, f) for f in (tried[-1], tried[0]))
    best = study.reduction(load, study.best(load))
    return Claim(
        "At both ends of the range of δ, SDRF is close to DRF.",
        f"At {load:.0%}: {least:+.1%} at {discount(tried[-1])}, {most:+.1%} at "
        f"{discount(tried[0])}, against {best:+.1%} at the best.",
        max(abs(least), abs(most)) < 0.5 * abs(best),
        "The range that was tried does not reach far enough towards an end: commitments that last "
        "longer than the workload still differ between users, though they stay small.",
    )


def _light_users_gain(drf: Result, sdrf: Result) -> Claim:
    changed = gain(drf, sdrf)
    light, heavy = (changed.of_half(lighter=lighter) for lighter in (True, False))
    return Claim(
        "Most of the reduction is in the half of users with the lowest usage; the upper half "
        "changes little.",
        f"The lower half waits {light:.1%} less, the upper half {heavy:.1%} less"
        f" ({int(changed.gains.sum())} users wait less, {int(changed.loses.sum())} longer).",
        light > 0.0 and light > heavy,
        "Who used little in all can still have used much just before; with few users, or when "
        "all are alike, the halves hardly differ.",
    )


def _few_complete_less(drf: Result, sdrf: Result) -> Claim:
    more, less = (
        int((one.users.completion > other.users.completion).sum())
        for one, other in ((sdrf, drf), (drf, sdrf))
    )
    loss = float(np.max(drf.users.completion - sdrf.users.completion, initial=0.0))
    return Claim(
        "Most users complete more tasks under SDRF; 11 of 627 complete fewer, and few fewer.",
        f"{more} of {len(drf.users.name)} users complete more, {less} fewer; "
        f"the largest loss is {loss:.1%} of a user's tasks.",
        more > less and less <= 0.05 * len(drf.users.name),
        "When the trace ends, what runs is decided by what is left in the queues; users whose "
        "tasks come late in the trace have no time to be compensated.",
    )


def _events(study: _Study, loads: Sequence[float], suffix: str) -> Section:
    curves = {
        load: (
            np.array(sorted(study.sdrf[load], reverse=True)),
            np.array([study.events(load, f) for f in sorted(study.sdrf[load], reverse=True)]),
        )
        for load in loads
    }
    tasks = int(next(iter(study.sdrf[loads[0]].values()))[0].raw["tasks"])
    lowest = curves[loads[0]]
    falls = all((np.diff(counted) <= 0).all() for _, counted in curves.values())
    shared = study.sdrf[loads[0]].keys() & study.sdrf[loads[-1]].keys()
    more = sum(study.events(loads[0], f) >= study.events(loads[-1], f) for f in shared)
    return Section(
        f"sdrf-fig-11{suffix}",
        f"SDRF Fig. 11: Live Tree events ({study.name})",
        figure=sdrf_figures.events(curves),
        claims=(
            Claim(
                "The nearer δ is to 1, the fewer events: at half the mean use fewer than 200 per "
                "1,000 tasks at δ = 1 − 10⁻¹, 0.8 at δ = 1 − 10⁻⁶.",
                f"At {loads[0]:.0%}, per 1,000 tasks: "
                + ", ".join(
                    f"{1000 * count / tasks:.3g} at {discount(f)}"
                    for f, count in zip(*lowest, strict=True)
                )
                + ".",
                falls,
                "Each change of order that time alone makes is an event, so their number depends "
                "on how many users wait at once; with few users a single pair can make it rise "
                "between two values of δ.",
            ),
            Claim(
                "Less capacity, more events.",
                f"At least as many at {loads[0]:.0%} as at {loads[-1]:.0%} for {more} of "
                f"{len(shared)} values of δ.",
                more == len(shared),
                "With more room users come and go more often while others wait, and each who comes "
                "may be passed; with little room the same few wait for days.",
            ),
        ),
    )


def _table_1(study: _Study, suffix: str) -> Section:
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
    naive, tree = (sum(each.get(name, 0.0) for name in operations) for each in spent)
    faster = spent[0].get("minimum", 0.0) > spent[1].get("minimum", 0.0)
    return Section(
        f"sdrf-table-1{suffix}",
        f"SDRF Table 1: time spent on operations ({study.name}, {discount(live.forgotten)})",
        ("From the readable reference simulator in Python, whose operations can be timed.",),
        tables=(
            (
                "Seconds",
                Table(
                    ("operation", "naive", "Live Tree", "how often"),
                    [*rows, ("Total", f"{naive:.3f}", f"{tree:.3f}", "")],
                ),
            ),
        ),
        claims=(
            Claim(
                "The Live Tree makes MINIMUM much cheaper, INSERT and DELETE dearer; in all the "
                "naive way takes 65 % longer.",
                f"MINIMUM takes {spent[0].get('minimum', 0.0):.3g} s naively and "
                f"{spent[1].get('minimum', 0.0):.3g} s with the Live Tree; in all the naive way "
                f"takes {100.0 * (naive / tree - 1.0):+.0f} %.",
                faster and naive > tree,
                "The naive way looks at every user that waits, so the fewer wait at once, the "
                "less there is to save.",
            ),
        ),
    )
