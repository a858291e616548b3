"""Random games, from small to large, and games next to a game."""

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
"""The smallest need that a climb reaches is 1 / _FINEST of a resource."""
_DELTAS = tuple(Fraction(p, 100) for p in (0, 25, 50, 75, 90))
_IDLE = (0, 0, 1, 2, 5, 8)
_WEIGHTS = (1, 1, 1, 2, 3, 5)


@dataclass(frozen=True, slots=True)
class GameLimits:
    """Which games are drawn; None: at random."""

    resources: int | None = None
    users: int | None = None
    stages: int | None = None
    idle: int | None = None
    delta: Fraction | None = None
    patience: Fraction = Fraction(9, 10)
    alpha: Fraction = Fraction(0)
    longest: int = 20
    """How many times in a row a stage may be played."""


def draw(rng: Random, size: float, limits: GameLimits) -> Game:
    """Draw a game of a size from 0, the smallest, to 1. Nobody lies in it."""
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
    """Draw how many times each stage is played; in half of the games, each stage once."""
    if longest == 1 or rng.random() < 0.5:
        return ()
    return tuple(_length(rng, longest) for _stage in range(stages))


def _length(rng: Random, longest: int) -> int:
    """Draw how many times a stage is played: short and long stages are about equally common."""
    return round(math.pow(longest, rng.random()))


def _needs(rng: Random, resources: Sequence[str]) -> dict[str, Fraction]:
    """Draw what a user needs in a stage: of every resource, or nothing at all."""
    if rng.random() < 0.25:
        return {}
    return {name: rng.choice(_NEEDS) for name in resources}


def like_proposition_3(limits: GameLimits) -> Game | None:
    """Return the game that refutes Proposition 3 of the SDRF paper; None: limits leave no room.

    What there is room for beyond it stays empty.
    """
    if (limits.resources or 0) < 2 or (limits.users or 0) < 2 or (limits.stages or 0) < 2:
        return None
    one, little = Fraction(1), Fraction(1, 100)
    first = {"cpu": one, "mem": little}
    later: Stages = (first,) * ((limits.stages or 0) - 1)
    nothing: Stages = ({},) * (limits.stages or 0)
    steered = Player(name="2", needs=({"cpu": Fraction(1, 10), "mem": one}, *later))
    liar = Player(
        name="1",
        needs=(first, *later),
        claims=({name: Fraction(9, 10) * amount for name, amount in first.items()}, *later),
    )
    others = [Player(name=str(n), needs=nothing) for n in range(3, (limits.users or 0) + 1)]
    return Game(
        users=(liar, steered, *others),
        idle=limits.idle or 0,
        delta=Fraction(1, 2) if limits.delta is None else limits.delta,
        patience=limits.patience,
        alpha=limits.alpha,
    )


def like_a_long_absence(limits: GameLimits) -> Game | None:
    """Return the game in which a liar stays away for long and gains a third; None: no room.

    User 3 needs almost all memory. The little that user 1 needs keeps user 2 from the cpu. If
    user 1 stays away, user 2 uses all of the cpu and its commitment grows as long as that lasts.
    """
    stages, users = limits.stages or 0, limits.users or 0
    if limits.longest == 1 or (limits.resources or 0) < 2 or users < 3 or stages < 2:
        return None
    finest = Fraction(1, _FINEST)
    little = {"cpu": finest, "mem": 2 * finest}
    last = {"cpu": Fraction(1), "mem": 4 * finest}
    long = stages - 1
    nothing: Stages = ({},) * stages
    liar = Player(name="1", needs=(*((little,) * long), last), claims=(*nothing[:long], last))
    steered = Player(name="2", needs=(last,) * stages)
    blocking = Player(
        name="3",
        weight=Fraction(3),
        needs=(*(({"cpu": finest, "mem": 1 - 4 * finest},) * long), {}),
    )
    bystanders = [Player(name=str(n), needs=nothing) for n in range(4, users + 1)]
    return Game(
        users=(liar, steered, blocking, *bystanders),
        idle=limits.idle or 0,
        delta=Fraction(1, 2) if limits.delta is None else limits.delta,
        patience=limits.patience,
        alpha=limits.alpha,
        lengths=(limits.longest, *((1,) * long)),
    )


def told(game: Game, number: int, claims: Stages | None) -> Game:
    """Return a game in which one user claims this, and the others what they did."""
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
    """Return a game with other users, another number of idle ones, or other lengths of stages."""
    return Game.model_construct(
        users=tuple(users),
        idle=game.idle if idle is None else idle,
        delta=game.delta,
        patience=game.patience,
        alpha=game.alpha,
        lengths=game.lengths if lengths is None else lengths,
    )


def mutated(rng: Random, game: Game, longest: int) -> Game:
    """Return a game next to one: one need, claim, weight or length of a stage is another."""
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
    followed = table == "needs" and user.claims is not None and user.claims[stage] == stages[stage]
    stages[stage] = _other(rng, stages[stage], game.resources)
    update: dict[str, Stages] = {table: tuple(stages)}
    if followed and user.claims is not None:  # what was true stays so
        claims = list(user.claims)
        claims[stage] = stages[stage]
        update["claims"] = tuple(claims)
    users = list(game.users)
    users[number] = user.model_copy(update=update)
    return changed(game, users)


def _other(
    rng: Random, amounts: dict[str, Fraction], resources: Sequence[str]
) -> dict[str, Fraction]:
    if not amounts or rng.random() < 0.2:
        return _needs(rng, resources)
    if rng.random() < 0.4:  # all of it, by a factor
        factor = Fraction(rng.choice((50, 80, 90, 95, 98, 102, 105, 110, 125, 200)), 100)
        return {name: _tidy(amount * factor) for name, amount in amounts.items()}
    name = rng.choice(list(amounts))
    if rng.random() < 0.5:
        return {**amounts, name: rng.choice(_NEEDS)}
    factor = Fraction(rng.choice((50, 80, 90, 95, 105, 110, 125, 200)), 100)
    return {**amounts, name: _tidy(amounts[name] * factor)}


def _tidy(amount: Fraction) -> Fraction:
    """Return an amount as a multiple of 1 / _FINEST, more than 0 and at most 1."""
    rounded = Fraction(round(amount * _FINEST), _FINEST)
    return min(max(rounded, Fraction(1, _FINEST)), Fraction(1))
