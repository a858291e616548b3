"""The lies that a user of a game may tell, and the best of them that is found."""

from collections.abc import Iterator
from fractions import Fraction

from allocator.theory.games.drawing import told
from allocator.theory.games.game import Game, Stages
from allocator.theory.games.mechanism import play, worth
from allocator.theory.games.policies import GamePolicy

_PARTS = tuple(Fraction(k, 10) for k in range(10))
_ROUNDS = 2


def best_lie(policy: GamePolicy, game: Game, number: int) -> Game | None:
    """Return the game with the best claims of a user that are found; None: no lie pays.

    Stage after stage, twice, every other claim is tried and the best one kept: less of all, nothing
    (in all stages: to stay away), more, other ratios, and to hold on to what it needed last.
    """
    best: Stages = game.users[number].needs
    gained = truthful = worth(game, number, play(policy, game, game.truth))
    for _ in range(_ROUNDS):
        before = gained
        for stage in range(game.stages):
            for claim in _claims(game, number, stage):
                claims = (*best[:stage], claim, *best[stage + 1 :])
                lie = told(game, number, claims)
                value = worth(lie, number, play(policy, lie, lie.told))
                if value > gained:
                    best, gained = claims, value
        if gained == before:
            break
    return told(game, number, best) if gained > truthful else None


def _claims(game: Game, number: int, stage: int) -> Iterator[dict[str, Fraction]]:
    needs = game.users[number].needs
    true = needs[stage]
    if not any(true.values()):
        if stage and needs[stage - 1]:
            yield needs[stage - 1]
        return
    for part in _PARTS:
        yield {name: part * amount for name, amount in true.items()} if part else {}
    most = max(true.values())
    for factor in {min(Fraction(2), 1 / most), 1 / most} - {Fraction(1)}:
        yield {name: factor * amount for name, amount in true.items()}
    if len(true) > 1:
        for name, amount in true.items():
            for other in {most, amount / 2} - {amount}:
                yield {**true, name: other}
