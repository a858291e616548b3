"""Report sections on other schedulers' policies: effect on users, lies, and cost of sampling."""

import csv
import io
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields

import numpy as np

from allocator.simulation.studies.comparisons import PolicyGain, reduction, reduction_interval
from allocator.simulation.studies.estimates import estimate
from allocator.simulation.studies.results import Result
from allocator.simulation.studies.section import Section, Table, duration

CSV = "rivals.csv"
"""Name of the file with the report's table."""


@dataclass(frozen=True)
class SchedulerRow:
    """Effect of one policy on the users of a workload.

    Numbers are means over the workload's traces.

    Args:
        workload: Name of the workload.
        load: Capacity divided by the mean use; 0 means the trace's own machines.
        seeds: Number of traces.
        policy: Name and parameters of the policy.
        mean_wait_s: Mean over users of their mean waits, in seconds.
        less: Fraction by which `mean_wait_s` is lower than under the baseline policy.
        less_low, less_high: 90 % interval of `less`, from 1,000 draws of users with replacement.
        user_wait_s_99: 99 % quantile of users' mean waits, in seconds.
        task_wait_s_99: 99 % quantile of tasks' waits, in seconds.
        light, heavy: Relative reduction of the mean wait, for the half of the users with the lowest
            and with the highest usage.
        completion: Mean over users of the fraction of their tasks that finished by the trace's end.
        jain: Mean over days of Jain's index of evenness (`windows.jain`); 1 is perfectly even.
        never: Number of tasks that never started.
        traces_less: Mean over traces of `less` of each trace; None for one trace.
        traces_low, traces_high: 90 % interval of `traces_less` (Student's t).
        traces_least, traces_most: Smallest and largest `less` of a trace.
        lie: Mean over liars of the fraction of the wait saved by the best lie.
        lie_low, lie_high: 90 % interval of `lie` (Student's t); None for one liar.
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
    """Yield a report section for each workload and load, which compares all policies.

    Results without measurements in time windows are left out.

    Args:
        results: Results of a sweep's cells.
        baseline: Label of the policy with which all others are compared.
    """
    for number, (name, rows) in enumerate(_grouped(results, baseline), 1):
        yield Section(
            f"rivals-{number}",
            f"Other systems' ways of sharing: {name}",
            (
                (
                    f"Columns less, light and heavy are relative to {baseline}. Brackets hold 90 % "
                    "intervals from 1,000 draws of users with replacement."
                ),
            ),
            tables=(
                ("Effect of policies on users", _overview(rows)),
                *([("Differences between traces", _by_trace(rows))] if rows[0].seeds > 1 else []),
                ("Cost of sampled accounts", _sampling(results, name)),
            ),
        )


def table(results: Sequence[Result], baseline: str) -> str:
    """Return a table of all policies as CSV with a header; columns are fields of `SchedulerRow`.

    Args:
        results: Results of a sweep's cells.
        baseline: Label of the policy with which all others are compared.
    """
    text = io.StringIO()
    writer = csv.DictWriter(
        text, [field.name for field in fields(SchedulerRow)], lineterminator="\n"
    )
    writer.writeheader()
    for _name, rows in _grouped(results, baseline):
        for row in rows:
            values = asdict(row).items()
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in values})
    return text.getvalue()


def _grouped(results: Sequence[Result], baseline: str) -> Iterator[tuple[str, list[SchedulerRow]]]:
    for name, results_by_policy in _by_workload(results).items():
        base = results_by_policy.get(baseline)
        if base is not None:
            rows = [_row(label, base, runs) for label, runs in results_by_policy.items()]
            yield name, sorted(rows, key=lambda row: row.mean_wait_s)


def _by_workload(results: Sequence[Result]) -> dict[str, dict[str, list[Result]]]:
    """Group results by workload and load, then by policy. Each trace has one result."""
    groups: defaultdict[str, defaultdict[str, list[Result]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for result in results:
        if "windows" in result.raw:
            place = "on its machines" if result.load is None else f"at {result.load:.0%}"
            groups[f"{result.raw['name']} {place}"][result.label].append(result)
    return {name: dict(results_by_policy) for name, results_by_policy in groups.items()}


def _row(label: str, base: list[Result], runs: list[Result]) -> SchedulerRow:
    pairs = _pairs(base, runs)
    gains = [
        PolicyGain(before.users, before.users.wait, after.users.wait) for before, after in pairs
    ]
    low, high = reduction_interval(
        [(before.users.wait, after.users.wait) for before, after in pairs]
    )
    mean = float(np.mean([after.mean_wait for _, after in pairs]))
    return SchedulerRow(
        workload=runs[0].raw["name"],
        load=runs[0].load or 0.0,
        seeds=len(pairs),
        policy=label,
        mean_wait_s=mean,
        less=reduction(float(np.mean([before.mean_wait for before, _ in pairs])), mean),
        less_low=low,
        less_high=high,
        user_wait_s_99=float(
            np.mean([np.nanquantile(after.users.wait, 0.99) for _, after in pairs])
        ),
        task_wait_s_99=float(np.mean([after.raw["windows"]["wait_s_99"] for _, after in pairs])),
        light=float(np.mean([gain.reduction_of_half(lighter=True) for gain in gains])),
        heavy=float(np.mean([gain.reduction_of_half(lighter=False) for gain in gains])),
        completion=float(np.mean([np.nanmean(after.users.completion) for _, after in pairs])),
        jain=float(np.mean([after.raw["windows"]["jain"] for _, after in pairs])),
        never=sum(after.raw["tasks"] - after.raw["started"] for _, after in pairs),
        **_trace_reductions(pairs),
        **_best_lies([after for _, after in pairs]),
    )


def _pairs(base: Sequence[Result], runs: Sequence[Result]) -> list[tuple[Result, Result]]:
    before = {result.raw["trace"]: result for result in base}
    return [(before[run.raw["trace"]], run) for run in runs if run.raw["trace"] in before]


def _trace_reductions(pairs: Sequence[tuple[Result, Result]]) -> dict[str, float | None]:
    """Return statistics of `less` over single traces, as fields of `SchedulerRow`.

    Args:
        pairs: For each trace, the results under the baseline and under the policy.
    """
    names = ("traces_less", "traces_low", "traces_high", "traces_least", "traces_most")
    if len(pairs) < 2:
        return dict.fromkeys(names)
    reductions = [reduction(before.mean_wait, after.mean_wait) for before, after in pairs]
    mean = estimate(reductions)
    return dict(
        zip(names, (mean.mean, mean.low, mean.high, min(reductions), max(reductions)), strict=True)
    )


def _best_lies(runs: Sequence[Result]) -> dict[str, float | None]:
    """Return the mean saving by each liar's best lie and its interval, as fields of `SchedulerRow`.

    The values are None without simulated lies.
    """
    best: dict[tuple[str, str], float] = {}
    for run in runs:
        for lie in run.raw.get("lies", ()):
            liar = run.raw["trace"], lie["user"]
            best[liar] = max(best.get(liar, 0.0), lie["saved"] or 0.0)
    if not best:
        return dict.fromkeys(("lie", "lie_low", "lie_high"))
    saving = estimate(list(best.values()))
    ends = (None, None) if saving.draws == 1 else (saving.low, saving.high)
    return dict(zip(("lie", "lie_low", "lie_high"), (saving.mean, *ends), strict=True))


def _overview(rows: Sequence[SchedulerRow]) -> Table:
    headings = (
        "policy", "mean wait", "less", "90 %", "99 % of users", "99 % of tasks", "light", "heavy",
        "completed", "Jain", "best lie", "90 %",
    )  # fmt: skip
    shown = len(headings) if any(row.lie is not None for row in rows) else -2
    return Table(
        headings[:shown],
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
            )[:shown]
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
    results_by_policy = _by_workload(results)[name]
    rows = []
    for label, runs in results_by_policy.items():
        exact = next(
            (
                other_runs
                for other_runs in results_by_policy.values()
                if _is_exact_of(other_runs[0], runs[0])
            ),
            None,
        )
        if exact is not None:
            row = _row(label, exact, runs)
            jain = float(np.mean([run.raw["windows"]["jain"] for run in exact]))
            rows.append(
                (
                    label,
                    f"{-row.less:+.1%}",
                    _ends(-row.less_high, -row.less_low),
                    _more_by_trace(row),
                    f"{row.jain - jain:+.3f}",
                )
            )
    return Table(("policy", "mean wait relative to exact", "90 %", "mean of traces", "Jain"), rows)


def _more_by_trace(row: SchedulerRow) -> str:
    if row.traces_less is None or row.traces_low is None or row.traces_high is None:
        return "-"
    return f"{-row.traces_less:+.1%} {_ends(-row.traces_high, -row.traces_low)}"


def _ends(low: float | None, high: float | None) -> str:
    """Format the lower and upper end of an interval as text; "" if an end is None."""
    return "" if low is None or high is None else f"[{low:+.1%}, {high:+.1%}]"


def _is_exact_of(exact: Result, sampled: Result) -> bool:
    return (
        "sampled" in sampled.raw
        and "sampled" not in exact.raw
        and (exact.policy, exact.parameters) == (sampled.policy, sampled.parameters)
    )
