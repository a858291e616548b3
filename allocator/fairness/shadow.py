"""Shadow pools: the order and the allocations that another policy would give the same users.

A shadow repeats the changes of a pool and decides nothing. Its users have the commitments of the
shadow's own policy, for their real allocations.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from allocator.fairness.policies.policy import Policy
from allocator.fairness.pool import Deed, Pool
from allocator.fairness.quantities import Quantities

MOST_PARTS = 64
"""Maximum number of parts in which the allocations of a cycle are repeated. With more allocations,
a part stands for several of them."""
MOST_OTHERS = 64
"""Number of claimants that are kept by name for one user's allocation: those with the largest
claims. The accrued claim of any other claimant is kept, but not its future claim."""
_LEAST_SCALE = 1e-6
"""Below this scale, accrued claims move to the totals, and the rest is dropped."""

User = TypeVar("User", bound=Hashable)


@dataclass(slots=True)
class _UserClaims(Generic[User]):
    """Claims of other users on one user's allocation, accrued up to `at`."""

    at: float
    scale: float = 1.0
    """Remaining fraction of each claim; it falls as the user's allocation is released."""
    area: float = 0.0
    """∫ scale dt"""
    named: dict[User, tuple[float, float]] = field(default_factory=dict)
    """Claimant → share of the cluster at scale 1, and this share × the area at the time of
    allocation."""
    unnamed: tuple[float, float] = (0.0, 0.0)
    """The same two sums for all claimants without a name here."""

    def advance(self, now: float) -> None:
        """Accrue the claims up to a time in seconds."""
        self.area += self.scale * max(now - self.at, 0.0)
        self.at = max(now, self.at)

    def seconds(self, now: float) -> Iterable[tuple[User | None, float]]:
        """Yield each claimant and its claim up to a time, in share × seconds.

        The claimant None stands for all claimants without a name.
        """
        area = self.area + self.scale * max(now - self.at, 0.0)
        for user, (share, earlier) in self.named.items():
            yield user, share * area - earlier
        share, earlier = self.unnamed
        yield None, share * area - earlier

    def unname(self, user: User) -> float:
        """Merge a named claimant into the claimants without a name.

        Returns:
            The claimant's claim up to `at`, in share × seconds; it no longer counts here.
        """
        share, earlier = self.named.pop(user)
        unnamed_share, unnamed_earlier = self.unnamed
        self.unnamed = unnamed_share + share, unnamed_earlier + share * self.area
        return share * self.area - earlier


class Claims(Generic[User]):
    """Claims: the resources that users would have had under another policy, in share × seconds.

    A release by a user reduces all claims on its allocation in proportion. An allocation or a
    release costs O(1), except when claims move to the totals. Memory is O(users · MOST_OTHERS):
    removed users have no name here, and the claimants by name on one user's allocation are limited.
    """

    def __init__(self) -> None:
        self._claims_by_user: dict[User, _UserClaims[User]] = {}
        self._seconds: dict[User, float] = {}

    def give(self, user: User, other: User, share: float, now: float) -> None:
        """Record that a user was allocated a share that another user would have got.

        Args:
            user: The user with the real allocation.
            other: The user that gets a claim.
            share: Fraction of the cluster.
            now: The time in seconds.
        """
        claims = self._claims_by_user.setdefault(user, _UserClaims(now))
        claims.advance(now)
        claimed, area = claims.named.get(other, (0.0, 0.0))
        claim = share / claims.scale
        claims.named[other] = claimed + claim, area + claim * claims.area
        if len(claims.named) >= 2 * MOST_OTHERS:
            for claimant in sorted(claims.named, key=lambda name: -claims.named[name][0])[
                MOST_OTHERS:
            ]:
                _add_claims(self._seconds, user, [(claimant, claims.unname(claimant))])

    def keep(self, user: User, fraction: float, now: float) -> None:
        """Record that a user keeps only a fraction of its allocation."""
        claims = self._claims_by_user.get(user)
        if claims is None:
            return
        claims.advance(now)
        claims.scale *= fraction
        if claims.scale < _LEAST_SCALE:
            _add_claims(self._seconds, user, claims.seconds(now))
            del self._claims_by_user[user]

    def gaining(self, now: Callable[[], float]) -> Generator[None, None, dict[User, float]]:
        """Generator: return share × seconds that users would have had more; negative: less.

        The caller may call `give` or `keep` between steps. The claims on one user's allocation are
        read at once, up to the time of that step.
        """
        sums = dict(self._seconds)
        for user, claims in list(
            self._claims_by_user.items()
        ):  # includes entries removed meanwhile
            _add_claims(sums, user, claims.seconds(now()))
            yield
        return sums

    def forget(self, gone: Collection[User], now: float) -> None:
        """Forget users that have been removed. O(users)."""
        for user in gone:
            self.keep(user, 0.0, now)
        for user, claims in self._claims_by_user.items():
            for claimant in claims.named.keys() & gone:
                _add_claims(self._seconds, user, [(claimant, claims.unname(claimant))])
        for user in gone:
            self._seconds.pop(user, None)


class Shadow(Generic[User]):
    """Keeps the users of a pool in the order of another policy.

    For each allocation cycle, the shadow also computes which users this policy would have served.
    The differences from the real allocations are recorded as claims.

    To follow an allocation cycle costs the ranking of each allocation under the policy, at most
    `MOST_PARTS` times. Any other change costs as much as it cost the pool. The result does not
    depend on when changes are followed, except for policies that count tasks: these read the pool's
    machines at that time.

    Args:
        policy: The shadow's own policy.
        pool: The pool whose users and present commitments the shadow copies.
    """

    def __init__(self, policy: Policy, pool: Pool[User]) -> None:
        self.policy = policy
        self._wanting = set[User]()
        """Users that want offers, including users that are passed over."""
        self._passed_over: frozenset[User] = frozenset()
        self._claims: Claims[User] = Claims()
        self._pool = self._copy(pool, None)

    @property
    def pool(self) -> Pool[User]:
        """The users as this policy ranks them."""
        return self._pool

    def gaining(self) -> Generator[None, None, dict[User, float]]:
        """Generator: return share × seconds that users would have had more; negative: less.

        The caller may follow changes between steps.
        """
        return self._claims.gaining(lambda: self._pool.now)

    def attach(self, pool: Pool[User]) -> None:
        """Follow a new pool, which has replaced the pool followed before."""
        self._passed_over = frozenset()
        copied = self._copy(pool, self._pool)
        former, self._pool = self._pool, copied
        for user in former.users():
            if user in copied:
                self._record_release(user, former.held(user), pool.held(user))
        self._claims.forget({user for user in former.users() if user not in copied}, pool.now)

    def pass_over(self, users: frozenset[User]) -> None:
        """Set the users that get no allocations from now on, although they want offers."""
        pool, former = self._pool, self._passed_over
        self._passed_over = users
        for user in former ^ users:
            if user in pool:
                pool.set_active(user, user in self._wanting and user not in users)

    def follow(self, entries: Iterable[Deed]) -> None:
        """Repeat the changes of the followed pool, in order.

        An entry with `Shadow.pass_over` concerns the shadow itself.
        """
        pool = self._pool
        for now, method, arguments in entries:
            pool.advance(now)
            if method is Shadow.pass_over:
                self.pass_over(*arguments)
                continue
            if method is Pool.set_active:
                user, active = arguments
                (self._wanting.add if active else self._wanting.discard)(user)
                if user in self._passed_over:
                    continue
            if method is Pool.hold:
                user, held, _ = arguments
                self._record_release(user, pool.held(user), held)
            elif method is Pool.remove:
                self._claims.forget({arguments[0]}, now)
                self._wanting.discard(arguments[0])
            method(pool, *arguments)

    def follow_run(self, entries: Sequence[Deed]) -> None:
        """Repeat the changes of an allocation cycle, and compute this policy's allocations."""
        pool = self._pool
        holding = {
            arguments[0]: arguments[1:] for _, method, arguments in entries if method is Pool.hold
        }
        allocations: dict[User, Quantities] = {}
        count_sum = 0
        for user, (held, count) in holding.items():
            earlier, earlier_count = pool.holding(user)
            if held.contains(earlier):
                allocation = held - earlier
                if allocation:
                    allocations[user] = allocation
                    count_sum += max(count - earlier_count, 1)
        if allocations and pool.active:
            pool.advance(entries[0][0])
            self._compute_claims(allocations, min(count_sum, MOST_PARTS))
        self.follow(entries)

    def _compute_claims(self, allocations: Mapping[User, Quantities], parts: int) -> None:
        """Allocate the cycle's total part by part to the first user, and record claims."""
        pool = self._pool
        whole = sum(allocations.values(), start=Quantities())
        part = Quantities({name: amount // parts for name, amount in whole.items()})
        if not part:
            return
        wins: Counter[User] = Counter()
        user = pool.minimum()
        if parts == 1 and user in allocations:
            return  # both policies allocate to the same user
        for _ in range(parts - 1):
            wins[user] += 1
            pool.allocate(user, part, times=0)
            user = pool.minimum()
        for winner, parts_won in wins.items():
            pool.release(winner, part.times(parts_won))
        wins[user] += 1
        real = {recipient: self._share(quantities) for recipient, quantities in allocations.items()}
        total = sum(real.values())
        hypothetical = {winner: total * parts_won / parts for winner, parts_won in wins.items()}
        gains = {winner: amount - real.get(winner, 0.0) for winner, amount in hypothetical.items()}
        gains = {winner: amount for winner, amount in gains.items() if amount > 0.0}
        total_gain = sum(gains.values())
        for loser, share in real.items():
            loss = share - hypothetical.get(loser, 0.0)
            if loss > 0.0 and total_gain > 0.0:
                for winner, amount in gains.items():
                    self._claims.give(loser, winner, loss * amount / total_gain, pool.now)

    def _record_release(self, user: User, earlier: Quantities, present: Quantities) -> None:
        """Record which fraction of a user's earlier allocation remains."""
        if present.contains(earlier):
            return
        earlier_share, present_share = self._share(earlier), self._share(present)
        if present_share < earlier_share:
            self._claims.keep(user, present_share / earlier_share, self._pool.now)

    def _share(self, quantities: Quantities) -> float:
        """Return the dominant share of quantities."""
        parts = quantities.shares(self._pool.capacity)
        for name in self._pool.excluded:
            parts.pop(name, None)
        return max(parts.values(), default=0.0)

    def _copy(self, pool: Pool[User], former: Pool[User] | None) -> Pool[User]:
        """Return a copy of a pool, with commitments from a former pool if it is given."""
        copied: Pool[User] = Pool(
            self.policy,
            now=pool.now,
            capacity=pool.capacity,
            excluded=pool.excluded,
            machines=pool.machines,
            counts_for=pool.counts_for,
        )
        if former is not None:
            former.advance(pool.now)
        for user, account in pool.accounts().items():
            standing = (former if former is not None and user in former else pool).standing(user)
            copied.add(user, weight=account.weight)
            copied.set_commitment(user, standing.commitments, others=standing.inherited)
            copied.allocate(user, account.allocation, times=account.count)
            copied.set_demand(user, account.demand)
            copied.set_active(user, account.active)
        if pool.counts_for < math.inf:
            accounts = pool.accounts()
            copied.set_counted(
                pool.counted, {user: account.counted for user, account in accounts.items()}
            )
        self._wanting = {user for user, account in pool.accounts().items() if account.active}
        return copied


def _add_claims(
    sums: dict[User, float], user: User, seconds: Iterable[tuple[User | None, float]]
) -> None:
    """Add claims on a user's allocation to the claimants, and subtract the sum from the user."""
    total = 0.0
    for claimant, claim in seconds:
        if claimant is not None:
            sums[claimant] = sums.get(claimant, 0.0) + claim
        total += claim
    if total:
        sums[user] = sums.get(user, 0.0) - total
