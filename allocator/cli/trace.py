"""`longshare trace`: converts, generates and describes traces."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from allocator.cli import options
from allocator.cli.connection import REFUSED, USAGE, fail, keep
from allocator.cli.progress import on_terminal
from allocator.cli.trace_fit import fit
from allocator.files import csv_cell, whole

if TYPE_CHECKING:
    from allocator.simulation.formats.conversion import Conversion, SkippedRows
    from allocator.simulation.generator.moments import Moment
    from allocator.simulation.statistics import Statistics
    from allocator.simulation.trace import Trace

trace_app = typer.Typer(
    help="Convert, inspect and generate traces of tasks; see docs/how-to/prepare-a-trace.md.\n\n"
    "Example: longshare trace convert jobs.csv month.parquet --from csv",
    no_args_is_help=True,
)
_EXIT_CODES = "Exit codes: 0, done; 1, the trace would have no tasks; 2, a file cannot be used."


class Form(StrEnum):
    """File formats that can be converted to traces."""

    CSV = "csv"
    SDRF = "sdrf"
    SWF = "swf"
    GOOGLE = "google"
    OPENB = "openb"
    LOG = "log"
    SLURM = "slurm"
    HTCONDOR = "htcondor"


class DemandMoment(StrEnum):
    """Values of `--demand-at`: the event in Google's trace from which a task's demand is taken."""

    SCHEDULE = "schedule"
    SUBMIT = "submit"


class Workload(StrEnum):
    """Workloads that can be generated, each named after the real workload that it imitates."""

    GOOGLE_MONTH = "google-month"
    GOOGLE_MONTH_PLAIN = "google-month-plain"
    GOOGLE_CONSTRAINED_HOUR = "google-constrained-hour"


@trace_app.command(epilog=_EXIT_CODES)
def convert(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="SOURCE",
            help="The file, which may be packed (.gz, ...). For google, the folder; for htcondor "
            "and log, one or several files.",
        ),
    ],
    trace: options.TraceFile,
    *,
    form: Annotated[
        Form,
        typer.Option(
            "--from",
            metavar="FORM",
            help=f"Format of the source: {', '.join(Form)}. The header of a csv names the columns "
            "user, submitted, started, ended and resources. The format sdrf is that of the SDRF "
            "authors' simulator, and log is an event log of your own cluster. For "
            "slurm, print with sacct --parsable2 or --json, for htcondor with condor_history -json "
            "or -jsonl.",
        ),
    ],
    nodes: Annotated[
        Path | None, typer.Option(help="For openb: the file of nodes.", show_default=False)
    ] = None,
    users: Annotated[
        Path | None,
        typer.Option(help="For csv: a CSV of users' weights and commitments.", show_default=False),
    ] = None,
    machines: Annotated[
        Path | None, typer.Option(help="For csv: a CSV of machines.", show_default=False)
    ] = None,
    resources: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="For csv: the columns that contain resources, such as cpus,mem. Other columns of "
            "numbers are then ignored.",
            show_default="guessed by names and numbers",
        ),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(
            metavar="ZONE",
            help="For slurm and csv: zone of times such as 2026-03-01T12:00:00; for example "
            "Europe/Berlin.",
            show_default="UTC",
        ),
    ] = None,
    demand_at: Annotated[
        DemandMoment | None,
        typer.Option(
            help="For google: the event whose demand counts. With schedule, as the SDRF authors "
            "chose, tasks without CPU or without memory are left out; with submit, only tasks "
            "without both.",
            show_default="schedule",
        ),
    ] = None,
    left_out: Annotated[
        Path | None,
        typer.Option(
            help="CSV file to list every row that is left out, with reason, file and line."
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Convert a file of another format to a trace; count and list rows that cannot be used.

    Example: longshare trace convert jobs.csv month.parquet --from csv
    """
    from allocator.simulation import store

    for option, text in (("--resources", resources), ("--timezone", timezone)):
        if text is not None and not text.strip():
            raise typer.BadParameter("it is empty; leave it out, or fill it", param_hint=option)
    if form is Form.LOG:
        if left_out or users or machines or resources or nodes or timezone or demand_at:
            fail(
                USAGE,
                "--left-out, --users, --machines, --resources, --nodes, --timezone and --demand-at "
                "are not for --from log",
            )
        _convert_logs(sources, trace, as_json=as_json)
        return
    if len(sources) > 1 and form is not Form.HTCONDOR:
        fail(USAGE, f"--from {form.value} takes one SOURCE; convert each file by itself")
    inputs = (*sources, users, machines, nodes)
    keep("--left-out", left_out, inputs, (_LEFT_OUT.encode(),), outputs=[trace])
    with _reading(), _working("converting"):
        store.require_replaceable(trace)
        conversion = _converted(
            sources,
            form,
            nodes=nodes,
            users=users,
            machines=machines,
            resources=resources,
            timezone=timezone,
            demand_at=demand_at,
        )
        if left_out:
            _write_left_out(conversion.left_out, left_out)
        if len(conversion.trace):
            store.write_recorded(conversion.trace, trace, conversion.recorded_waits)
    if as_json:
        typer.echo(json.dumps(_conversion_as_json(conversion), indent=2))
    else:
        _show_conversion(conversion)
    if not len(conversion.trace):
        fail(
            REFUSED,
            f"no row of {', '.join(map(str, sources))} became a task; {trace} is not written",
        )


@trace_app.command(epilog=_EXIT_CODES)
def stats(trace: options.TraceFile, *, as_json: options.AsJson = False) -> None:
    """Print the numbers of tasks, users and jobs, and distributions of run times and demands.

    Example: longshare trace stats month.parquet
    """
    from allocator.simulation import store
    from allocator.simulation.statistics import statistics

    with _reading(), _working("reading"):
        read = store.read(trace)
        if not len(read):
            fail(REFUSED, f"{trace} has no tasks")
        summary = statistics(read)
    if as_json:
        typer.echo(json.dumps(asdict(summary), indent=2))
    else:
        _show_statistics(summary)


@trace_app.command(epilog=_EXIT_CODES)
def head(
    trace: options.TraceFile,
    *,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Number of tasks.")] = 10,
    as_json: options.AsJson = False,
) -> None:
    """Print the first tasks of a trace.

    Example: longshare trace head month.parquet
    """
    from allocator.simulation import store

    with _reading():
        read = store.read(trace, count)
    rows = list(_rows(read))
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        _show_rows(rows, read.resources)


@trace_app.command(epilog=_EXIT_CODES)
def generate(
    workload: Annotated[Workload, typer.Argument(help="Workload to imitate.")],
    trace: options.TraceFile,
    *,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same trace.")] = 0,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Number of tasks.", show_default="as published")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Generate a trace like a real workload, and compare it with that workload's published data.

    Example: longshare trace generate google-month month.parquet --seed 1
    """
    from allocator.simulation import store
    from allocator.simulation.generator import (
        google_constrained_hour,
        google_month,
        google_month_plain,
    )

    generator = {
        Workload.GOOGLE_MONTH: google_month,
        Workload.GOOGLE_MONTH_PLAIN: google_month_plain,
        Workload.GOOGLE_CONSTRAINED_HOUR: google_constrained_hour,
    }[workload]
    count = generator.TASKS if tasks is None else tasks
    with _reading():
        store.require_replaceable(trace)
        with on_terminal() as progress:
            bar = progress.add_task("tasks", total=count)
            generated = generator.generate(seed, count, lambda added: progress.advance(bar, added))
        with _working("writing"):
            store.write_generated(generated, trace, seed)
            moments = generator.moments(generated, count)
    if as_json:
        moments_as_json = [asdict(moment) | {"off": moment.off} for moment in moments]
        typer.echo(
            json.dumps(
                {"tasks": len(generated), "seed": seed, "moments": moments_as_json}, indent=2
            )
        )
    else:
        _show_moments(moments)


@contextmanager
def _reading() -> Iterator[None]:
    """Context manager: end the command with a message if the block raises an OSError or ValueError.

    Such errors mean that a file cannot be read or used.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        fail(USAGE, error)


@contextmanager
def _working(description: str) -> Iterator[None]:
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with on_terminal(*columns) as progress:
        progress.add_task(description, total=None)
        yield


def _converted(
    sources: list[Path],
    form: Form,
    *,
    nodes: Path | None,
    users: Path | None,
    machines: Path | None,
    resources: str | None,
    timezone: str | None,
    demand_at: DemandMoment | None,
) -> "Conversion":
    from allocator.simulation.formats import (
        csv,
        google,
        htcondor,
        openb,
        slurm,
        swf,
    )

    if (form is Form.OPENB) != (nodes is not None):
        fail(USAGE, "--from openb needs --nodes, and no other format takes --nodes")
    if form is not Form.CSV and (users or machines or resources):
        fail(USAGE, "--users, --machines and --resources are for --from csv only")
    if form not in {Form.SLURM, Form.CSV} and timezone is not None:
        fail(USAGE, "--timezone is for --from slurm and --from csv only")
    if form is not Form.GOOGLE and demand_at is not None:
        fail(USAGE, "--demand-at is for --from google only")
    source = sources[0]
    zone = timezone or "UTC"
    columns = [name.strip() for name in resources.split(",")] if resources else []
    readers: dict[Form, Callable[[], Conversion]] = {
        Form.CSV: lambda: csv.convert(source, users, machines, zone, columns),
        Form.SDRF: lambda: csv.convert_authors(source),
        Form.SWF: lambda: swf.convert(source),
        Form.GOOGLE: lambda: google.convert(source, google.DemandAt(demand_at or "schedule")),
        Form.OPENB: lambda: openb.convert(source, cast("Path", nodes)),
        Form.SLURM: lambda: slurm.convert(source, zone),
        Form.HTCONDOR: lambda: htcondor.convert(*sources),
    }
    return readers[form]()


def _convert_logs(sources: list[Path], trace: Path, *, as_json: bool) -> None:
    from allocator.cli import own_history
    from allocator.cli.progress import bar
    from allocator.cli.tables import console
    from allocator.contract.printable import printable
    from allocator.formatting import counted
    from allocator.service.record.event_log import EventLogError
    from allocator.simulation import store

    bytes_read = entries = 0
    try:
        store.require_replaceable(trace)
        with bar("replaying", sum(path.stat().st_size for path in sources), "B") as report:

            def watch(size: int) -> None:
                nonlocal bytes_read, entries
                bytes_read += size
                entries += 1
                report(bytes_read)

            history = own_history.convert(sources, watch)
        if len(history.trace):
            store.write(history.trace, trace)
    except (EventLogError, OSError, ValueError) as error:
        fail(USAGE, error)
    if not len(history.trace):
        fail(REFUSED, f"no user held resources in these logs, so {trace} is not written")
    if as_json:
        answer = {
            "rows": entries,
            "tasks": len(history.trace),
            "users": len(history.trace.users),
            "policy": history.policy,
            "notes": history.notes,
            **_use_as_json(history.trace),
        }
        typer.echo(json.dumps(answer, indent=2))
        return
    out = console()
    out.print(
        f"{counted(len(history.trace), 'task')} of {counted(len(history.trace.users), 'user')} on "
        f"{sum(kind.count for kind in history.trace.machines):,} agents, "
        f"recorded under {history.policy}"
    )
    for note in history.notes:
        out.print(f"  {printable(note)}")
    out.print(f"entries read: {entries:,}")
    _show_use(history.trace)


_LEFT_OUT = "reason,file,line"
"""Columns of the file of left-out rows."""


def _write_left_out(left_out: "SkippedRows", path: Path) -> None:
    import csv

    with whole(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_LEFT_OUT.split(","))
        writer.writerows(
            (csv_cell(reason), csv_cell(str(file_name)), line)
            for reason, file_name, line in left_out
        )


def _conversion_as_json(conversion: "Conversion") -> dict[str, Any]:
    return {
        "rows": conversion.left_out.rows_read,
        "tasks": len(conversion.trace),
        "users": len(conversion.trace.users),
        "users_without_tasks": _without_tasks(conversion.trace),
        "left_out": _rows_as_json(conversion.left_out),
        "assumed": _rows_as_json(conversion.assumed),
        "columns_ignored": list(conversion.ignored),
        "resource_columns": list(conversion.resource_columns),
        "warnings": list(conversion.warnings),
        "machines": sum(kind.count for kind in conversion.trace.machines),
        **_use_as_json(conversion.trace),
        "checks": [
            {
                "what": check.figure,
                "unit": check.unit,
                "rows": check.rows,
                "in_file": check.in_file,
                "in_trace": check.in_trace,
                "agrees": check.agrees,
                "differing": _rows_as_json(check.differing).get(check.figure, {"rows": 0}),
            }
            for check in conversion.checks
        ],
    }


def _without_tasks(trace: "Trace") -> list[str]:
    """Return the users of a trace that have no tasks, for a warning.

    Perhaps such a user's name is misspelt in the file of users.
    """
    with_tasks = set(trace.user.tolist())
    return [user for index, user in enumerate(trace.users) if index not in with_tasks]


def _use_as_json(trace: "Trace") -> dict[str, Any]:
    from allocator.simulation.formats.conversion import resource_hours

    hours = resource_hours(trace)
    return {"resource_hours": hours, "core_hours": hours.get("cpus")}


def _rows_as_json(rows: "SkippedRows") -> dict[str, Any]:
    return {
        reason: {"rows": count, "first": rows.first(reason)}
        for reason, count in rows.counts().items()
    }


def _show_conversion(conversion: "Conversion") -> None:
    from allocator.cli.tables import console
    from allocator.contract.printable import printable
    from allocator.formatting import counted

    trace = conversion.trace
    print_line = console().print
    print_line(f"{counted(len(trace), 'task')} of {counted(len(trace.users), 'user')}")
    if idle := _without_tasks(trace):
        print_line(f"users without tasks: {printable(', '.join(idle))}")
    print_line(f"rows read: {conversion.left_out.rows_read:,}")
    counts = conversion.left_out.counts()
    if counts:
        total = sum(counts.values())
        print_line(f"{counted(total, 'row')} {'was' if total == 1 else 'were'} left out:")
        _show_rows_by_reason(conversion.left_out)
    else:
        print_line("no row was left out")
    if conversion.assumed.counts():
        print_line("rows read with an assumption:")
        _show_rows_by_reason(conversion.assumed)
    if conversion.resource_columns:
        print_line(f"columns of resources: {printable(', '.join(conversion.resource_columns))}")
    if conversion.ignored:
        print_line(
            f"columns ignored ({len(conversion.ignored)}): "
            f"{printable(', '.join(conversion.ignored))}"
        )
    for warning in conversion.warnings:
        typer.echo(f"longshare: {printable(warning)}", err=True)
    if trace.machines:
        print_line(f"machines: {sum(kind.count for kind in trace.machines):,}")
    _show_use(trace)
    for check in conversion.checks:
        print_line(
            f"{printable(check.figure)}: {check.in_file:,.9g} {check.unit} by the file, "
            f"{check.in_trace:,.9g} by the conversion, from {counted(check.rows, 'row')}"
            f"{'' if check.agrees else '; they differ'}"
        )
        _show_rows_by_reason(check.differing, "differ")


def _show_use(trace: "Trace") -> None:
    from allocator.cli.tables import console
    from allocator.contract.printable import printable
    from allocator.simulation.formats.conversion import resource_hours

    hours = resource_hours(trace)
    if "cpus" in hours:
        console().print(f"core-hours: {hours['cpus']:,.9g}")
    uses = ", ".join(f"{printable(name)} {use:,.9g}" for name, use in hours.items())
    console().print(f"resources, amount × hours: {uses}")


def _show_rows_by_reason(rows: "SkippedRows", reads: str | None = None) -> None:
    """Print how many rows of the source files were left out of a trace, one line per reason.

    Each line also names the files and lines of the first such rows.

    Args:
        rows: The rows that were left out.
        reads: Text to print in place of each reason; None: the reason itself.
    """
    from allocator.cli.tables import console
    from allocator.contract.printable import printable

    for reason, count in rows.counts().items():
        locations = ", ".join(rows.first(reason))
        ellipsis = ", ..." if count > len(rows.first(reason)) else ""
        console().print(
            f"  {count:,}: {printable(reads or reason)} ({printable(locations)}{ellipsis})"
        )


def _show_statistics(summary: "Statistics") -> None:
    from rich.table import Table

    from allocator.cli.tables import console
    from allocator.contract.printable import printable

    out = console()
    out.print(
        f"{summary.tasks:,} tasks in {summary.jobs:,} jobs of {summary.users:,} users\n"
        f"submitted {summary.first_s:,.12g} to {summary.last_s:,.12g} s after the trace's origin; "
        f"the last would finish at {summary.finished_s:,.12g} s"
    )
    out.print(
        f"the tenth of users that use most, rounded up: {summary.use_of_heaviest:.1%} of all use; "
        f"busiest hour of the day: {summary.peak_hour:.2f} times the mean"
    )
    if summary.machines:
        out.print(
            f"{summary.machines:,} machines; {summary.constrained:.1%} of tasks are constrained"
        )
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("")
    for heading in summary.runtime_s:
        table.add_column(heading, justify="right", no_wrap=True)
    rows = {"run time, s": summary.runtime_s}
    rows |= {f"demand, {printable(name)}": values for name, values in summary.demand.items()}
    rows |= {
        "tasks of a job": summary.tasks_of_job,
        "tasks of a user": summary.tasks_of_user,
    }
    for name, values in rows.items():
        table.add_row(name, *(f"{value:.6g}" for value in values.values()))
    out.print(table)
    for name, use in summary.mean_use.items():
        capacity_note = f" of {summary.capacity[name]:.6g}" if summary.machines else ""
        at_once = (
            f": {summary.at_once[name]:.3g} tasks at once, of the mean demand weighted by use"
            if name in summary.at_once
            else ""
        )
        out.print(f"mean use, {printable(name)}: {use:.6g}{capacity_note}{at_once}")


def _show_moments(moments: "list[Moment]") -> None:
    from rich.table import Table

    from allocator.cli.tables import console

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("moment")
    for heading in ("wanted", "got", "off"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("source")
    for moment in moments:
        bound = "" if moment.relation == "=" else f"{moment.relation} "
        table.add_row(
            moment.name,
            f"{bound}{moment.wanted:.4g}" if moment.wanted < 1000 else f"{bound}{moment.wanted:,}",
            f"{moment.got:.4g}" if moment.got < 1000 else f"{moment.got:,.0f}",
            f"{moment.off:+.1%}" if moment.off else "0",
            moment.source,
        )
    console().print(table)


def _rows(trace: "Trace") -> Iterator[dict[str, Any]]:
    for index in range(len(trace)):
        constraint = int(trace.constraint[index])
        yield {
            "submitted_s": int(trace.submitted[index]) / 1e6,
            "runtime_s": int(trace.runtime[index]) / 1e6,
            "user": trace.users[trace.user[index]],
            "job": int(trace.job[index]),
            "demand": dict(zip(trace.resources, trace.demand[index].tolist(), strict=True)),
            "machines": None
            if constraint < 0
            else [trace.machines[allowed].name for allowed in trace.constraints[constraint]],
        }


def _show_rows(rows: list[dict[str, Any]], resources: tuple[str, ...]) -> None:
    from rich.table import Table

    from allocator.cli.tables import console
    from allocator.contract.printable import printable

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("submitted, s", "run time, s"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("user", overflow="fold")
    for heading in ("job", *map(printable, resources)):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("machines", overflow="fold")
    for row in rows:
        table.add_row(
            f"{row['submitted_s']:.6f}",
            f"{row['runtime_s']:.6f}",
            printable(row["user"]),
            str(row["job"]),
            *(f"{amount:.6g}" for amount in row["demand"].values()),
            "all" if row["machines"] is None else printable("; ".join(row["machines"])),
        )
    console().print(table)


trace_app.command()(fit)
