"""A report's part about other systems' policies: what they do to users, and what sampling costs."""

import csv
import io
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TypeAlias

import numpy as np

from allocator.simulation.studies.comparisons import PolicyGain, reduction
from allocator.simulation.studies.estimates import estimate, resampled_ends
from allocator.simulation.studies.measures import Floats
from allocator.simulation.studies.results import Result
from allocator.simulation.studies.section import Section, Table, duration

CSV = "rivals.csv"
"""What a report's table is called as a file."""
_RESAMPLES = 1000
Ends: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class SchedulerRow:
    """What a policy does to the users of a workload; means are over its traces, if several.

    Args:
        workload: Its name.
        load: Capacity as a part of the mean use; 0: the trace's machines.
        seeds: How many traces.
        policy: With its parameters.
        mean_wait_s: Mean of users' mean waits.
        less: By which part that is less than the baseline's.
        less_low, less_high: 90 % of what that is when users are drawn anew, 1,000 times.
        user_wait_s_99: Mean wait of the user whom 99 % of users wait less than.
        task_wait_s_99: Wait that 99 % of tasks are below.
        light, heavy: By which part the mean wait is less of the half of users that used less, more.
        completion: Mean of users' ratios of tasks that were over by the trace's end.
        jain: Mean over days of Jain's index of what users got of their fair part.
        never: Tasks that fit nowhere.
        traces_less: Mean over traces of `less`, of each trace alone; nothing for one trace.
        traces_low, traces_high: Its 90 % interval (Student's t).
        traces_least, traces_most: Of the traces with the least and the most.
        lie: Mean over liars of the part of its wait that the best of its lies saves.
        lie_low, lie_high: Its 90 % interval (Student's t); nothing for one liar.
    """

    workload: str
    load: float
    seeds: int
    policy: str
    mean_wait_s: float
    less: float
    less_low: float
    less_high: float
    user_wait_s_99: float
    task_wait_s_99: float
    light: float
    heavy: float
    completion: float
    jain: float
    never: int
    traces_less: float | None
    traces_low: float | None
    traces_high: float | None
    traces_least: float | None
    traces_most: float | None
    lie: float | None
    lie_low: float | None
    lie_high: float | None


def sections(results: Sequence[Result], baseline: str) -> Iterator[Section]:
    """Go through workloads and loads of which windows were kept."""
    for number, (name, rows) in enumerate(_grouped(results, baseline), 1):
        yield Section(
            f"rivals-{number}",
            f"Other systems' ways of sharing: {name}",
            (
                (
                    f"Less, light and heavy are against {baseline}; in brackets 90 % of what that "
                    "is when users are drawn anew 1,000 times."
                ),
            ),
            tables=(
                ("What policies do to users", _overview(rows)),
                *([("From trace to trace", _by_trace(rows))] if rows[0].seeds > 1 else []),
                ("What looking now and then costs", _sampling(results, name)),
            ),
        )


def table(results: Sequence[Result], baseline: str) -> str:
    """Return all rows as CSV with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(
        text, [field.name for field in fields(SchedulerRow)], lineterminator="\n"
    )
    writer.writeheader()
    for _name, rows in _grouped(results, baseline):
        for row in rows:
            told = asdict(row).items()
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in told})
    return text.getvalue()


def _grouped(results: Sequence[Result], baseline: str) -> Iterator[tuple[str, list[SchedulerRow]]]:
    for name, of_policy in _by_workload(results).items():
        base = of_policy.get(baseline)
        if base is not None:
            rows = [_row(label, base, runs) for label, runs in of_policy.items()]
            yield name, sorted(rows, key=lambda row: row.mean_wait_s)


def _by_workload(results: Sequence[Result]) -> dict[str, dict[str, list[Result]]]:
    """Sort results into workloads at a load, and there by policy: one for each trace."""
    found: defaultdict[str, defaultdict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        if "windows" in result.raw:
            where = "on its machines" if result.load is None else f"at {result.load:.0%}"
            found[f"{result.raw['name']} {where}"][result.label].append(result)
    return {name: dict(of_policy) for name, of_policy in found.items()}


def _row(label: str, base: list[Result], runs: list[Result]) -> SchedulerRow:
    pairs = _pairs(base, runs)
    gains = [PolicyGain(b.users, b.users.wait, r.users.wait) for b, r in pairs]
    low, high = interval([(b.users.wait, r.users.wait) for b, r in pairs])
    mean = float(np.mean([r.mean_wait for _b, r in pairs]))
    return SchedulerRow(
        workload=runs[0].raw["name"],
        load=runs[0].load or 0.0,
        seeds=len(pairs),
        policy=label,
        mean_wait_s=mean,
        less=reduction(float(np.mean([b.mean_wait for b, _r in pairs])), mean),
        less_low=low,
        less_high=high,
        user_wait_s_99=float(np.mean([np.nanquantile(r.users.wait, 0.99) for _b, r in pairs])),
        task_wait_s_99=float(np.mean([r.raw["windows"]["wait_s_99"] for _b, r in pairs])),
        light=float(np.mean([gain.of_half(lighter=True) for gain in gains])),
        heavy=float(np.mean([gain.of_half(lighter=False) for gain in gains])),
        completion=float(np.mean([np.nanmean(r.users.completion) for _b, r in pairs])),
        jain=float(np.mean([r.raw["windows"]["jain"] for _b, r in pairs])),
        never=sum(r.raw["tasks"] - r.raw["started"] for _b, r in pairs),
        **_of_traces(pairs),
        **_best_lies([r for _b, r in pairs]),
    )


def _pairs(base: Sequence[Result], runs: Sequence[Result]) -> list[tuple[Result, Result]]:
    before = {result.raw["trace"]: result for result in base}
    return [(before[r.raw["trace"]], r) for r in runs if r.raw["trace"] in before]


def _of_traces(pairs: Sequence[tuple[Result, Result]]) -> dict[str, float | None]:
    """Return what is less on each trace alone: its mean with 90 %, the least, the most."""
    names = ("traces_less", "traces_low", "traces_high", "traces_least", "traces_most")
    if len(pairs) < 2:
        return dict.fromkeys(names)
    less = [reduction(b.mean_wait, r.mean_wait) for b, r in pairs]
    of_all = estimate(less)
    return dict(
        zip(names, (of_all.mean, of_all.low, of_all.high, min(less), max(less)), strict=True)
    )


def interval(waits: Sequence[tuple[Floats, Floats]]) -> Ends:
    """Return 90 % of the reductions of the mean wait when users are drawn anew, trace by trace.

    Args:
        waits: Of each trace, users' mean waits before and after.
    """
    generator = np.random.default_rng(1)
    before, after = np.zeros(_RESAMPLES), np.zeros(_RESAMPLES)
    for first, second in waits:
        ran = np.isfinite(first + second)
        drawn = generator.integers(int(ran.sum()), size=(_RESAMPLES, int(ran.sum())))
        before += first[ran][drawn].mean(axis=1)
        after += second[ran][drawn].mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        less = np.where(before > 0.0, 1.0 - after / before, 0.0)
    users = sum(int(np.isfinite(first + second).sum()) for first, second in waits)
    if users < 2:
        return float("nan"), float("nan")
    return resampled_ends(less, users)


def _best_lies(runs: Sequence[Result]) -> dict[str, float | None]:
    """Return what the best lie saves a liar, with its ends; none where nobody lied."""
    best: dict[tuple[str, str], float] = {}
    for run in runs:
        for told in run.raw.get("lies", ()):
            who = run.raw["trace"], told["user"]
            best[who] = max(best.get(who, 0.0), told["saved"] or 0.0)
    if not best:
        return dict.fromkeys(("lie", "lie_low", "lie_high"))
    saving = estimate(list(best.values()))
    ends = (None, None) if saving.draws == 1 else (saving.low, saving.high)
    return dict(zip(("lie", "lie_low", "lie_high"), (saving.mean, *ends), strict=True))


def _overview(rows: Sequence[SchedulerRow]) -> Table:
    headings = (
        "policy", "mean wait", "less", "", "99 % of users", "99 % of tasks", "light", "heavy",
        "completed", "Jain", "best lie", "",
    )  # fmt: skip
    return Table(
        headings,
        [
            (
                row.policy,
                duration(row.mean_wait_s),
                f"{row.less:+.1%}",
                _ends(row.less_low, row.less_high),
                duration(row.user_wait_s_99),
                duration(row.task_wait_s_99),
                f"{row.light:+.1%}",
                f"{row.heavy:+.1%}",
                f"{row.completion:.1%}",
                f"{row.jain:.3f}",
                "-" if row.lie is None else f"{row.lie:+.1%}",
                _ends(row.lie_low, row.lie_high),
            )
            for row in rows
        ],
    )


def _by_trace(rows: Sequence[SchedulerRow]) -> Table:
    return Table(
        ("policy", "less, mean of traces", "90 %", "least", "most"),
        [
            (
                row.policy,
                f"{row.traces_less:+.1%}",
                _ends(row.traces_low, row.traces_high),
                f"{row.traces_least:+.1%}",
                f"{row.traces_most:+.1%}",
            )
            for row in rows
        ],
    )


def _sampling(results: Sequence[Result], name: str) -> Table:
    of_policy = _by_workload(results)[name]
    rows = []
    for label, runs in of_policy.items():
        exact = next((o for o in of_policy.values() if _is_exact_of(o[0], runs[0])), None)
        if exact is not None:
            row = _row(label, exact, runs)
            jain = float(np.mean([r.raw["windows"]["jain"] for r in exact]))
            rows.append(
                (
                    label,
                    f"{-row.less:+.1%}",
                    _ends(-row.less_high, -row.less_low),
                    _more_by_trace(row),
                    f"{row.jain - jain:+.3f}",
                )
            )
    return Table(("policy", "mean wait against exact", "", "mean of traces", "Jain"), rows)


def _more_by_trace(row: SchedulerRow) -> str:
    if row.traces_less is None or row.traces_low is None or row.traces_high is None:
        return "-"
    return f"{-row.traces_less:+.1%} {_ends(-row.traces_high, -row.traces_low)}"


def _ends(low: float | None, high: float | None) -> str:
    """Write an interval; nothing where there is none."""
    return "" if low is None or high is None else f"[{low:+.1%}, {high:+.1%}]"


def _is_exact_of(exact: Result, sampled: Result) -> bool:
    return (
        "sampled" in sampled.raw
        and "sampled" not in exact.raw
        and (exact.policy, exact.parameters) == (sampled.policy, sampled.parameters)
    )
