"""`longshare properties`: searches for cases in which a policy lacks a property of fairness."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allocator.cli import options
from allocator.cli.connection import TOML, USAGE, fail, fail_study, keep
from allocator.cli.optimum import divisible_policy
from allocator.cli.parameters import load_policy_files, parse
from allocator.files import whole

if TYPE_CHECKING:
    from allocator.theory.divisible.problem import Problem
    from allocator.theory.properties.case import Placement, Property, Violation
    from allocator.theory.properties.search import PropertySearchOutcome

_NAMES = (
    "sharing-incentive, strategy-proofness, envy-freeness, pareto-optimality, single-machine, "
    "single-resource or pooled-strategy-proofness"
)


def properties(
    *,
    policy: options.DivisiblePolicy,
    parameters: options.Parameters = None,
    policy_files: options.PolicyFiles = None,
    wanted: Annotated[
        str | None, typer.Option("--property", help=f"{_NAMES}.", show_default="all")
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Random cases for each property.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the random cases.")] = 1,
    as_json: options.AsJson = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write the violation's problem file here, and a lie's file next to it; needs "
            "--property."
        ),
    ] = None,
) -> None:
    """Search for cases in which a policy lacks a property, and print the smallest case.

    Exit codes: 0, the search is done, whatever it found; 2, wrong usage, the policy failed, or a
    file cannot be written.

    Example: longshare properties --policy drf --property envy-freeness
    """
    from allocator.cli.progress import bar
    from allocator.fairness.plugin_sandbox import PolicyFailedError
    from allocator.theory.properties.search import search

    load_policy_files(policy_files)
    divisible = divisible_policy(policy, parse(parameters))
    selected = _select_properties(wanted)
    if out is not None and wanted is None:
        raise typer.BadParameter("needs --property: one file holds one problem", param_hint="--out")
    keep("--out", out, policy_files or (), TOML)
    keep("the lie's file", None if out is None else _lie_file(out), (), TOML)
    outcomes: dict[str, PropertySearchOutcome] = {}
    for candidate in selected:
        try:
            with bar(f"searching {candidate.name} in", trials, "cases") as report:
                outcomes[candidate.name] = search(
                    divisible,
                    candidate,
                    trials=trials,
                    seed=seed,
                    watch=lambda tried, _of, report=report: report(tried),  # type: ignore[misc]
                )
        except PolicyFailedError as error:
            fail_study(error, as_json=as_json)
    if as_json:
        results = {name: _as_json(outcome) for name, outcome in outcomes.items()}
        typer.echo(json.dumps({"policy": policy, "seed": seed, "properties": results}, indent=2))
    else:
        _show(policy, selected, outcomes)
    for name, outcome in outcomes.items():
        if outcome.violation is not None and out is not None:
            _write(out, policy, name, outcome.violation)


def _select_properties(wanted: str | None) -> "list[Property]":
    from allocator.theory.properties.search import PROPERTIES

    selected = [candidate for candidate in PROPERTIES if wanted in {None, candidate.name}]
    if not selected:
        from allocator.complaints import unknown

        raise typer.BadParameter(
            unknown("property", wanted, (known.name for known in PROPERTIES)),
            param_hint="--property",
        )
    return selected


def _as_json(outcome: "PropertySearchOutcome") -> dict[str, Any]:
    from allocator.theory.divisible.problem_file import file_of

    violation = outcome.violation
    return {
        "tried": outcome.tried,
        "undecided": outcome.undecided,
        "violation": violation
        and {
            "text": violation.text,
            "user": violation.user,
            "has": float(violation.has),
            "instead": float(violation.instead),
            "certain": violation.certain,
            "problem": _floats(file_of(violation.problem)),
            "lie": violation.lie and _floats(file_of(violation.lie)),
            "placement": violation.placement and _floats({**violation.placement}),
        },
    }


def _floats(content: dict[str, Any]) -> dict[str, Any]:
    numbers: dict[str, Any] = json.loads(json.dumps(content, default=float))
    return numbers


def _show(
    policy: str, selected: "list[Property]", outcomes: "dict[str, PropertySearchOutcome]"
) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Properties of {policy}")
    table.add_column("property")
    table.add_column("violation")
    table.add_column("cases", justify="right")
    table.add_column("undecided", justify="right")
    for name, outcome in outcomes.items():
        table.add_row(
            name,
            _verdict(outcome),
            str(outcome.tried),
            str(outcome.undecided),
        )
    Console().print(table)
    for candidate in selected:
        violation = outcomes[candidate.name].violation
        if violation is not None:
            for problem in filter(None, (violation.problem, violation.lie)):
                typer.echo()
                typer.echo(_file(policy, candidate.name, violation, problem), nl=False)


def _verdict(outcome: "PropertySearchOutcome") -> str:
    if outcome.violation is not None:
        return "found"
    return "undecided" if outcome.undecided == outcome.tried else "none found"


def _file(policy: str, name: str, violation: "Violation", problem: "Problem") -> str:
    """Return the text of a TOML file for `longshare optimum` that shows a violated property.

    Comments in the file say what to check in the result.

    Args:
        policy: The policy's name.
        name: The property's name.
        violation: The case in which the policy lacks the property.
        problem: The problem to write: machines and users with their true demands, or the same
            with a user's false demand (`violation.lie`).
    """
    import tomli_w

    from allocator.theory.divisible.problem_file import file_of

    lie_note = " (this is the lie)" if problem is violation.lie else ""
    lines = [f"{policy} lacks {name}{lie_note}: {violation.text}."]
    if violation.placement is not None and (violation.lie is None or lie_note):
        placement_note = (
            "Placement of tasks" if violation.certain else "One of several placements of tasks"
        )
        lines.append(f"{placement_note}: {_places(violation.placement)}.")
    lines.append(f"longshare optimum THIS.toml --policy {policy}")
    return "".join(f"# {line}\n" for line in lines) + tomli_w.dumps(file_of(problem))


def _places(placement: "Placement") -> str:
    return "; ".join(
        f"{user}: {', '.join(f'{tasks} on {machine}' for machine, tasks in machines.items())}"
        for user, machines in placement.items()
        if machines
    )


def _lie_file(out: Path) -> Path:
    return out.with_name(f"{out.stem}-lie{out.suffix}")


def _write(out: Path, policy: str, name: str, violation: "Violation") -> None:
    try:
        with whole(out) as part:
            part.write_text(_file(policy, name, violation, violation.problem), encoding="utf-8")
        if violation.lie is not None:
            with whole(_lie_file(out)) as part:
                part.write_text(_file(policy, name, violation, violation.lie), encoding="utf-8")
    except OSError as error:
        fail(USAGE, error)
