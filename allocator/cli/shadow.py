"""`longshare shadow`: what other policies would make of the users, as they follow live."""

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
    """Show the order that other policies would have now, and who would have had more or less.

    The policies are those of the settings' [[shadow]] sections. They decide nothing. Gain is what a
    user would have had more until now, in hours of the whole cluster: of each run's offers, as long
    as they are held, what the shadow's order would have given to somebody else.
    """
    reply = Connection(address, config, timeout).shadows()

    from allocator.cli import tables

    if as_json:
        typer.echo(tables.as_json(reply))
        return
    if not reply.shadows:
        typer.echo("no policy follows; [[shadow]] sections of the settings name some")
    for told in reply.shadows:
        tables.console().print(tables.table_of_shadow(told))
