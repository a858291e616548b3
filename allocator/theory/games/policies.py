"""What policies remember from stage to stage, and by which share they compare users."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from allocator.theory.games.game import Game, Vector

_ZERO = Fraction(0)


class PolicyMemory(Protocol):
    """What a policy knows of the stages before; it counts as held already in this one."""

    def before(self, user: int) -> Fraction:
        """Return what a user is taken to have before it is allocated anything."""

    def learn(self, held: Sequence[Vector]) -> None:
        """Remember a stage: what each user held of each resource."""


@dataclass(frozen=True, slots=True)
class GamePolicy:
    """A policy of repeated games: a share of users, raised together, over a memory."""

    name: str
    measure: Callable[[Vector], Fraction]
    """The share of a user that holds this; what is compared."""
    memory: Callable[[Game], PolicyMemory]
    guarantees: bool = False
    """Users have α times their entitlement whatever they had before."""


class _Commitments:
    """A commitment for each resource; the largest counts (SDRF, Eq. 6, 7 and 9)."""

    def __init__(self, game: Game) -> None:
        self._delta = game.delta
        self._entitled = game.entitlements
        self._owed = [[_ZERO] * len(game.resources) for _ in game.users]

    def before(self, user: int) -> Fraction:
        return max(self._owed[user], default=_ZERO)

    def learn(self, held: Sequence[Vector]) -> None:
        for owes, holds, entitled in zip(self._owed, held, self._entitled, strict=True):
            for r, amount in enumerate(holds):
                over = max(amount - entitled, _ZERO)
                owes[r] = self._delta * owes[r] + (1 - self._delta) * over


class _ShareCommitments:
    """One commitment, for over-use of the share itself (Stateful TSF)."""

    def __init__(self, game: Game) -> None:
        self._delta = game.delta
        self._entitled = game.entitlements
        self._owed = [_ZERO] * len(game.users)

    def before(self, user: int) -> Fraction:
        return self._owed[user]

    def learn(self, held: Sequence[Vector]) -> None:
        for user, (holds, entitled) in enumerate(zip(held, self._entitled, strict=True)):
            over = max(dominant(holds) - entitled, _ZERO)
            self._owed[user] = self._delta * self._owed[user] + (1 - self._delta) * over


@dataclass(slots=True)
class _Totals:
    """All that users ever had by some measure (Dynamic DRF)."""

    measure: Callable[[Vector], Fraction]
    had: list[Fraction]

    def before(self, user: int) -> Fraction:
        return self.had[user]

    def learn(self, held: Sequence[Vector]) -> None:
        for user, holds in enumerate(held):
            self.had[user] += self.measure(holds)


class _DecayedUse:
    """What users had, each stage back counting δ times as much (Slurm, Kueue, Volcano, HTCondor).

    Those who are raised together have used the same, decayed, when the stage is over.
    """

    def __init__(self, measure: Callable[[Vector], Fraction], game: Game) -> None:
        self._measure = measure
        self._delta = game.delta
        self._used = [_ZERO] * len(game.users)

    def before(self, user: int) -> Fraction:
        return self._used[user]

    def learn(self, held: Sequence[Vector]) -> None:
        for user, holds in enumerate(held):
            self._used[user] = self._delta * (self._used[user] + self._measure(holds))


def dominant(holds: Vector) -> Fraction:
    """Return the largest share of a resource."""
    return max(holds, default=_ZERO)


def first(holds: Vector) -> Fraction:
    """Return the share of the first resource."""
    return holds[0] if holds else _ZERO


def together(holds: Vector) -> Fraction:
    """Return the sum of the shares of all resources."""
    return sum(holds, start=_ZERO)


def _nothing(_holds: Vector) -> Fraction:
    """Return what counts of the past where each stage is played for itself."""
    return _ZERO


def _totals(measure: Callable[[Vector], Fraction]) -> Callable[[Game], PolicyMemory]:
    return lambda game: _Totals(measure, [_ZERO] * len(game.users))


def _decayed(measure: Callable[[Vector], Fraction]) -> Callable[[Game], PolicyMemory]:
    return lambda game: _DecayedUse(measure, game)


POLICIES: Mapping[str, GamePolicy] = {
    policy.name: policy
    for policy in (
        GamePolicy("sdrf", dominant, _Commitments),
        GamePolicy("stsf", dominant, _ShareCommitments),
        GamePolicy("drf", dominant, _totals(_nothing)),
        GamePolicy("cmmf", first, _totals(_nothing)),
        GamePolicy("dynamic-drf", dominant, _totals(dominant), guarantees=True),
        GamePolicy("dynamic-mmf", first, _totals(first), guarantees=True),
        GamePolicy("kueue-afs", together, _decayed(together)),
        GamePolicy("volcano", first, _decayed(first)),
    )
}
"""By name. With one resource sdrf is the paper's SMMF, drf is MMF, dynamic-drf is dynamic-mmf.

Played in stages, slurm-fair-tree and htcondor are volcano, and karma is dynamic-mmf.
"""


def policy_of(name: str) -> GamePolicy:
    """Return a policy by its name.

    Raises:
        ValueError: there is none.
    """
    try:
        return POLICIES[name]
    except KeyError:
        there = ", ".join(sorted(POLICIES))
        raise ValueError(f"no game of policy {name!r} is known; there are: {there}") from None
