"""A seeded search for games in which a property does not hold: the smallest, and the worst."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import TypeAlias

from allocator.theory.games.drawing import (
    GameLimits,
    draw,
    like_a_long_absence,
    like_proposition_3,
    mutated,
    told,
)
from allocator.theory.games.game import Game, Stages
from allocator.theory.games.lying import best_lie
from allocator.theory.games.mechanism import play, utility, worth
from allocator.theory.games.policies import GamePolicy
from allocator.theory.games.properties import TimeProperty, Violation
from allocator.theory.games.shrinking import extent, simpler

Watch: TypeAlias = Callable[[int, int], None]
"""Told how many games were tried, of how many."""


_ZERO = Fraction(0)
_KNOWN = (like_proposition_3, like_a_long_absence)
"""Games from which a climb starts first."""
_DRAWN = 30
"""Games in which a climb looks for a lie that pays, before it starts from one that does not."""
_SILENT = 300
"""Games in which a climb tries one lie: to stay away in all stages but the last."""


@dataclass(frozen=True, slots=True)
class Found:
    """A game in which a property does not hold."""

    game: Game
    complaint: Violation


@dataclass(frozen=True, slots=True)
class GameSearchOutcome:
    """What a search has come to."""

    tried: int
    """Games, up to the one that was found if there is one."""
    found: Found | None
    """No simpler game next to it would do."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a climb goes on."""

    steps: int
    """Games tried from each start."""
    restarts: int
    seed: int = 1


def search(  # noqa: PLR0913 - all but two by name
    policy: GamePolicy,
    wanted: TimeProperty,
    *,
    trials: int,
    seed: int,
    limits: GameLimits,
    watch: Watch = lambda _tried, _of: None,
) -> GameSearchOutcome:
    """Draw games, from small to large, until a property does not hold; then make that one smaller.

    The same seed gives the same outcome. A game takes a millisecond, and 10 to 50 if all lies of
    its first user are tried.
    """
    rng = Random(f"{seed} {wanted.name}")  # noqa: S311 - a search, not a secret
    for trial in range(trials):
        game: Game | None = draw(rng, trial / trials, limits)
        if game is not None and wanted.about_lies:
            game = best_lie(policy, game, 0)
        complaint = None if game is None else wanted.complaint(policy, game)
        watch(trial + 1, trials)
        if game is not None and complaint is not None:
            return GameSearchOutcome(trial + 1, smallest(policy, wanted, Found(game, complaint)))
    return GameSearchOutcome(trials, None)


def smallest(policy: GamePolicy, wanted: TimeProperty, found: Found) -> Found:
    """Walk to simpler games in which the property does not hold either, until none is next."""
    while True:
        for other in simpler(found.game):
            if extent(other) < extent(found.game):
                try:
                    complaint = wanted.complaint(policy, other)
                except ValueError:  # one that the policy cannot be asked about
                    continue
                if complaint is not None:
                    found = Found(other, complaint)
                    break
        else:
            return found


@dataclass(frozen=True, slots=True)
class Climbed:
    """The worst lie that a climb has come to."""

    game: Game
    truthful: Fraction
    gained: Fraction
    given_up: Fraction
    """In stages in which the lie gets less than the truth."""

    @property
    def regained(self) -> Fraction:
        """In stages in which it gets more."""
        return self.gained - self.truthful + self.given_up

    @property
    def ratio(self) -> Fraction:
        """How many times its utility the liar gets."""
        return self.gained / self.truthful if self.truthful else _ZERO

    @property
    def promise(self) -> tuple[bool, Fraction]:
        """What a climb raises: how much a lie pays; or else what part of its price comes back."""
        if self.ratio > 1:
            return True, self.ratio
        return False, self.regained / self.given_up if self.given_up else Fraction(-1)


def climb(
    policy: GamePolicy,
    effort: Effort,
    limits: GameLimits,
    watch: Watch = lambda _tried, _of: None,
) -> Climbed:
    """Change games and lies of their first user, keeping what makes the lie pay more.

    The first start is the game that refutes Proposition 3, the second a long absence, where these
    fit the limits; all other starts are drawn at random. A larger gain than the largest found may
    exist. The same seed gives the same game.
    """
    steps, restarts = effort.steps, effort.restarts
    rng = Random(f"{effort.seed} climb")  # noqa: S311 - a search, not a secret
    best: Climbed | None = None
    for restart in range(restarts):
        known = _KNOWN[restart](limits) if restart < len(_KNOWN) else None
        current = _judged(policy, known or _start(policy, rng, limits))
        for step in range(steps):
            candidate = mutated(rng, current.game, limits.longest)
            if rng.random() < 0.3:
                candidate = mutated(rng, candidate, limits.longest)
            judged = _judged(policy, candidate)
            if judged.promise >= current.promise:
                current = judged
            watch(restart * steps + step + 1, restarts * steps)
        if best is None or current.promise > best.promise:
            best = current
    if best is None:
        raise ValueError(f"restarts is {restarts}; a climb needs one at least")
    return best


def _start(policy: GamePolicy, rng: Random, limits: GameLimits) -> Game:
    """Return the game of many in which silence pays most; else one in which some lie pays.

    A user that stays away gives up all that it needs until the last stage, and forces others to
    use more. Such a lie needs two plays to judge; the best of all lies needs hundreds.
    """
    if (limits.stages or 0) > 1:
        games = (_silent(draw(rng, 1.0, limits)) for _ in range(_SILENT))
        best = max((_judged(policy, game) for game in games), key=lambda judged: judged.promise)
        if best.given_up:
            return best.game
    for _ in range(_DRAWN):
        lie = best_lie(policy, draw(rng, 1.0, limits), 0)
        if lie is not None:
            return lie
    return _with_a_lie(rng, draw(rng, 1.0, limits))


def _silent(game: Game) -> Game:
    """Return a game whose first user claims nothing in all stages but the last."""
    needs = game.users[0].needs
    nothing: Stages = ({},) * (game.stages - 1)
    return told(game, 0, (*nothing, needs[-1]))


def _with_a_lie(rng: Random, game: Game) -> Game:
    """Return a game in which the first user claims nine tenths of what it needs in some stage."""
    needs = game.users[0].needs
    stage = rng.randrange(game.stages)
    less = {name: amount * Fraction(9, 10) for name, amount in needs[stage].items()}
    return told(game, 0, (*needs[:stage], less, *needs[stage + 1 :]))


def _judged(policy: GamePolicy, game: Game) -> Climbed:
    truth, told = play(policy, game, game.truth), play(policy, game, game.told)
    given_up, value = _ZERO, Fraction(1)
    for needs, true, lied in zip(game.truth[0], truth, told, strict=True):
        given_up += value * max(utility(needs, true[0]) - utility(needs, lied[0]), _ZERO)
        value *= game.patience
    return Climbed(game, worth(game, 0, truth), worth(game, 0, told), given_up)
