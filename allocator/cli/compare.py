"""`longshare compare`: simulates several policies on one trace."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from allocator.cli import options
from allocator.cli.connection import fail_study
from allocator.cli.parameters import by_user, load_policy_files, parse
from allocator.cli.simulate import capacity_of, compiled

if TYPE_CHECKING:
    from allocator.simulation.studies.compared import ComparisonRow


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
    out: Annotated[
        Path | None, typer.Option(metavar="PNG", help="The figure.", show_default="compare.png")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Simulate a trace under several policies, and show how waits change.

    The column less by is the reduction of the mean wait. If its 90 % interval contains 0, this
    trace does not decide whether users wait less. The interval is from 1,000 draws of the users.

    The table counts the users that wait less or longer; --json also names these users. The mean of
    users' completion ratios is the column completed.

    Exit codes: 0, done; 2, the trace, a policy or the setting cannot be used.

    Example: longshare compare month.parquet --policies drf,sdrf:half_life=1d --load 0.5
    """
    from allocator.cli.progress import bar
    from allocator.cli.simulated import print_never_started
    from allocator.simulation import fastest, store
    from allocator.simulation.setting import Setting
    from allocator.simulation.studies import compared, measures

    load_policy_files(policy_files)
    file = out or Path("compare.png")
    file = file if file.suffix else file.with_suffix(".png")
    summaries = {}
    never_started = 0
    try:
        names = _named(policies)
        content = store.read(trace)
        settings = {}
        for name in names:
            policy, *parameters = name.split(":")
            settings[name] = Setting(
                policy=policy,
                parameters=parse(parameters),
                capacity=capacity_of(content, load, capacity),
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
                report(number)
        figure = compared.figure_of(summaries, f"{trace.stem}: {len(summaries)} policies")
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=150)
    except (OSError, ValueError) as error:
        fail_study(error, as_json=as_json)
    rows = compared.rows(summaries)
    if as_json:
        answer = {
            "figure": str(file),
            "never_started": never_started,
            "policies": [asdict(row) for row in rows],
        }
        typer.echo(json.dumps(answer, indent=2))
    else:
        _show(rows)
        print_never_started(never_started)
        typer.echo(f"{file}")


def _named(policies: str) -> list[str]:
    names = [name.strip() for name in policies.split(",")]
    if len(set(names)) < len(names) or len(names) < 2:
        raise ValueError(f"--policies {policies}: name two or more policies, each once")
    return names


def _interval(row: "ComparisonRow") -> str:
    if row.reduction_low is None or row.reduction_high is None:
        return ""
    return f"[{100 * row.reduction_low:.1f}, {100 * row.reduction_high:.1f}]"


def _show(rows: "list[ComparisonRow]") -> None:
    from rich.table import Table

    from allocator.cli.tables import console
    from allocator.contract.printable import printable
    from allocator.formatting import duration

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("policy", overflow="fold")
    for heading in (
        "mean\nwait",
        "less by, with\n90 % interval",
        "light",
        "heavy",
        "gain",
        "lose",
        "completed",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for position, row in enumerate(rows):
        changes = (
            ("", "", "", "", "")
            if position == 0
            else (
                f"{row.reduction:+.1%} {_interval(row)}".rstrip(),
                f"{row.light:+.1%}",
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
        )
    console().print(table)
