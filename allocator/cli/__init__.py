"""The command `longshare`. Each group of commands is a module of its own."""

import inspect
from typing import Annotated

import typer

from allocator.cli.advise import advise
from allocator.cli.commitments import commitments_app
from allocator.cli.compare import compare
from allocator.cli.connection import EXIT_CODES, USAGE
from allocator.cli.explain import explain
from allocator.cli.extras import advice
from allocator.cli.figure import figure
from allocator.cli.forecast import forecast
from allocator.cli.games.commands import games_app
from allocator.cli.incentives import incentives
from allocator.cli.lies import lies
from allocator.cli.optimum import optimum
from allocator.cli.properties import properties
from allocator.cli.replay import replay
from allocator.cli.report import report
from allocator.cli.serve import serve
from allocator.cli.shadow import shadow
from allocator.cli.shares import shares
from allocator.cli.simulate import simulate
from allocator.cli.sweep import sweep
from allocator.cli.top import top
from allocator.cli.trace import trace_app
from allocator.cli.trace_fit import fit
from allocator.cli.usage import audit, usage
from allocator.cli.weight import weight_app
from frameworks.cli import experiment_app, framework
from frameworks.local_mesos.cli import local_mesos

app = typer.Typer(
    name="longshare",
    help="Long-term fair sharing for Apache Mesos.",
    epilog="First steps: 'longshare experiment list', then 'longshare experiment run NAME'.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
app.command()(serve)
app.command(epilog=EXIT_CODES)(shares)
app.command(epilog=EXIT_CODES)(explain)
app.command(epilog=EXIT_CODES)(shadow)
app.command(epilog=EXIT_CODES)(forecast)
app.command(epilog=EXIT_CODES)(top)
app.command(epilog=EXIT_CODES)(usage)
app.command(epilog=EXIT_CODES)(audit)
app.add_typer(weight_app, name="weight")
app.add_typer(commitments_app, name="commitments")
app.command()(replay)
app.command()(optimum)
app.command()(properties)
app.command()(incentives)
app.command()(figure)
app.add_typer(games_app, name="games")
trace_app.command()(fit)
app.add_typer(trace_app, name="trace")
app.command()(simulate)
app.command()(compare)
app.command()(lies)
app.command()(sweep)
app.command()(report)
app.command()(advise)
app.command()(local_mesos)
app.command()(framework)
app.add_typer(experiment_app, name="experiment")


def _unwrap(commands: typer.Typer) -> None:
    """Have paragraphs of help broken where the terminal ends, not where our sources do."""
    for command in commands.registered_commands:
        paragraphs = inspect.cleandoc((command.callback and command.callback.__doc__) or "")
        command.help = "\n\n".join(
            paragraph.replace("\n", " ") for paragraph in paragraphs.split("\n\n")
        )
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            _unwrap(group.typer_instance)


_unwrap(app)


def _version(wanted: bool) -> None:  # noqa: FBT001 - typer's signature
    if wanted:
        from allocator import __version__  # noqa: PLC0415 - keeps `--help` fast

        typer.echo(f"longshare {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command that the arguments name; one whose extra is not installed says which."""
    try:
        app(prog_name="longshare")
    except ModuleNotFoundError as error:
        advised = advice(error)
        if advised is None:
            raise
        typer.echo(f"longshare: {advised}", err=True)
        raise SystemExit(USAGE) from error
