"""`longshare incentives`: computes what users gain from false claims about their demands."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allocator.cli import options
from allocator.cli.connection import REFUSED, USAGE, fail
from allocator.cli.optimum import read_toml
from allocator.cli.progress import on_terminal

if TYPE_CHECKING:
    from allocator.theory.incentives.envy import Envy
    from allocator.theory.incentives.misreport import Lie
    from allocator.theory.incentives.profile import Profile


def incentives(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="PROFILE.toml",
            help="File with the demands over time; see docs/research/optimum.md.",
        ),
    ],
    *,
    users: Annotated[
        list[str] | None,
        typer.Option(
            "--user",
            help="User that lies; repeatable. Several users lie together, to maximise their sum.",
            show_default="each user in turn",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Search for the lies about demands that pay most under Dynamic DRF.

    With one resource, Dynamic DRF is Dynamic MMF.

    Exit codes: 0, done; 1, there is no such user; 2, the file cannot be used.

    Example: longshare incentives demands.toml
    """
    from allocator.theory.incentives.envy import envy
    from allocator.theory.incentives.misreport import best_lie
    from allocator.theory.incentives.profile import read_profile

    try:
        profile = read_profile(read_toml(file))
    except ValueError as error:
        fail(USAGE, ValueError(f"{file}: {error}"))
    known = {player.name: player for player in profile.users}
    for name in users or ():
        if name not in known:
            from allocator.complaints import unknown

            fail(REFUSED, f"{file}: {unknown('user', name, known)}")
    groups = [[known[name] for name in dict.fromkeys(users)]] if users else []
    liars = groups or [[player] for player in profile.users]
    lies = {}
    with on_terminal() as progress:
        for number, group in enumerate(liars, 1):
            names = " + ".join(liar.name for liar in group)
            task = progress.add_task(f"{number} of {len(liars)}: {names}", total=None)
            lies[names] = best_lie(profile, group, lambda task=task: progress.advance(task))  # type: ignore[misc]
            progress.remove_task(task)
    envious = envy(profile)
    if as_json:
        lies_as_json = {name: _as_json(lie) for name, lie in lies.items()}
        typer.echo(
            json.dumps(
                {"users": lies_as_json, "envy": envious and _envy_as_json(envious)}, indent=2
            )
        )
    else:
        _show(profile, lies)
        if envious is not None:
            typer.echo(f"{envious.user} envies {envious.other} after epoch {envious.epoch}")


def _as_json(lie: "Lie") -> dict[str, Any]:
    return {
        "truthful": float(lie.truthful),
        "best": float(lie.gained),
        "ratio": float(lie.ratio),
        "bound": None if lie.bound is None else float(lie.bound),
        "reports": {
            name: [float(claim) for claim in claims] for name, claims in lie.reports.items()
        },
    }


def _envy_as_json(envious: "Envy") -> dict[str, Any]:
    numbers = {"has": float(envious.has), "instead": float(envious.instead)}
    return {"user": envious.user, "of": envious.other, "epoch": envious.epoch, **numbers}


def _show(profile: "Profile", lies: "dict[str, Lie]") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

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
                f"{float(claim):.4g} for {float(demand):.4g} in epoch {number}"
                + (f" ({escape(liar)})" if len(lie.reports) > 1 else "")
                for liar, claims in lie.reports.items()
                for number, (claim, demand) in enumerate(zip(claims, truth[liar], strict=True), 1)
                if claim != demand
            )
            or "the truth",
        )
    Console().print(table)
