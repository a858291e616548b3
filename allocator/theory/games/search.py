"""Searches random games for violations of a property, and for the lie with the largest gain."""

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
"""Progress callback: receives the number of games tried so far and the total number."""


_ZERO = Fraction(0)
_KNOWN = (like_proposition_3, like_a_long_absence)
"""Functions that return a game with a profitable lie: the first starting points of `climb`."""
_DRAWN = 30
"""Number of random games in which a climb looks for a profitable lie as its starting point.

If no lie pays in any of them, the climb starts from an unprofitable lie.
"""
_SILENT = 300
"""Number of random games in which a climb tries only one lie: no claims before the last stage."""


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A game in which a policy violates a property, with the violation found."""

    game: Game
    complaint: Violation


@dataclass(frozen=True, slots=True)
class GameSearchOutcome:
    """Result of `search`: the violation found, if any, and how many games were tried."""

    tried: int
    """Number of games tried. The search stops at the first violation."""
    found: Counterexample | None
    """The violation found, in the simplest form reached; None if no game violates the property."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Limits of the search by `climb`: number of starting points, and of steps from each."""

    steps: int
    """Number of games to try from each starting point."""
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
    """Search for a game that violates a property; then simplify that game.

    Random games are drawn in order of size, small games first.

    The same seed gives the same outcome. A game takes a millisecond, or 10 to 50 if all lies of its
    first user are tried.

    Args:
        policy: The policy to test.
        wanted: The property to test.
        trials: Maximum number of games to draw.
        seed: Seed of the random generator.
        limits: Fixed properties of the drawn games.
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
            return GameSearchOutcome(
                trial + 1, smallest(policy, wanted, Counterexample(game, complaint))
            )
    return GameSearchOutcome(trials, None)


def smallest(
    policy: GamePolicy, wanted: TimeProperty, smallest_found: Counterexample
) -> Counterexample:
    """Simplify a game that violates a property, step by step, as long as it violates the property.

    Args:
        policy: The policy under test.
        wanted: The property that the game violates.
        smallest_found: The game to simplify.

    Returns:
        The simplest violating game reached.
    """
    while True:
        for candidate in simpler(smallest_found.game):
            if extent(candidate) < extent(smallest_found.game):
                try:
                    complaint = wanted.complaint(policy, candidate)
                except ValueError:  # the policy is not defined for this game
                    continue
                if complaint is not None:
                    smallest_found = Counterexample(candidate, complaint)
                    break
        else:
            return smallest_found


@dataclass(frozen=True, slots=True)
class WorstLie:
    """The game and lie with the largest gain that `climb` found. The liar is user 0."""

    game: Game
    truthful: Fraction
    gained: Fraction
    given_up: Fraction
    """Sum of the value that the liar loses in stages where the lie gives it less than the truth."""

    @property
    def regained(self) -> Fraction:
        """Total value that the liar gains in stages where the lie gives it more than truth."""
        return self.gained - self.truthful + self.given_up

    @property
    def ratio(self) -> Fraction:
        """Value of the game to the liar, divided by its value if the liar tells the truth."""
        return self.gained / self.truthful if self.truthful else _ZERO

    @property
    def promise(self) -> tuple[bool, Fraction]:
        """Sort key that `climb` maximises: a larger key means a better lie.

        If the lie pays, the key is (True, ratio). Otherwise, the lie gains value in some stages but
        loses more in others. The key is then (False, total gain / total loss).
        """
        if self.ratio > 1:
            return True, self.ratio
        return False, self.regained / self.given_up if self.given_up else Fraction(-1)


def climb(
    policy: GamePolicy,
    effort: Effort,
    limits: GameLimits,
    watch: Watch = lambda _tried, _of: None,
) -> WorstLie:
    """Search for the game, and the lie of its first user, with the largest gain (hill climbing).

    From each starting point, the search changes the game and the lie at random. It keeps a change
    if the lie then pays at least as much as before. A larger gain than the result may exist.

    The first two starting points are the games of `like_proposition_3` and `like_a_long_absence`,
    if these games fit the limits. All other starting points are drawn at random. The same seed
    gives the same result.

    Args:
        policy: The policy that shares the resources.
        effort: Number of steps and starting points.
        limits: Fixed properties of the games.
        watch: Progress callback.

    Raises:
        ValueError: `effort` has no restarts.
    """
    steps, restarts = effort.steps, effort.restarts
    rng = Random(f"{effort.seed} climb")  # noqa: S311 - a search, not a secret
    best: WorstLie | None = None
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
    """Return a random game in which the first user lies, as a starting point of `climb`.

    The lie is that the user claims nothing before the last stage, so that other users build up
    commitments. The function tries several random games, and returns the game with the highest
    gain.

    If this lie loses nothing in any of these games, it has no effect there. The function then
    searches random games for another lie that pays, and finally returns a game with a random lie.

    This lie is tried first because it takes only two plays of a game to evaluate. The best of all
    lies takes hundreds.
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
    """Return a copy of a game in which the first user claims nothing before the last stage.

    "Nothing" means that it pretends to need no resources.
    """
    needs = game.users[0].needs
    nothing: Stages = ({},) * (game.stages - 1)
    return told(game, 0, (*nothing, needs[-1]))


def _with_a_lie(rng: Random, game: Game) -> Game:
    """Return a copy of a game whose first user lies in a random stage.

    The user claims only nine tenths of its needs there.
    """
    needs = game.users[0].needs
    stage = rng.randrange(game.stages)
    reduced = {name: amount * Fraction(9, 10) for name, amount in needs[stage].items()}
    return told(game, 0, (*needs[:stage], reduced, *needs[stage + 1 :]))


def _judged(policy: GamePolicy, game: Game) -> WorstLie:
    truth, lying = play(policy, game, game.truth), play(policy, game, game.claimed)
    given_up, value = _ZERO, Fraction(1)
    for needs, true, lied in zip(game.truth[0], truth, lying, strict=True):
        given_up += value * max(utility(needs, true[0]) - utility(needs, lied[0]), _ZERO)
        value *= game.patience
    return WorstLie(game, worth(game, 0, truth), worth(game, 0, lying), given_up)
