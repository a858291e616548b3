"""`longshare usage` and `longshare audit`: who has had what, and who has ordered what."""

import csv
import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from allocator.cli import options
from allocator.cli.connection import Connection
from allocator.cli.span import span
from allocator.files import csv_cell

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from allocator.contract import admin_pb2 as admin

_HOUR = 3600.0
_INDENT = " " * len("2026-11-22 18:00:39  ")
TOO_LONG = "too long to be kept"
"""Stands where an order has changed more than the audit keeps."""
_COLUMNS = ("held", "overused", "owed", "entitled")
_TIMES = ("wanted", "waited")
_HEADINGS = {
    "held": "held\n× h",
    "overused": "over-\nused",
    "owed": "owed",
    "entitled": "entit-\nled to",
    "offers": "offers",
    "refused": "refused",
    "wanted": "wanted\nh",
    "waited": "waited\nh",
}
_LEAST_WORTH = ("wanted", "refused", "offers", "entitled", "waited")
"""Columns that a narrow terminal does without, the first first."""
_NAME = 16
"""Characters of a user's name that are shown in any case, if it has so many."""
_UNBOUNDED = 10_000
_TOTAL = "total"
"""Stands in place of a user in the row of the sums."""


class By(StrEnum):
    """What a line is about."""

    USER = "user"
    ROLE = "role"
    DAY = "day"


def usage(
    *,
    since: options.Since = None,
    until: options.Until = None,
    by: Annotated[
        By, typer.Option("--by", help="A line for each user or role, or for each user and day.")
    ] = By.USER,
    users: Annotated[
        list[str] | None,
        typer.Option(
            "--user", metavar="NAME", help="This user or role; repeatable.", show_default="all"
        ),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, in seconds.")] = False,
    address: options.Address = None,
    config: options.ConfigFile = None,
    as_json: options.AsJson = False,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Show what users have held, over-used and owed, and how long they waited.

    Amounts are resource-hours: 2 hours of 4 cores are 8 of cpus. All is counted until the master's
    latest event, by hours that begin within the time asked for. What a role's sub-roles had is part
    of what the role had; the total counts it once.
    """
    if as_csv and as_json:
        raise typer.BadParameter("--csv or --json, not both")
    begin, end = span(since, until)
    reply = Connection(address, config, timeout).usage(begin, end, by.value, users or ())
    whom = By.ROLE.value if by is By.ROLE else By.USER.value
    from allocator.contract.printable import printable

    if missing := sorted({*(users or ())} - {row.user for row in reply.rows}):
        typer.echo(
            f"longshare: no accounts in that time: {printable(', '.join(missing))}", err=True
        )
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        figures = (*_COLUMNS, "offers", "refused", *_TIMES)
        writer.writerow(("day", whom, "resource", *figures, "unit", "within"))
        writer.writerows(_rows(reply.rows))
        return

    from allocator.cli import tables

    if as_json:
        typer.echo(tables.as_json(reply))
        return
    if not reply.rows:
        typer.echo("Nobody has had or wanted anything in that time.")
        return
    console = tables.console()
    totals = [reply.total] if reply.HasField("total") and len(reply.rows) > 1 else []
    rows = [*reply.rows, *totals]
    console.print(_table(rows, whom, console.width, by_day=by is By.DAY))
    if reply.HasField("total"):  # not of a service of version 1.0
        console.print(_note(reply))


def audit(
    *,
    since: options.Since = None,
    until: options.Until = None,
    address: options.Address = None,
    config: options.ConfigFile = None,
    as_json: options.AsJson = False,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Show what operators have ordered: who, from where, when, and what that changed.

    Refused orders follow, with the reason. If one peer sent many, the list shows some of them and
    the number of the rest.
    """
    begin, end = span(since, until)
    reply = Connection(address, config, timeout).audit(begin, end)

    from allocator.cli import tables

    if as_json:
        typer.echo(tables.as_json(reply))
        return
    if not reply.orders:
        typer.echo("Nothing was ordered in that time.")
        return
    console = tables.console()
    carried_out = [order for order in reply.orders if not order.refusal]
    refused = [order for order in reply.orders if order.refusal]
    _print_orders(console, carried_out, "orders", earlier=reply.earlier)
    _print_orders(console, refused, "refusals", earlier=reply.earlier_refusals)


def _print_orders(
    console: "Console", orders: Sequence["admin.Ordered"], kind: str, *, earlier: bool
) -> None:
    if earlier:
        first = datetime.fromtimestamp(orders[0].at, tz=UTC)
        typer.echo(f"Earlier {kind} are left out; --until {first:%Y-%m-%dT%H:%M:%S.%f} shows them.")
    for order in orders:
        line = _line(order)
        if console.is_terminal:  # in a pipe an order is a line
            line = textwrap.fill(line, console.width, subsequent_indent=_INDENT)
        typer.echo(line)


def _rows(rows: Sequence["admin.Usage"]) -> Iterator[tuple[object, ...]]:
    for row in rows:
        day = _day(row) if row.HasField("day") else ""
        counted = (row.offers, row.refused, *(_told(row, column) for column in _TIMES))
        for name in sorted(row.resources) or [""]:
            used = row.resources[name]
            amounts = (_told(used, column) for column in _COLUMNS)
            names = (csv_cell(row.user), csv_cell(name))
            yield (day, *names, *amounts, *counted, used.unit, csv_cell(row.within))


def _told(message: "admin.Usage | admin.Used", name: str) -> object:
    """Return a figure; nothing where it is not told, as of what a role owes."""
    figures = {field.name: value for field, value in message.ListFields()}
    absent = "" if message.DESCRIPTOR.fields_by_name[name].has_presence else 0.0
    return figures.get(name, absent)


def _note(reply: "admin.UsageReply") -> str:
    """Say in which units amounts are, and which rows the total leaves out."""
    from allocator.contract.printable import printable

    units = {
        f"{printable(name)} in {printable(used.unit.replace('-seconds', '-hours'))}"
        for name, used in reply.total.resources.items()
    }
    words = f"Amounts: {', '.join(sorted(units))}."
    if any(row.within for row in reply.rows):
        words += " Amounts of sub-roles are part of their role's, and once in the total."
    return words


def _table(rows: Sequence["admin.Usage"], whom: str, width: int, *, by_day: bool) -> "Table":
    """Return lines for each user or role and resource.

    A narrow terminal does without columns, then a long name is cut; never a number.
    """
    from rich.console import Console

    longest = max(len(row.user or _TOTAL) for row in rows)
    spare = max(0, longest - _NAME)
    told = [*_HEADINGS]
    if not any(row.HasField("wanted") for row in rows):  # of roles where users are none
        told = ["held", "offers", "refused"]
    while True:
        table = _table_with(rows, whom, told, by_day=by_day)
        least = next((column for column in _LEAST_WORTH if column in told), None)
        beyond = Console(width=_UNBOUNDED).measure(table).maximum - width
        if least is None or beyond <= spare:
            if beyond > 0:
                table.columns[by_day].max_width = longest - beyond
            return table
        told.remove(least)


def _table_with(
    rows: Sequence["admin.Usage"], whom: str, told: Sequence[str], *, by_day: bool
) -> "Table":
    from rich.table import Table
    from rich.text import Text

    from allocator.contract.printable import printable

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    if by_day:
        table.add_column("day", no_wrap=True)
    table.add_column(whom, no_wrap=True, overflow="ellipsis")
    table.add_column("resource", no_wrap=True)
    for column in told:
        table.add_column(_HEADINGS[column], justify="right", no_wrap=True)
    for row in rows:
        first = [Text(printable(row.user or _TOTAL))]
        if by_day:
            first.insert(0, Text(_day(row) if row.HasField("day") else ""))
        counted = {"offers": str(row.offers), "refused": str(row.refused)}
        counted |= {name: f"{getattr(row, name) / _HOUR:.1f}" for name in _TIMES}
        for name in sorted(row.resources):
            used = row.resources[name]
            sums = {each: f"{getattr(used, each) / _HOUR:,.1f}" for each in _COLUMNS}
            cells = ((sums | counted).get(column, "") for column in told)
            table.add_row(*first, Text(printable(name)), *cells)
            first, counted = [Text("") for _ in first], {}
    return table


def _day(row: "admin.Usage") -> str:
    return f"{datetime.fromtimestamp(row.day, tz=UTC):%Y-%m-%d}"


def _line(order: "admin.Ordered") -> str:
    from allocator.contract.printable import printable

    at = f"{datetime.fromtimestamp(order.at, tz=UTC):%Y-%m-%d %H:%M:%S}"
    who = f"{order.who} ({order.how}, {order.peer})" if order.how != "address" else order.who
    ordered = " ".join(f"{key}={_plain(value)}" for key, value in json.loads(order.order).items())
    line = f"{at}  {who}  {order.kind.replace('_', ' ')} {ordered}".rstrip()
    if order.refusal:
        return printable(f"{line}  REFUSED: {order.refusal}")
    before, after = json.loads(order.before), json.loads(order.after)
    if TOO_LONG in before:
        return printable(f"{line}  too many users to be kept")
    changes = (
        f"{user}: {_stood(before[user])} → {_stood(after.get(user))}"
        for user in before
        if before[user] != after.get(user)
    )
    return printable(f"{line}  {'; '.join(changes) or 'nothing is different'}")


def _stood(stood: object) -> str:
    if not isinstance(stood, dict):
        return "unknown"
    owed = ", ".join(f"{name} {part:.1%}" for name, part in stood.get("commitments", {}).items())
    return f"weight {stood.get('weight', 1.0):g}, owes {owed or 'nothing'}"


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
