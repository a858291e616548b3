"""`longshare shares`: shows the shares of all users."""

import typer

from allocator.cli import options
from allocator.cli.connection import Connection


def shares(
    *,
    address: options.Address = None,
    config: options.ConfigFile = None,
    as_json: options.AsJson = False,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Show each user's holdings, commitment and shortfall, and the order of users.

    Entitlement, share, commitment and shortfall are parts of the whole cluster; share and
    commitment are those of the dominant resource. The shortfall is how much a user that wants
    offers holds less than its entitlement. The lowest priority value is rank 1.

    Example: longshare shares --address 10.0.0.5:5060
    """
    reply = Connection(address, config, timeout).shares()

    from allocator.cli import tables

    if as_json:
        typer.echo(tables.as_json(reply))
        return
    if reply.users:
        console = tables.console()
        console.print(tables.table_of_users(reply.users, console.width))
    elif reply.cluster.connected:
        typer.echo(
            "There are no users yet: no framework has registered, and the settings declare no user."
        )
    if not reply.cluster.connected:
        typer.echo(f"longshare: {tables.line_without_master(reply.cluster)}", err=True)
