"""`longshare commitments …`: what users owe."""

from typing import Annotated

import typer

from allocator.cli.connection import (
    DEFAULT_TIMEOUT,
    EXIT_CODES,
    Address,
    AsJson,
    ConfigFile,
    Connection,
    Timeout,
)

commitments_app = typer.Typer(help="Change what users owe.", no_args_is_help=True)


@commitments_app.command("reset", epilog=EXIT_CODES)
def reset(
    users: Annotated[
        list[str] | None, typer.Argument(help="Those that `longshare shares` shows.")
    ] = None,
    *,
    everybody: Annotated[bool, typer.Option("--all", help="Of all users; asks first.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    address: Address = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Forgive users what they owe for past over-use; sub-roles are forgiven with their role.

    What they hold beyond their entitlement from now on is owed again.
    """
    named = users or []
    if everybody == bool(named):
        raise typer.BadParameter("name users, or say --all")
    connection = Connection(address, config, timeout)
    if everybody and not yes:
        owing = sum(row.dominant_commitment > 0.0 for row in connection.shares().users)
        typer.confirm(
            f"Forgive all users what they owe ({owing} owe something)?", abort=True, err=True
        )

    from allocator.cli import tables  # noqa: PLC0415 - keeps `--help` fast
    from allocator.contract import operator_pb2 as operator  # noqa: PLC0415

    order = operator.Order(reset_commitments=operator.ResetCommitments(users=named))
    reply = connection.order(order, named)
    typer.echo(tables.as_json(reply) if as_json else tables.lines_of_changes(reply))
