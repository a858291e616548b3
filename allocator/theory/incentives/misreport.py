"""The search for the best lie: how much a user can gain by claiming other demands than it has."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from allocator.theory.incentives.mechanism import play
from allocator.theory.incentives.profile import Profile, ProfileUser

_ZERO = Fraction(0)
_PARTS = [Fraction(k, 8) for k in range(8)]
"""Of what a user gets, in what it may claim instead."""
_FINEST = Fraction(1, 128)
"""Of a demand, in the last steps."""
_ROUNDS = 20
"""Through all epochs; a search that still gains after that is cut short."""


@dataclass(frozen=True, slots=True)
class Lie:
    """The best that was found for a user, or for several who lie together."""

    truthful: Fraction
    """Utility over all epochs if everybody tells the truth; of several, the sum."""
    gained: Fraction
    """The same if they report this instead."""
    reports: dict[str, list[Fraction]]
    """By liar and epoch; the truth if no lie is better."""
    bound: Fraction | None
    """No lie multiplies their utility by more; None: no bound is known."""

    @property
    def ratio(self) -> Fraction:
        """How many times their utility: 1 if no lie is better."""
        return self.gained / self.truthful if self.truthful else Fraction(1)


def bound(profile: Profile, liars: Sequence[ProfileUser]) -> Fraction | None:
    """Return the proved limit of what a lie can multiply utility by.

    With one resource, of which all need the same for a unit of allocation: 2 for several together,
    and 1 + max wᵢ / (wᵢ + wⱼ) over others j for one (Theorem 5.3, whose formula the text that we
    have has lost; docs/optimum.md derives it), so 3/2 with equal weights (Theorem 3.6). Else for
    one 1 + ρ, where ρ is the largest aᵢq wᵢ / (aⱼq wⱼ) (Theorem 4.6). None if a user needs nothing
    of a resource, for then there is no bound that all numbers of resources share (Theorem B.1).
    """
    resources = {r for e in profile.epochs for u in profile.users for r in profile.ratios(u, e)}
    shapes = [[profile.ratios(user, epoch) for user in profile.users] for epoch in profile.epochs]
    if any(set(shape) != resources for epoch in shapes for shape in epoch):
        return None
    alike = all(shape == epoch[0] for epoch in shapes for shape in epoch)
    if len(liars) > 1:
        return Fraction(2) if alike and len(resources) == 1 else None
    (liar,) = liars
    others = [user for user in profile.users if user.name != liar.name]
    if alike and len(resources) == 1:
        parts = [liar.weight / (liar.weight + other.weight) for other in others]
    else:
        parts = [
            profile.ratios(liar, epoch)[r]
            * liar.weight
            / (profile.ratios(other, epoch)[r] * other.weight)
            for epoch in profile.epochs
            for other in others
            for r in resources
        ]
    return 1 + max(parts, default=_ZERO)


def best_lie(
    profile: Profile, liars: Sequence[ProfileUser], watch: Callable[[], None] = lambda: None
) -> Lie:
    """Search reports that serve one user best, or several together, while others tell the truth.

    What is found can be had; a better lie may exist. First each claims nothing in spans of epochs
    in which it gets something, then all climb, epoch by epoch, in steps that get finer. Claims
    above the truth are tried only where there is no bound: elsewhere they cannot help
    (Theorems 3.5, 4.4 and 5.2).

    Args:
        profile: The game.
        liars: Who lies; several add up their utilities (Section 5.1).
        watch: Called after each game that was played.
    """
    search = _Search(profile, liars, watch)
    best = search.truth()
    for liar in liars:
        busy = [t for t, amount in enumerate(best.useful[liar.name]) if amount]
        for first in range(len(busy)):
            for last in range(first, len(busy)):
                silent = dict.fromkeys(busy[first : last + 1], _ZERO)
                best = search.better(best, liar.name, silent)
    limit = bound(profile, liars)
    truthful = search.truth().total
    best = search.climb(best, over=limit is None)
    return Lie(truthful, best.total, best.reports, limit)


@dataclass(frozen=True, slots=True)
class _Told:
    reports: dict[str, list[Fraction]]
    """By liar and epoch."""
    useful: dict[str, list[Fraction]]
    """What they get of it that is of use."""

    @property
    def total(self) -> Fraction:
        return sum((sum(amounts, _ZERO) for amounts in self.useful.values()), _ZERO)


class _Search:
    def __init__(
        self, profile: Profile, liars: Sequence[ProfileUser], watch: Callable[[], None]
    ) -> None:
        self._profile = profile
        self._truth = {liar.name: profile.demands(liar) for liar in liars}
        self._watch = watch

    def truth(self) -> _Told:
        return self._tell(self._truth)

    def better(self, best: _Told, liar: str, changes: Mapping[int, Fraction]) -> _Told:
        """Return the better of what is known, and that with other claims in some epochs."""
        claims = [changes.get(t, claim) for t, claim in enumerate(best.reports[liar])]
        told = self._tell({**best.reports, liar: claims})
        return told if told.total > best.total else best

    def climb(self, best: _Told, *, over: bool) -> _Told:
        """Change one report after the other as long as that helps."""
        for _ in range(_ROUNDS):
            before = best.total
            for liar, truth in self._truth.items():
                for epoch in range(len(truth)):
                    for claim in self._claims(best, liar, epoch, over=over):
                        best = self.better(best, liar, {epoch: claim})
                    best = self._refine(best, liar, epoch)
            if best.total == before:
                break
        return best

    def _tell(self, reports: dict[str, list[Fraction]]) -> _Told:
        allocated = play(self._profile, reports)
        self._watch()
        return _Told(
            reports,
            {
                liar: [min(got, wants) for got, wants in zip(allocated[liar], truth, strict=True)]
                for liar, truth in self._truth.items()
            },
        )

    def _claims(self, best: _Told, liar: str, epoch: int, *, over: bool) -> Iterable[Fraction]:
        truth = self._truth[liar][epoch]
        claims = {truth} | {best.useful[liar][epoch] * part for part in _PARTS}
        if over:
            capacity = self._profile.epochs[epoch].capacity
            claims |= {capacity * part for part in _PARTS if capacity * part > truth}
            claims.add(capacity)
        return sorted(claims - {best.reports[liar][epoch]})

    def _refine(self, best: _Told, liar: str, epoch: int) -> _Told:
        """Move a lie that is neither silence nor the truth by ever smaller steps."""
        step, truth = Fraction(1, 16), self._truth[liar][epoch]
        while step >= _FINEST and 0 < best.reports[liar][epoch] < truth:
            here = best.reports[liar][epoch]
            for claim in (here * (1 - step), min(truth, here * (1 + step))):
                best = self.better(best, liar, {epoch: claim})
            step /= 2
        return best
