"""`longshare explain USER`: why a user is where it is in the order."""

from typing import Annotated

import typer

from allocator.cli.connection import (
    DEFAULT_TIMEOUT,
    Address,
    AsJson,
    ConfigFile,
    Connection,
    Timeout,
)


def explain(
    user: Annotated[str, typer.Argument(help="One that `longshare shares` shows.")],
    *,
    address: Address = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Say why a user has its rank, and who overtakes whom when.

    Takes its priority apart into what it holds and what it owes, names who is directly ahead
    and behind, says when its debt will have halved, and why it gets no offers if it gets none.
    """
    explanation = Connection(address, config, timeout).explain(user)

    from allocator.cli import tables  # noqa: PLC0415 - keeps `--help` fast
    from allocator.contract.printable import printable  # noqa: PLC0415

    if as_json:
        typer.echo(tables.as_json(explanation))
        return
    console = tables.console()
    for sentence in explanation.words:
        console.print(printable(sentence))
    console.print()
    console.print(tables.table_of_resources(explanation.user, explanation.cluster))
