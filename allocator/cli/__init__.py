"""The command `longshare`; each of its commands has its own module."""

import errno
import os
import sys
from contextlib import suppress
from typing import Annotated, ClassVar

import typer

from allocator.cli.connection import EXIT_CODES, USAGE
from allocator.cli.extras import advice
from allocator.cli.later import CommandLocation, Commands

_RUN = "Run the service"
_ASK = "Ask the service"
_ORDER = "Give orders to the service"
_SIMULATE = "Simulate a workload"
_STUDY = "Study policies"
_MESOS = "Try it with Mesos"


class _Longshare(Commands):
    places: ClassVar = {
        "serve": CommandLocation("allocator.cli.serve", "serve", _RUN),
        "slurm": CommandLocation("allocator.cli.slurm", "slurm_app", _RUN),
        "replay": CommandLocation("allocator.cli.replay", "replay", _RUN),
        "shares": CommandLocation("allocator.cli.shares", "shares", _ASK, EXIT_CODES),
        "explain": CommandLocation("allocator.cli.explain", "explain", _ASK, EXIT_CODES),
        "forecast": CommandLocation("allocator.cli.forecast", "forecast", _ASK, EXIT_CODES),
        "top": CommandLocation("allocator.cli.top", "top", _ASK, EXIT_CODES),
        "shadow": CommandLocation("allocator.cli.shadow", "shadow", _ASK, EXIT_CODES),
        "usage": CommandLocation("allocator.cli.usage", "usage", _ASK, EXIT_CODES),
        "audit": CommandLocation("allocator.cli.usage", "audit", _ASK, EXIT_CODES),
        "weight": CommandLocation("allocator.cli.weight", "weight_app", _ORDER),
        "commitments": CommandLocation("allocator.cli.commitments", "commitments_app", _ORDER),
        "trace": CommandLocation("allocator.cli.trace", "trace_app", _SIMULATE),
        "simulate": CommandLocation("allocator.cli.simulate", "simulate", _SIMULATE),
        "compare": CommandLocation("allocator.cli.compare", "compare", _SIMULATE),
        "advise": CommandLocation("allocator.cli.advise", "advise", _SIMULATE),
        "lies": CommandLocation("allocator.cli.lies", "lies", _SIMULATE),
        "sweep": CommandLocation("allocator.cli.sweep", "sweep", _STUDY),
        "report": CommandLocation("allocator.cli.report", "report", _STUDY),
        "properties": CommandLocation("allocator.cli.properties", "properties", _STUDY),
        "optimum": CommandLocation("allocator.cli.optimum", "optimum", _STUDY),
        "incentives": CommandLocation("allocator.cli.incentives", "incentives", _STUDY),
        "games": CommandLocation("allocator.cli.games.commands", "games_app", _STUDY),
        "figure": CommandLocation("allocator.cli.figure", "figure", _STUDY),
        "local-mesos": CommandLocation("frameworks.local_mesos.cli", "local_mesos", _MESOS),
        "framework": CommandLocation("frameworks.cli", "framework", _MESOS),
        "experiment": CommandLocation("frameworks.cli", "experiment_app", _MESOS),
    }


app = typer.Typer(
    cls=_Longshare,
    name="longshare",
    help="Long-term fair sharing for Apache Mesos.",
    epilog="Example: longshare experiment run sdrf-adaptive. The command longshare COMMAND --help "
    "explains a command.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:  # noqa: FBT001 - typer requires this signature
    if wanted:
        from allocator import __version__, build

        typer.echo(f"longshare {__version__} ({build()})")
        raise typer.Exit


@app.callback()
def _main(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            help="Print the version, and whether the engine is compiled.",
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the `longshare` command that the arguments name.

    If an optional dependency is missing, print which extra of Longshare to install. Output to a
    closed descriptor is dropped; output to a full disk ends the command with a message.
    """
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123
    try:
        app(prog_name="longshare")
    except ModuleNotFoundError as error:
        advised = advice(error)
        if advised is None:
            raise
        typer.echo(f"longshare: {advised}", err=True)
        raise SystemExit(USAGE) from error
    except OSError as error:
        # Commands report errors of their own files, so this file is the standard output.
        if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}:
            raise
        typer.echo(f"longshare: standard output: {error.strerror}", err=True)
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what is flushed at the exit
        raise SystemExit(USAGE) from error
