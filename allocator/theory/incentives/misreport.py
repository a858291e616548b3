"""The search for the best lie: how much a user can gain by claiming other demands than it has."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from allocator.theory.incentives.mechanism import play
from allocator.theory.incentives.profile import Player, Profile

_ZERO = Fraction(0)
_PARTS = [Fraction(k, 8) for k in range(8)]
"""Of what a user gets, in what it may claim instead."""
_FINEST = Fraction(1, 128)
"""Of a demand, in the last steps."""
_ROUNDS = 20
"""Through all epochs; a search that still gains after that is cut short."""


@dataclass(frozen=True, slots=True)
class Lie:
    """The best that was found for a user."""

    truthful: Fraction
    """Utility over all epochs if everybody tells the truth."""
    gained: Fraction
    """Its utility if it reports this instead."""
    reports: list[Fraction]
    """By epoch; the truth if no lie is better."""
    bound: Fraction | None
    """No lie multiplies its utility by more (Theorems 3.6 and 4.6); None: no bound is known."""

    @property
    def ratio(self) -> Fraction:
        """How many times its utility: 1 if no lie is better."""
        return self.gained / self.truthful if self.truthful else Fraction(1)


def bound(profile: Profile, user: Player) -> Fraction | None:
    """Return the proved limit of what a lie can multiply a user's utility by.

    3/2 with one resource, equal weights and equal ratios (Theorem 3.6); else 1 + ρ, where ρ is the
    largest aᵢq wᵢ / (aⱼq wⱼ) (Theorem 4.6); None if a user needs nothing of a resource, for then
    there is no bound that all numbers of resources share (Theorem B.1).
    """
    resources = {r for e in profile.epochs for u in profile.users for r in profile.ratios(u, e)}
    rho = _ZERO
    alike = len(resources) == 1
    for epoch in profile.epochs:
        mine = profile.ratios(user, epoch)
        for other in profile.users:
            theirs = profile.ratios(other, epoch)
            if not resources == set(mine) == set(theirs):
                return None
            if other.name != user.name:
                parts = {mine[r] * user.weight / (theirs[r] * other.weight) for r in resources}
                rho = max(rho, *parts)
                alike = alike and parts == {1}
    return Fraction(3, 2) if alike else 1 + rho


def best_lie(profile: Profile, user: Player, watch: Callable[[], None] = lambda: None) -> Lie:
    """Search reports of one user for those that serve it best, while all others tell the truth.

    What is found can be had; a better lie may exist. First it claims nothing in spans of epochs in
    which it gets something, then it climbs, epoch by epoch, in steps that get finer. Claims above
    the truth are tried only where a user needs nothing of a resource: elsewhere they cannot help
    (Theorems 3.5 and 4.4).

    Args:
        profile: The game.
        user: Who lies.
        watch: Called after each game that was played.
    """
    search = _Search(profile, user, watch)
    truth = profile.demands(user)
    truthful, allocated = search.utility(truth)
    busy = [t for t, amount in enumerate(allocated) if amount]
    limit = bound(profile, user)
    best, gained = truth, truthful
    for first in range(len(busy)):
        for last in range(first, len(busy)):
            silent = set(busy[first : last + 1])
            lie = [_ZERO if t in silent else claim for t, claim in enumerate(truth)]
            best, gained = search.better((best, gained), lie)
    best, gained = search.climb(best, gained, over=limit is None)
    return Lie(truthful, gained, best, limit)


class _Search:
    def __init__(self, profile: Profile, user: Player, watch: Callable[[], None]) -> None:
        self._profile = profile
        self._user = user
        self._truth = profile.demands(user)
        self._watch = watch

    def utility(self, reports: list[Fraction]) -> tuple[Fraction, list[Fraction]]:
        """Return what reports are worth, and what is of use in each epoch."""
        allocated = play(self._profile, {self._user.name: reports})[self._user.name]
        useful = [min(got, wanted) for got, wanted in zip(allocated, self._truth, strict=True)]
        self._watch()
        return sum(useful, _ZERO), useful

    def better(
        self, best: tuple[list[Fraction], Fraction], lie: list[Fraction]
    ) -> tuple[list[Fraction], Fraction]:
        """Return the better of what is known and another lie."""
        gained, _ = self.utility(lie)
        return (lie, gained) if gained > best[1] else best

    def climb(
        self, reports: list[Fraction], gained: Fraction, *, over: bool
    ) -> tuple[list[Fraction], Fraction]:
        """Change one report after the other as long as that helps."""
        best = reports, gained
        for _ in range(_ROUNDS):
            before = best[1]
            for epoch in range(len(reports)):
                for claim in self._claims(epoch, best[0], over=over):
                    best = self.better(best, [*best[0][:epoch], claim, *best[0][epoch + 1 :]])
                best = self._refine(best, epoch)
            if best[1] == before:
                break
        return best

    def _claims(self, epoch: int, reports: list[Fraction], *, over: bool) -> Iterable[Fraction]:
        truth = self._truth[epoch]
        _, useful = self.utility(reports)
        claims = {truth} | {useful[epoch] * part for part in _PARTS}
        if over:
            capacity = self._profile.epochs[epoch].capacity
            claims |= {capacity * part for part in _PARTS if capacity * part > truth}
            claims.add(capacity)
        return sorted(claims - {reports[epoch]})

    def _refine(
        self, best: tuple[list[Fraction], Fraction], epoch: int
    ) -> tuple[list[Fraction], Fraction]:
        """Move a lie that is neither silence nor the truth by ever smaller steps."""
        step = Fraction(1, 16)
        while step >= _FINEST and 0 < best[0][epoch] < self._truth[epoch]:
            here = best[0][epoch]
            for claim in (here * (1 - step), min(self._truth[epoch], here * (1 + step))):
                best = self.better(best, [*best[0][:epoch], claim, *best[0][epoch + 1 :]])
            step /= 2
        return best
