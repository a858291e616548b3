"""`longshare weight …`: what users are entitled to."""

from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from allocator.contract import admin_pb2 as admin

weight_app = typer.Typer(help="Change what users are entitled to.", no_args_is_help=True)

_User = Annotated[str, typer.Argument(help="One that `longshare shares` shows.")]


@weight_app.command("set", epilog=EXIT_CODES)
def set_weight(
    user: _User,
    weight: Annotated[float, typer.Argument(help="A positive number.")],
    *,
    address: Address = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Give a user a weight; it wins over the master's weights and the configuration."""
    from allocator.contract import operator_pb2 as operator  # noqa: PLC0415

    order = operator.Order(set_weight=operator.SetWeight(user=user, weight=weight))
    _tell(Connection(address, config, timeout).order(order, [user]), as_json=as_json)


@weight_app.command("unset", epilog=EXIT_CODES)
def unset_weight(
    user: _User,
    *,
    address: Address = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Take an order back: the master's weight holds again, else the configuration's, else 1."""
    from allocator.contract import operator_pb2 as operator  # noqa: PLC0415

    order = operator.Order(set_weight=operator.SetWeight(user=user))
    _tell(Connection(address, config, timeout).order(order, [user]), as_json=as_json)


def _tell(reply: "admin.OrderReply", *, as_json: bool) -> None:
    from allocator.cli import tables  # noqa: PLC0415

    typer.echo(tables.as_json(reply) if as_json else tables.lines_of_changes(reply))
