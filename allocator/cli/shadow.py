"""`longshare shadow`: users' places and gains under shadow policies."""

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

    The policies are those of the settings' `shadow` sections; they make no decisions. Gain is
    what a user would have had more until now, in hours of the whole cluster. For each run, it
    counts the offers that the shadow's order would have given to another user, for as long as they
    are held.
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
