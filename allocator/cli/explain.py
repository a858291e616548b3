"""`longshare explain USER`: explains a user's rank, and why the user gets no offers."""

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
    """Explain why a user gets no offers, its rank, and when its rank will change.

    The output splits the priority into present holdings and commitments. It names the users
    directly ahead and behind, and the time until the commitment has halved. For each framework that
    gets no more offers, it gives all reasons, the reason closest to an offer first.

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
