"""A seeded search for games that violate a property: the smallest violation, and the worst lie."""

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
"""Progress callback: receives the number of games tried and the number of all games."""


_ZERO = Fraction(0)
_KNOWN = (like_proposition_3, like_a_long_absence)
"""Known games, used as the first starting points of a climb."""
_DRAWN = 30
"""Number of drawn games in which a climb looks for a profitable lie, before it starts from an
unprofitable lie."""
_SILENT = 300
"""Number of drawn games in which a climb tries one lie: to claim nothing before the last stage."""


@dataclass(frozen=True, slots=True)
class Found:
    """A game that violates a property."""

    game: Game
    complaint: Violation


@dataclass(frozen=True, slots=True)
class GameSearchOutcome:
    """Result of a search."""

    tried: int
    """Number of games tried; the search stops at a violation."""
    found: Found | None
    """The smallest violation found, or None: no simpler neighbouring game violates the property."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Number of steps and starts of a climb."""

    steps: int
    """Games tried from each starting point."""
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
    """Draw games from small to large until a game violates a property; then simplify that game.

    The same seed gives the same outcome. A game takes a millisecond, or 10 to 50 if all lies of its
    first user are tried.

    Args:
        policy: The policy to test.
        wanted: The property to test.
        trials: Maximum number of games to draw.
        seed: Seed of the random generator.
        limits: Limits on drawn games.
        watch: Progress callback.
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


def smallest(policy: GamePolicy, wanted: TimeProperty, smallest_found: Found) -> Found:
    """Move to simpler games that violate the property until no neighbouring game does."""
    while True:
        for candidate in simpler(smallest_found.game):
            if extent(candidate) < extent(smallest_found.game):
                try:
                    complaint = wanted.complaint(policy, candidate)
                except ValueError:  # the policy is not defined for this game
                    continue
                if complaint is not None:
                    smallest_found = Found(candidate, complaint)
                    break
        else:
            return smallest_found


@dataclass(frozen=True, slots=True)
class Climbed:
    """The worst lie found by a climb."""

    game: Game
    truthful: Fraction
    gained: Fraction
    given_up: Fraction
    """Value lost in stages in which the lie gets less than the truth."""

    @property
    def regained(self) -> Fraction:
        """Value won in stages in which the lie gets more than the truth."""
        return self.gained - self.truthful + self.given_up

    @property
    def ratio(self) -> Fraction:
        """The liar's value divided by its truthful value."""
        return self.gained / self.truthful if self.truthful else _ZERO

    @property
    def promise(self) -> tuple[bool, Fraction]:
        """Quantity that a climb maximises: the ratio if the lie pays, else the part regained."""
        if self.ratio > 1:
            return True, self.ratio
        return False, self.regained / self.given_up if self.given_up else Fraction(-1)


def climb(
    policy: GamePolicy,
    effort: Effort,
    limits: GameLimits,
    watch: Watch = lambda _tried, _of: None,
) -> Climbed:
    """Search the worst lie by random changes of a game and of its first user's claims.

    A change is kept if the lie pays at least as much as before.

    The first start is the game that refutes Proposition 3, and the second is a long absence, if
    these games fit the limits. All other starts are drawn at random. A larger gain than the result
    may exist. The same seed gives the same game.

    Raises:
        ValueError: `effort` has no restarts.
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
        raise ValueError(f"restarts is {restarts}; a climb needs at least one")
    return best


def _start(policy: GamePolicy, rng: Random, limits: GameLimits) -> Game:
    """Return the drawn game in which silence pays most, or else a game in which some lie pays.

    A silent user gives up its needs until the last stage, and so forces other users to use more.
    Two plays are enough to judge silence; the best of all lies needs hundreds.
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
    """Return a game whose first user claims nine tenths of its needs in some stage."""
    needs = game.users[0].needs
    stage = rng.randrange(game.stages)
    reduced = {name: amount * Fraction(9, 10) for name, amount in needs[stage].items()}
    return told(game, 0, (*needs[:stage], reduced, *needs[stage + 1 :]))


def _judged(policy: GamePolicy, game: Game) -> Climbed:
    truth, lying = play(policy, game, game.truth), play(policy, game, game.told)
    given_up, value = _ZERO, Fraction(1)
    for needs, true, lied in zip(game.truth[0], truth, lying, strict=True):
        given_up += value * max(utility(needs, true[0]) - utility(needs, lied[0]), _ZERO)
        value *= game.patience
    return Climbed(game, worth(game, 0, truth), worth(game, 0, lying), given_up)
