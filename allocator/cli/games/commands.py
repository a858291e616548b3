"""`longshare games`: commands that search for users' gains and losses in games over time.

In a game, users state demands in several stages, truthfully or not, and a policy shares resources.
"""

import json
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from allocator.cli import options
from allocator.cli.connection import TOML, USAGE, fail, keep, keep_folder
from allocator.cli.games.show import (
    climbed_as_json,
    outcome_as_json,
    played_as_json,
    show_game,
    show_outcomes,
)
from allocator.cli.optimum import read_toml
from allocator.cli.progress import on_terminal
from allocator.files import whole

if TYPE_CHECKING:
    from allocator.theory.games.game import Game
    from allocator.theory.games.policies import GamePolicy
    from allocator.theory.games.properties import TimeProperty
    from allocator.theory.games.search import GameSearchOutcome

games_app = typer.Typer(
    help="Study properties of policies when demands change; see docs/research/games.md.\n\n"
    "Example: longshare games search --policy sdrf",
    no_args_is_help=True,
)
_EXIT_CODES = "Exit codes: 0, the search is done; 2, wrong usage, or a file cannot be used."
_POLICIES = "sdrf, stsf, drf, cmmf, dynamic-drf, dynamic-mmf, kueue-afs or volcano."

_Policy = Annotated[str, typer.Option(help=_POLICIES)]
_Seed = Annotated[int, typer.Option(help="Seed of the random games.")]
_Resources = Annotated[
    int | None, typer.Option(min=1, max=3, help="Number of resources.", show_default="1 to 3")
]
_Delta = Annotated[
    float | None, typer.Option(min=0.0, help="δ of a stage, below 1.", show_default="0 to 0.9")
]
_Patience = Annotated[
    float, typer.Option(min=0.0, max=1.0, help="Discount factor of the next stage.")
]
_Alpha = Annotated[
    float, typer.Option(min=0.0, max=1.0, help="Guarantee of dynamic-drf and dynamic-mmf.")
]
_Longest = Annotated[
    int,
    typer.Option(min=1, max=1000, help="Largest number of times that a stage is played in a row."),
]
_Out = Annotated[Path | None, typer.Option(help="File to write the game to.")]


@games_app.command(epilog=_EXIT_CODES)
def search(
    *,
    policy: _Policy,
    wanted: Annotated[
        str | None,
        typer.Option(
            "--property",
            help="strategy-proofness, sharing-incentive, envy-freeness or credit-fairness.",
            show_default="all",
        ),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Random games for each property.")] = 1000,
    seed: _Seed = 1,
    resources: _Resources = None,
    delta: _Delta = None,
    patience: _Patience = 0.9,
    alpha: _Alpha = 0.0,
    longest: _Longest = 20,
    as_json: options.AsJson = False,
    out: _Out = None,
) -> None:
    """Search for games in which a property does not hold, and print the smallest such game.

    Example: longshare games search --policy sdrf
    """
    from allocator.theory.games.drawing import GameLimits
    from allocator.theory.games.search import search as look

    game_policy, properties = _policy(policy), _properties(wanted)
    _check_alpha(policy, alpha)
    if out is not None and wanted is None:
        raise typer.BadParameter("needs --property: one file holds one game", param_hint="--out")
    keep("--out", out, (), TOML)
    outcomes: dict[str, GameSearchOutcome] = {}
    with on_terminal() as progress:
        for time_property in properties:
            task = progress.add_task(time_property.name, total=trials)
            outcomes[time_property.name] = look(
                game_policy,
                time_property,
                trials=trials,
                seed=seed,
                limits=GameLimits(
                    resources=1 if time_property.one_resource else resources,
                    delta=_below_one(delta),
                    patience=Fraction(str(patience)),
                    alpha=Fraction(str(alpha)),
                    longest=longest,
                ),
                watch=lambda tried, _of, task=task: progress.update(task, completed=tried),  # type: ignore[misc]
            )
    if as_json:
        results = {name: outcome_as_json(outcome) for name, outcome in outcomes.items()}
        typer.echo(json.dumps({"policy": policy, "seed": seed, "properties": results}, indent=2))
    else:
        show_outcomes(game_policy, outcomes)
    for outcome in outcomes.values():
        if out is not None and outcome.found is not None:
            _write(out, outcome.found.game, f"{policy}: {outcome.found.complaint.text}")


@games_app.command(epilog=_EXIT_CODES)
def worst(
    *,
    policy: _Policy,
    steps: Annotated[int, typer.Option(min=1, help="Games tried from each start.")] = 1000,
    restarts: Annotated[int, typer.Option(min=1, help="Number of starts.")] = 4,
    users: Annotated[int, typer.Option(min=2, max=6, help="Users that play.")] = 3,
    members: Annotated[
        int, typer.Option(min=2, help="n, the number of users: users that play, and idle users.")
    ] = 9,
    stages: Annotated[int, typer.Option(min=1, max=8, help="Number of stages.")] = 3,
    seed: _Seed = 1,
    resources: _Resources = 2,
    delta: _Delta = 0.5,
    patience: _Patience = 0.9,
    alpha: _Alpha = 0.0,
    longest: _Longest = 20,
    as_json: options.AsJson = False,
    out: _Out = None,
) -> None:
    """Search by hill climbing for a game in which a lie pays most, and print the game.

    Example: longshare games worst --policy dynamic-drf
    """
    from allocator.theory.games.drawing import GameLimits
    from allocator.theory.games.search import Effort, climb

    game_policy = _policy(policy)
    _check_alpha(policy, alpha)
    if members < users:
        raise typer.BadParameter(f"is {members}, and {users} play", param_hint="--members")
    keep("--out", out, (), TOML)
    with on_terminal() as progress:
        task = progress.add_task("Climbing", total=steps * restarts)
        climbed = climb(
            game_policy,
            Effort(steps=steps, restarts=restarts, seed=seed),
            GameLimits(
                resources=resources,
                users=users,
                stages=stages,
                idle=members - users,
                delta=_below_one(delta),
                patience=Fraction(str(patience)),
                alpha=Fraction(str(alpha)),
                longest=longest,
            ),
            watch=lambda tried, _of: progress.update(task, completed=tried),
        )
    if as_json:
        typer.echo(json.dumps({"policy": policy, "seed": seed, **climbed_as_json(climbed)}))
    else:
        show_game(game_policy, climbed.game)
    if out is not None:
        _write(
            out, climbed.game, f"{policy}: lying pays {float(climbed.ratio):.4f} times the truth"
        )


@games_app.command(epilog=_EXIT_CODES)
def play(
    file: Annotated[
        Path,
        typer.Argument(metavar="GAME.toml", help="File with the game; see docs/research/games.md."),
    ],
    *,
    policy: _Policy,
    as_json: options.AsJson = False,
) -> None:
    """Play a game with true and with claimed demands, and print which properties are violated.

    Example: longshare games play game.toml --policy sdrf
    """
    from allocator.theory.games.game import read_game

    game_policy = _policy(policy)
    try:
        game = read_game(read_toml(file))
        if as_json:
            typer.echo(
                json.dumps({"policy": policy, **played_as_json(game_policy, game)}, indent=2)
            )
        else:
            show_game(game_policy, game)
    except ValueError as error:
        fail(USAGE, ValueError(f"{file}: {error}"))


@games_app.command(epilog=_EXIT_CODES)
def gains(
    *,
    policies: Annotated[
        list[str] | None,
        typer.Option("--policy", help=f"{_POLICIES[:-1]}; repeatable.", show_default="sdrf, stsf"),
    ] = None,
    resources: Annotated[
        list[int] | None,
        typer.Option(
            min=1, max=3, help="Number of resources; repeatable.", show_default="1, 2 and 3"
        ),
    ] = None,
    members: Annotated[
        list[int] | None,
        typer.Option(
            min=3,
            help="n, the number of users, of which three play; repeatable.",
            show_default="3 and 9",
        ),
    ] = None,
    deltas: Annotated[
        list[float] | None,
        typer.Option(
            "--delta",
            min=0.0,
            help="δ of a stage, below 1; repeatable.",
            show_default="0, 0.25, 0.5, 0.75 and 0.9",
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Games tried from each start.")] = 300,
    restarts: Annotated[int, typer.Option(min=1, help="Number of starts for each cell.")] = 3,
    longest: _Longest = 20,
    seed: _Seed = 1,
    out: Annotated[Path, typer.Option(help="Folder for gains.csv and gains.png.")] = Path(
        "runs/games"
    ),
) -> None:
    """Search for the lie that pays most, for each discount factor δ and number of users n.

    The number of resources varies, too. The results are written as a table and a figure.

    Example: longshare games gains --policy sdrf --out gains
    """
    from allocator.cli.games.figure import draw_gains, write_gains
    from allocator.theory.games.gains import cells
    from allocator.theory.games.gains import gains as climb_all
    from allocator.theory.games.search import Effort

    try:
        gain_cells = cells(
            policies or ["sdrf", "stsf"],
            resources or [1, 2, 3],
            members or [3, 9],
            [_below_one(delta) or Fraction(0) for delta in deltas or [0.0, 0.25, 0.5, 0.75, 0.9]],
            longest,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    keep_folder("--out", out)
    with on_terminal() as progress:
        task = progress.add_task("Climbing", total=len(gain_cells))
        effort = Effort(steps=steps, restarts=restarts, seed=seed)
        rows = list(
            climb_all(gain_cells, effort, lambda done, _of: progress.update(task, completed=done))
        )
    try:
        typer.echo(write_gains(rows, out))
        typer.echo(draw_gains(rows, out))
    except OSError as error:
        fail(USAGE, error)


def _policy(name: str) -> "GamePolicy":
    from allocator.theory.games.policies import policy_of

    try:
        return policy_of(name)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--policy") from error


def _properties(wanted: str | None) -> "list[TimeProperty]":
    from allocator.theory.games.properties import PROPERTIES

    if wanted is not None and wanted not in PROPERTIES:
        from allocator.complaints import unknown

        raise typer.BadParameter(unknown("property", wanted, PROPERTIES), param_hint="--property")
    return [time_property for name, time_property in PROPERTIES.items() if wanted in {None, name}]


def _check_alpha(policy: str, alpha: float) -> None:
    if alpha and not policy.startswith("dynamic-"):
        raise typer.BadParameter("it is for dynamic-drf and dynamic-mmf", param_hint="--alpha")


def _below_one(delta: float | None) -> Fraction | None:
    if delta is not None and delta >= 1:
        raise typer.BadParameter(f"{delta} is not below 1", param_hint="--delta")
    return None if delta is None else Fraction(str(delta))


def _write(out: Path, game: "Game", text: str) -> None:
    import tomli_w

    from allocator.theory.games.game import file_of

    try:
        with whole(out) as part:
            part.write_text(f"# {text}\n" + tomli_w.dumps(file_of(game)), encoding="utf-8")
    except OSError as error:
        fail(USAGE, error)
