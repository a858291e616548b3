"""What should hold of a game over time, and who has a reason to complain."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from allocator.theory.games.game import Game
from allocator.theory.games.mechanism import Held, play, utility, worth
from allocator.theory.games.policies import GamePolicy

_ZERO, _ONE = Fraction(0), Fraction(1)


@dataclass(frozen=True, slots=True)
class Violation:
    """Somebody for whom a property does not hold."""

    user: str
    has: Fraction
    """What it gets."""
    instead: Fraction
    """What it could get, or should have: more."""
    text: str
    """The same in words."""


@dataclass(frozen=True, slots=True)
class TimeProperty:
    """What should hold of a policy in every game."""

    name: str
    claim: str
    """In one sentence."""
    complaint: Callable[[GamePolicy, Game], Violation | None]
    """Return what is wrong in a game; None: nothing."""
    about_lies: bool = False
    one_resource: bool = False
    """It is defined for games with one resource only."""


def lie_pays(policy: GamePolicy, game: Game) -> Violation | None:
    """Return who gets more when it says what it says than when all tell the truth (Eq. 3)."""
    truthful, lying = play(policy, game, game.truth), play(policy, game, game.told)
    for number, user in enumerate(game.users):
        if user.claims is not None:
            has, instead = worth(game, number, truthful), worth(game, number, lying)
            if instead > has:
                text = f"{user.name} gets {_number(has)} with the truth, {_number(instead)} lying"
                return Violation(user.name, has, instead, text)
    return None


def alone_is_better(policy: GamePolicy, game: Game) -> Violation | None:
    """Return who would have got more over time on a part of its own, as large as it may have."""
    held = play(policy, game, game.truth)
    for number, user in enumerate(game.users):
        part = (game.entitlements[number],) * len(game.resources)
        alone: Held = [(part,) * len(game.users)] * game.duration
        has, instead = worth(game, number, held), worth(game, number, alone)
        if instead > has:
            text = f"{user.name} gets {_number(has)}, and {_number(instead)} on a part of its own"
            return Violation(user.name, has, instead, text)
    return None


def envies(policy: GamePolicy, game: Game) -> Violation | None:
    """Return who would have got more, over time, with what another had, scaled to its weight."""
    held = play(policy, game, game.truth)
    for number, user in enumerate(game.users):
        has = worth(game, number, held)
        for other, rival in enumerate(game.users):
            scale = user.weight / rival.weight
            theirs: Held = [
                (tuple(scale * amount for amount in now[other]),) * len(now) for now in held
            ]
            instead = worth(game, number, theirs)
            if instead > has:
                text = (
                    f"{user.name} gets {_number(has)}; what {rival.name} had is worth "
                    f"{_number(instead)} to it"
                )
                return Violation(user.name, has, instead, text)
    return None


def cannot_recoup(policy: GamePolicy, game: Game) -> Violation | None:
    """Return a lender that goes short beside one of less credit that holds more than is its own.

    A user's credit is what it left of its entitlement to others in all stages so far, less what it
    had beyond it: all that condition CF1 of credit fairness (Zahedi and Freeman 2026) allows.
    """
    held = play(policy, game, game.truth)
    credit = [_ZERO] * len(game.users)
    for stage, now in enumerate(held):
        used = [utility(game.truth[user][stage], holds) for user, holds in enumerate(now)]
        credit = [c + e - u for c, e, u in zip(credit, game.entitlements, used, strict=True)]
        for number, user in enumerate(game.users):
            wants = max(game.truth[number][stage], default=_ZERO)
            for other, rival in enumerate(game.users):
                if (
                    used[number] < wants
                    and used[other] > game.entitlements[other]
                    and credit[number] / user.weight > credit[other] / rival.weight
                ):
                    text = (
                        f"{user.name}, with a credit of {_number(credit[number])}, has "
                        f"{_number(used[number])} of {_number(wants)} in stage {stage + 1}, while "
                        f"{rival.name}, with {_number(credit[other])}, holds "
                        f"{_number(used[other])}"
                    )
                    return Violation(user.name, used[number], wants, text)
    return None


def _number(value: Fraction) -> str:
    return str(value) if value.denominator < 1000 else f"{float(value):.6g}"


PROPERTIES: Mapping[str, TimeProperty] = {
    each.name: each
    for each in (
        TimeProperty(
            "strategy-proofness",
            "nobody gets more over time by claiming what is not so",
            lie_pays,
            about_lies=True,
        ),
        TimeProperty(
            "sharing-incentive",
            "nobody would have got more over time on a part of its own",
            alone_is_better,
        ),
        TimeProperty(
            "envy-freeness", "nobody would have got more over time with what another had", envies
        ),
        TimeProperty(
            "credit-fairness",
            "nobody who lent goes short while one that lent less holds more than is its own",
            cannot_recoup,
            one_resource=True,
        ),
    )
}
"""By name."""
