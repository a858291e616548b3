"""`longshare lies`: simulates how much a user gains by misreporting its workload."""

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allocator.cli import options
from allocator.cli.connection import fail_study, keep
from allocator.cli.parameters import load_policy_files, number_or_text, parse
from allocator.cli.simulate import capacity_of
from allocator.files import whole

if TYPE_CHECKING:
    from allocator.simulation.studies.online_truth import LieGain, LieRow


def lies(
    trace: options.TraceFile,
    *,
    policy: options.Policy,
    parameters: options.Parameters = None,
    policy_files: options.PolicyFiles = None,
    load: options.Load = None,
    capacity: options.Capacity = None,
    blocking: options.BlockingRule = options.Blocking.HEAD_OF_LINE,
    users: options.CountingRule = options.CountedUsers.KNOWN,
    sampled: options.SamplingInterval = None,
    liars: Annotated[
        int, typer.Option(min=1, help="Number of users that lie, one at a time.")
    ] = 20,
    out: Annotated[
        Path | None, typer.Option(help="Write a row for each liar and lie to this CSV.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Simulate what users gain by lying about their workload, one user after another.

    The lies are late, split, excessive and prolonged demand.

    Exit codes: 0, done; 2, the trace, the policy or the setting cannot be used.

    Example: longshare lies month.parquet --policy drf --load 0.5
    """
    from allocator.cli.progress import bar
    from allocator.simulation import store
    from allocator.simulation.setting import Setting
    from allocator.simulation.studies.lies import LIES
    from allocator.simulation.studies.online_truth import LieGain, gains, rows

    load_policy_files(policy_files)
    columns = [field.name for field in fields(LieGain)]
    keep("--out", out, (trace, *(policy_files or ())), (",".join(columns).encode(),))
    try:
        content = store.read(trace)
        setting = Setting(
            policy=policy,
            parameters=parse(parameters),
            capacity=capacity_of(content, load, capacity),
            blocking=blocking.value,
            users=users.value,
            sampled=number_or_text(sampled),
        )
        with bar("simulating", liars * len(LIES), "lies") as report:
            lie_gains = list(gains(content, setting, liars, lambda done, _of: report(done)))
        if out is not None:
            _write(out, columns, lie_gains)
    except (OSError, ValueError) as error:
        fail_study(error, as_json=as_json)
    if as_json:
        typer.echo(
            json.dumps({"policy": policy, "lies": [_as_json(row) for row in rows(lie_gains)]})
        )
    else:
        _show(policy, rows(lie_gains))


def _as_json(row: "LieRow") -> dict[str, Any]:
    low, middle, high = (_finite(part) for part in row.saved)
    return {
        "lie": row.lie,
        "liars": row.liars,
        "saved": {"5%": low, "50%": middle, "95%": high},
        "gaining": row.gaining,
        "harm": row.harm,
    }


def _finite(part: float) -> float | None:
    """Return the fraction of the wait that a lie saves as a JSON value; None for −∞.

    The fraction is −∞ if one of the liar's tasks never ran.
    """
    return part if part > -float("inf") else None


def _write(out: Path, columns: list[str], lie_gains: "list[LieGain]") -> None:
    import csv
    from dataclasses import astuple

    with whole(out) as part, part.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(astuple(gain) for gain in lie_gains)


def _show(policy: str, table_rows: "list[LieRow]") -> None:
    from rich.table import Table

    from allocator.cli.tables import console

    if not table_rows:
        typer.echo("no user with ten tasks that all ran waits for a second, so no user could gain")
        return
    table = Table(title=f"Part of the wait that lies save the liar under {policy}")
    table.add_column("lie", no_wrap=True)
    for heading in ("liars", "median", "5 %", "95 %", "who gain", "others wait"):
        table.add_column(heading, justify="right")
    for row in table_rows:
        low, middle, high = (_percent(part) for part in row.saved)
        table.add_row(
            row.lie, str(row.liars), middle, low, high, f"{row.gaining:.0%}", f"{row.harm:+.2%}"
        )
    console().print(table)


def _percent(part: float) -> str:
    return "never runs" if part == -float("inf") else f"{part:+.1%}"
