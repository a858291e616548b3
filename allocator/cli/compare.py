"""`longshare compare`: simulates several policies on one trace."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allocator.cli import options
from allocator.cli.connection import FIGURES, fail_study, keep
from allocator.cli.parameters import by_user, load_policy_files, parse
from allocator.cli.simulate import capacity_of, compiled

if TYPE_CHECKING:
    from rich.table import Table

    from allocator.simulation.setting import Setting
    from allocator.simulation.studies.compared import ComparisonRow, PeriodComparison
    from allocator.simulation.studies.comparisons import RecordCheck
    from allocator.simulation.studies.measures import Floats, UserMeasures
    from allocator.simulation.trace import Trace

_BLOCKED = 0.8
"""Used fraction of the fullest resource, while tasks wait, below which large tasks block."""
_PERIODS = 6
"""Least number of periods that says much about other periods."""
_HALF_LIVES = 3.0
"""Least length of a period in half-lives; after three, an eighth of a commitment remains."""


@dataclass(frozen=True)
class _Results:
    """Results of all policies under one rule for tasks that do not fit; mappings by policy.

    Args:
        rows: A row for each policy; the first row is of the baseline.
        by_period: Comparisons by period; empty without --periods.
        light_by_period: The same comparisons for the light half of the users.
        users: Users' results.
        sums: Users' waits by period; empty without --periods.
        used: Utilization of each resource.
        used_while_waiting: The same, while tasks wait.
        records: Simulated and recorded waits; None if the trace has no record.
        never_started: Number of tasks that fit on no machine.
    """

    rows: "list[ComparisonRow]"
    by_period: "dict[str, PeriodComparison]"
    light_by_period: "dict[str, PeriodComparison]"
    users: "dict[str, UserMeasures]"
    sums: "dict[str, tuple[Floats, Floats]]"
    used: "dict[str, Mapping[str, float | None]]"
    used_while_waiting: "dict[str, Mapping[str, float | None]]"
    records: "dict[str, RecordCheck | None]"
    never_started: int

    def verdict(self, policy: str) -> str | None:
        """Return the verdict on a policy by all its intervals; None for the baseline."""
        row = next(row for row in self.rows if row.policy == policy)
        return None if row is self.rows[0] else row.verdict(self.by_period.get(policy))


def compare(
    trace: options.TraceFile,
    *,
    policies: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help="Policies to compare; the first is the baseline. Parameters follow after colons: "
            "drf,sdrf:half_life=1d,tsf.",
        ),
    ],
    policy_files: options.PolicyFiles = None,
    load: options.Load = None,
    capacity: options.Capacity = None,
    blocking: options.BlockingRules = None,
    users: options.CountingRule = options.CountedUsers.KNOWN,
    per: options.Per = options.SharingUnit.USER,
    weights: options.Weights = None,
    owes: options.Commitments = None,
    periods: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=1000,
            metavar="N",
            help="Also compare the waits in N equal periods of the trace: 12, for the months of a "
            "year.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="PNG", help="The figure.", show_default="compare.png")
    ] = None,
    by_user_file: Annotated[
        Path | None,
        typer.Option(
            "--by-user",
            metavar="CSV",
            help="Also write each user's waits and, with --periods, 90 % intervals.",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Simulate a trace under several policies, and show how waits change.

    The column less by is the reduction of the mean wait. If its 90 % interval contains 0, this
    trace does not decide whether users wait less. The interval is from 1,000 draws of the users.
    With --periods, a second interval shows whether the periods agree.

    The column used is the utilization of the fullest resource, until the last task finishes.

    The table counts the users that wait less or longer; --by-user names them. The mean of users'
    completion ratios is the column completed.

    Without --blocking, the table of intervals has the results with skip, too. If the trace has
    recorded waits, they are compared with the simulated waits, as a check of the model.

    Exit codes: 0, done; 2, the trace, a policy or the setting cannot be used.

    Example: longshare compare month.parquet --policies drf,sdrf:half_life=1d --load 0.5
    """
    from allocator import provenance
    from allocator.cli.progress import bar
    from allocator.cli.simulated import print_never_started
    from allocator.simulation import store
    from allocator.simulation.setting import Setting
    from allocator.simulation.studies.compared import USER_COLUMNS

    load_policy_files(policy_files)
    file = out or Path("compare.png")
    file = file if file.suffix else file.with_suffix(".png")
    keep("--out", file, (trace, *(policy_files or ())), FIGURES)
    header = ",".join(USER_COLUMNS[:4]).encode()
    keep("--by-user", by_user_file, (trace, file, *(policy_files or ())), (header,))
    try:
        content, seed = store.read(trace), store.seed_of(trace)
        recorded = store.recorded_waits(trace)
        pool = capacity_of(content, load, capacity)
        settings = {}
        for name in _named(policies):
            policy, *parameters = name.split(":")
            settings[name] = Setting(
                policy=policy,
                parameters=parse(parameters),
                capacity=pool,
                blocking=(blocking or options.Blocking.HEAD_OF_LINE).value,
                users=users.value,
                per=per.value,
                weights=by_user(weights, "--weight"),
                owes=by_user(owes, "--owes"),
            )
            settings[name].check(content)
        compiled()
        rules = 1 if blocking else 2
        with bar("simulating", rules * len(settings), "runs") as report:
            result = _simulated(content, settings, periods, recorded, report)
            skipping = (
                None
                if blocking
                else _simulated(
                    content,
                    {name: replace(setting, blocking="skip") for name, setting in settings.items()},
                    periods,
                    recorded,
                    lambda number: report(len(settings) + number),
                )
            )
        _write(result, trace.stem, file, by_user_file)
    except (OSError, ValueError) as error:
        fail_study(error, as_json=as_json)
    if as_json:
        answer = {
            "longshare": provenance(),
            "trace": str(trace),
            "seed": seed,
            "figure": str(file),
            "never_started": result.never_started,
            "policies": [
                _policy_as_json(result, row.policy)
                | {"setting": asdict(settings[row.policy]) | {"load": load}}
                | ({"skip": _policy_as_json(skipping, row.policy)} if skipping else {})
                for row in result.rows
            ],
        }
        typer.echo(json.dumps(answer, indent=2))
    else:
        _show(result, skipping, settings)
        if settings[result.rows[0].policy].blocking == options.Blocking.HEAD_OF_LINE.value:
            _warn_of_blocking(result.used_while_waiting, compared_with_skip=skipping is not None)
        print_never_started(result.never_started)
        typer.echo("\n".join(str(path) for path in (file, by_user_file) if path is not None))


def _simulated(
    trace: "Trace",
    settings: "Mapping[str, Setting]",
    periods: int | None,
    recorded: "Floats | None",
    report: Callable[[int], None],
) -> _Results:
    """Simulate a trace under each policy, and compare the policies with the first one.

    Args:
        trace: The trace.
        settings: Settings by policy.
        periods: Number of periods; None: none.
        recorded: Each task's recorded wait in seconds; None: there is no record.
        report: Callback for progress, which receives the number of simulated policies.

    Raises:
        ValueError: No task fits.
    """
    from allocator.simulation import fastest
    from allocator.simulation.studies import compared, measures
    from allocator.simulation.studies.comparisons import check_record
    from allocator.simulation.summary import utilization, utilization_while_waiting

    users, sums, records = {}, {}, {}
    used: dict[str, Mapping[str, float | None]] = {}
    used_while_waiting: dict[str, Mapping[str, float | None]] = {}
    never_started = 0
    for number, (name, setting) in enumerate(settings.items(), 1):
        outcome = fastest.simulate(trace, setting, events=False)
        outcome.require_starts()
        never_started = outcome.never_started
        users[name] = measures.of_users(outcome)
        used[name] = utilization(outcome, setting)
        used_while_waiting[name] = utilization_while_waiting(outcome, setting)
        records[name] = check_record(outcome, recorded)
        if periods is not None and len(trace):
            sums[name] = compared.user_sums_by_period(outcome, periods)
        report(number)
    waits = {name: compared.waits_by_period(*by_user) for name, by_user in sums.items()}
    light = next(iter(users.values())).lighter_half()
    light_waits = {
        name: compared.waits_by_period(total[:, light], tasks[:, light])
        for name, (total, tasks) in sums.items()
    }
    return _Results(
        compared.rows(users),
        compared.by_period(trace, waits),
        compared.by_period(trace, light_waits),
        users,
        sums,
        used,
        used_while_waiting,
        records,
        never_started,
    )


def _policy_as_json(result: _Results, policy: str) -> "dict[str, Any]":
    row = next(row for row in result.rows if row.policy == policy)
    record = result.records[policy]
    return (
        asdict(row)
        | {"verdict": result.verdict(policy)}
        | _periods_as_json(result.by_period.get(policy), result.light_by_period.get(policy))
        | {
            "record": None if record is None else asdict(record),
            "utilization": result.used[policy],
            "utilization_while_waiting": result.used_while_waiting[policy],
        }
    )


def _write(result: _Results, title: str, figure_file: Path, by_user_file: Path | None) -> None:
    """Draw the figure, and write the CSV of users if its file is given.

    Args:
        result: The results to draw and write.
        title: Name of the trace.
        figure_file: The figure.
        by_user_file: The CSV.
    """
    from allocator.simulation.studies import compared

    figure = compared.figure_of(result.users, f"{title}: {len(result.users)} policies")
    figure_file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(figure_file, dpi=150)
    if by_user_file is not None:
        by_user_file.parent.mkdir(parents=True, exist_ok=True)
        compared.write_users(result.users, result.sums, by_user_file)


def _periods_as_json(
    comparison: "PeriodComparison | None", light: "PeriodComparison | None"
) -> "dict[str, Any]":
    """Return the JSON fields about a policy's periods; empty without --periods."""
    if comparison is None or light is None:
        return {}
    overall = comparison.overall
    periods = zip(pairwise(comparison.ends), comparison.waits, comparison.reductions, strict=True)
    return {
        "periods": [
            {
                "from_s": begin,
                "to_s": end,
                "mean_user_wait_s": _finite(wait),
                "reduction": _finite(reduction),
            }
            for (begin, end), wait, reduction in periods
        ],
        "periods_reduction": _finite(overall.mean),
        "periods_low": _finite(overall.low),
        "periods_high": _finite(overall.high),
        "periods_light": _finite(light.overall.mean),
        "periods_light_low": _finite(light.overall.low),
        "periods_light_high": _finite(light.overall.high),
    }


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def _named(policies: str) -> list[str]:
    names = [name.strip() for name in policies.split(",")]
    if len(set(names)) < len(names) or len(names) < 2:
        raise ValueError(f"--policies {policies}: name two or more policies, each once")
    return names


def _fullest(fractions: "Mapping[str, float | None]") -> tuple[str, float]:
    """Return the resource with the largest used fraction, and this fraction."""
    return max(
        ((name, used) for name, used in fractions.items() if used is not None),
        key=lambda entry: entry[1],
        default=("", 0.0),
    )


def _warn_of_blocking(
    used_while_waiting: "Mapping[str, Mapping[str, float | None]]", *, compared_with_skip: bool
) -> None:
    """Say under which policy tasks wait while much is free, because the first task does not fit.

    Args:
        used_while_waiting: Utilization of each resource while tasks wait, by policy.
        compared_with_skip: Whether the output has the results with `--blocking skip`.
    """
    from allocator.contract.printable import printable

    fullest = {name: _fullest(fractions) for name, fractions in used_while_waiting.items()}
    policy = min(fullest, key=lambda name: fullest[name][1] if fullest[name][0] else 1.0)
    resource, used = fullest[policy]
    if resource and used < _BLOCKED:
        typer.echo(
            f"Large tasks block the pool: while tasks wait under {printable(policy)}, only "
            f"{used:.0%} of {printable(resource)}, the fullest resource, is used."
            f"{'' if compared_with_skip else ' Also compare with --blocking skip.'}",
            err=True,
        )


def _interval(low: float | None, high: float | None) -> str:
    """Return the second line of a cell: an interval in percent, empty if there is none."""
    return "" if low is None or high is None else f"\n[{100 * low:.1f}, {100 * high:.1f}]"


def _show_periods(
    by_period: "Mapping[str, PeriodComparison]",
    light_by_period: "Mapping[str, PeriodComparison]",
    settings: "Mapping[str, Setting]",
) -> None:
    """Print the reduction of the mean wait in each period, and over all periods.

    Args:
        by_period: Comparisons with the first policy, by policy.
        light_by_period: The same comparisons for the light half of the users.
        settings: Settings by policy.
    """
    from rich.table import Table

    from allocator.cli.tables import console
    from allocator.contract.printable import printable
    from allocator.formatting import duration

    baseline, *alternatives = by_period.values()
    first, second = baseline.ends[:2]
    console().print(
        f"\nThe column less by, of tasks submitted in {len(baseline.waits)} periods of "
        f"{duration(second - first)} each. The row all (with the row light for the light half) is "
        "of the sum of the periods' mean waits: users that come in many periods count more than "
        "above. With 90 % intervals:"
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    names = list(map(printable, by_period))
    for heading in ("from", f"mean wait,\n{names[0]}", *names[1:]):
        table.add_column(heading, justify="right", overflow="fold")
    for number, wait in enumerate(baseline.waits):
        reductions = (comparison.reductions[number] for comparison in alternatives)
        table.add_row(
            duration(baseline.ends[number] - first),
            duration(wait) if math.isfinite(wait) else "no tasks",
            *(f"{reduction:+.1%}" if math.isfinite(reduction) else "-" for reduction in reductions),
        )
    for name, comparisons in (("all", by_period), ("light", light_by_period)):
        _, *overall = (comparison.overall for comparison in comparisons.values())
        table.add_row(
            name,
            "",
            *(
                f"{mean.mean:+.1%}{_interval(_finite(mean.low), _finite(mean.high))}"
                if math.isfinite(mean.mean)
                else ""
                for mean in overall
            ),
        )
    console().print(table)
    waits = [wait for comparison in by_period.values() for wait in comparison.waits]
    longest_wait = max(filter(math.isfinite, waits), default=0.0)
    time_constants = [
        getattr(setting.new_policy(), "tau", None) or 0.0 for setting in settings.values()
    ]
    half_life = math.log(2.0) * max(filter(math.isfinite, time_constants), default=0.0)
    least = max(longest_wait, _HALF_LIVES * half_life)
    if least > second - first:
        cause = (
            "Some waits are longer than a period"
            if longest_wait > second - first
            else f"A period is shorter than {_HALF_LIVES:.0f} half-lives"
        )
        whole = int((baseline.ends[-1] - first) // least)
        remedy = "convert a longer history"
        if whole >= 2:
            remedy = f"take at most {whole}" + ("" if whole >= _PERIODS else f", or {remedy}")
        console().print(
            f"{cause}, so the periods depend on each other, and their interval is too narrow: "
            f"{remedy}."
        )


def _show_certainty(
    result: _Results, skipping: _Results | None, settings: "Mapping[str, Setting]"
) -> None:
    """Print a table of all intervals, a verdict on each policy, and what to do.

    Args:
        result: Results under the rule that the user chose, or under head-of-line.
        skipping: Results under skip if the user chose no rule.
        settings: Settings by policy.
    """
    from allocator.cli.simulated import RULES, show_records
    from allocator.cli.tables import console

    rule = settings[result.rows[0].policy].blocking
    by_rule: dict[str, _Results] = {rule: result}
    if skipping is not None:
        by_rule["skip"] = skipping
    out = console()
    out.print("\nHow sure is this?", highlight=False)
    out.print(_table_of_intervals(by_rule))
    lines = _verdicts(by_rule)
    if skipping is not None:
        lines.append(RULES)
    if any(" undecided" in line for line in lines):
        lines.append(
            "If undecided, keep your policy, or compare a longer history. If light users matter "
            "most, look at their interval."
        )
    if not result.by_period:
        lines.append("An interval covers other users, but no other months: add --periods N.")
    out.print("\n".join(lines), highlight=False)
    show_records({name: results.records for name, results in by_rule.items()})


def _table_of_intervals(by_rule: Mapping[str, _Results]) -> "Table":
    """Return a table with a row for each policy, rule, and kind of interval.

    Args:
        by_rule: Results by rule for tasks that do not fit.
    """
    from rich.table import Table

    from allocator.contract.printable import printable

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("policy", overflow="fold")
    table.add_column("--blocking")
    table.add_column("would these agree?")
    for heading in ("less by", "90 % interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in next(iter(by_rule.values())).rows[1:]:
        for rule, results in by_rule.items():
            same = next(other for other in results.rows if other.policy == row.policy)
            checks = [("other users", same.reduction, same.reduction_low, same.reduction_high)]
            if comparison := results.by_period.get(row.policy):
                overall = comparison.overall
                ends = _finite(overall.low), _finite(overall.high)
                checks.append(("other periods", overall.mean, *ends))
            for check, mean, low, high in checks:
                table.add_row(
                    printable(row.policy),
                    rule,
                    check,
                    f"{mean:+.1%}" if math.isfinite(mean) else "-",
                    "unknown" if low is None or high is None else f"{low:+.1%} to {high:+.1%}",
                )
    return table


def _verdicts(by_rule: Mapping[str, _Results]) -> list[str]:
    """Return a sentence about each policy but the first: whether its users wait less, and why.

    Args:
        by_rule: Results by rule for tasks that do not fit.
    """
    from allocator.contract.printable import printable

    result = next(iter(by_rule.values()))
    baseline, *alternatives = (row.policy for row in result.rows)
    several = len(by_rule) > 1 or bool(result.by_period)
    intervals = "all its intervals are" if several else "its interval is"
    sentences = {
        "less": f"users wait less than under {baseline}",
        "longer": f"users wait longer than under {baseline}",
        "undecided": "undecided",
    }
    reasons = {
        "less": f"{intervals} above 0",
        "longer": f"{intervals} below 0",
        "undecided": f"{'an' if several else 'its'} interval contains 0 or is unknown",
    }
    lines = []
    for policy in alternatives:
        verdicts = {rule: results.verdict(policy) or "" for rule, results in by_rule.items()}
        first, *others = verdicts.values()
        if set(others) <= {first}:
            line = f"{policy}: {sentences[first]}, because {reasons[first]}."
        else:
            parts = (f"with {rule}, {sentences[verdict]}" for rule, verdict in verdicts.items())
            line = f"{policy}: the rules disagree: {'; '.join(parts)}."
        lines.append(printable(line))
    return lines


def _show(result: _Results, skipping: _Results | None, settings: "Mapping[str, Setting]") -> None:
    """Print the comparison: a table, a table of periods, and how sure the figures are.

    Args:
        result: Results under the rule that the user chose, or under head-of-line.
        skipping: Results under skip if the user chose no rule.
        settings: Settings by policy.
    """
    from rich.table import Table

    from allocator.cli.tables import console
    from allocator.contract.printable import printable
    from allocator.formatting import duration

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("policy", overflow="fold")
    for heading in (
        "mean\nwait",
        "less by,\n[90 %]",
        "light,\n[90 %]",
        "heavy",
        "gain",
        "lose",
        "completed",
        "used",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for position, row in enumerate(result.rows):
        changes = (
            ("", "", "", "", "")
            if position == 0
            else (
                f"{row.reduction:+.1%}{_interval(row.reduction_low, row.reduction_high)}",
                f"{row.light:+.1%}{_interval(row.light_low, row.light_high)}",
                f"{row.heavy:+.1%}",
                str(row.gain),
                str(row.lose),
            )
        )
        table.add_row(
            printable(row.policy),
            duration(row.mean_user_wait_s),
            *changes,
            f"{row.mean_user_completion_ratio:.1%}",
            f"{_fullest(result.used[row.policy])[1]:.1%}",
        )
    console().print(table)
    if result.by_period:
        _show_periods(result.by_period, result.light_by_period, settings)
    _show_certainty(result, skipping, settings)
