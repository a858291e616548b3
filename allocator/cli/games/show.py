"""Prints games and their outcomes: tables for people, JSON for programs."""

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from allocator.theory.games.game import Game
    from allocator.theory.games.policies import GamePolicy
    from allocator.theory.games.properties import Violation
    from allocator.theory.games.search import Counterexample, GameSearchOutcome, WorstLie


def outcome_as_json(outcome: "GameSearchOutcome") -> dict[str, Any]:
    """Return the outcome of a search as a JSON object: games tried, and the violation found."""
    return {
        "tried": outcome.tried,
        "found": None if outcome.found is None else _found_as_json(outcome.found),
    }


def _found_as_json(found: "Counterexample") -> dict[str, Any]:
    from allocator.theory.games.game import file_of

    return {**_complaint_as_json(found.complaint), "game": file_of(found.game)}


def _complaint_as_json(complaint: "Violation") -> dict[str, Any]:
    return {
        "user": complaint.user,
        "has": float(complaint.has),
        "instead": float(complaint.instead),
        "text": complaint.text,
    }


def climbed_as_json(climbed: "WorstLie") -> dict[str, Any]:
    """Return the result of hill climbing as a JSON object: the game in which a lie pays most."""
    from allocator.theory.games.game import file_of

    return {
        "truthful": float(climbed.truthful),
        "lying": float(climbed.gained),
        "ratio": float(climbed.ratio),
        "game": file_of(climbed.game),
    }


def played_as_json(policy: "GamePolicy", game: "Game") -> dict[str, Any]:
    """Return a game's outcome as a JSON object.

    The object contains users' utilities with true and with claimed demands, and violated
    properties.
    """
    from allocator.theory.games.mechanism import play as played
    from allocator.theory.games.mechanism import worth

    truth, claimed = played(policy, game, game.truth), played(policy, game, game.claimed)
    complaints = {name: complain(policy, game) for name, complain in _complaints(game).items()}
    return {
        "users": {
            user.name: {
                "truthful": float(worth(game, number, truth)),
                "lying": float(worth(game, number, claimed)),
            }
            for number, user in enumerate(game.users)
        },
        "complaints": {
            name: None if complaint is None else _complaint_as_json(complaint)
            for name, complaint in complaints.items()
        },
    }


def _complaints(game: "Game") -> dict[str, Any]:
    """Return functions that check whether a game violates a property, by the property's name.

    Properties that are not defined for the game are left out. Each function takes a policy and the
    game, and returns a description of the violation, or None.
    """
    from allocator.theory.games.properties import PROPERTIES

    return {
        name: time_property.complaint
        for name, time_property in PROPERTIES.items()
        if not (time_property.one_resource and len(game.resources) > 1)
    }


def show_outcomes(policy: "GamePolicy", outcomes: "dict[str, GameSearchOutcome]") -> None:
    """Print whether each property is violated, and the smallest game that violates it.

    Args:
        policy: The policy that shares resources in the games.
        outcomes: Outcomes of the searches, by property.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Properties of {policy.name} over time")
    table.add_column("property")
    table.add_column("violation")
    table.add_column("games", justify="right")
    for name, outcome in outcomes.items():
        table.add_row(name, "found" if outcome.found else "none found", str(outcome.tried))
    Console().print(table)
    for name, outcome in outcomes.items():
        if outcome.found is not None:
            typer.echo(f"\n{policy.name} lacks {name}: {outcome.found.complaint.text}.")
            show_game(policy, outcome.found.game)


def show_game(policy: "GamePolicy", game: "Game") -> None:
    """Print a game stage by stage, and the properties that the policy violates in it.

    A stage that is played several times in a row is printed once, with users' mean utilities.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from allocator.theory.games.mechanism import play as played
    from allocator.theory.games.mechanism import utility, worth

    truth, claimed = played(policy, game, game.truth), played(policy, game, game.claimed)
    has_lie = any(user.claims is not None for user in game.users)
    resources = ", ".join(game.resources)
    table = Table(
        title=f"{policy.name}: δ {float(game.delta):g}, patience {float(game.patience):g}, "
        f"{len(game.users) + game.idle} users, {game.idle} idle"
    )
    table.add_column("stage", justify="right")
    table.add_column("user")
    table.add_column(f"needs ({escape(resources)})")
    if has_lie:
        table.add_column("claims")
    table.add_column("gets", justify="right")
    if has_lie:
        table.add_column("with the lie", justify="right")
    begin = 0
    for times in game.times:
        for number, user in enumerate(game.users):
            needs, claims = game.truth[number][begin], game.claimed[number][begin]
            row = [_span(begin, times), escape(user.name), _vector(needs)]
            row += ["" if claims == needs else _vector(claims)] if has_lie else []
            for held in [truth, claimed] if has_lie else [truth]:
                utility_sum = sum(
                    utility(needs, now[number]) for now in held[begin : begin + times]
                )
                row.append(f"{float(utility_sum / times):.6g}")
            table.add_row(*row, end_section=number == len(game.users) - 1)
        begin += times
    for number, user in enumerate(game.users):
        row = ["all", escape(user.name), *[""] * (1 + has_lie)]
        for held in [truth, claimed] if has_lie else [truth]:
            row.append(f"{float(worth(game, number, held)):.6g}")
        table.add_row(*row)
    Console().print(table)
    for complain in _complaints(game).values():
        complaint = complain(policy, game)
        if complaint is not None:
            typer.echo(complaint.text)


def _vector(amounts: tuple[Fraction, ...]) -> str:
    return ", ".join(f"{float(amount):g}" for amount in amounts) if any(amounts) else "-"


def _span(begin: int, times: int) -> str:
    """Return the numbers of all repetitions of a stage as text, such as "3" or "3 to 7".

    Args:
        begin: Index of the first repetition in the game, from 0. The text counts from 1.
        times: How often the stage is played in a row.
    """
    return str(begin + 1) if times == 1 else f"{begin + 1} to {begin + times}"
