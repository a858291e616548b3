"""Fairness properties of repeated games, each with a function that finds a violation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from allocator.theory.games.game import Game
from allocator.theory.games.mechanism import Held, play, utility, worth
from allocator.theory.games.policies import GamePolicy

_ZERO, _ONE = Fraction(0), Fraction(1)


@dataclass(frozen=True, slots=True)
class Violation:
    """A user for whom a game violates a property, with the values that prove the violation."""

    user: str
    has: Fraction
    """Value of the game to the user."""
    instead: Fraction
    """Larger value that the user could get otherwise, or that the property promises."""
    text: str
    """The violation in words."""


@dataclass(frozen=True, slots=True)
class TimeProperty:
    """A fairness property that a policy should have in every repeated game."""

    name: str
    claim: str
    """The property in one sentence, for reports."""
    complaint: Callable[[GamePolicy, Game], Violation | None]
    """Function that returns the violation in a game, or None if the property holds."""
    about_lies: bool = False
    one_resource: bool = False
    """True if the property is defined only for games with one resource."""


def lie_pays(policy: GamePolicy, game: Game) -> Violation | None:
    """Return a violation of strategy-proofness, or None.

    The violation is a user that lies and thereby gets more value from the game (SDRF paper, Eq. 3)
    than if all users told the truth.
    """
    truthful, lying = play(policy, game, game.truth), play(policy, game, game.claimed)
    for number, user in enumerate(game.users):
        if user.claims is not None:
            has, instead = worth(game, number, truthful), worth(game, number, lying)
            if instead > has:
                text = f"{user.name} gets {_number(has)} with the truth, {_number(instead)} lying"
                return Violation(user.name, has, instead, text)
    return None


def alone_is_better(policy: GamePolicy, game: Game) -> Violation | None:
    """Return a violation of the sharing incentive, or None.

    The violation is a user that would gain by leaving the game. Outside the game, it would hold its
    entitlement to each resource in every stage, and this would have more value to it.
    """
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
    """Return a violation of envy-freeness, or None.

    The violation is a user that would prefer the allocations of another user to its own. The other
    user's allocations are first multiplied by the ratio of the two weights.
    """
    held = play(policy, game, game.truth)
    for number, user in enumerate(game.users):
        has = worth(game, number, held)
        for other_number, other_user in enumerate(game.users):
            scale = user.weight / other_user.weight
            other_held: Held = [
                (tuple(scale * amount for amount in held_in_stage[other_number]),)
                * len(held_in_stage)
                for held_in_stage in held
            ]
            instead = worth(game, number, other_held)
            if instead > has:
                text = (
                    f"{user.name} gets {_number(has)}; what {other_user.name} had is worth "
                    f"{_number(instead)} to it"
                )
                return Violation(user.name, has, instead, text)
    return None


def cannot_recoup(policy: GamePolicy, game: Game) -> Violation | None:
    """Return a violation of credit fairness, or None.

    The violation is a user that gets less than it needs in a stage, while a user with less credit
    gets more than its entitlement. A user's credit is the sum of its entitlement minus its use over
    all stages so far. Credits are divided by weights before they are compared.

    This is the condition CF1 of credit fairness (Zahedi and Freeman 2026), if all unused
    entitlement counts as credit.
    """
    held = play(policy, game, game.truth)
    credit = [_ZERO] * len(game.users)
    for stage, allocations in enumerate(held):
        used = [utility(game.truth[user][stage], holds) for user, holds in enumerate(allocations)]
        credit = [
            earned + entitlement - use
            for earned, entitlement, use in zip(credit, game.entitlements, used, strict=True)
        ]
        for number, user in enumerate(game.users):
            needed = max(game.truth[number][stage], default=_ZERO)
            for other_number, other_user in enumerate(game.users):
                if (
                    used[number] < needed
                    and used[other_number] > game.entitlements[other_number]
                    and credit[number] / user.weight > credit[other_number] / other_user.weight
                ):
                    text = (
                        f"{user.name}, with a credit of {_number(credit[number])}, has "
                        f"{_number(used[number])} of {_number(needed)} in stage {stage + 1}, while "
                        f"{other_user.name}, with {_number(credit[other_number])}, holds "
                        f"{_number(used[other_number])}"
                    )
                    return Violation(user.name, used[number], needed, text)
    return None


def _number(value: Fraction) -> str:
    return str(value) if value.denominator < 1000 else f"{float(value):.6g}"


PROPERTIES: Mapping[str, TimeProperty] = {
    time_property.name: time_property
    for time_property in (
        TimeProperty(
            "strategy-proofness",
            "no user gains over time by a false claim",
            lie_pays,
            about_lies=True,
        ),
        TimeProperty(
            "sharing-incentive",
            "no user would have gained over time from a part of its own",
            alone_is_better,
        ),
        TimeProperty(
            "envy-freeness",
            "no user would have gained over time from another user's allocation",
            envies,
        ),
        TimeProperty(
            "credit-fairness",
            "no user that lent goes short while a user that lent less holds more than its own part",
            cannot_recoup,
            one_resource=True,
        ),
    )
}
"""All properties of repeated games, by name."""
