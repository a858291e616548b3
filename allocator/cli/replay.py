"""`longshare replay`: recomputes the decisions of an event log, or models another policy."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from allocator.cli import options
from allocator.cli.connection import HTML, fail_study, in_words, keep
from allocator.cli.parameters import load_policy_files, parse
from allocator.cli.progress import on_terminal
from allocator.contract.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.progress import Progress

    from allocator.cluster.engine import Engine
    from allocator.contract import log_pb2 as log
    from allocator.fairness.policies import Policy
    from allocator.service.record.replay import Replayed
    from allocator.service.record.whatif import UserOutcome
    from allocator.service.show.filming import Filming


def replay(
    file: Annotated[Path, typer.Argument(help="Event log of `longshare serve --record FILE`.")],
    *,
    policy: Annotated[
        str | None, typer.Option(help="Model this policy in place of the recorded one.")
    ] = None,
    parameters: options.Parameters = None,
    policy_files: options.PolicyFiles = None,
    save_policy: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the recorded policy's file here, and end."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the time machine: a page that plays the log."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Recompute all decisions of an event log and compare them, or model another policy.

    Exit codes: 0, all decisions are the same; 1, a decision differs and is shown; 2, the file or
    the policy cannot be used, or the policy failed.

    With --policy the result comes from a model. Each user has the tasks that really ran, with their
    real run times. A task is ready once its framework takes all that it is offered. All machines
    are one pool. The recorded policy goes through the same model, so that differences between the
    two columns are due to the policy.

    With --html the decisions are compared as well, and a self-contained page for a browser is
    written. The page shows agents and their holders, shares and commitments over time, and the
    reasons.

    Example: longshare replay events.log --policy sdrf --set half_life=1d
    """
    from allocator.cli import tables
    from allocator.fairness.plugin_sandbox import PolicyFailedError
    from allocator.service.record.event_log import EventLogError

    console = tables.console()
    load_policy_files(policy_files)
    keep("--html", html, (file, *(policy_files or ())), HTML)
    try:
        if save_policy is not None:
            _save_policy(file, save_policy)
        elif policy is None:
            if parameters:
                raise typer.BadParameter("it needs --policy", param_hint="--set")
            _compare(file, html, console, as_json=as_json)
        else:
            if html is not None:
                raise typer.BadParameter(
                    "it shows recorded decisions, and cannot be combined with --policy",
                    param_hint="--html",
                )
            _ask(file, _policy(policy, parameters), console, as_json=as_json)
    except PolicyFailedError as error:
        fail_study(error, as_json=as_json)
    except (EventLogError, OSError) as error:
        typer.echo(f"longshare replay: {printable(in_words(error))}", err=True)
        raise typer.Exit(2) from error


def _save_policy(file: Path, target: Path) -> None:
    from allocator.service.record.event_log import recorded_code
    from allocator.service.record.replay import open_log

    header, _rest = open_log(file)
    code = recorded_code(header.settings)
    if code is None:
        raise typer.BadParameter(
            "the recorded policy is part of Longshare and has no file to write",
            param_hint="--save-policy",
        )
    with target.open("x", encoding="utf-8", newline="") as stream:
        stream.write(code.source)
    typer.echo(f"{target}: the policy file {code.file} of the recording; read it before you run it")


def _compare(file: Path, html: Path | None, console: "Console", *, as_json: bool) -> None:

    from allocator.service.record.replay import replay as recompute

    size = file.stat().st_size
    with on_terminal() as progress:
        filming = None if html is None else _filming(file, progress)
        task = progress.add_task(f"Replaying {file.name}", total=size)

        def watch(engine: "Engine", entry: "log.LogEntry") -> None:
            if filming is not None:
                filming.look(engine, entry)
            progress.advance(task, entry.ByteSize())

        replayed = recompute(file, watch, None if filming is None else filming.look_before)
        if html is not None and filming is not None:
            _finish(html, filming, file, replayed)
    if replayed.left_out:
        _tell_cut_off(replayed.left_out)
    if replayed.other_policy:
        typer.echo(
            f"longshare replay: this policy differs from the recorded policy, which was in "
            f"{replayed.other_policy}; --save-policy FILE writes the recorded one",
            err=True,
        )
    if replayed.other_kinds and replayed.difference is not None:
        typer.echo(
            "longshare replay: the log is older than the rule that resources are of one kind if "
            "Mesos adds them up. The difference can be due to labels of reservations or disks, for "
            "example one with an empty value and one without a value. Replay the log with the "
            "release that recorded it to check this",
            err=True,
        )
    if as_json:
        typer.echo(json.dumps({"same": replayed.difference is None, **asdict(replayed)}, indent=2))
    else:
        _say(replayed, console)
        if html is not None:
            console.print(f"Time machine: {html} ({html.stat().st_size:,} bytes)", highlight=False)
    if replayed.difference is not None:
        raise typer.Exit(1)


def _filming(file: Path, progress: "Progress") -> "Filming":
    """Return a recorder of a film (for `--html`), with an interval that suits the log's length.

    Args:
        file: The event log.
        progress: Shows the progress of reading the log.
    """
    from allocator.film.camera import interval
    from allocator.service.show.filming import Filming, span

    task = progress.add_task(f"Reading {file.name}", total=None)
    every = interval(*span(file))
    progress.remove_task(task)
    return Filming(every)


def _finish(html: Path, filming: "Filming", file: Path, replayed: "Replayed") -> None:
    """Write the film of a replayed log as an HTML page.

    Args:
        html: Path of the page.
        filming: The recorder of the film.
        file: Path of the event log.
        replayed: The result of the replay.

    Raises:
        EventLogError: the log has no entry to show.
        OSError: the file cannot be written.
    """
    from allocator.film.page import write
    from allocator.service.record.event_log import EventLogError

    notes = []
    if replayed.left_out:
        notes.append(
            f"The log's last {replayed.left_out:,} bytes, an incomplete entry, are left out."
        )
    if replayed.difference is not None:
        notes.append(
            "It ends where this version of Longshare decides differently from the recording."
        )
    page = filming.page(file.name, *notes)
    if page is None:
        raise EventLogError(f"{file} has no events that could be shown")
    write(html, page)


def _tell_cut_off(count: int) -> None:
    typer.echo(
        f"longshare replay: the log's last {count:,} bytes are left out; their entry "
        "is incomplete, as when the service is killed",
        err=True,
    )


def _say(replayed: "Replayed", console: "Console") -> None:
    summary = (
        f"{replayed.events:,} events in {replayed.entries:,} entries, {replayed.offers:,} offers"
    )
    if replayed.difference is None:
        console.print(f"All decisions are the same: {summary}.", highlight=False)
        return
    difference = replayed.difference
    console.print(
        f"Entry {difference.entry}, after event {difference.sequence}, differs ({summary} before).",
        highlight=False,
    )
    for name, text in (("recorded", difference.recorded), ("replayed", difference.replayed)):
        console.print(f"{name}:", style="bold")
        console.print("\n".join(map(printable, text.splitlines())))


def _ask(file: Path, policy: "Policy", console: "Console", *, as_json: bool) -> None:

    from allocator.service.record import whatif
    from allocator.service.record.event_log import decode_settings
    from allocator.service.record.history import reconstruct
    from allocator.service.record.replay import new_engine, open_log

    left_out: list[int] = []
    with on_terminal() as progress:
        header, entries = open_log(file, left_out.append)
        settings = decode_settings(header.settings)
        history = reconstruct(new_engine(header), _watched(entries, file, progress))
        fact = whatif.recorded(history)
        progress.add_task(f"Modelling {len(history.tasks):,} tasks", total=None)
        control = whatif.modelled(history, settings, settings.policy)
        answer = whatif.modelled(history, settings, policy)
    for count in left_out:
        _tell_cut_off(count)
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "left_out": sum(left_out),
                    "seconds": history.end - history.begin,
                    "recorded_policy": settings.policy.name,
                    "other_policy": policy.name,
                    "users": {
                        user: {
                            "recorded": asdict(fact.get(user, whatif.UserOutcome())),
                            "recorded_policy": asdict(control[user]),
                            "other_policy": asdict(answer[user]),
                        }
                        for user in control
                    },
                },
                indent=2,
            )
        )
        return
    title = f"{history.end - history.begin:,.0f} s, {len(history.tasks):,} tasks"
    names = settings.policy.name, policy.name
    if names[0] == names[1]:  # the same policy with other parameters
        names = f"{names[0]} as recorded", f"{names[1]} as asked"
    show_fates(title, names, (fact, control, answer), console)


def _watched(
    entries: "Iterator[log.LogEntry]", file: Path, progress: "Progress"
) -> "Iterator[log.LogEntry]":
    task = progress.add_task(f"Replaying {file.name}", total=file.stat().st_size)
    for entry in entries:
        yield entry
        progress.advance(task, entry.ByteSize())


def show_fates(
    title: str,
    policies: tuple[str, str],
    fates: "tuple[dict[str, UserOutcome], dict[str, UserOutcome], dict[str, UserOutcome]]",
    console: "Console",
) -> None:
    """Print a table of users' waits, usage and commitments, as modelled under two policies.

    The table also contains the recorded shares.

    Args:
        title: Title of the table.
        policies: Names of the recorded policy and of the other policy.
        fates: Results by user: recorded, modelled, and modelled under the other policy.
        console: Console on which the table is printed.
    """
    from rich.table import Table
    from rich.text import Text

    fact, control, answer = fates
    before, after = policies
    rows = [
        (
            f"{modelled.tasks:,}",
            f"{fact[user].share:.1%}" if user in fact else "",
            f"{modelled.wait:.0f} s",
            f"{changed.wait:.0f} s",
            f"{modelled.wait - changed.wait:+.0f} s",
            f"{changed.cpu_seconds - modelled.cpu_seconds:+,.0f}",
            f"{modelled.commitment:.3f}",
            f"{changed.commitment:.3f}",
        )
        for user, modelled in control.items()
        for changed in (answer[user],)
    ]
    table = Table(title=title, box=None, pad_edge=False, padding=(0, 1, 0, 0))
    headings = (
        *("tasks", "share", f"wait, {before}", f"wait, {after}", "gain", "CPU s"),
        *(f"owes, {before}", f"owes, {after}"),
    )
    widths = [
        max(map(len, (*heading.split(), *(row[index] for row in rows))))
        for index, heading in enumerate(headings)
    ]
    remaining = console.width - sum(width + 1 for width in widths)
    table.add_column("user", overflow="fold", max_width=max(8, remaining))
    for heading, width in zip(headings, widths, strict=True):
        table.add_column(heading, justify="right", width=width)
    for user, row in zip(control, rows, strict=True):
        table.add_row(Text(printable(user)), *row)
    console.print(table)
    console.print(
        "Share: the recorded share, on average. Wait: of a task in the model, on average. "
        f"Gain: time that its tasks start sooner under {after}. CPU s: CPU-seconds that the user "
        "holds more until the log ends. Owes: its dominant commitment at that time."
    )


def _policy(name: str, parameters: list[str] | None) -> "Policy":
    from allocator import plugins

    try:
        return plugins.create(name, parse(parameters))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--policy") from error
