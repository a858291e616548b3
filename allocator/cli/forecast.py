"""`longshare forecast USER`: shows what will happen if no allocation changes."""

from typing import Annotated

import typer

from allocator.cli import options
from allocator.cli.connection import Connection
from allocator.cli.span import duration

_FORM = "as Mesos writes amounts: cpus:4;mem:1024."


def forecast(
    user: Annotated[
        str, typer.Argument(help="A user that `longshare shares` shows, or a new user.")
    ],
    *,
    tasks: Annotated[
        int,
        typer.Option(
            "--tasks",
            min=0,
            max=2**32 - 1,
            help="Forecast the turn of this number of further tasks.",
        ),
    ] = 0,
    demand: Annotated[
        str | None, typer.Option("--demand", help=f"Demand of one task, {_FORM}")
    ] = None,
    weight: Annotated[
        float | None, typer.Option("--weight", help="Weight of a new user.", show_default="1")
    ] = None,
    below: Annotated[
        float | None,
        typer.Option(
            "--below",
            help="Forecast when the commitment falls below this part of the cluster, such as 0.1.",
        ),
    ] = None,
    burst: Annotated[
        str | None,
        typer.Option("--burst", help=f"Forecast the cost of holding this much more, {_FORM}"),
    ] = None,
    lasting: options.Duration = None,
    horizon: Annotated[
        str | None,
        typer.Option(
            "--horizon",
            help="Time to look ahead, such as 2d.",
            show_default="four time constants, at least a day",
        ),
    ] = None,
    address: options.Address = None,
    config: options.ConfigFile = None,
    as_json: options.AsJson = False,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Forecast for a user: changes of rank, the time until its turn, and the cost of a burst.

    The forecast assumes that nothing else changes; it prints its assumptions. Under these it is
    exact.

    Example: longshare forecast alice --tasks 20 --demand 'cpus:1;mem:1024'
    """
    if (burst is None) != (lasting is None):
        raise typer.BadParameter(
            "--burst needs --for, and --for needs --burst", param_hint="--burst"
        )

    from allocator.contract import admin_pb2 as admin

    request = admin.ForecastRequest(
        user=user,
        tasks=tasks,
        demand=_amounts(demand, "--demand"),
        weight=weight,
        below=below,
        burst=_amounts(burst, "--burst"),
        burst_seconds=_seconds(lasting, "--for"),
        horizon=_seconds(horizon, "--horizon"),
    )
    reply = Connection(address, config, timeout).forecast(request)

    from allocator.cli import tables
    from allocator.contract.printable import printable

    if as_json:
        typer.echo(tables.as_json(reply))
        return
    console = tables.console()
    for sentence in reply.words:
        console.print(printable(sentence))
    console.print()
    console.print("Assumed:")
    for sentence in reply.assumptions:
        console.print(f"- {printable(sentence)}")


def _amounts(text: str | None, option: str) -> dict[str, float]:
    from allocator.fairness.quantities import Quantities

    try:
        return Quantities.parse(text).to_doubles() if text is not None else {}
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def _seconds(text: str | None, option: str) -> float:
    try:
        return duration(text) if text is not None else 0.0
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
