"""`longshare shadow`: shows users' ranks and gains under shadow policies."""

import typer

from allocator.cli import options
from allocator.cli.connection import Connection


def shadow(
    *,
    address: options.Address = None,
    config: options.ConfigFile = None,
    as_json: options.AsJson = False,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Show the users' order under the shadow policies, and each user's gain or loss.

    Shadow policies make no decisions; the settings' `shadow` sections define them. A user's gain is
    what it would have had more until now, in hours of the whole cluster. In each allocation cycle,
    some offers would have gone to another user under the shadow policy. These offers count for as
    long as they are held.

    Example: longshare shadow --json
    """
    reply = Connection(address, config, timeout).shadows()

    from allocator.cli import tables

    if as_json:
        typer.echo(tables.as_json(reply))
        return
    if not reply.shadows:
        typer.echo("there are no shadow policies; [[shadow]] sections of the settings define them")
    for policy_shadow in reply.shadows:
        tables.console().print(tables.table_of_shadow(policy_shadow))
