"""`longshare compare`: several policies on one trace, in one line."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from allocator.cli.connection import AsJson, fail_study
from allocator.cli.parameters import Debts, PolicyFiles, Weights, bring, by_user, parse
from allocator.cli.simulate import (
    Blocking,
    Capacity,
    IfItDoesNotFit,
    Known,
    Load,
    Per,
    TraceFile,
    WhoCounts,
    capacity_of,
    compiled,
    simulator_for,
)

if TYPE_CHECKING:
    from allocator.simulation.studies.compared import ComparisonRow


def compare(
    trace: TraceFile,
    *,
    policies: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help="What to compare, the first is what the others are held against; parameters "
            "behind colons: drf,sdrf:half_life=1d,tsf.",
        ),
    ],
    policy_files: PolicyFiles = None,
    load: Load = None,
    capacity: Capacity = None,
    blocking: IfItDoesNotFit = Blocking.HEAD_OF_LINE,
    users: WhoCounts = Known.KNOWN,
    per: Annotated[Per, typer.Option(help="Who shares: users, or jobs.")] = Per.USER,
    weights: Weights = None,
    owes: Debts = None,
    out: Annotated[
        Path | None, typer.Option(metavar="PNG", help="The figure.", show_default="compare.png")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a trace under several policies: how long users wait, who gains and who loses.

    Exit codes: 0, done; 2, the trace, a policy or the setting cannot be used.
    """
    from allocator.cli.progress import bar  # noqa: PLC0415 - keeps `--help` fast
    from allocator.simulation import store  # noqa: PLC0415
    from allocator.simulation.setting import Setting  # noqa: PLC0415
    from allocator.simulation.studies import compared, measures  # noqa: PLC0415

    bring(policy_files)
    file = out or Path("compare.png")
    file = file if file.suffix else file.with_suffix(".png")
    fared = {}
    try:
        named = _named(policies)
        read = store.read(trace)
        settings = {}
        for name in named:
            policy, *parameters = name.split(":")
            settings[name] = Setting(
                policy=policy,
                parameters=parse(parameters),
                capacity=capacity_of(read, load, capacity),
                blocking=blocking.value,
                users=users.value,
                per=per.value,
                weights=by_user(weights, "--weight"),
                owes=by_user(owes, "--owes"),
            )
            settings[name].check(read)
        compiled()
        with bar("simulating", len(settings), "policies") as report:
            for done, (name, setting) in enumerate(settings.items(), 1):
                _, simulate = simulator_for(setting, reference=False, events=False)
                fared[name] = measures.of_users(simulate(read, setting))
                report(done)
        figure = compared.figure_of(fared, f"{trace.stem}: {len(fared)} policies")
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=150)
    except (OSError, ValueError) as error:
        fail_study(error, as_json=as_json)
    found = compared.rows(fared)
    if as_json:
        told = {"figure": str(file), "policies": [asdict(row) for row in found]}
        typer.echo(json.dumps(told, indent=2))
    else:
        _show(found)
        typer.echo(f"{file}")


def _named(policies: str) -> list[str]:
    named = [name.strip() for name in policies.split(",")]
    if len(set(named)) < len(named) or len(named) < 2:
        raise ValueError(f"--policies {policies}: name two or more, each once")
    return named


def _show(rows: "list[ComparisonRow]") -> None:
    from rich.table import Table  # noqa: PLC0415

    from allocator.cli.tables import console  # noqa: PLC0415
    from allocator.contract.printable import printable  # noqa: PLC0415
    from allocator.service.show.formatting import duration  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("policy", overflow="fold")
    for heading in ("mean wait", "less by", "light", "heavy", "gain", "lose", "completed"):
        table.add_column(heading, justify="right", no_wrap=True)
    for place, row in enumerate(rows):
        held = (
            ("", "", "", "", "")
            if place == 0
            else (
                f"{row.reduction:+.1%}",
                f"{row.light:+.1%}",
                f"{row.heavy:+.1%}",
                str(row.gain),
                str(row.lose),
            )
        )
        table.add_row(
            printable(row.policy),
            duration(row.mean_user_wait_s),
            *held,
            f"{row.completion_ratio:.1%}",
        )
    console().print(table)
