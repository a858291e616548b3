"""`longshare top`: shows shares of users, and updates them each second."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from allocator.cli import options
from allocator.cli.connection import Connection

if TYPE_CHECKING:
    from rich.console import Group

    from allocator.contract import admin_pb2 as admin

_PAUSE = 1.0
"""Seconds between two updates."""


def top(
    *,
    once: Annotated[bool, typer.Option("--once", help="Show one update and end.")] = False,
    address: options.Address = None,
    config: options.ConfigFile = None,
    as_json: options.AsJson = False,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Show users' shares, the allocation, and the next overtaking, updated each second.

    The command ends on Ctrl-C with exit code 0. With --json each update is one line.

    Example: longshare top --once
    """
    try:
        connection = Connection(address, config, timeout)
        if once or as_json or not sys.stdout.isatty():
            _print(connection, once=once, as_json=as_json)
        else:
            _show(connection)
    except KeyboardInterrupt:
        return


def _print(connection: Connection, *, once: bool, as_json: bool) -> None:
    """Print a new table of shares each second, one after the other, for output to no terminal.

    Args:
        connection: The service.
        once: Whether to end after the first update.
        as_json: Whether to print JSON, one line for each update.
    """
    from allocator.cli import tables

    console = tables.console()
    while True:
        reply = connection.shares()
        if as_json:
            typer.echo(tables.as_json(reply, indent=None))
        else:
            console.print(_look(reply))
        if once:
            return
        time.sleep(_PAUSE)


def _show(connection: Connection) -> None:
    """Show the table of shares on the terminal, and replace it by a new one each second."""
    from rich.live import Live

    from allocator.cli import tables

    first = _look(connection.shares())
    with Live(first, console=tables.console(), screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(_PAUSE)
            live.update(_look(connection.shares()), refresh=True)


def _look(reply: "admin.SharesReply") -> "Group":
    from rich.console import Group

    from allocator.cli import tables

    table = tables.table_of_users(reply.users, tables.console().width)
    return Group(tables.lines_of_cluster(reply.cluster), "", table)
