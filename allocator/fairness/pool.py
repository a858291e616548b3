"""The users who share one pool of resources: what each holds, what it owes, who is next."""

import math
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from allocator.fairness.account import Account
from allocator.fairness.bounds import in_range
from allocator.fairness.commitment import decayed
from allocator.fairness.live_tree import Crossing
from allocator.fairness.machines import Machines
from allocator.fairness.metering import AccountCheckpoint, AccountState, Meter
from allocator.fairness.policies.policy import KeyPolicy, Policy, local_share
from allocator.fairness.policies.sdrf import Sdrf
from allocator.fairness.pool_parameters import PoolParameters
from allocator.fairness.priorities import NEAR, Rank, forty_bits
from allocator.fairness.quantities import Quantities
from allocator.fairness.rank_preview import RankPreview
from allocator.fairness.ranking import Ranking
from allocator.fairness.standing import CommitmentTrajectory, PoolSnapshot, Standing, standing

_CROWD = 16
"""So many different priorities that are near each other cost too much to be sorted at each look."""
User = TypeVar("User", bound=Hashable)
Watch: TypeAlias = Callable[[Ranking[Any, Any]], Ranking[Any, Any]]
Deed: TypeAlias = tuple[float, Callable[..., None], tuple[Any, ...]]
"""What was done to a pool: at which instant of its, by which method, and with what."""


class Pool(Generic[User]):
    """Users ranked by a policy, at a time of the pool's own that only moves forward.

    All known users count in n (Eq. 7), with `counts_for` by what they use; only active ones are
    ranked (Algorithm 1's set A).
    Methods `allocate` and `release` cost O(m) in m resources. The next read ranks each user again
    whose allocation changed, in O(m + log n) of n users. A change of n, of a weight or of the
    capacity concerns all users. The next read ranks them in O(n·m + n log n), once for all changes
    at one instant.

    Args:
        policy: Ranks the users.
        now: Seconds; any origin.
        capacity: What is shared.
        excluded: Resources that do not count in shares.
        machines: Of which the capacity is the sum; for policies that count tasks.
        watch: Given each new ranking, returns the one to be used in its place, for those who
            want to know what keeping order takes. Each change is ranked at once then.
        exact_ties: Whether priorities that only rounding tells apart are different, as in event
            logs of 1.0; rounding then decides which of these users is first.
        counts_for: How many times its use a user counts for in n at most, by what `look` has
            seen; infinite: it counts whole, as in the papers.
    """

    def __init__(  # noqa: PLR0913 - all but the first are optional, and go by name
        self,
        policy: Policy,
        *,
        now: float = 0.0,
        capacity: Quantities | None = None,
        excluded: Collection[str] = (),
        machines: Machines[User] | None = None,
        watch: Watch | None = None,
        exact_ties: bool = False,
        counts_for: float = math.inf,
    ) -> None:
        self.policy = policy
        self._has_levels = policy.has_levels and not exact_ties
        self._rounds_keys = isinstance(policy, KeyPolicy) and not exact_ties
        self._forgets_held = exact_ties and policy.has_levels and policy.least > 0.0
        self._has_memory = policy.tau is not None
        self._rebased_after = policy.rebased_after
        self._now = now
        self._base = now
        self._terms: PoolParameters[User] = PoolParameters(
            policy,
            Quantities() if capacity is None else capacity,
            excluded,
            Machines() if machines is None else machines,
            counts_for,
        )
        self._turns = 0
        self._accounts: dict[User, Account] = {}
        self._watch = watch
        self._ranking = self._new_ranking(self._phase())
        self._events = 0
        """Of rankings that have been replaced."""
        self._active = 0
        self._unrated = self._unranked = False
        """Whether the values for all have changed since everybody was rated, or ranked."""
        self._looked = now
        """When it was looked last at what users use."""
        self._settled = now
        """When everybody was settled last."""
        self._changed: dict[User, Account] = {}
        """Those that hold something else than when they were last rated and ranked."""
        self._diverted: set[User] = set()
        """Those that hold something else than when somebody asked how it goes on."""
        self._all_diverted = True
        """Whether everybody's course may be another one since then."""
        self._crowd: list[User] = []
        """Users that were near each other at the latest look, if they were many."""
        self._journal: deque[Deed] | None = None
        self._meter: Meter | None = None

    @property
    def now(self) -> float:
        """The pool's time in seconds."""
        return self._now

    @property
    def capacity(self) -> Quantities:
        """What is shared."""
        return self._terms.capacity

    @property
    def active(self) -> int:
        """How many users are active."""
        return self._active

    @property
    def events(self) -> int:
        """How many position changes have been looked at because time passed."""
        return self._events + self._ranking.events

    def advance(self, now: float) -> None:
        """Move to a later instant; an earlier one is read as the latest seen."""
        if not now > self._now:  # also where it is no number
            return
        watched = self._watch is not None
        if watched or self._terms.remembers or self._meter is not None:
            self._rate_all()
        if watched:
            self._rank_all()
        self._now = now
        if now - self._base > self._rebased_after:
            self._unsettle()
            self._base = now

    def set_capacity(self, capacity: Quantities) -> None:
        """Change what is shared."""
        if capacity is not self._terms.capacity and capacity != self._terms.capacity:
            self._write_down(Pool.set_capacity, capacity)
            self._unsettle()
            self._terms.capacity = capacity

    def attach(self, meter: Meter) -> None:
        """Have counted from now on what users hold and owe."""
        self._meter = meter
        for account in self._accounts.values():
            account.counted_until = max(self._now, meter.since)

    def count(self, user: User) -> AccountCheckpoint:
        """Have counted what a user has had until now, if a meter is attached; return how it stands.

        Raises:
            KeyError: the user is not known.
        """
        self._catch_up()
        account = self._account(user)
        self._count(user, account)
        return AccountCheckpoint(
            self._now if self._meter is None else account.counted_until,
            AccountState(
                account.allocation,
                account.entitlement,
                account.commitments_at(self._now, self._terms.tau),
                account.overuse,
                account.active,
            ),
        )

    def set_fading(self, tau: float | None) -> None:
        """Say how debts fade that another policy has made, where this one makes none.

        Args:
            tau: Their time constant in seconds; None: they do not fade.
        """
        if not self._has_memory and tau != self._terms.tau:
            self._unsettle()
            for account in self._accounts.values():
                account.settle(self._now, self._terms.tau)  # also what has not faded until now
            self._terms.tau = tau

    def set_charging(self, *, charging: bool) -> None:
        """Say whether over-use makes debts; while it does not, they fade as if there were none."""
        if charging != self._terms.charging:
            self._unsettle()
            self._terms.charging = charging

    def machines_changed(self) -> None:
        """Follow a change of the machines; of one user's constraints, `set_demand` does."""
        if self.policy.counts_tasks:
            self._write_down(Pool.machines_changed)
            self._unsettle()

    def set_part(self, part: float) -> None:
        """Say what part of the capacity these users are entitled to together; 1 at first."""
        if part != self._terms.part:
            self._unsettle()
            self._terms.part = part

    @property
    def counts_for(self) -> float:
        """How many times its use a user counts for in n at most; infinite: it counts whole."""
        return self._terms.counts_for

    @property
    def counted(self) -> float:
        """The weight that all users count for together: n, where all weights are 1."""
        return self._terms.weights

    def look(self, used: Mapping[User, Quantities] | None = None) -> None:
        """Look at what users use now. O(n).

        A user is assumed to have used the smaller of its uses at the two latest looks in between.

        Args:
            used: By user, at most what it holds; None: what users hold is what they use.
        """
        self._rate_changed()
        elapsed, tau = self._now - self._looked, self._terms.tau
        self._looked = self._now
        for user, account in self._accounts.items():
            if used is None:
                in_use = account.share
            elif (own := used.get(user)) is not None:
                in_use = min(self._terms.dominant_share(own), account.share)
            elif account.in_use or account.mean_use:
                in_use = 0.0
            else:
                continue  # it has used nothing, as thousands of names may
            if tau is not None:
                both = min(account.in_use, in_use)
                account.mean_use = decayed(account.mean_use, both, elapsed, tau)
            account.in_use = in_use

    def count_users(self, noticed: float = 0.0) -> None:
        """Entitle users by what the latest look saw that they use. O(n).

        Args:
            noticed: By which part the weight that all count for must differ to be changed.
        """
        before, (total, counted) = self.counted, self._terms.count_users(self._accounts)
        if abs(total - before) > noticed * before or not noticed:
            self.set_counted(total, counted)

    def set_counted(self, total: float, counted: Mapping[User, float]) -> None:
        """Entitle users by the weight that they count for from now on: together, and each.

        Users that are not named count for what they did.
        """
        self._write_down(Pool.set_counted, total, counted)
        self._unsettle()
        self._terms.weights = total
        for user, weight in counted.items():
            if user in self._accounts:
                self._accounts[user].counted = weight

    def set_named(self, user: User, named: bool) -> None:  # noqa: FBT001 - a setter
        """Say whether an operator has named a user, so that it counts whole whatever it uses.

        Raises:
            KeyError: the user is not known.
        """
        self._account(user).named = named

    def mean_use(self, user: User) -> float:
        """Return the dominant share that a user has used on average, up to the latest look.

        Raises:
            KeyError: the user is not known.
        """
        return self._account(user).mean_use

    def set_mean_use(self, user: User, share: float) -> None:
        """Say what a user has used on average, as a former pool knew it.

        Raises:
            KeyError: the user is not known.
        """
        self._account(user).mean_use = share

    def add(
        self, user: User, weight: float = 1.0, *, commitment: float | Mapping[str, float] = 0.0
    ) -> None:
        """Make a user known; it is not active yet.

        Args:
            user: A new id.
            weight: What it is entitled to, in proportion to the others.
            commitment: What it owes from before: of every resource, or by name.

        Raises:
            ValueError: the user is known, or a number is out of range.
        """
        if user in self._accounts:
            raise ValueError(f"user {user!r} is known already")
        account = Account(weight=in_range(user, weight), settled_at=self._now)
        account.set_debts(user, commitment)
        self._write_down(Pool.add, user, weight)
        self._unsettle()
        self.policy.welcome(account, self._accounts.values())
        self._accounts[user] = account
        self._terms.reweigh(weight, 0.0)
        if self._meter is not None:
            account.counted_until = max(self._now, self._meter.since)

    def remove(self, user: User) -> None:
        """Forget a user and what it owes.

        Raises:
            KeyError: the user is not known.
            ValueError: it still holds something.
        """
        account = self._account(user)
        if account.allocation:
            raise ValueError(f"user {user!r} still holds {account.allocation}")
        self.set_active(user, False)
        self._write_down(Pool.remove, user)
        self._unsettle()
        del self._accounts[user]
        self._terms.reweigh(0.0, account.weight)

    def set_weight(self, user: User, weight: float) -> None:
        """Change a user's weight.

        Raises:
            KeyError: the user is not known.
            ValueError: the weight is not a positive number.
        """
        account = self._account(user)
        in_range(user, weight)
        self._write_down(Pool.set_weight, user, weight)
        self._unsettle()
        self._terms.reweigh(weight, account.weight)
        account.weight = weight

    def set_commitment(
        self, user: User, commitment: float | Mapping[str, float], *, others: float = 0.0
    ) -> None:
        """Change what a user owes: of every resource, or by name.

        Args:
            user: A known user.
            commitment: Of every resource, or by name.
            others: Of resources that are not named.

        Raises:
            KeyError: the user is not known.
            ValueError: a commitment is negative or not finite.
        """
        account = self._account(user)
        self._unsettle()
        account.set_debts(user, commitment, others)

    def set_demand(self, user: User, demand: Quantities | None) -> None:
        """Say what one task of a user needs; None: nobody knows. O(classes of machines).

        Also to be called when the machines that its tasks may run on are others now.

        Raises:
            KeyError: the user is not known.
        """
        account = self._account(user)
        rated = self.policy.counts_tasks and not self._unrated
        if rated:
            self._settle(user, account)
        account.demand = self._terms.counted(demand)
        self._write_down(Pool.set_demand, user, account.demand)
        if rated:
            self._terms.count_tasks(user, account)
            self._note_change(user, account)

    def set_active(self, user: User, active: bool) -> None:  # noqa: FBT001 - a setter
        """Say whether a user is to be ranked.

        Raises:
            KeyError: the user is not known.
        """
        account = self._account(user)
        if account.active == active:
            return
        self._count(user, account)
        account.active = active
        self._write_down(Pool.set_active, user, active)
        if active and not account.allocation:
            self._turns += 1
            account.turn = self._turns
        self._active += 1 if active else -1
        if self._unranked:
            return
        if self._changed.pop(user, None) is not None:
            self._terms.rate(account)
        phase = self._phase()
        self._ranking.advance(phase)
        if active:
            self._ranking.insert(user, self._attribute(account, phase))
        else:
            self._ranking.delete(user)

    def allocate(self, user: User, quantities: Quantities, *, times: int = 1) -> None:
        """Give a user more.

        Args:
            user: A known user.
            quantities: What it gets.
            times: As how many gifts this counts: of equals, who got something less often is first.

        Raises:
            KeyError: the user is not known.
        """
        account = self._account(user)
        self._hold(user, account, account.allocation + quantities, account.count + times)

    def release(self, user: User, quantities: Quantities) -> None:
        """Take back from a user.

        Raises:
            KeyError: the user is not known.
            ValueError: it does not hold that much; nothing has changed.
        """
        account = self._account(user)
        try:
            rest = account.allocation - quantities
        except ValueError as error:
            raise ValueError(f"user {user!r}: {error}") from None
        self._hold(user, account, rest, account.count)

    def hold(self, user: User, quantities: Quantities, gifts: int) -> None:
        """Say what a user holds from now on, and how often something was allocated to it.

        Raises:
            KeyError: the user is not known.
        """
        self._hold(user, self._account(user), quantities, gifts)

    def held(self, user: User | None = None) -> Quantities:
        """Return what a user holds, or all users together.

        Raises:
            KeyError: the user is not known.
        """
        if user is not None:
            return self._account(user).allocation
        return sum((a.allocation for a in self._accounts.values()), start=Quantities())

    def entitlement(self, user: User) -> float:
        """Return the part of the capacity that a user is entitled to.

        Raises:
            KeyError: the user is not known.
        """
        return self._terms.entitlement(self._account(user))

    def minimum(self) -> User:
        """Return the active user that is next.

        Raises:
            KeyError: nobody is active.
        """
        if not self._active:
            raise KeyError("no user is active")
        self._catch_up()
        first: User = self._ranking.minimum()
        if self._has_levels and self._active > 1:
            first = next(self._ranking.by_level(self._in_order))
        return first

    def standing(self, user: User) -> Standing[User]:
        """Return how a user stands now.

        Raises:
            KeyError: the user is not known.
        """
        self._catch_up()
        return standing(self.policy, self._terms.tau, user, self._account(user), self._now)

    def standings(self) -> list[Standing[User]]:
        """Return how all known users stand now, in order of priority."""
        return self.standings_at(self._now)

    def standings_at(self, when: float) -> list[Standing[User]]:
        """Return how all known users will stand if nothing changes, in order of priority."""
        standings = self.still().standings_at(when)
        return sorted(standings, key=lambda standing: (standing.priority, standing.user))

    def still(self) -> "PoolSnapshot[User]":
        """Return what it takes to say later how users stood. O(n), two microseconds for each."""
        self._rate_changed()
        accounts = {user: account.copy() for user, account in self._accounts.items()}
        return PoolSnapshot(self.policy, self._terms.tau, self._terms.capacity, self._now, accounts)

    def twin(self) -> "Pool[User]":
        """Return a pool that stands as this one does, and goes its own way. O(n)."""
        self._rate_changed()
        twin: Pool[User] = Pool(self.policy, now=self._now)
        twin._has_levels, twin._rounds_keys = self._has_levels, self._rounds_keys
        twin._forgets_held = self._forgets_held
        twin._terms = self._terms.twin()
        twin._base, twin._turns, twin._active = self._base, self._turns, self._active
        twin._accounts = {user: account.copy() for user, account in self._accounts.items()}
        twin._unsettle()
        return twin

    def attribute(self, user: User) -> Any:  # noqa: ANN401 - the policy's own
        """Return what a user is ranked by from now on, in phases of the policy.

        Raises:
            KeyError: the user is not known.
        """
        self._catch_up()
        return self._attribute(self._account(user), self._phase())

    def phase_at(self, when: float) -> float:
        """Return the policy's time at an instant."""
        return self.policy.phase(when - self._base)

    def instant(self, phase: float) -> float:
        """Return the instant of a phase, not before now."""
        return max(self._base + self.policy.elapsed(phase), self._now)

    def take_diverted(self) -> Collection[User] | None:
        """Return whose course may be another one than when this was last asked; None: anybody's."""
        diverted = None if self._all_diverted else self._diverted
        self._diverted, self._all_diverted = set(), False
        return diverted

    @property
    def excluded(self) -> frozenset[str]:
        """Resources that do not count in shares."""
        return self._terms.excluded

    @property
    def machines(self) -> Machines[User]:
        """Of which the capacity is the sum."""
        return self._terms.machines

    def keep_journal(self) -> deque[Deed]:
        """Have written down, from now on, what is done to this pool and would concern another.

        Whoever asks may take from its begin. What concerns debts alone is not in it.
        """
        self._journal = deque()
        return self._journal

    def accounts(self) -> Mapping[User, Account]:
        """Return all accounts, to be looked at."""
        return self._accounts

    def course(self, user: User) -> CommitmentTrajectory:
        """Return how it goes on with what a user owes. O(resources).

        Raises:
            KeyError: the user is not known.
        """
        self._catch_up()
        account = self._account(user)
        return CommitmentTrajectory(
            account.settled_at,
            dict(account.commitments),
            dict(account.overuse),
            account.inherited,
        )

    def debts(self, user: User) -> tuple[dict[str, float], float]:
        """Return what a user owes now, by resource and of those that are not named. O(resources).

        Raises:
            KeyError: the user is not known.
        """
        account = self._account(user)
        if account.settled_at < self._now:
            self._rate_changed()
        now, tau = self._now, self._terms.tau
        return account.commitments_at(now, tau), account.inherited_at(now, tau)

    def crossings(self) -> Iterator[Crossing[float, User]]:
        """Go through upcoming changes of the order, soonest first: at `when`, right passes left.

        Only a policy with drifting priorities has any; some may turn out to be none.
        """
        self._catch_up()
        for phase, left, right in self._ranking.crossings():
            yield Crossing(self.instant(phase), left, right)

    def __contains__(self, user: object) -> bool:
        return user in self._accounts

    def __len__(self) -> int:
        return len(self._accounts)

    def __iter__(self) -> Iterator[User]:
        """Go through active users, the next one first; the pool must not change meanwhile."""
        if self._active > 1 or self._unranked:  # one alone is first, whatever it holds
            self._catch_up()
            if self._has_levels:
                iter(self._ranking)  # a watch counts this
                return self._ranking.by_level(self._in_order)
        return iter(self._ranking)

    def _in_order(self, near: list[Iterable[User]]) -> Iterable[User]:
        """Return users who are near each other in the order of the rule for ties.

        A ranking orders by lines, whose values are rounded in another way for each user. So users
        whose values are near each other are sorted by level here. O(k log k) for k such users.
        """
        accounts, now, level = self._accounts, self._now, self.policy.level
        keys = [
            (*level(accounts[user], now).key, accounts[user].count, user)
            for part in near
            for user in part
        ]
        users = [user for *_, user in sorted(keys)]
        if isinstance(self.policy, Sdrf) and len(near) > _CROWD:
            self._crowd = users
        return users

    def _merge_crowd(self) -> None:
        """Rank users that are near each other by constants where their commitments have faded.

        Users that hold the same then have one and the same line, so nothing sorts them again.
        `Sdrf.level` takes these commitments for nothing as well, so the order stays.
        """
        phase = self._phase()
        for user in self._crowd:
            account = self._accounts.get(user)
            if account is not None and account.active and user not in self._changed:
                attribute: Any = self._attribute(account, phase)
                faded = attribute.faded(-phase)
                if faded is not attribute:
                    self._ranking.replace(user, faded)
        self._crowd = []

    def holding(self, user: User) -> tuple[Quantities, int]:
        """Return what a user holds, and how often something was allocated to it.

        Raises:
            KeyError: the user is not known.
        """
        account = self._account(user)
        return account.allocation, account.count

    def prospect(self, user: User) -> "RankPreview":
        """Return where a user stands in order at this instant, and would if it held more.

        Raises:
            KeyError: the user is not known.
        """
        account = self._account(user)
        self._catch_up()
        settled = account.settled(self._now, self._terms.tau)
        settled.count = 0
        if self._has_levels:
            return self._prospect_of_levels(settled)
        phase = self._phase()
        present = self.policy.rank(self._attribute(account, phase), phase)
        _, priority, rest, _ = present[0]
        still = not self.policy.moves_at_once

        def rank(allocation: Quantities) -> tuple[Rank, float]:
            settled.allocation = allocation
            self._terms.rate(settled)
            there, blur = self.policy.rank(self._attribute(settled, phase), phase)
            if still:  # nor does rounding, task by task
                there = there[0], priority, rest, there[3]
            return there, blur

        likeness = self._likeness(settled)
        return RankPreview(present, (likeness, priority, rest) if still else likeness, rank)

    def _prospect_of_levels(self, settled: Account) -> "RankPreview":
        """Return the prospect of a user under a policy that tells levels.

        Args:
            settled: The user's account as it is now; it is changed.
        """
        policy = self.policy
        moves = policy.moves_at_once
        level = policy.level(settled, self._now)
        first, present, growth = level.key
        blur = 4.0 * NEAR * max(abs(present), 1.0) if moves else 0.0
        likeness = self._likeness(settled)

        def rank(allocation: Quantities) -> tuple[Rank, float]:
            settled.allocation = allocation
            self._terms.rate(settled)
            first, value, growth = policy.level(settled, self._now).key
            return (first, value if moves else present, (), growth), blur

        now = (first, present, (), growth), blur
        return RankPreview(now, likeness if moves else (likeness, present), rank)

    def local_share(self, user: User, held: Quantities, machine: Quantities) -> float:
        """Return what part of a machine a user holds, as policies that rank per machine see it.

        Raises:
            KeyError: the user is not known.
        """
        share = local_share(self._account(user), held, machine)
        return forty_bits(share) if self._rounds_keys else share

    def users(self) -> Collection[User]:
        """Return all known users."""
        return self._accounts.keys()

    def order_on(self, machine: Quantities, held: Mapping[User, Quantities]) -> Iterator[User]:
        """Go through active users, the next one on a machine first.

        The order differs from that of the pool only under a policy that ranks per machine;
        costs O(k log k) more for the k users that hold something there.

        Args:
            machine: What the machine has.
            held: What users hold of it; those that are not named hold nothing.
        """
        if not self.policy.per_machine:
            yield from self
            return
        holders = []
        for place, user in enumerate(self):
            if user in held:
                holders.append((self.local_share(user, held[user], machine), place, user))
            else:
                yield user
        for _share, _place, user in sorted(holders, key=lambda holder: holder[:2]):
            yield user

    def _account(self, user: User) -> Account:
        try:
            return self._accounts[user]
        except KeyError:
            raise KeyError(f"user {user!r} is not known") from None

    def _hold(self, user: User, account: Account, allocation: Quantities, count: int) -> None:
        if not self._unrated:
            self._settle(user, account)
        account.allocation = allocation
        account.count = count
        if not self._all_diverted:
            self._diverted.add(user)
        self._write_down(Pool.hold, user, allocation, count)
        if not self._unrated:
            self._note_change(user, account)

    def _write_down(self, do: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - its
        """Have it in the journal, if one is kept, that something is done now."""
        if self._journal is not None:
            self._journal.append((self._now, do, arguments))

    def _settle(self, user: User, account: Account) -> None:
        """Bring an account up to now, under what it has held since it was settled last."""
        if account.counted_until < self._now:
            self._count(user, account)
        if self._terms.remembers and account.settled_at < self._now:
            if user in self._changed:
                self._terms.rate(account)
            account.settle(self._now, self._terms.tau)

    def _count(self, user: User, account: Account) -> None:
        """Have it counted what a user has had; this is so, at the latest, before it is stale.

        What is noted stays as it is: a settled account gets commitments of its own.
        """
        meter, now, at = self._meter, self._now, account.counted_until
        if meter is None or not at < now or self._unrated:
            return
        if user in self._changed:
            self._terms.rate(account)
        account.counted_until = now
        counted = meter.counted
        counted.spans.append(
            (
                str(user),
                at,
                now,
                self._terms.capacity,
                meter.terms,
                account.allocation,
                account.entitlement,
                account.settled_at,
                account.commitments,
                account.overuse,
                account.active,
            )
        )
        counted.bound()

    def _note_change(self, user: User, account: Account) -> None:
        self._changed[user] = account
        if self._watch is not None:
            self._catch_up()

    def _unsettle(self) -> None:
        """Settle everybody under the values that held until now, which are about to change."""
        if self._unrated and self._settled == self._now:
            return
        for account in self._changed.values():
            self._terms.rate(account)
        self._changed.clear()
        if self._terms.remembers or self._terms.tau is not None or self._meter is not None:
            for user, account in self._accounts.items():
                self._count(user, account)
                account.settle(self._now, self._terms.tau)
        self._settled = self._now
        self._unrated = self._unranked = self._all_diverted = True
        self._diverted.clear()

    def _catch_up(self) -> None:
        """Rate and rank who holds something else than at the last look, and follow time."""
        self._rate_all()
        self._rank_all()
        ranking, phase = self._ranking, self._phase()
        ranking.advance(phase)
        if self._crowd:
            self._merge_crowd()
        for user, account in self._changed.items():
            self._terms.rate(account)
            if account.active:
                ranking.replace(user, self._attribute(account, phase))
        self._changed.clear()

    def _rate_changed(self) -> None:
        """Rate who holds something else than at the last look; the ranking stays where it is."""
        self._rate_all()
        for account in self._changed.values():
            self._terms.rate(account)

    def _rate_all(self) -> None:
        """Rate everybody anew if the values for all have changed."""
        if self._unrated:
            for user, account in self._accounts.items():
                self._terms.count_tasks(user, account)
                self._terms.rate(account)
            self._unrated = False

    def _rank_all(self) -> None:
        """Rank everybody who is rated anew if the values for all have changed."""
        if not self._unranked:
            return
        for account in self._changed.values():
            self._terms.rate(account)
        self._changed.clear()
        phase, accounts = self._phase(), self._accounts
        self._events += self._ranking.events
        # Few will have changed places; who watches wants to know only what order takes.
        before = dict.fromkeys(self._ranking if self._watch is None else ())
        self._ranking = self._new_ranking(phase)
        self._ranking.fill(
            (user, self._attribute(accounts[user], phase))
            for user in (before | dict.fromkeys(accounts))
            if user in accounts and accounts[user].active
        )
        self._unranked = False

    def _new_ranking(self, phase: float) -> Ranking[Any, Any]:
        ranking = self.policy.new_ranking(phase)
        return ranking if self._watch is None else self._watch(ranking)

    def _likeness(self, account: Account) -> Hashable:
        """Return what settled accounts have in common that rank alike where they hold alike."""
        return (
            account.weight,
            account.inherited,
            frozenset(account.commitments.items()),
            account.cumulative,
            account.demand and frozenset(account.demand.items()),
            account.monopoly,
            account.constrained_monopoly,
            account.turn if self.policy.queues else 0,
        )

    def _attribute(self, account: Account, phase: float) -> object:
        attribute = self.policy.attribute(account, self._base, phase)
        if self._rounds_keys:  # shares of users with other weights are rounded in another way
            return forty_bits(attribute[0]), attribute[1]
        if self._forgets_held:
            attribute.held = 0.0
        return attribute

    def _phase(self) -> float:
        """Return the policy's time, in which it keeps order."""
        return self.policy.phase(self._now - self._base)
