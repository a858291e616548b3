"""Draws random games of any size, and makes random changes to a game."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random

from allocator.theory.games.game import Game, Player, Stages

_RESOURCES = ("cpu", "mem", "gpu")
_NEEDS = (
    *(Fraction(1, parts) for parts in (10_000, 1_000)),
    *(Fraction(p, 100) for p in (1, 5, 10, 20, 30, 50, 70, 100, 100, 100)),
)
_FINEST = 10_000
"""Random changes round amounts to multiples of 1 / _FINEST of a resource."""
_DELTAS = tuple(Fraction(p, 100) for p in (0, 25, 50, 75, 90))
_IDLE = (0, 0, 1, 2, 5, 8)
_WEIGHTS = (1, 1, 1, 2, 3, 5)


@dataclass(frozen=True, slots=True)
class GameLimits:
    """Properties that all drawn games must have. A property that is None is drawn at random."""

    resources: int | None = None
    users: int | None = None
    stages: int | None = None
    idle: int | None = None
    delta: Fraction | None = None
    patience: Fraction = Fraction(9, 10)
    alpha: Fraction = Fraction(0)
    longest: int = 20
    """Maximum number of times that a stage is repeated."""


def draw(rng: Random, size: float, limits: GameLimits) -> Game:
    """Draw a random game in which all users tell the truth.

    Args:
        rng: The random generator.
        size: Complexity of the game, from 0 (few users, stages and resources) to 1 (many).
        limits: Fixed properties of the game.
    """
    users = limits.users or rng.randint(2, 2 + round(2 * size))
    stages = limits.stages or rng.randint(2, 2 + round(3 * size))
    resources = _RESOURCES[: limits.resources or rng.randint(1, 1 + round(1 + size))]
    lengths = _lengths(rng, stages, limits.longest)
    return Game(
        users=tuple(
            Player(
                name=str(number),
                needs=tuple(_needs(rng, resources) for _stage in range(stages)),
                weight=Fraction(rng.choice(_WEIGHTS)),
            )
            for number in range(1, users + 1)
        ),
        idle=rng.choice(_IDLE) if limits.idle is None else limits.idle,
        delta=rng.choice(_DELTAS) if limits.delta is None else limits.delta,
        patience=limits.patience,
        alpha=limits.alpha,
        lengths=lengths,
    )


def _lengths(rng: Random, stages: int, longest: int) -> tuple[int, ...]:
    """Draw how often each stage is played in a row.

    In half of the games, every stage is played once.

    Args:
        rng: The random generator.
        stages: Number of stages.
        longest: Maximum number of times that a stage may be played in a row.
    """
    if longest == 1 or rng.random() < 0.5:
        return ()
    return tuple(_length(rng, longest) for _stage in range(stages))


def _length(rng: Random, longest: int) -> int:
    """Draw how often one stage is played in a row; small and large numbers are equally common.

    Args:
        rng: The random generator.
        longest: Largest number that may be drawn.
    """
    return round(math.pow(longest, rng.random()))


def _needs(rng: Random, resources: Sequence[str]) -> dict[str, Fraction]:
    """Draw a user's needs in a stage: an amount of every resource, or nothing at all."""
    if rng.random() < 0.25:
        return {}
    return {name: rng.choice(_NEEDS) for name in resources}


def like_proposition_3(limits: GameLimits) -> Game | None:
    """Return the game that refutes Proposition 3 of the SDRF paper, enlarged to fit given limits.

    The game is enlarged by users that need nothing, and by repetitions of the second stage. The
    result is None if the limits are too small for the game.
    """
    if (limits.resources or 0) < 2 or (limits.users or 0) < 2 or (limits.stages or 0) < 2:
        return None
    full, little = Fraction(1), Fraction(1, 100)
    first = {"cpu": full, "mem": little}
    later: Stages = (first,) * ((limits.stages or 0) - 1)
    nothing: Stages = ({},) * (limits.stages or 0)
    steered = Player(name="2", needs=({"cpu": Fraction(1, 10), "mem": full}, *later))
    liar = Player(
        name="1",
        needs=(first, *later),
        claims=({name: Fraction(9, 10) * amount for name, amount in first.items()}, *later),
    )
    additional = [Player(name=str(n), needs=nothing) for n in range(3, (limits.users or 0) + 1)]
    return Game(
        users=(liar, steered, *additional),
        idle=limits.idle or 0,
        delta=Fraction(1, 2) if limits.delta is None else limits.delta,
        patience=limits.patience,
        alpha=limits.alpha,
    )


def like_a_long_absence(limits: GameLimits) -> Game | None:
    """Return a game in which a user gains a third by pretending to need nothing for a long time.

    User 1 is the liar. If it tells the truth, its small need keeps user 2 from the CPU, because
    user 3 needs almost all memory. If user 1 claims nothing, user 2 uses all of the CPU, and so
    builds up a commitment. In the last stage, this commitment gives user 1 a larger allocation.

    Returns:
        The game with the lie; None if the limits are too small.
    """
    stages, users = limits.stages or 0, limits.users or 0
    if limits.longest == 1 or (limits.resources or 0) < 2 or users < 3 or stages < 2:
        return None
    finest = Fraction(1, _FINEST)
    little = {"cpu": finest, "mem": 2 * finest}
    last = {"cpu": Fraction(1), "mem": 4 * finest}
    absence = stages - 1
    nothing: Stages = ({},) * stages
    liar = Player(name="1", needs=(*((little,) * absence), last), claims=(*nothing[:absence], last))
    steered = Player(name="2", needs=(last,) * stages)
    blocking = Player(
        name="3",
        weight=Fraction(3),
        needs=(*(({"cpu": finest, "mem": 1 - 4 * finest},) * absence), {}),
    )
    bystanders = [Player(name=str(n), needs=nothing) for n in range(4, users + 1)]
    return Game(
        users=(liar, steered, blocking, *bystanders),
        idle=limits.idle or 0,
        delta=Fraction(1, 2) if limits.delta is None else limits.delta,
        patience=limits.patience,
        alpha=limits.alpha,
        lengths=(limits.longest, *((1,) * absence)),
    )


def told(game: Game, number: int, claims: Stages | None) -> Game:
    """Return a copy of a game in which one user claims other needs than before.

    Args:
        game: The game to change.
        number: Index of the user.
        claims: New claims by stage; None means that the user tells the truth.
    """
    users = list(game.users)
    users[number] = users[number].model_copy(update={"claims": claims})
    return changed(game, users)


def changed(
    game: Game,
    users: Sequence[Player],
    *,
    idle: int | None = None,
    lengths: tuple[int, ...] | None = None,
) -> Game:
    """Return a copy of a game with other users, idle users or stage lengths.

    Args:
        game: The game to copy.
        users: The new users.
        idle: New number of idle users; None keeps the number.
        lengths: New number of plays of each stage; None keeps the numbers.
    """
    return Game.model_construct(
        users=tuple(users),
        idle=game.idle if idle is None else idle,
        delta=game.delta,
        patience=game.patience,
        alpha=game.alpha,
        lengths=game.lengths if lengths is None else lengths,
    )


def mutated(rng: Random, game: Game, longest: int) -> Game:
    """Return a copy of a game with one random change of a need, claim, weight or stage length.

    Args:
        rng: The random generator.
        game: The game to copy.
        longest: Maximum number of times that a stage may be played in a row.
    """
    if longest > 1 and rng.random() < 0.1:
        stage = rng.randrange(game.stages)
        length = _length(rng, longest)
        lengths = (*game.times[:stage], length, *game.times[stage + 1 :])
        return changed(game, game.users, lengths=lengths)
    number = rng.randrange(len(game.users))
    user = game.users[number]
    if rng.random() < 0.05:
        users = list(game.users)
        users[number] = user.model_copy(update={"weight": Fraction(rng.choice(_WEIGHTS))})
        return changed(game, users)
    stage = rng.randrange(game.stages)
    table = "claims" if user.claims is not None and rng.random() < 0.5 else "needs"
    stages = list(getattr(user, table))
    was_truthful = (
        table == "needs" and user.claims is not None and user.claims[stage] == stages[stage]
    )
    stages[stage] = _changed_stage(rng, stages[stage], game.resources)
    update: dict[str, Stages] = {table: tuple(stages)}
    if was_truthful and user.claims is not None:  # a truthful claim follows the need
        claims = list(user.claims)
        claims[stage] = stages[stage]
        update["claims"] = tuple(claims)
    users = list(game.users)
    users[number] = user.model_copy(update=update)
    return changed(game, users)


def _changed_stage(
    rng: Random, amounts: dict[str, Fraction], resources: Sequence[str]
) -> dict[str, Fraction]:
    if not amounts or rng.random() < 0.2:
        return _needs(rng, resources)
    if rng.random() < 0.4:  # scale all amounts by one factor
        factor = Fraction(rng.choice((50, 80, 90, 95, 98, 102, 105, 110, 125, 200)), 100)
        return {name: _rounded(amount * factor) for name, amount in amounts.items()}
    name = rng.choice(list(amounts))
    if rng.random() < 0.5:
        return {**amounts, name: rng.choice(_NEEDS)}
    factor = Fraction(rng.choice((50, 80, 90, 95, 105, 110, 125, 200)), 100)
    return {**amounts, name: _rounded(amounts[name] * factor)}


def _rounded(amount: Fraction) -> Fraction:
    """Round an amount to a multiple of 1 / _FINEST, above 0 and at most 1."""
    rounded = Fraction(round(amount * _FINEST), _FINEST)
    return min(max(rounded, Fraction(1, _FINEST)), Fraction(1))
