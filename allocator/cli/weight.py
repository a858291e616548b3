"""`longshare weight …`: shows and changes users' weights, which determine entitlements."""

from typing import TYPE_CHECKING, Annotated

import typer

from allocator.cli import options
from allocator.cli.connection import EXIT_CODES, Connection
from allocator.cli.span import duration

if TYPE_CHECKING:
    from allocator.contract import admin_pb2 as admin

weight_app = typer.Typer(
    help="Show and change users' weights.\n\nExample: longshare weight set alice 3 --for 2h",
    no_args_is_help=True,
)


@weight_app.command("list", epilog=EXIT_CODES)
def list_weights(
    *,
    address: options.Address = None,
    config: options.ConfigFile = None,
    as_json: options.AsJson = False,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Show users' weights, where each weight comes from, and when boosts end.

    Example: longshare weight list
    """
    reply = Connection(address, config, timeout).shares()

    from allocator.cli import tables

    if as_json:
        typer.echo(tables.as_json(reply))
        return
    tables.console().print(tables.table_of_weights(reply.users))


@weight_app.command("set", epilog=EXIT_CODES)
def set_weight(
    user: options.KnownUser,
    weight: Annotated[float, typer.Argument(help="The new weight, a positive number.")],
    *,
    lasting: Annotated[
        str | None,
        typer.Option(
            "--for",
            help="Duration of a boost: 90s, 30m, 2h, 7d. Then the former weight applies again.",
        ),
    ] = None,
    address: options.Address = None,
    config: options.ConfigFile = None,
    as_json: options.AsJson = False,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Give a user a weight, which overrides the master's weights and the configuration.

    With --for the weight is a boost for a limited time. A boost survives restarts and ends by the
    master's clock. Then the former weight applies again.

    Example: longshare weight set alice 3 --for 2h
    """
    from allocator.contract import operator_pb2 as operator

    try:
        seconds = None if lasting is None else duration(lasting)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--for") from error
    change = operator.SetWeight(user=user, weight=weight, seconds=seconds)
    order = operator.Order(set_weight=change)
    _tell(Connection(address, config, timeout).order(order, [user]), as_json=as_json)


@weight_app.command("unset", epilog=EXIT_CODES)
def unset_weight(
    user: options.KnownUser,
    *,
    address: options.Address = None,
    config: options.ConfigFile = None,
    as_json: options.AsJson = False,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Cancel the weight that operators gave a user.

    Then the master's weight applies, else the configuration's, else 1.

    Example: longshare weight unset alice
    """
    from allocator.contract import operator_pb2 as operator

    order = operator.Order(set_weight=operator.SetWeight(user=user))
    _tell(Connection(address, config, timeout).order(order, [user]), as_json=as_json)


def _tell(reply: "admin.OrderReply", *, as_json: bool) -> None:
    from allocator.cli import tables

    typer.echo(tables.as_json(reply) if as_json else tables.lines_of_changes(reply))
