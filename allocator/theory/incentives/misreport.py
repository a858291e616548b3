"""Searches for the false demands with which users gain most under Dynamic DRF."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from allocator.theory.incentives.mechanism import play
from allocator.theory.incentives.profile import Profile, ProfileUser

_ZERO = Fraction(0)
_PARTS = [Fraction(k, 8) for k in range(8)]
"""Fractions of a user's useful allocation that are tried as reported demands."""
_FINEST = Fraction(1, 128)
"""Smallest relative step by which a reported demand is refined."""
_ROUNDS = 20
"""Maximum number of passes through all epochs, even if the last pass still found a gain."""


@dataclass(frozen=True, slots=True)
class Lie:
    """The most profitable lie found, of one user or of several users that lie together."""

    truthful: Fraction
    """Sum of the liars' utilities over all epochs if all users tell the truth."""
    gained: Fraction
    """Sum of the liars' utilities over all epochs with the lie."""
    reports: dict[str, list[Fraction]]
    """Reported demand in each epoch, by name of the liar; the truth if no lie is better."""
    bound: Fraction | None
    """Proved upper limit of `ratio`; None if no limit is known."""

    @property
    def ratio(self) -> Fraction:
        """Factor by which the lie multiplies the liars' utility; 1 if no lie is better."""
        return self.gained / self.truthful if self.truthful else Fraction(1)


def bound(profile: Profile, liars: Sequence[ProfileUser]) -> Fraction | None:
    """Return a proved upper bound of the factor by which a lie could multiply the liars' utility.

    Weights are wᵢ; aᵢq is the amount of resource q that a unit of allocation of user i needs.
    Theorems are those of "Incentives in Dominant Resource Fair Allocation under Dynamic Demands".

    * One resource, with equal ratios for all users, and several liars together: 2.
    * One resource, with equal ratios, and one liar i: 1 + max wᵢ / (wᵢ + wⱼ) over the other users j
      (Theorem 5.3), so 3/2 with equal weights (Theorem 3.6). Our copy of the paper lacks the
      formula of Theorem 5.3, which is derived below.
    * Otherwise, one liar i: 1 + ρ, where ρ is the largest aᵢq wᵢ / (aⱼq wⱼ) over all resources q
      and other users j (Theorem 4.6).

    Derivation of Theorem 5.3. Fix a lie that claims less. Let Rᵢ be the truthful total of user i,
    and R'ᵢ its total with the lie. Let D be the sum of all positive R' − R. D grows only in epochs
    with a lie, by at most the liars' truthful allocation (Lemmas 3.4, C.2). So D ≤ R, the liars'
    truthful total, and several liars get at most 2R. Let one liar i lead by g > 0. In the last
    epoch in which i got more than with the truth, some user j got less, although both wanted more.
    Hence R'ᵢ/wᵢ ≤ R'ⱼ/wⱼ and Rⱼ/wⱼ ≤ Rᵢ/wᵢ (Lemmas 3.3, C.1), so j leads by at least g wⱼ/wᵢ.
    From g(1 + wⱼ/wᵢ) ≤ D ≤ Rᵢ follows g ≤ Rᵢ wᵢ/(wᵢ + wⱼ).

    Args:
        profile: The users' demands in all epochs.
        liars: The users that lie together.

    Returns:
        The factor. None if a user needs nothing of a resource, because then no bound holds for all
        numbers of resources (Theorem B.1). Also None for several liars if there are several
        resources or ratios differ.
    """
    resources = {
        resource
        for epoch in profile.epochs
        for user in profile.users
        for resource in profile.ratios(user, epoch)
    }
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
            profile.ratios(liar, epoch)[resource]
            * liar.weight
            / (profile.ratios(other, epoch)[resource] * other.weight)
            for epoch in profile.epochs
            for other in others
            for resource in resources
        ]
    return 1 + max(parts, default=_ZERO)


def best_lie(
    profile: Profile, liars: Sequence[ProfileUser], watch: Callable[[], None] = lambda: None
) -> Lie:
    """Search for the reports that gain the liars most, while all other users tell the truth.

    The gain found is achievable, but a better lie may exist. First, each liar reports no demand
    from one epoch to another, for all pairs of epochs. Then the report for each epoch is improved
    in decreasing steps.

    If `bound` gives a bound, reports above the true demand cannot help (Theorems 3.5, 4.4 and 5.2
    of the incentives paper). Such reports are tried only if there is no bound.

    Args:
        profile: The users' true demands in all epochs.
        liars: The users that lie; the search maximises the sum of their utilities (Section 5.1).
        watch: Called each time that a variant of the lie has been evaluated, for progress.
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
class _JudgedReports:
    reports: dict[str, list[Fraction]]
    """Reported demand in each epoch, by name of the liar."""
    useful: dict[str, list[Fraction]]
    """Useful part of the allocation in each epoch, by name of the liar."""

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

    def truth(self) -> _JudgedReports:
        return self._judge(self._truth)

    def better(
        self, best: _JudgedReports, liar: str, changes: Mapping[int, Fraction]
    ) -> _JudgedReports:
        """Evaluate a variant of the best lie, in which one liar reports other demands.

        Args:
            best: The best lie so far.
            liar: Name of the liar whose reports change.
            changes: The changed reports of the demand, by index of the epoch.

        Returns:
            The variant if it gains the liars more than `best`, else `best`.
        """
        claims = [changes.get(t, claim) for t, claim in enumerate(best.reports[liar])]
        judged = self._judge({**best.reports, liar: claims})
        return judged if judged.total > best.total else best

    def climb(self, best: _JudgedReports, *, over: bool) -> _JudgedReports:
        """Improve the lie by changing one report at a time, until no change increases the gain.

        Args:
            best: The lie from which the search starts.
            over: True to also try reports above the true demand.

        Returns:
            The best lie found.
        """
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

    def _judge(self, reports: dict[str, list[Fraction]]) -> _JudgedReports:
        allocated = play(self._profile, reports)
        self._watch()
        return _JudgedReports(
            reports,
            {
                liar: [
                    min(received, demand)
                    for received, demand in zip(allocated[liar], truth, strict=True)
                ]
                for liar, truth in self._truth.items()
            },
        )

    def _claims(
        self, best: _JudgedReports, liar: str, epoch: int, *, over: bool
    ) -> Iterable[Fraction]:
        truth = self._truth[liar][epoch]
        claims = {truth} | {best.useful[liar][epoch] * part for part in _PARTS}
        if over:
            capacity = self._profile.epochs[epoch].capacity
            claims |= {capacity * part for part in _PARTS if capacity * part > truth}
            claims.add(capacity)
        return sorted(claims - {best.reports[liar][epoch]})

    def _refine(self, best: _JudgedReports, liar: str, epoch: int) -> _JudgedReports:
        """Search for the best report between zero and the truth for one epoch, in decreasing steps.

        Args:
            best: The best lie so far.
            liar: Name of the liar whose report changes.
            epoch: Index of the epoch.

        Returns:
            The best lie found.
        """
        step, truth = Fraction(1, 16), self._truth[liar][epoch]
        while step >= _FINEST and 0 < best.reports[liar][epoch] < truth:
            current = best.reports[liar][epoch]
            for claim in (current * (1 - step), min(truth, current * (1 + step))):
                best = self.better(best, liar, {epoch: claim})
            step /= 2
        return best
