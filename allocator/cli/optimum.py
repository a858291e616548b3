"""`longshare optimum`: computes users' shares if tasks could be divided arbitrarily."""

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allocator.cli import options
from allocator.cli.connection import USAGE, fail, fail_study
from allocator.cli.parameters import load_policy_files, parse
from allocator.cli.progress import on_terminal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from allocator.theory.divisible.optimum import DivisiblePolicy, Shared
    from allocator.theory.divisible.problem import Problem


def optimum(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="PROBLEM.toml",
            help="File with the machines and users; see docs/research/optimum.md.",
        ),
    ],
    *,
    policy: options.DivisiblePolicy,
    parameters: options.Parameters = None,
    policy_files: options.PolicyFiles = None,
    as_json: options.AsJson = False,
) -> None:
    """Calculate the exact shares of a policy if tasks could be divided arbitrarily.

    Exit codes: 0, done; 2, the file or the policy cannot be used.

    Example: longshare optimum cluster.toml --policy tsf
    """
    from allocator.fairness.plugin_sandbox import PolicyFailedError
    from allocator.theory.divisible import optimum as divisible
    from allocator.theory.divisible.problem import read_problem

    load_policy_files(policy_files)
    chosen = divisible_policy(policy, parse(parameters))
    try:
        problem = read_problem(read_toml(file))
        memoryless = {*divisible.names()} - {"sdrf", "stsf"}
        if policy in memoryless and any(user.commitment for user in problem.users):
            typer.echo(
                f"longshare: {file}: commitments have no effect under {policy}; sdrf and stsf "
                "count them",
                err=True,
            )
        with on_terminal() as progress:
            task = progress.add_task("Filling")
            shared = divisible.optimum(
                problem,
                chosen,
                lambda done, total: progress.update(task, completed=done, total=total),
            )
    except PolicyFailedError as error:
        fail_study(error, as_json=as_json)
    except (ValueError, ArithmeticError) as error:
        fail(USAGE, ValueError(f"{file}: {error}"))
    if as_json:
        typer.echo(json.dumps(_as_json(policy, shared), indent=2))
    else:
        _show(problem, policy, shared)


def divisible_policy(name: str, parameters: "Mapping[str, object]") -> "DivisiblePolicy":
    """Create a policy that shares divisible tasks, by its name and parameters.

    If there is no exact algorithm for the policy, such as an external policy, the result
    approximates it by allocating in small steps.

    Raises:
        typer.BadParameter: there is no such policy, or a parameter is invalid.
    """
    from allocator import plugins
    from allocator.theory.divisible import optimum as divisible
    from allocator.theory.divisible.measured import measured

    try:
        if name in divisible.names() or not plugins.is_known(name):
            return divisible.create(name, parameters)
        return measured(plugins.create(name, parameters))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--policy") from error


def read_toml(file: Path) -> dict[str, Any]:
    """Return the content of a TOML file; if it cannot be read, end the command with an error."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        fail(USAGE, error)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        fail(USAGE, f"{file}: not valid TOML: {error}")


def _as_json(policy: str, shared: "Shared") -> dict[str, Any]:
    return {
        "policy": policy,
        "exact": shared.exact,
        "users": {
            name: {
                "tasks": float(part.tasks),
                "share": float(part.share),
                "machines": {machine: float(tasks) for machine, tasks in part.machines.items()},
            }
            for name, part in shared.users.items()
        },
    }


def _show(problem: "Problem", policy: str, shared: "Shared") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=f"Divisible optimum of {policy}")
    table.add_column("user")
    table.add_column("tasks", justify="right")
    table.add_column("share", justify="right")
    table.add_column("on", overflow="fold")
    for name, part in shared.users.items():
        machines = ", ".join(
            f"{machine}: {float(tasks):.6g}" for machine, tasks in part.machines.items()
        )
        table.add_row(
            escape(name), f"{float(part.tasks):.6g}", f"{float(part.share):.2%}", escape(machines)
        )
    console = Console()
    console.print(table)
    if shared.exact:
        console.print("Proved in exact fractions.")
    for user in problem.users:
        if not problem.constrained_monopoly(user):
            console.print(f"{user.name}: no task fits on a machine that it may use", markup=False)
