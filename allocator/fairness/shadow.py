"""Shadow pools: the order and the allocations that another policy would give the same users.

A shadow repeats the changes of a pool and decides nothing. From the real allocations, it computes
commitments under its own policy.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from allocator.fairness.policies.policy import Policy
from allocator.fairness.pool import JournalEntry, Pool
from allocator.fairness.quantities import Quantities

MOST_PARTS = 64
"""Maximum number of parts in which the allocations of a cycle are repeated. With more allocations,
one part combines several allocations."""
MOST_CLAIMANTS = 64
"""Maximum number of users with a named claim on one user's allocation: those with the largest
claims. Claims of other users count only up to the time at which they lose their names."""
_LEAST_SCALE = 1e-6
"""If a smaller fraction of an allocation remains, its claims are added to the totals and
deleted."""

User = TypeVar("User", bound=Hashable)


class _UserClaims(Generic[User]):
    """Claims on one user's allocation: the parts that other users would have under another policy.

    Args:
        at: Time in seconds up to which `area` is computed.
    """

    __slots__ = ("area", "at", "named", "scale", "unnamed")

    def __init__(self, at: float) -> None:
        self.at = at
        self.scale = 1.0
        """Remaining fraction of each claim; it falls as the user's allocation is released."""
        self.area = 0.0
        """Integral of `scale` over time, in seconds."""
        self.named: dict[User, tuple[float, float]] = {}
        """Claimant → (share of the cluster at scale 1, this share × `area` at the time of
        allocation). So the claim in share × seconds is share × present area − second number."""
        self.unnamed = (0.0, 0.0)
        """The sums of both numbers for all claimants that `named` does not contain."""

    def advance(self, now: float) -> None:
        """Continue the integral `area` of `scale` to a time in seconds.

        Call this method before `scale`, the remaining fraction of each claim, changes.
        """
        self.area += self.scale * max(now - self.at, 0.0)
        self.at = max(now, self.at)

    def seconds(self, now: float) -> Iterable[tuple[User | None, float]]:
        """Yield each claimant with its claim up to a time in seconds, in share × seconds.

        The claimant None stands for all claimants that `named` does not contain.
        """
        area = self.area + self.scale * max(now - self.at, 0.0)
        for user, (share, earlier) in self.named.items():
            yield user, share * area - earlier
        share, earlier = self.unnamed
        yield None, share * area - earlier

    def unname(self, user: User) -> float:
        """Stop storing a claimant's claim separately: add it to the sum `unnamed`, to limit memory.

        Returns:
            The claim up to the time `at`, in share × seconds. The caller must credit it to the
            claimant now, because the sum does not tell which claimants it consists of.
        """
        share, earlier = self.named.pop(user)
        unnamed_share, unnamed_earlier = self.unnamed
        self.unnamed = unnamed_share + share, unnamed_earlier + share * self.area
        return share * self.area - earlier


class Claims(Generic[User]):
    """Counts how much more or less each user would have had under another policy.

    If a user is allocated resources that the other policy would have given to another user, this
    other user gets a *claim* on the allocation. A claim grows while the allocation is held, in
    share × seconds. A release reduces all claims on the allocation in proportion.

    Most changes cost O(1). Memory is O(users · MOST_OTHERS), because the number of claimants on one
    user's allocation that are stored by name is limited.
    """

    def __init__(self) -> None:
        self._claims_by_user: dict[User, _UserClaims[User]] = {}
        self._seconds: dict[User, float] = {}

    def give(self, user: User, other: User, share: float, now: float) -> None:
        """Record that a user was allocated a share that the other policy gives to another user.

        Args:
            user: The user with the real allocation.
            other: The user that gets a claim on it.
            share: The share, as a fraction of the cluster.
            now: The time in seconds.
        """
        claims = self._claims_by_user.setdefault(user, _UserClaims(now))
        claims.advance(now)
        claimed, area = claims.named.get(other, (0.0, 0.0))
        claim = share / claims.scale
        claims.named[other] = claimed + claim, area + claim * claims.area
        if len(claims.named) >= 2 * MOST_CLAIMANTS:
            for claimant in sorted(claims.named, key=lambda name: -claims.named[name][0])[
                MOST_CLAIMANTS:
            ]:
                _add_claims(self._seconds, user, [(claimant, claims.unname(claimant))])

    def keep(self, user: User, fraction: float, now: float) -> None:
        """Reduce all claims on a user's allocation after a release of a part of it.

        Args:
            user: The user that released a part of its allocation.
            fraction: The fraction of the allocation that remains, from 0 to 1.
            now: The time in seconds.
        """
        claims = self._claims_by_user.get(user)
        if claims is None:
            return
        claims.advance(now)
        claims.scale *= fraction
        if claims.scale < _LEAST_SCALE:
            _add_claims(self._seconds, user, claims.seconds(now))
            del self._claims_by_user[user]

    def gains_in_steps(self, now: Callable[[], float]) -> Generator[None, None, dict[User, float]]:
        """Compute in steps how much more each user would have had under the other policy.

        The generator yields between users, so that the event loop can do other work, which may call
        `give` and `keep`. The claims on one user's allocation are read in one step, up to the time
        of that step.

        Args:
            now: Returns the present time in seconds.

        Returns:
            Share × seconds by user; negative for a user that would have had less.
        """
        sums = dict(self._seconds)
        for user, claims in list(
            self._claims_by_user.items()
        ):  # includes entries removed meanwhile
            _add_claims(sums, user, claims.seconds(now()))
            yield
        return sums

    def forget(self, gone: Collection[User], now: float) -> None:
        """Remove users and their claims. Claims on their allocations stop growing. O(users).

        Args:
            gone: The users to remove.
            now: The time in seconds.
        """
        for user in gone:
            self.keep(user, 0.0, now)
        for user, claims in self._claims_by_user.items():
            for claimant in claims.named.keys() & gone:
                _add_claims(self._seconds, user, [(claimant, claims.unname(claimant))])
        for user in gone:
            self._seconds.pop(user, None)


class Shadow(Generic[User]):
    """Follows a pool, and shows how another policy (the shadow policy) would rank its users.

    For each allocation cycle, the shadow also computes to which users its policy would have
    allocated the resources. The differences from the real allocations are recorded as claims. The
    shadow never changes the pool.

    Following a cycle ranks at most `MOST_PARTS` allocations. Any other change costs as much as it
    cost the pool. Changes can be followed later without a different result. The exception are
    policies that count tasks, because they read the machines when the change is followed.

    Args:
        policy: The shadow's own policy.
        pool: The pool whose users and present commitments the shadow copies.
    """

    def __init__(self, policy: Policy, pool: Pool[User]) -> None:
        self.policy = policy
        self._wanting = set[User]()
        """Active users of the followed pool, including users that are passed over."""
        self._passed_over: frozenset[User] = frozenset()
        self._claims: Claims[User] = Claims()
        self._pool = self._copy(pool, None)

    @property
    def pool(self) -> Pool[User]:
        """The shadow's own pool, which ranks the users by the shadow policy."""
        return self._pool

    def gains_in_steps(self) -> Generator[None, None, dict[User, float]]:
        """Compute in steps how much more each user would have had under the shadow policy.

        The generator yields between users, so that the event loop can do other work, which may call
        `follow`.

        Returns:
            Share × seconds by user; negative for a user that would have had less.
        """
        return self._claims.gains_in_steps(lambda: self._pool.now)

    def attach(self, pool: Pool[User]) -> None:
        """Follow a new pool that has replaced the followed pool, and keep the commitments."""
        self._passed_over = frozenset()
        copied = self._copy(pool, self._pool)
        former, self._pool = self._pool, copied
        for user in former.users():
            if user in copied:
                self._record_release(user, former.held(user), pool.held(user))
        self._claims.forget({user for user in former.users() if user not in copied}, pool.now)

    def pass_over(self, users: frozenset[User]) -> None:
        """Set the users to which this shadow must not allocate, although they want offers.

        These users are inactive in the shadow's pool, until a later call leaves them out.
        """
        pool, former = self._pool, self._passed_over
        self._passed_over = users
        for user in former ^ users:
            if user in pool:
                pool.set_active(user, user in self._wanting and user not in users)

    def follow(self, entries: Iterable[JournalEntry]) -> None:
        """Repeat recorded changes of the followed pool in the shadow's own pool, in order.

        An entry is a time, a method and its arguments. The method is one of `Pool`, or
        `Shadow.pass_over`, which is called on the shadow instead of its pool.

        Args:
            entries: Entries of the pool's journal.
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

    def follow_cycle(self, entries: Sequence[JournalEntry]) -> None:
        """Repeat the changes of one allocation cycle, and compute this policy's allocations.

        Args:
            entries: Entries of the pool's journal from this cycle.
        """
        pool = self._pool
        holding = {
            arguments[0]: arguments[1:] for _, method, arguments in entries if method is Pool.hold
        }
        allocations: dict[User, Quantities] = {}
        count_sum = 0
        for user, (held, count) in holding.items():
            # a user that the cycle itself adds has held nothing before
            earlier, earlier_count = pool.holding(user) if user in pool else (Quantities(), 0)
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
        """Allocate a cycle's resources by the shadow policy, and record differences as claims.

        The sum of the real allocations is divided into equal parts. Each part is allocated to the
        user that the shadow policy ranks first.

        Args:
            allocations: Real allocations of the cycle, by user.
            parts: Number of parts into which the sum is divided.
        """
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
        """Reduce the claims on a user's allocation after a release.

        Args:
            user: The user that released resources.
            earlier: Its allocation before the release.
            present: Its allocation after the release.
        """
        if present.contains(earlier):
            return
        earlier_share, present_share = self._share(earlier), self._share(present)
        if present_share < earlier_share:
            self._claims.keep(user, present_share / earlier_share, self._pool.now)

    def _share(self, quantities: Quantities) -> float:
        """Return the dominant share of some resources: their largest fraction of the capacity."""
        parts = quantities.shares(self._pool.capacity)
        for name in self._pool.excluded:
            parts.pop(name, None)
        return max(parts.values(), default=0.0)

    def _copy(self, pool: Pool[User], former: Pool[User] | None) -> Pool[User]:
        """Return a copy of a pool that ranks by the shadow's policy.

        Args:
            pool: The pool to copy.
            former: The shadow's previous pool, whose commitments the copy gets. None: the copy
                keeps the commitments of `pool`.
        """
        copied: Pool[User] = Pool(
            self.policy,
            now=pool.now,
            capacity=pool.capacity,
            excluded=pool.excluded,
            machines=pool.machines,
            counts_for=pool.counts_for,
            keeps_share_commitments=pool.keeps_share_commitments,
            compares_by_resource=pool.compares_by_resource,
            newcomers_by_use=pool.newcomers_by_use,
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
    """Add claims on a user's allocation to the claimants' sums, and subtract them from the user's.

    Args:
        sums: Share × seconds by user, which this function changes.
        user: The user with the allocation.
        seconds: Pairs of claimant and claim in share × seconds. Claims of the claimant None are
            only subtracted, because these claimants are not known by name.
    """
    total = 0.0
    for claimant, claim in seconds:
        if claimant is not None:
            sums[claimant] = sums.get(claimant, 0.0) + claim
        total += claim
    if total:
        sums[user] = sums.get(user, 0.0) - total
