"""Simplifies a game that violates a property, so that people can understand the violation."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import chain

from allocator.theory.games.drawing import changed
from allocator.theory.games.game import Game, Player, Stages

_ROUND = tuple(Fraction(p, 100) for p in (100, 50, 10, 90, 20, 1))


def simpler(game: Game) -> Iterator[Game]:
    """Yield all games that are one step simpler than a game, largest simplification first."""
    for change in (
        _fewer_users,
        _fewer_stages,
        _fewer_resources,
        _shorter_stages,
        _fewer_idle,
        _plainer,
    ):
        yield from change(game)


def extent(game: Game) -> tuple[int, int, int, int, int, Fraction, int]:
    """Return a sort key that is lower for simpler games.

    The key has the numbers of users, stages and resources, the duration, the number of lies, the
    complexity of all numbers, and the number of idle users.
    """
    stages = [stage for user in game.users for stage in (*user.needs, *(user.claims or ()))]
    numbers = [amount for stage in stages for amount in stage.values()]
    numbers += [user.weight for user in game.users]
    return (
        len(game.users),
        game.stages,
        len(game.resources),
        game.duration,
        sum(
            claim != need
            for user in game.users
            for claim, need in zip(user.claims or user.needs, user.needs, strict=True)
        ),
        sum((_size(number) for number in numbers), Fraction(0)),
        game.idle,
    )


def _size(number: Fraction) -> Fraction:
    """Return a measure of how complex a number looks to people, to prefer simple numbers.

    It is least for 0 and 1, more for 1/2, and most for numbers such as 0.137.
    """
    if number in {0, 1}:
        return Fraction(int(number), 100)
    rank = Fraction(_ROUND.index(number), 10) if number in _ROUND else Fraction(1)
    return Fraction(number.denominator.bit_length()) + rank


def _fewer_users(game: Game) -> Iterator[Game]:
    for index, user in enumerate(game.users):
        if user.claims is None and len(game.users) > 1:
            kept = [*game.users[:index], *game.users[index + 1 :]]
            yield changed(game, kept, idle=game.idle + 1)
            yield changed(game, kept)


def _fewer_stages(game: Game) -> Iterator[Game]:
    for gone in range(game.stages if game.stages > 1 else 0):
        yield changed(
            game,
            [
                user.model_copy(
                    update={
                        "needs": _without(user.needs, gone),
                        "claims": user.claims and _without(user.claims, gone),
                    }
                )
                for user in game.users
            ],
            lengths=(*game.times[:gone], *game.times[gone + 1 :]),
        )


def _shorter_stages(game: Game) -> Iterator[Game]:
    for stage, count in enumerate(game.times):
        for fewer in dict.fromkeys((1, count // 2, count - 1)):
            if 1 <= fewer < count:
                lengths = (*game.times[:stage], fewer, *game.times[stage + 1 :])
                yield changed(game, game.users, lengths=lengths)


def _without(stages: Stages, gone: int) -> Stages:
    return (*stages[:gone], *stages[gone + 1 :])


def _fewer_resources(game: Game) -> Iterator[Game]:
    for gone in game.resources:

        def without(stages: Stages, gone: str = gone) -> Stages:
            return tuple(
                {name: amount for name, amount in stage.items() if name != gone} for stage in stages
            )

        yield changed(
            game,
            [
                user.model_copy(
                    update={
                        "needs": without(user.needs),
                        "claims": user.claims and without(user.claims),
                    }
                )
                for user in game.users
            ],
        )


def _fewer_idle(game: Game) -> Iterator[Game]:
    for idle in dict.fromkeys((0, game.idle // 2, game.idle - 1)):
        if 0 <= idle < game.idle:
            yield changed(game, game.users, idle=idle)


def _plainer(game: Game) -> Iterator[Game]:
    for index, user in enumerate(game.users):
        for simpler_user in chain(_less_lied(user), _with_plainer_numbers(user)):
            yield changed(game, [*game.users[:index], simpler_user, *game.users[index + 1 :]])


def _less_lied(user: Player) -> Iterator[Player]:
    for stage, claim in enumerate(user.claims or ()):
        if claim != user.needs[stage] and user.claims is not None:
            claims = (*user.claims[:stage], user.needs[stage], *user.claims[stage + 1 :])
            yield user.model_copy(update={"claims": claims})


def _with_plainer_numbers(user: Player) -> Iterator[Player]:
    if user.weight != 1:
        yield user.model_copy(update={"weight": Fraction(1)})
    for table in ("needs", "claims"):
        stages = getattr(user, table) or ()
        for stage, amounts in enumerate(stages):
            for plain in _plainer_stage(amounts):
                update = {table: (*stages[:stage], plain, *stages[stage + 1 :])}
                if table == "needs" and user.claims and user.claims[stage] == amounts:
                    claims = (*user.claims[:stage], plain, *user.claims[stage + 1 :])
                    update["claims"] = claims
                yield user.model_copy(update=update)


def _plainer_stage(amounts: dict[str, Fraction]) -> Iterator[dict[str, Fraction]]:
    if amounts:
        yield {}
    for name, amount in amounts.items():
        rounded = (Fraction(round(amount * p), p) for p in (10, 20, 100))
        for plain in (*_ROUND, *rounded):
            if plain > 0 and _size(plain) < _size(amount):
                yield {**amounts, name: plain}
