"""`longshare compare`: simulates several policies on one trace."""

import json
import math
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allocator.cli import options
from allocator.cli.connection import fail_study, keep
from allocator.cli.parameters import by_user, load_policy_files, parse
from allocator.cli.simulate import capacity_of, compiled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from allocator.simulation.studies.compared import ComparisonRow, PeriodComparison
    from allocator.simulation.studies.measures import Floats, UserMeasures

_BLOCKED = 0.8
"""Used fraction of the fullest resource, while tasks wait, below which large tasks block."""


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
    blocking: options.BlockingRule = options.Blocking.HEAD_OF_LINE,
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

    Exit codes: 0, done; 2, the trace, a policy or the setting cannot be used.

    Example: longshare compare month.parquet --policies drf,sdrf:half_life=1d --load 0.5
    """
    from allocator import provenance
    from allocator.cli.progress import bar
    from allocator.cli.simulated import print_never_started
    from allocator.simulation import fastest, store
    from allocator.simulation.setting import Setting
    from allocator.simulation.studies import compared, measures
    from allocator.simulation.summary import utilization, utilization_while_waiting

    load_policy_files(policy_files)
    file = out or Path("compare.png")
    file = file if file.suffix else file.with_suffix(".png")
    keep("--out", file, (trace, *(policy_files or ())))
    keep("--by-user", by_user_file, (trace, file, *(policy_files or ())))
    summaries, used, used_while_waiting, sums = {}, {}, {}, {}
    never_started = 0
    try:
        content, seed = store.read(trace), store.seed_of(trace)
        pool = capacity_of(content, load, capacity)
        settings = {}
        for name in _named(policies):
            policy, *parameters = name.split(":")
            settings[name] = Setting(
                policy=policy,
                parameters=parse(parameters),
                capacity=pool,
                blocking=blocking.value,
                users=users.value,
                per=per.value,
                weights=by_user(weights, "--weight"),
                owes=by_user(owes, "--owes"),
            )
            settings[name].check(content)
        compiled()
        with bar("simulating", len(settings), "policies") as report:
            for number, (name, setting) in enumerate(settings.items(), 1):
                outcome = fastest.simulate(content, setting, events=False)
                outcome.require_starts()
                never_started = outcome.never_started
                summaries[name] = measures.of_users(outcome)
                used[name] = utilization(outcome, setting)
                used_while_waiting[name] = utilization_while_waiting(outcome, setting)
                if periods is not None and len(content):
                    sums[name] = compared.user_sums_by_period(outcome, periods)
                report(number)
        _write(summaries, sums, trace.stem, file, by_user_file)
    except (OSError, ValueError) as error:
        fail_study(error, as_json=as_json)
    rows = compared.rows(summaries)
    waits = {name: compared.waits_by_period(*by_user) for name, by_user in sums.items()}
    by_period = compared.by_period(content, waits)
    if as_json:
        answer = {
            "longshare": provenance(),
            "trace": str(trace),
            "seed": seed,
            "figure": str(file),
            "never_started": never_started,
            "policies": [
                asdict(row)
                | {"verdict": None if row is rows[0] else row.verdict(by_period.get(row.policy))}
                | _periods_as_json(by_period.get(row.policy))
                | {
                    "setting": asdict(settings[row.policy]) | {"load": load},
                    "utilization": used[row.policy],
                    "utilization_while_waiting": used_while_waiting[row.policy],
                }
                for row in rows
            ],
        }
        typer.echo(json.dumps(answer, indent=2))
    else:
        _show(rows, {name: _fullest(fractions)[1] for name, fractions in used.items()}, by_period)
        if blocking == options.Blocking.HEAD_OF_LINE:
            _warn_of_blocking(used_while_waiting)
        print_never_started(never_started)
        typer.echo("\n".join(str(path) for path in (file, by_user_file) if path is not None))


def _write(
    summaries: "Mapping[str, UserMeasures]",
    sums: "Mapping[str, tuple[Floats, Floats]]",
    title: str,
    figure_file: Path,
    by_user_file: Path | None,
) -> None:
    """Draw the figure, and write the CSV of users if its file is given.

    Args:
        summaries: Users' results under each policy.
        sums: Users' waits by period, under each policy; empty without --periods.
        title: Name of the trace.
        figure_file: The figure.
        by_user_file: The CSV.
    """
    from allocator.simulation.studies import compared

    figure = compared.figure_of(summaries, f"{title}: {len(summaries)} policies")
    figure_file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(figure_file, dpi=150)
    if by_user_file is not None:
        by_user_file.parent.mkdir(parents=True, exist_ok=True)
        compared.write_users(summaries, sums, by_user_file)


def _periods_as_json(comparison: "PeriodComparison | None") -> "dict[str, Any]":
    """Return the JSON fields about a policy's periods; empty without --periods."""
    if comparison is None:
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


def _warn_of_blocking(used_while_waiting: "Mapping[str, Mapping[str, float | None]]") -> None:
    """Say under which policy tasks wait while much is free, because the first task does not fit."""
    from allocator.contract.printable import printable

    fullest = {name: _fullest(fractions) for name, fractions in used_while_waiting.items()}
    policy = min(fullest, key=lambda name: fullest[name][1] if fullest[name][0] else 1.0)
    resource, used = fullest[policy]
    if resource and used < _BLOCKED:
        typer.echo(
            f"Large tasks block the pool: while tasks wait under {printable(policy)}, only "
            f"{used:.0%} of {printable(resource)}, the fullest resource, is used. Also compare "
            "with --blocking skip.",
            err=True,
        )


def _interval(low: float | None, high: float | None) -> str:
    """Return the second line of a cell: an interval in percent, empty if there is none."""
    return "" if low is None or high is None else f"\n[{100 * low:.1f}, {100 * high:.1f}]"


def _show_periods(by_period: "Mapping[str, PeriodComparison]") -> None:
    """Print the reduction of the mean wait in each period, and over all periods.

    Args:
        by_period: Comparisons with the first policy, by policy.
    """
    from rich.table import Table

    from allocator.cli.tables import console
    from allocator.contract.printable import printable
    from allocator.formatting import duration

    baseline, *alternatives = by_period.values()
    first, second = baseline.ends[:2]
    console().print(
        f"\nThe column less by, of tasks submitted in {len(baseline.waits)} periods of "
        f"{duration(second - first)} each; in the row all, of the sum of the periods' mean waits, "
        "with a 90 % interval:"
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
    table.add_row(
        "all",
        "",
        *(
            f"{mean.mean:+.1%}{_interval(_finite(mean.low), _finite(mean.high))}"
            if math.isfinite(mean.mean)
            else ""
            for mean in (comparison.overall for comparison in alternatives)
        ),
    )
    console().print(table)
    waits = [wait for comparison in by_period.values() for wait in comparison.waits]
    if max(filter(math.isfinite, waits), default=0.0) > second - first:
        console().print(
            "Some waits are longer than a period, so the periods depend on each other, and their "
            "interval is too narrow: take fewer periods."
        )


def _show_verdicts(
    rows: "list[ComparisonRow]", by_period: "Mapping[str, PeriodComparison]"
) -> None:
    """Print for each policy whether its users certainly wait less, and what to do if undecided.

    Args:
        rows: The rows of the table; the first row is of the baseline.
        by_period: Comparisons by policy; empty without --periods.
    """
    from allocator.cli.tables import console
    from allocator.contract.printable import printable

    baseline, *alternatives = rows
    interval = "both intervals are" if by_period else "the interval is"
    verdicts = {row.policy: row.verdict(by_period.get(row.policy)) for row in alternatives}
    lines = []
    for policy, verdict in verdicts.items():
        change = {
            "less": f"users wait less than under {baseline.policy}, because {interval} above 0",
            "longer": f"users wait longer than under {baseline.policy}, because {interval} below 0",
            "undecided": f"undecided, because {'an' if by_period else 'the'} interval contains 0 "
            "or is unknown",
        }[verdict]
        lines.append(f"{printable(policy)}: {printable(change)}.")
    if "undecided" in verdicts.values():
        lines.append(
            "If undecided, keep your policy, or compare a longer history. If light users matter "
            "most, look at their interval."
        )
    if not by_period:
        lines.append("An interval covers other users, but no other months: add --periods N.")
    console().print("\n".join(("", *lines)), highlight=False)


def _show(
    rows: "list[ComparisonRow]",
    used: "Mapping[str, float]",
    by_period: "Mapping[str, PeriodComparison]",
) -> None:
    """Print the comparison: a table, a table of periods, and a verdict on each policy.

    Args:
        rows: A row for each policy; the first row is of the baseline.
        used: Utilization of the fullest resource, by policy.
        by_period: Comparisons by policy; empty without --periods.
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
    for position, row in enumerate(rows):
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
            f"{used[row.policy]:.1%}",
        )
    console().print(table)
    if by_period:
        _show_periods(by_period)
    _show_verdicts(rows, by_period)
