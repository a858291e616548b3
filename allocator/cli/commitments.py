"""`longshare commitments …`: operator commands that change users' commitments."""

from typing import Annotated

import typer

from allocator.cli import options
from allocator.cli.connection import EXIT_CODES, Connection

commitments_app = typer.Typer(
    help="Change users' commitments.\n\nExample: longshare commitments reset alice",
    no_args_is_help=True,
)


@commitments_app.command("reset", epilog=EXIT_CODES)
def reset(
    users: Annotated[
        list[str] | None, typer.Argument(help="Users that `longshare shares` shows.")
    ] = None,
    *,
    everybody: Annotated[
        bool, typer.Option("--all", help="All users; asks for confirmation.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    address: options.Address = None,
    config: options.ConfigFile = None,
    as_json: options.AsJson = False,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Set users' commitments for past over-use to zero, including those of a role's sub-roles.

    Over-use from now on counts again.

    Example: longshare commitments reset alice bob
    """
    names = users or []
    if everybody == bool(names):
        raise typer.BadParameter("name one or more users, or give --all")
    connection = Connection(address, config, timeout)
    if everybody and not yes:
        owing = sum(row.dominant_commitment > 0.0 for row in connection.shares().users)
        typer.confirm(
            f"Set the commitments of all users to zero ({owing} have commitments)?",
            abort=True,
            err=True,
        )

    from allocator.cli import tables
    from allocator.contract import operator_pb2 as operator

    order = operator.Order(reset_commitments=operator.ResetCommitments(users=names))
    reply = connection.order(order, names)
    typer.echo(tables.as_json(reply) if as_json else tables.lines_of_changes(reply))


@commitments_app.command("set", epilog=EXIT_CODES)
def set_commitments(
    user: options.KnownUser,
    commitments: Annotated[
        list[str],
        typer.Argument(
            metavar="PART",
            help="For every resource, as 0.25 or 25%, or by resource: cpus=0.25 mem=10%. With both "
            "forms, as cpus=0.25 0, the first form applies to every other resource.",
        ),
    ],
    *,
    address: options.Address = None,
    config: options.ConfigFile = None,
    as_json: options.AsJson = False,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Set a user's commitments, as fractions of the cluster. Unnamed resources keep theirs.

    From then on the commitments decay and grow as usual. Commitments of sub-roles do not change.

    Example: longshare commitments set alice cpus=0.25 mem=10%
    """
    from allocator.contract import operator_pb2 as operator

    change = operator.SetCommitments(user=user, keep_others=True)
    for text in commitments:
        name, equals, amount = text.rpartition("=")
        if not equals and change.keep_others:
            change.others = _part(text)
            change.keep_others = False
        elif not name or name in change.commitments:
            raise typer.BadParameter(f"{text!r} is not RESOURCE=PART, or is given twice")
        else:
            change.commitments[name] = _part(amount)

    from allocator.cli import tables

    order = operator.Order(set_commitments=change)
    reply = Connection(address, config, timeout).order(order, [user])
    typer.echo(tables.as_json(reply) if as_json else tables.lines_of_changes(reply))


@commitments_app.command("forget", epilog=EXIT_CODES)
def forget(
    users: Annotated[list[str], typer.Argument(help="Users that `longshare shares` shows.")],
    *,
    address: options.Address = None,
    config: options.ConfigFile = None,
    as_json: options.AsJson = False,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Forget users whose frameworks have gone, with their history and that of their sub-roles.

    Forgotten users no longer count among the users that are entitled to parts of the cluster.
    Weights and boosts that operators gave them end. A user that comes back begins as a new user.

    Example: longshare commitments forget alice
    """
    from allocator.cli import tables
    from allocator.contract import operator_pb2 as operator

    order = operator.Order(forget_users=operator.ForgetUsers(users=users))
    reply = Connection(address, config, timeout).order(order, users)
    typer.echo(tables.as_json(reply) if as_json else tables.lines_of_changes(reply))


def _part(text: str) -> float:
    percent = text.endswith("%")
    try:
        fraction = float(text.removesuffix("%"))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a part of the cluster, such as 0.25") from None
    return fraction / 100 if percent else fraction
