"""The command `longshare`; each of its commands has its own module."""

from typing import Annotated, ClassVar

import typer

from allocator.cli.connection import EXIT_CODES, USAGE
from allocator.cli.extras import advice
from allocator.cli.later import CommandLocation, Commands


class _Longshare(Commands):
    places: ClassVar = {
        "serve": CommandLocation("allocator.cli.serve", "serve"),
        "shares": CommandLocation("allocator.cli.shares", "shares", EXIT_CODES),
        "explain": CommandLocation("allocator.cli.explain", "explain", EXIT_CODES),
        "shadow": CommandLocation("allocator.cli.shadow", "shadow", EXIT_CODES),
        "forecast": CommandLocation("allocator.cli.forecast", "forecast", EXIT_CODES),
        "top": CommandLocation("allocator.cli.top", "top", EXIT_CODES),
        "usage": CommandLocation("allocator.cli.usage", "usage", EXIT_CODES),
        "audit": CommandLocation("allocator.cli.usage", "audit", EXIT_CODES),
        "replay": CommandLocation("allocator.cli.replay", "replay"),
        "optimum": CommandLocation("allocator.cli.optimum", "optimum"),
        "properties": CommandLocation("allocator.cli.properties", "properties"),
        "incentives": CommandLocation("allocator.cli.incentives", "incentives"),
        "figure": CommandLocation("allocator.cli.figure", "figure"),
        "simulate": CommandLocation("allocator.cli.simulate", "simulate"),
        "compare": CommandLocation("allocator.cli.compare", "compare"),
        "lies": CommandLocation("allocator.cli.lies", "lies"),
        "sweep": CommandLocation("allocator.cli.sweep", "sweep"),
        "report": CommandLocation("allocator.cli.report", "report"),
        "advise": CommandLocation("allocator.cli.advise", "advise"),
        "local-mesos": CommandLocation("frameworks.local_mesos.cli", "local_mesos"),
        "framework": CommandLocation("frameworks.cli", "framework"),
        "weight": CommandLocation("allocator.cli.weight", "weight_app"),
        "commitments": CommandLocation("allocator.cli.commitments", "commitments_app"),
        "games": CommandLocation("allocator.cli.games.commands", "games_app"),
        "trace": CommandLocation("allocator.cli.trace", "trace_app"),
        "experiment": CommandLocation("frameworks.cli", "experiment_app"),
    }


app = typer.Typer(
    cls=_Longshare,
    name="longshare",
    help="Long-term fair sharing for Apache Mesos.",
    epilog="First steps: 'longshare experiment list', then 'longshare experiment run NAME'.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:  # noqa: FBT001 - typer requires this signature
    if wanted:
        from allocator import __version__

        typer.echo(f"longshare {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the `longshare` command that the arguments name.

    If an optional dependency is missing, print which extra of Longshare to install.
    """
    try:
        app(prog_name="longshare")
    except ModuleNotFoundError as error:
        advised = advice(error)
        if advised is None:
            raise
        typer.echo(f"longshare: {advised}", err=True)
        raise SystemExit(USAGE) from error
