"""What another policy would make of the same users: its order, and who would have got what.

A shadow follows a pool and decides nothing. It owes its users what its own policy says, for what
they really hold.
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
"""In which what a run gives is given again; of more gifts several are one part."""
MOST_OTHERS = 64
"""Who would have got what one user holds, by name: those who would have got most of it. Of what
others would have had of it, what was so until then counts, not what comes."""
_LEAST_SCALE = 1e-6
"""Below, what remains of former gifts is reckoned anew."""

User = TypeVar("User", bound=Hashable)


@dataclass(slots=True)
class _Kept(Generic[User]):
    """What a user holds that others would have got. In use since `at`."""

    at: float
    scale: float = 1.0
    """What is left of each gift, as gifts are given back."""
    area: float = 0.0
    """∫ scale dt"""
    parts: dict[User, tuple[float, float]] = field(default_factory=dict)
    """Who would have got it → share at scale 1, and that × the area when it was given."""
    rest: tuple[float, float] = (0.0, 0.0)
    """Likewise of all those together who are not named, or gone."""

    def advance(self, now: float) -> None:
        self.area += self.scale * max(now - self.at, 0.0)
        self.at = max(now, self.at)

    def seconds(self, now: float) -> Iterable[tuple[User | None, float]]:
        """Go through who would have had it, with share × seconds until an instant.

        None stands for all who are not named.
        """
        area = self.area + self.scale * max(now - self.at, 0.0)
        for user, (share, before) in self.parts.items():
            yield user, share * area - before
        share, before = self.rest
        yield None, share * area - before

    def unname(self, user: User) -> float:
        """Have somebody who would have got some of it be one of those who are not named.

        Returns:
            Share × seconds it would have had until `at`, which do not count here any more.
        """
        share, before = self.parts.pop(user)
        rest, before_rest = self.rest
        self.rest = rest + share, before_rest + share * self.area
        return share * self.area - before


class Claims(Generic[User]):
    """Who would have had what for how long: share of the cluster × seconds.

    What comes back from a user is taken from all that others would have got of it in proportion.
    A gift and a return cost O(1), but for what is reckoned anew. Memory is O(users · MOST_OTHERS):
    who is gone has no name here, and of what one user holds only so many others have one.
    """

    def __init__(self) -> None:
        self._kept: dict[User, _Kept[User]] = {}
        self._seconds: dict[User, float] = {}

    def give(self, user: User, other: User, share: float, now: float) -> None:
        """Note that a user got a share of the cluster that another would have got."""
        kept = self._kept.setdefault(user, _Kept(now))
        kept.advance(now)
        before, area = kept.parts.get(other, (0.0, 0.0))
        more = share / kept.scale
        kept.parts[other] = before + more, area + more * kept.area
        if len(kept.parts) >= 2 * MOST_OTHERS:
            for each in sorted(kept.parts, key=lambda name: -kept.parts[name][0])[MOST_OTHERS:]:
                _add(self._seconds, user, [(each, kept.unname(each))])

    def keep(self, user: User, fraction: float, now: float) -> None:
        """Note that of what a user holds it keeps a fraction."""
        kept = self._kept.get(user)
        if kept is None:
            return
        kept.advance(now)
        kept.scale *= fraction
        if kept.scale < _LEAST_SCALE:
            _add(self._seconds, user, kept.seconds(now))
            del self._kept[user]

    def gaining(self, now: Callable[[], float]) -> Generator[None, None, dict[User, float]]:
        """Return what users would have had more than they had; less: negative.

        Where this yields something may be given or kept: what a user holds is looked at all at
        once, until the instant it is then.
        """
        sums = dict(self._seconds)
        for user, kept in list(self._kept.items()):  # also if it has ceased to count by then
            _add(sums, user, kept.seconds(now()))
            yield
        return sums

    def forget(self, gone: Collection[User], now: float) -> None:
        """Forget users that are gone. O(users)."""
        for user in gone:
            self.keep(user, 0.0, now)
        for user, kept in self._kept.items():
            for other in kept.parts.keys() & gone:
                _add(self._seconds, user, [(other, kept.unname(other))])
        for user in gone:
            self._seconds.pop(user, None)


class Shadow(Generic[User]):
    """Keeps the users of a pool in the order of another policy.

    To follow a run costs what ranking costs under that policy, for each gift, at most `MOST_PARTS`
    times; anything else what it cost the pool. When something is followed makes no difference,
    except to policies that count tasks: they look at the pool's machines as they are then.

    Args:
        policy: Its own.
        pool: Whose users it begins with, and what they owe now.
    """

    def __init__(self, policy: Policy, pool: Pool[User]) -> None:
        self.policy = policy
        self._wanting = set[User]()
        """Users that want offers, with those that are passed over."""
        self._passed_over: frozenset[User] = frozenset()
        self._claims: Claims[User] = Claims()
        self._pool = self._copy(pool, None)

    @property
    def pool(self) -> Pool[User]:
        """Users as this policy sees them."""
        return self._pool

    def gaining(self) -> Generator[None, None, dict[User, float]]:
        """Return share of the cluster × seconds that users would have had more, or less.

        Something may be followed wherever this yields.
        """
        return self._claims.gaining(lambda: self._pool.now)

    def attach(self, pool: Pool[User]) -> None:
        """Follow another pool from now on, that has taken the place of the one before."""
        self._passed_over = frozenset()
        own = self._copy(pool, self._pool)
        former, self._pool = self._pool, own
        for user in former.users():
            if user in own:
                self._note_kept(user, former.held(user), pool.held(user))
        self._claims.forget({user for user in former.users() if user not in own}, pool.now)

    def pass_over(self, users: frozenset[User]) -> None:
        """Give nothing to these users from now on, though they want offers; to all others again."""
        own, before = self._pool, self._passed_over
        self._passed_over = users
        for user in before ^ users:
            if user in own:
                own.set_active(user, user in self._wanting and user not in users)

    def follow(self, deeds: Iterable[Deed]) -> None:
        """Do what has been done to the pool that is followed, in order.

        A deed `Shadow.pass_over` is done to the shadow.
        """
        own = self._pool
        for now, do, arguments in deeds:
            own.advance(now)
            if do is Shadow.pass_over:
                self.pass_over(*arguments)
                continue
            if do is Pool.set_active:
                user, active = arguments
                (self._wanting.add if active else self._wanting.discard)(user)
                if user in self._passed_over:
                    continue
            if do is Pool.hold:
                user, held, _ = arguments
                self._note_kept(user, own.held(user), held)
            elif do is Pool.remove:
                self._claims.forget({arguments[0]}, now)
                self._wanting.discard(arguments[0])
            do(own, *arguments)

    def follow_run(self, deeds: Sequence[Deed]) -> None:
        """Do what a run has done, and reckon to whom this policy would have given it."""
        own = self._pool
        holding = {each[0]: each[1:] for _, do, each in deeds if do is Pool.hold}
        gifts: dict[User, Quantities] = {}
        times = 0
        for user, (held, count) in holding.items():
            before, gifts_before = own.holding(user)
            if held.contains(before):
                gift = held - before
                if gift:
                    gifts[user] = gift
                    times += max(count - gifts_before, 1)
        if gifts and own.active:
            own.advance(deeds[0][0])
            self._reckon(gifts, min(times, MOST_PARTS))
        self.follow(deeds)

    def _reckon(self, gifts: Mapping[User, Quantities], parts: int) -> None:
        """Give the same again, part by part, to who is next; then note who got what of whom."""
        own = self._pool
        whole = sum(gifts.values(), start=Quantities())
        part = Quantities({name: amount // parts for name, amount in whole.items()})
        if not part:
            return
        given: Counter[User] = Counter()
        user = own.minimum()
        if parts == 1 and user in gifts:
            return  # who is next has got it
        for _ in range(parts - 1):
            given[user] += 1
            own.allocate(user, part, times=0)
            user = own.minimum()
        for taker, number in given.items():
            own.release(taker, part.times(number))
        given[user] += 1
        got = {taker: self._share(gift) for taker, gift in gifts.items()}
        all_got = sum(got.values())
        would = {winner: all_got * number / parts for winner, number in given.items()}
        more = {winner: its - got.get(winner, 0.0) for winner, its in would.items()}
        more = {winner: its for winner, its in more.items() if its > 0.0}
        all_more = sum(more.values())
        for loser, had in got.items():
            less = had - would.get(loser, 0.0)
            if less > 0.0 and all_more > 0.0:
                for winner, its in more.items():
                    self._claims.give(loser, winner, less * its / all_more, own.now)

    def _note_kept(self, user: User, before: Quantities, after: Quantities) -> None:
        """Note how much of what a user held it holds still."""
        if after.contains(before):
            return
        had, has = self._share(before), self._share(after)
        if has < had:
            self._claims.keep(user, has / had, self._pool.now)

    def _share(self, quantities: Quantities) -> float:
        parts = quantities.shares(self._pool.capacity)
        for name in self._pool.excluded:
            parts.pop(name, None)
        return max(parts.values(), default=0.0)

    def _copy(self, pool: Pool[User], former: Pool[User] | None) -> Pool[User]:
        """Return a pool like another, in which users owe what they owed in a former one."""
        own: Pool[User] = Pool(
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
            owing = (former if former is not None and user in former else pool).standing(user)
            own.add(user, weight=account.weight)
            own.set_commitment(user, owing.commitments, others=owing.inherited)
            own.allocate(user, account.allocation, times=account.count)
            own.set_demand(user, account.demand)
            own.set_active(user, account.active)
        if pool.counts_for < math.inf:
            accounts = pool.accounts()
            own.set_counted(
                pool.counted, {user: account.counted for user, account in accounts.items()}
            )
        self._wanting = {user for user, account in pool.accounts().items() if account.active}
        return own


def _add(sums: dict[User, float], user: User, seconds: Iterable[tuple[User | None, float]]) -> None:
    """Add what others would have had of what a user had."""
    all_seconds = 0.0
    for other, each in seconds:
        if other is not None:
            sums[other] = sums.get(other, 0.0) + each
        all_seconds += each
    if all_seconds:
        sums[user] = sums.get(user, 0.0) - all_seconds
