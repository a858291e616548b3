"""`longshare explain USER`: explains a user's rank."""

import typer

from allocator.cli import options
from allocator.cli.connection import Connection


def explain(
    user: options.KnownUser,
    *,
    address: options.Address = None,
    config: options.ConfigFile = None,
    as_json: options.AsJson = False,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Explain a user's rank, and show which users will overtake each other, and when.

    The output splits the priority into present holdings and commitments. It names the users
    directly ahead and behind, and the time until the commitment has halved. If the user gets no
    offers, the output gives the reason.

    Example: longshare explain alice
    """
    explanation = Connection(address, config, timeout).explain(user)

    from allocator.cli import tables
    from allocator.contract.printable import printable

    if as_json:
        typer.echo(tables.as_json(explanation))
        return
    console = tables.console()
    for sentence in explanation.words:
        console.print(printable(sentence))
    console.print()
    console.print(tables.table_of_resources(explanation.user, explanation.cluster))
