"""`longshare explain USER`: why a user is where it is in the order."""

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
    """Say why a user has its rank, and who overtakes whom when.

    Takes its priority apart into what it holds and what it owes, names who is directly ahead
    and behind, says when its debt will have halved, and why it gets no offers if it gets none.
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
