"""The command `longshare`; each group of commands has its own module."""

from typing import Annotated, ClassVar

import typer

from allocator.cli.connection import EXIT_CODES, USAGE
from allocator.cli.extras import advice
from allocator.cli.later import Commands, Place


class _Longshare(Commands):
    places: ClassVar = {
        "serve": Place("allocator.cli.serve", "serve"),
        "shares": Place("allocator.cli.shares", "shares", EXIT_CODES),
        "explain": Place("allocator.cli.explain", "explain", EXIT_CODES),
        "shadow": Place("allocator.cli.shadow", "shadow", EXIT_CODES),
        "forecast": Place("allocator.cli.forecast", "forecast", EXIT_CODES),
        "top": Place("allocator.cli.top", "top", EXIT_CODES),
        "usage": Place("allocator.cli.usage", "usage", EXIT_CODES),
        "audit": Place("allocator.cli.usage", "audit", EXIT_CODES),
        "replay": Place("allocator.cli.replay", "replay"),
        "optimum": Place("allocator.cli.optimum", "optimum"),
        "properties": Place("allocator.cli.properties", "properties"),
        "incentives": Place("allocator.cli.incentives", "incentives"),
        "figure": Place("allocator.cli.figure", "figure"),
        "simulate": Place("allocator.cli.simulate", "simulate"),
        "compare": Place("allocator.cli.compare", "compare"),
        "lies": Place("allocator.cli.lies", "lies"),
        "sweep": Place("allocator.cli.sweep", "sweep"),
        "report": Place("allocator.cli.report", "report"),
        "advise": Place("allocator.cli.advise", "advise"),
        "local-mesos": Place("frameworks.local_mesos.cli", "local_mesos"),
        "framework": Place("frameworks.cli", "framework"),
        "weight": Place("allocator.cli.weight", "weight_app"),
        "commitments": Place("allocator.cli.commitments", "commitments_app"),
        "games": Place("allocator.cli.games.commands", "games_app"),
        "trace": Place("allocator.cli.trace", "trace_app"),
        "experiment": Place("frameworks.cli", "experiment_app"),
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

    If a module is missing, print which extra of the distribution provides the module.
    """
    try:
        app(prog_name="longshare")
    except ModuleNotFoundError as error:
        advised = advice(error)
        if advised is None:
            raise
        typer.echo(f"longshare: {advised}", err=True)
        raise SystemExit(USAGE) from error
