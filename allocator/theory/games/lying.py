"""Searches for the most profitable lie of one user in a given game."""

from collections.abc import Iterator
from fractions import Fraction

from allocator.theory.games.drawing import told
from allocator.theory.games.game import Game, Stages
from allocator.theory.games.mechanism import play, worth
from allocator.theory.games.policies import GamePolicy

_PARTS = tuple(Fraction(k, 10) for k in range(10))
_ROUNDS = 2


def best_lie(policy: GamePolicy, game: Game, number: int) -> Game | None:
    """Search for the claims with which a user gains most from a game.

    The search makes at most two passes through the stages. For each stage it tries these claims and
    keeps the best:

    * a tenth to nine tenths of all needs of the stage, or no claim,
    * larger amounts,
    * other ratios of resources,
    * the needs of the previous stage, if the user needs nothing.

    Args:
        policy: The policy that shares the resources.
        game: The game; all claims of other users are kept.
        number: Index of the user that may lie.

    Returns:
        The game with the best claims found, or None if no lie pays.
    """
    best: Stages = game.users[number].needs
    gained = truthful = worth(game, number, play(policy, game, game.truth))
    for _ in range(_ROUNDS):
        before = gained
        for stage in range(game.stages):
            for claim in _claims(game, number, stage):
                claims = (*best[:stage], claim, *best[stage + 1 :])
                lie = told(game, number, claims)
                value = worth(lie, number, play(policy, lie, lie.claimed))
                if value > gained:
                    best, gained = claims, value
        if gained == before:
            break
    return told(game, number, best) if gained > truthful else None


def _claims(game: Game, number: int, stage: int) -> Iterator[dict[str, Fraction]]:
    needs = game.users[number].needs
    truth = needs[stage]
    if not any(truth.values()):
        if stage and needs[stage - 1]:
            yield needs[stage - 1]
        return
    for part in _PARTS:
        yield {name: part * amount for name, amount in truth.items()} if part else {}
    largest = max(truth.values())
    for factor in {min(Fraction(2), 1 / largest), 1 / largest} - {Fraction(1)}:
        yield {name: factor * amount for name, amount in truth.items()}
    if len(truth) > 1:
        for name, amount in truth.items():
            for changed in {largest, amount / 2} - {amount}:
                yield {**truth, name: changed}
