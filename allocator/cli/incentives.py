"""`longshare incentives`: how much users can gain by claiming other demands than they have."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allocator.cli.connection import REFUSED, USAGE, fail
from allocator.cli.optimum import read_toml

if TYPE_CHECKING:
    from allocator.theory.incentives.misreport import Lie
    from allocator.theory.incentives.profile import Profile


def incentives(
    file: Annotated[
        Path, typer.Argument(metavar="PROFILE.toml", help="Demands over time; docs/optimum.md.")
    ],
    *,
    user: Annotated[
        str | None, typer.Option(help="Who lies.", show_default="each user in turn")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Search for the lies that pay best under Dynamic DRF (with one resource: Dynamic MMF).

    Exit codes: 0, done; 1, there is no such user; 2, the file cannot be used.
    """
    from rich.console import Console  # noqa: PLC0415 - keeps `--help` fast
    from rich.progress import Progress  # noqa: PLC0415

    from allocator.theory.incentives.misreport import best_lie  # noqa: PLC0415
    from allocator.theory.incentives.profile import read_profile  # noqa: PLC0415

    try:
        profile = read_profile(read_toml(file))
    except ValueError as error:
        fail(USAGE, f"{file}: {error}")
    liars = [player for player in profile.users if user in {None, player.name}]
    if not liars:
        there = ", ".join(player.name for player in profile.users)
        fail(REFUSED, f"{file} has no user {user!r}; there are: {there}")
    lies = {}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for number, liar in enumerate(liars, 1):
            task = progress.add_task(f"{number} of {len(liars)}: {liar.name}", total=None)
            lies[liar.name] = best_lie(profile, liar, lambda task=task: progress.advance(task))  # type: ignore[misc]
            progress.remove_task(task)
    if as_json:
        typer.echo(
            json.dumps({"users": {name: _as_json(lie) for name, lie in lies.items()}}, indent=2)
        )
    else:
        _show(profile, lies)


def _as_json(lie: "Lie") -> dict[str, Any]:
    return {
        "truthful": float(lie.truthful),
        "best": float(lie.gained),
        "ratio": float(lie.ratio),
        "bound": None if lie.bound is None else float(lie.bound),
        "reports": [float(claim) for claim in lie.reports],
    }


def _show(profile: "Profile", lies: "dict[str, Lie]") -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.markup import escape  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(title="What lying pays")
    table.add_column("user")
    for heading in ("truthful", "best lie", "times", "at most"):
        table.add_column(heading, justify="right")
    table.add_column("by claiming", overflow="fold")
    truth = {player.name: profile.demands(player) for player in profile.users}
    for name, lie in lies.items():
        table.add_row(
            escape(name),
            f"{float(lie.truthful):.6g}",
            f"{float(lie.gained):.6g}",
            f"{float(lie.ratio):.4f}",
            "" if lie.bound is None else f"{float(lie.bound):.4f}",
            ", ".join(
                f"{float(claim):.4g} for {float(real):.4g} in epoch {number}"
                for number, (claim, real) in enumerate(
                    zip(lie.reports, truth[name], strict=True), 1
                )
                if claim != real
            )
            or "the truth",
        )
    Console().print(table)
