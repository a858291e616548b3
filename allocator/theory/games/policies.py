"""Policies of repeated games: how each policy measures shares and counts earlier stages.

A policy raises the smallest share first. The memory of earlier stages is expressed as a share: it
counts as if the user already held that share when a stage begins.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from allocator.complaints import alternatives
from allocator.theory.games.game import Game, Vector

_ZERO = Fraction(0)


class PolicyMemory(Protocol):
    """A policy's record of earlier stages of a game, which lowers the priority of past heavy users.

    For each user, the record gives a share that the user is treated as holding already.
    """

    def before(self, user: int) -> Fraction:
        """Return the share that a user is treated as holding already when the present stage begins.

        Args:
            user: Index of the user.
        """

    def learn(self, held: Sequence[Vector]) -> None:
        """Update the record with the allocations of the stage that has just ended.

        Args:
            held: For each user, the amount of each resource that the user held in the stage.
        """


@dataclass(frozen=True, slots=True)
class GamePolicy:
    """A policy of repeated games: how it measures shares, and how it counts earlier stages."""

    name: str
    measure: Callable[[Vector], Fraction]
    """Function that returns the share of an allocation, by which users are compared."""
    memory: Callable[[Game], PolicyMemory]
    guarantees: bool = False
    """True if each user is guaranteed α times its entitlement regardless of earlier stages."""


class _Commitments:
    """The record that SDRF keeps: a commitment per user and resource (SDRF paper, Eq. 6, 7 and 9).

    A user is treated as holding the largest of its commitments when a stage begins.
    """

    def __init__(self, game: Game) -> None:
        self._delta = game.delta
        self._entitlements = game.entitlements
        self._commitments = [[_ZERO] * len(game.resources) for _ in game.users]

    def before(self, user: int) -> Fraction:
        return max(self._commitments[user], default=_ZERO)

    def learn(self, held: Sequence[Vector]) -> None:
        for commitments, holds, entitled in zip(
            self._commitments, held, self._entitlements, strict=True
        ):
            for r, amount in enumerate(holds):
                overuse = max(amount - entitled, _ZERO)
                commitments[r] = self._delta * commitments[r] + (1 - self._delta) * overuse


class _ShareCommitments:
    """The record that Stateful TSF keeps: one commitment per user.

    In each stage, the commitment grows with the user's dominant share above its entitlement.
    """

    def __init__(self, game: Game) -> None:
        self._delta = game.delta
        self._entitlements = game.entitlements
        self._commitments = [_ZERO] * len(game.users)

    def before(self, user: int) -> Fraction:
        return self._commitments[user]

    def learn(self, held: Sequence[Vector]) -> None:
        for user, (holds, entitled) in enumerate(zip(held, self._entitlements, strict=True)):
            overuse = max(dominant(holds) - entitled, _ZERO)
            self._commitments[user] = (
                self._delta * self._commitments[user] + (1 - self._delta) * overuse
            )


@dataclass(slots=True)
class _Totals:
    """The record that Dynamic DRF keeps: the sum of each user's shares in earlier stages."""

    measure: Callable[[Vector], Fraction]
    had: list[Fraction]

    def before(self, user: int) -> Fraction:
        return self.had[user]

    def learn(self, held: Sequence[Vector]) -> None:
        for user, holds in enumerate(held):
            self.had[user] += self.measure(holds)


class _DecayedUse:
    """The record that Slurm, Kueue, Volcano and HTCondor keep: each user's past use, decayed.

    After each stage, the stage's use is added, and the sum is multiplied by δ. Users whose shares
    rise together therefore have equal decayed use when a stage ends.
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
    """Return an allocation's dominant share: its largest fraction of any resource (DRF)."""
    return max(holds, default=_ZERO)


def first(holds: Vector) -> Fraction:
    """Return an allocation's fraction of the first resource, for policies that share only one."""
    return holds[0] if holds else _ZERO


def together(holds: Vector) -> Fraction:
    """Return the sum of an allocation's fractions of all resources."""
    return sum(holds, start=_ZERO)


def _nothing(_holds: Vector) -> Fraction:
    """Return 0 as the share of any allocation, for policies that ignore earlier stages."""
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
"""All policies of repeated games, by name.

With one resource, sdrf is the paper's SMMF, drf is MMF, and dynamic-drf is dynamic-mmf. In stages,
slurm-fair-tree and htcondor equal volcano, and karma equals dynamic-mmf.
"""


def policy_of(name: str) -> GamePolicy:
    """Return the policy with a given name.

    Raises:
        ValueError: No policy has this name.
    """
    try:
        return POLICIES[name]
    except KeyError:
        raise ValueError(
            f"policy {name!r} has no games{alternatives(name, sorted(POLICIES))}"
        ) from None
