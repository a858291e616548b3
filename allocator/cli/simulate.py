"""`longshare simulate`: what a policy would have done to the users of a trace."""

import json
import time
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allocator.cli.connection import USAGE, AsJson, fail
from allocator.cli.parameters import Debts, Parameters, Weights, by_user, parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from allocator.simulation.outcome import Outcome
    from allocator.simulation.setting import Setting
    from allocator.simulation.trace import Trace


class Blocking(StrEnum):
    """What happens when the next task of the user that is next does not fit."""

    HEAD_OF_LINE = "head-of-line"
    SKIP = "skip"


class Known(StrEnum):
    """Which users count in n."""

    KNOWN = "known"
    APPEARING = "appearing"


class Per(StrEnum):
    """Who is a user to the policy."""

    USER = "user"
    JOB = "job"


TraceFile = Annotated[Path, typer.Argument(metavar="TRACE", help="A Parquet file of a trace.")]
Load = Annotated[
    float | None,
    typer.Option(help="One pool of this fraction of the trace's mean use, such as 0.5."),
]
Capacity = Annotated[
    str | None,
    typer.Option(
        metavar="NAME=AMOUNT,...",
        help="One pool of this capacity.",
        show_default="the trace's machines",
    ),
]
IfItDoesNotFit = Annotated[
    Blocking, typer.Option(help="If the task of who is next does not fit: wait, or go on.")
]
HowSampled = Annotated[
    str | None,
    typer.Option(
        metavar="TIME|original",
        help="Look at users as seldom as the policy's original (docs/rivals.md), or so often: 5m.",
        show_default="at every instant",
    ),
]
WhoCounts = Annotated[
    Known, typer.Option(help="Who counts: all from the start, or each from when it appears.")
]


def simulate(
    trace: TraceFile,
    *,
    policy: Annotated[str, typer.Option(help="Who is next; docs/policies.md.")],
    parameters: Parameters = None,
    load: Load = None,
    capacity: Capacity = None,
    blocking: IfItDoesNotFit = Blocking.HEAD_OF_LINE,
    users: WhoCounts = Known.KNOWN,
    per: Annotated[Per, typer.Option(help="Who shares: users, or jobs.")] = Per.USER,
    weights: Weights = None,
    owes: Debts = None,
    sampled: HowSampled = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Write tasks.parquet, users.csv and summary.json there."
        ),
    ] = None,
    reference: Annotated[
        bool,
        typer.Option(
            "--reference",
            help="Use the plain simulator, which also counts and times what keeping order takes.",
        ),
    ] = False,
    events: Annotated[
        bool,
        typer.Option(
            "--events/--no-events",
            help="Count what a Live Tree would look at; without, SDRF takes half the time.",
        ),
    ] = True,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the time machine: a page that plays it. Uses the plain simulator.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Start the tasks of a trace as a policy would have; docs/simulation.md.

    Exit codes: 0, done; 2, the trace, the policy or the setting cannot be used.
    """
    from allocator.cli.progress import bar  # noqa: PLC0415 - keeps `--help` fast
    from allocator.simulation import results, store  # noqa: PLC0415
    from allocator.simulation.setting import Setting  # noqa: PLC0415
    from allocator.simulation.summary import summary, users_of  # noqa: PLC0415

    try:
        read = store.read(trace)
        setting = Setting(
            policy=policy,
            parameters=parse(parameters),
            capacity=capacity_of(read, load, capacity),
            blocking=blocking.value,
            users=users.value,
            per=per.value,
            weights=by_user(weights, "--weight"),
            owes=by_user(owes, "--owes"),
            sampled=sampled,
        )
        setting.check(read)
        plain = reference or html is not None
        fast, simulator = _simulator(setting, reference=plain, events=events)
        begun = time.perf_counter()
        with bar("simulating", len(read), "tasks") as report:
            if html is None:
                outcome = simulator(read, setting, report)
            else:
                outcome = _filmed(read, setting, trace.name, html, report)
        seconds = time.perf_counter() - begun
        fared = users_of(outcome)
        answer = {
            "trace": str(trace),
            "setting": asdict(setting) | {"load": load},
            "simulator": "fast" if fast else "reference",
            "seconds": seconds,
            **summary(outcome, fared, setting),
        }
        if out is not None:
            results.write(outcome, fared, answer, out)
    except (OSError, ValueError) as error:
        fail(USAGE, str(error))
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
    else:
        _show(answer, read, setting)
        if out is not None:
            typer.echo(f"written to {out}: tasks.parquet, users.csv, summary.json")
        if html is not None:
            typer.echo(f"Time machine: {html} ({html.stat().st_size:,} bytes)")


def _filmed(
    trace: "Trace", setting: "Setting", source: str, html: Path, report: "Callable[[int], None]"
) -> "Outcome":
    """Simulate, and write a film of it."""
    from allocator.film.page import write  # noqa: PLC0415 - keeps `--help` fast
    from allocator.simulation.film import film  # noqa: PLC0415

    outcome, page = film(trace, setting, source, report)
    write(html, page)
    return outcome


def capacity_of(
    trace: "Trace", load: float | None, capacity: str | None
) -> tuple[float, ...] | None:
    """Return the pool's capacity, or none for the trace's machines.

    Raises:
        ValueError: There are two, or one cannot be understood.
    """
    from allocator.simulation.setting import capacity_at  # noqa: PLC0415

    if load is not None:
        if capacity is not None:
            raise ValueError("give either --load or --capacity")
        return capacity_at(trace, load)
    if capacity is None:
        return None
    amounts: list[tuple[str, float]] = []
    for entry in capacity.split(","):
        name, equals, amount = entry.partition("=")
        try:
            amounts.append((name.strip(), float(amount)))
        except ValueError:
            equals = ""
        if not equals:
            raise ValueError(f"--capacity: {entry!r} is not NAME=AMOUNT, such as cpus=4")
    names = [name for name, _amount in amounts]
    if sorted(names) != sorted(trace.resources):
        raise ValueError(
            f"--capacity names {', '.join(names)}; the trace's resources are "
            f"{', '.join(trace.resources)}"
        )
    return tuple(dict(amounts)[name] for name in trace.resources)


def _simulator(
    setting: "Setting", *, reference: bool, events: bool
) -> "tuple[bool, Callable[[Trace, Setting, Callable[[int], None]], Outcome]]":
    """Return whether the fast path can be used, and what simulates."""
    if not reference:
        from allocator.simulation import fast  # noqa: PLC0415 - loads a compiler

        if fast.supports(setting):
            return True, partial(fast.simulate, events=events)
    from allocator.simulation import reference as plain  # noqa: PLC0415

    return False, plain.simulate


def _show(answer: dict[str, Any], trace: "Trace", setting: "Setting") -> None:
    from rich.table import Table  # noqa: PLC0415

    from allocator.cli.tables import console  # noqa: PLC0415
    from allocator.contract.printable import printable  # noqa: PLC0415

    out = console()
    where = (
        f"{sum(kind.count for kind in trace.machines):,} machines"
        if setting.capacity is None
        else "one pool of "
        + ", ".join(
            f"{amount:.6g} {printable(name)}"
            for name, amount in zip(trace.resources, setting.capacity, strict=True)
        )
    )
    out.print(
        f"{setting.policy} on {where}: {answer['tasks']:,} tasks of {answer['users']:,} users "
        f"in {answer['seconds']:.3g} s ({answer['simulator']})"
    )
    if answer["never_started"]:
        out.print(f"{answer['never_started']:,} tasks fit nowhere and never started")
    out.print(
        f"completed by the end of the trace: {_percent(answer['completion_ratio'])}; "
        "mean of users' ratios: " + _percent(answer["mean_user_completion_ratio"])
    )
    out.print(
        f"mean of users' mean waits: {_number(answer['mean_user_wait_s'])} s; "
        f"slowdowns: {_number(answer['mean_user_slowdown'])}"
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("")
    rows = {
        "wait of a task, s": answer["wait_s"],
        "slowdown of a task": answer["slowdown"],
        "completion of a job, s": answer["job_completion_s"],
    }
    headings: dict[str, float] = next((row for row in rows.values() if row), {})
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for name, row in rows.items():
        table.add_row(name, *(_number(value) for value in (row or {}).values()))
    if headings:
        out.print(table)
    for name, used in answer["utilization"].items():
        out.print(f"use of {printable(name)} until the last finish: {_percent(used)}")
    if answer["operations"]:
        done = ", ".join(
            f"{name} {operation['count']:,}"
            + (f" in {operation['seconds']:.3g} s" if operation["seconds"] is not None else "")
            for name, operation in answer["operations"].items()
        )
        out.print(f"to keep order: {done}; Live Tree events: {answer['live_tree_events']:,}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.6g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
