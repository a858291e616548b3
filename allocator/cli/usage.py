"""`longshare usage` and `longshare audit`: show usage of users, and commands of operators."""

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
"""Shown in place of a change whose text is too long to be kept in the audit."""
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
"""Columns that are dropped on a narrow terminal, in this order."""
_NAME = 16
"""Characters to which a user's name may be cut."""
_UNBOUNDED = 10_000
_TOTAL = "total"
"""Shown in place of a user's name in the row of sums."""


class By(StrEnum):
    """Values of `--by`: each row of the table is about a user, a role, or a user on one day."""

    USER = "user"
    ROLE = "role"
    DAY = "day"


def usage(
    *,
    since: options.Since = None,
    until: options.Until = None,
    by: Annotated[
        By,
        typer.Option("--by", help="Print a line for each user or role, or for each user and day."),
    ] = By.USER,
    users: Annotated[
        list[str] | None,
        typer.Option(
            "--user",
            metavar="NAME",
            help="Show only this user or role; repeatable.",
            show_default="all",
        ),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, in seconds.")] = False,
    address: options.Address = None,
    config: options.ConfigFile = None,
    as_json: options.AsJson = False,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Show how much users held, used beyond their entitlement, and waited in a time interval.

    Their commitments are shown, too. Amounts are resource-hours: 2 hours of 4 cores are 8 of cpus.
    An hour is included if it begins within the requested interval. Usage is known until the
    master's latest event. The usage of sub-roles is part of the usage of their role; the total
    counts it once.

    Example: longshare usage --since 7d --by role --csv
    """
    if as_csv and as_json:
        raise typer.BadParameter("give --csv or --json, not both")
    begin, end = span(since, until)
    reply = Connection(address, config, timeout).usage(begin, end, by.value, users or ())
    subject = By.ROLE.value if by is By.ROLE else By.USER.value
    from allocator.contract.printable import printable

    if missing := sorted({*(users or ())} - {row.user for row in reply.rows}):
        typer.echo(f"longshare: no usage in that time: {printable(', '.join(missing))}", err=True)
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        figures = (*_COLUMNS, "offers", "refused", *_TIMES)
        writer.writerow(("day", subject, "resource", *figures, "unit", "within"))
        writer.writerows(_rows(reply.rows))
        return

    from allocator.cli import tables

    if as_json:
        typer.echo(tables.as_json(reply))
        return
    if not reply.rows:
        typer.echo("No user held or wanted resources in that time.")
        return
    console = tables.console()
    totals = [reply.total] if reply.HasField("total") and len(reply.rows) > 1 else []
    rows = [*reply.rows, *totals]
    console.print(_table(rows, subject, console.width, by_day=by is By.DAY))
    if reply.HasField("total"):  # a service of version 1.0 sends no total
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
    """Show the recorded commands of operators, with the operator, origin, time and effect of each.

    Refused commands follow, with the reason. If one peer sent many, the list shows some of them and
    the number of the rest.

    Example: longshare audit --since 2026-11-22
    """
    begin, end = span(since, until)
    reply = Connection(address, config, timeout).audit(begin, end)

    from allocator.cli import tables

    if as_json:
        typer.echo(tables.as_json(reply))
        return
    if not reply.orders:
        typer.echo("Operators gave no orders in that time.")
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
        if console.is_terminal:  # in a pipe each order is one line
            line = textwrap.fill(line, console.width, subsequent_indent=_INDENT)
        typer.echo(line)


def _rows(rows: Sequence["admin.Usage"]) -> Iterator[tuple[object, ...]]:
    for row in rows:
        day = _day(row) if row.HasField("day") else ""
        counts = (row.offers, row.refused, *(_figure(row, column) for column in _TIMES))
        for name in sorted(row.resources) or [""]:
            used = row.resources[name]
            amounts = (_figure(used, column) for column in _COLUMNS)
            names = (csv_cell(row.user), csv_cell(name))
            yield (day, *names, *amounts, *counts, csv_cell(used.unit), csv_cell(row.within))


def _figure(message: "admin.Usage | admin.Used", name: str) -> object:
    """Return a field of a usage message for CSV; an empty text if the message has no value.

    For example, a role has no commitment.

    Args:
        message: Usage of a user or of one of its resources.
        name: The field's name.
    """
    figures = {field.name: value for field, value in message.ListFields()}
    absent = "" if message.DESCRIPTOR.fields_by_name[name].has_presence else 0.0
    return figures.get(name, absent)


def _note(reply: "admin.UsageReply") -> str:
    """Return notes to print below the table: units, and how sub-roles count in the total."""
    from allocator.contract.printable import printable

    units = {
        f"{printable(name)} in {printable(used.unit.replace('-seconds', '-hours'))}"
        for name, used in reply.total.resources.items()
    }
    text = f"Amounts: {', '.join(sorted(units))}."
    if any(row.within for row in reply.rows):
        text += " Amounts of sub-roles are part of their role's, and once in the total."
    return text


def _table(rows: Sequence["admin.Usage"], subject: str, width: int, *, by_day: bool) -> "Table":
    """Return a table with lines for each user or role and resource.

    On a narrow terminal, columns are left out, and then a long name is cut; numbers are never cut.

    Args:
        rows: Usage of users, roles, or users by day.
        subject: Heading of the column of names.
        width: Characters in a line.
        by_day: Whether each row is about one day.
    """
    from rich.console import Console

    longest = max(len(row.user or _TOTAL) for row in rows)
    spare = max(0, longest - _NAME)
    columns = [*_HEADINGS]
    if not any(row.HasField("wanted") for row in rows):  # roles that are not users
        columns = ["held", "offers", "refused"]
    while True:
        table = _table_with(rows, subject, columns, by_day=by_day)
        dropped = next((column for column in _LEAST_WORTH if column in columns), None)
        excess = Console(width=_UNBOUNDED).measure(table).maximum - width
        if dropped is None or excess <= spare:
            if excess > 0:
                table.columns[by_day].max_width = longest - excess
            return table
        columns.remove(dropped)


def _table_with(
    rows: Sequence["admin.Usage"], subject: str, columns: Sequence[str], *, by_day: bool
) -> "Table":
    from rich.table import Table
    from rich.text import Text

    from allocator.contract.printable import printable

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    if by_day:
        table.add_column("day", no_wrap=True)
    table.add_column(subject, no_wrap=True, overflow="ellipsis")
    table.add_column("resource", no_wrap=True)
    for column in columns:
        table.add_column(_HEADINGS[column], justify="right", no_wrap=True)
    for row in rows:
        first = [Text(printable(row.user or _TOTAL))]
        if by_day:
            first.insert(0, Text(_day(row) if row.HasField("day") else ""))
        counts = {"offers": str(row.offers), "refused": str(row.refused)}
        counts |= {name: f"{getattr(row, name) / _HOUR:.1f}" for name in _TIMES}
        for name in sorted(row.resources):
            used = row.resources[name]
            sums = {figure: f"{getattr(used, figure) / _HOUR:,.1f}" for figure in _COLUMNS}
            cells = ((sums | counts).get(column, "") for column in columns)
            table.add_row(*first, Text(printable(name)), *cells)
            first, counts = [Text("") for _ in first], {}
    return table


def _day(row: "admin.Usage") -> str:
    return f"{datetime.fromtimestamp(row.day, tz=UTC):%Y-%m-%d}"


def _line(order: "admin.Ordered") -> str:
    from allocator.contract.printable import printable

    time = f"{datetime.fromtimestamp(order.at, tz=UTC):%Y-%m-%d %H:%M:%S}"
    operator_name = (
        f"{order.who} ({order.how}, {order.peer})" if order.how != "address" else order.who
    )
    given = json.loads(order.order)
    names = {"others": "other_resources" if "commitments" in given else "all_resources"}
    arguments = " ".join(f"{names.get(key, key)}={_plain(value)}" for key, value in given.items())
    line = f"{time}  {operator_name}  {order.kind.replace('_', ' ')} {arguments}".rstrip()
    if order.refusal:
        return printable(f"{line}  REFUSED: {order.refusal}")
    before, after = json.loads(order.before), json.loads(order.after)
    if TOO_LONG in before:
        return printable(f"{line}  too many users to be kept")
    changes = (
        f"{user}: {_standing_text(before[user])} → {_standing_text(after.get(user))}"
        for user in before
        if before[user] != after.get(user)
    )
    return printable(f"{line}  {'; '.join(changes) or 'no change'}")


def _standing_text(standing: object) -> str:
    if not isinstance(standing, dict):
        return "unknown"
    commitments = ", ".join(
        f"{name} {commitment:.1%}" for name, commitment in standing.get("commitments", {}).items()
    )
    weight = f"weight {standing.get('weight', 1.0):g}"
    return f"{weight}, commitment {commitments}" if commitments else f"{weight}, no commitment"


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
