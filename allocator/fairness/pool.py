"""The pool: ranks users that share resources, and keeps their allocations and commitments."""

import math
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Generic, TypeAlias, TypeVar

from allocator.compilation import mypyc_attr
from allocator.cooperative import Cooperative, run_to_completion
from allocator.fairness.account import Account
from allocator.fairness.bounds import in_range
from allocator.fairness.commitment import decay_phase, stretch
from allocator.fairness.live_tree import Crossing
from allocator.fairness.machines import Machines
from allocator.fairness.metering import AccountCheckpoint, AccountState, Meter
from allocator.fairness.policies.fading import DecayPolicy
from allocator.fairness.policies.policy import KeyPolicy, Policy, local_share
from allocator.fairness.policies.sdrf import Sdrf
from allocator.fairness.pool_parameters import PoolParameters
from allocator.fairness.priorities import (
    NEAR,
    OFFSET,
    Envelope,
    Rank,
    commitment_envelope,
    forty_bits,
    level_key,
)
from allocator.fairness.quantities import Quantities
from allocator.fairness.rank_preview import RankPreview
from allocator.fairness.ranking import Ranking
from allocator.fairness.standing import CommitmentTrajectory, PoolSnapshot, Standing, standing

_RECENT = 86400.0
"""Time constant in seconds of the mean use by which users count in `newcomers_use`."""
_USERS_A_STEP = 200
"""Users in a cooperative step."""
_FEW_CHANGED = 2
"""Number of changed users up to which `rank_ahead` ranks them. The next change may concern the same
users if there are more."""
_MANY_NEAR = 16
"""Above this number of users with nearly equal but different priorities, sorting them at each read
costs too much. The pool then ranks these users by constants."""
User = TypeVar("User", bound=Hashable)
Watch: TypeAlias = Callable[[Ranking[Any, Any]], Ranking[Any, Any]]
JournalEntry: TypeAlias = tuple[float, Callable[..., None], tuple[Any, ...]]
"""One journal entry: the pool's time in seconds, the method of `Pool` that was called, and the
arguments."""


@mypyc_attr(allow_interpreted_subclasses=True)
class PoolClock:
    """The time of a pool, or of several pools whose time advances together.

    Args:
        now: The first time in seconds, from any origin.
    """

    def __init__(self, now: float) -> None:
        self.now = now
        """The present time in seconds."""
        self._changed_at = -math.inf
        """The latest time at which a parameter of a pool has changed, in seconds."""
        self.unrated: dict[Pool[Any], None] = {}
        """Pools with such a change since `rate_in_steps`, if rating them must not wait for a read.
        """
        self.unranked: dict[Pool[Any], None] = {}
        """Pools with such a change since `rank_in_steps`, or in which many users have changed."""

    def note_change(self, pool: "Pool[Any]", *, remembers: bool) -> None:
        """Record that a parameter of a pool changes now, which concerns all users of the pool.

        Args:
            pool: The pool.
            remembers: Whether users must be rated before the next change at a later time.
        """
        self._changed_at = self.now
        self.unranked[pool] = None
        if remembers:
            self.unrated[pool] = None

    def forget(self, pool: "Pool[Any]") -> None:
        """Forget a pool that has ended."""
        self.unrated.pop(pool, None)
        self.unranked.pop(pool, None)

    def rate_in_steps(self, now: float) -> Cooperative[None]:
        """Rate the users of pools of which a parameter has changed before a time.

        Each pool would otherwise do so in one step, before its next change. Generator for
        cooperative steps; the pools must not be used until it is exhausted.

        Args:
            now: The time in seconds of the next change, not before the present time.
        """
        if not self._changed_at < now:
            return
        unrated, self.unrated = self.unrated, {}
        rated = 0
        for pool in unrated:
            yield from pool.rate_in_steps()
            rated += len(pool)
            if rated > _USERS_A_STEP:
                yield
                rated = 0

    def rank_in_steps(self) -> Cooperative[None]:
        """Rank the users of large pools of which a parameter or many users have changed.

        Each pool would otherwise do so in one step, at its next read. Generator for cooperative
        steps; the pools must not be used until it is exhausted.
        """
        unranked, self.unranked = self.unranked, {}
        for pool in unranked:
            if len(pool) > _USERS_A_STEP:
                yield from pool.rank_in_steps()


@mypyc_attr(allow_interpreted_subclasses=True)
class Pool(Generic[User]):
    """Ranks users that share resources by a policy. The pool's time only moves forward.

    Commitments are charges for past over-use, as fractions of the capacity. All known users count
    in n, the number of users of Eq. 7 (SDRF paper). With a finite `counts_for`, users count by
    their use instead. Only active users, which want resources, are ranked (set A of the paper's
    Algorithm 1).

    `allocate` and `release` cost O(m) in m resources. The next read ranks each user whose
    allocation changed, in O(m + log n) of n users. A change of n, of a weight or of the capacity
    concerns all users. The next read then ranks all users in O(n·m + n log n), once for all changes
    at the same time. With `counts_for`, only `set_counted` changes n.

    *Rating* an account computes its shares and over-use from its allocation. *Accruing* an account
    moves its commitments forward to the present time. A *phase* is the policy's own time
    coordinate: seconds, or −s with s = e^(−t/τ).

    Args:
        policy: Ranks the users.
        now: The pool's first time in seconds, from any origin.
        capacity: The resources that are shared. None: no resources yet.
        excluded: Names of resources that do not count in shares.
        machines: The machines that make up the capacity; for policies that count tasks.
        watch: Function that receives each new ranking and returns the ranking to use in its place.
            Measurements use this to count operations. With a watch, each change is ranked at once.
        exact_ties: If true, priorities that differ only by rounding errors are not treated as
            equal. Replays of event logs of version 1.0 need this.
        steps_from_zero: If true, values of half a step are between two steps, so that rounding
            errors decide. Replays of event logs of former versions need this.
        counts_for: A user's fraction of n is at most this multiple of its use, as sampled by
            `look`. Infinite: each user counts with its whole weight, as in the papers.
        keeps_share_commitments: If true, users with commitments in task shares keep commitments by
            resource, too. If a user's demand changes, the commitment in task shares begins again
            with these. Replays of event logs of former versions need false.
        compares_by_resource: If true, policies compare with the entitlement to the compared
            resource. If false, they compare with the entitlement to the user's dominant resource.
            Replays of event logs of former versions need false.
        newcomers_by_use: If true and `counts_for` is finite, users count by their use in the mean
            with which a new user begins (`newcomers_use`). Replays of event logs of former
            versions need false.
        clock: A clock that other pools share; `now` has no effect then. The owner of the clock
            advances it, and calls `rebase` where `must_rebase` is true. None: the pool has a clock
            of its own, which `advance` moves.
    """

    def __init__(  # noqa: PLR0913, PLR0915 - one value each, all but the first optional
        self,
        policy: Policy,
        *,
        now: float = 0.0,
        capacity: Quantities | None = None,
        excluded: Collection[str] = (),
        machines: Machines[User] | None = None,
        watch: Watch | None = None,
        exact_ties: bool = False,
        steps_from_zero: bool = False,
        counts_for: float = math.inf,
        keeps_share_commitments: bool = False,
        compares_by_resource: bool = False,
        newcomers_by_use: bool = False,
        clock: PoolClock | None = None,
    ) -> None:
        self._clock = PoolClock(now) if clock is None else clock
        self._shares_clock = clock is not None
        now = self._clock.now
        self.policy = policy
        self._has_levels = policy.has_levels and not exact_ties
        self._rounds_keys = isinstance(policy, KeyPolicy) and not exact_ties
        self._offset = 0.0 if steps_from_zero else OFFSET
        self._forgets_held = exact_ties and policy.has_levels and policy.least > 0.0
        self._ranks_late = watch is None and (self._has_levels or self._rounds_keys)
        """Whether users may be ranked at the next read, because the time of ranking does not
        matter."""
        self._has_memory = policy.tau is not None
        self._sdrf = _sdrf_form(policy)
        """The form of SDRF, if the policy's priorities are those of SDRF. They are then computed
        without a call of the policy, which is not compiled."""
        self._tau = policy.tau or 0.0
        self._rebased_after = policy.rebased_after
        self._base = now
        """The time at which the policy's phases begin, in seconds."""
        self._parameters: PoolParameters[User] = PoolParameters(
            policy,
            Quantities() if capacity is None else capacity,
            excluded,
            Machines() if machines is None else machines,
            counts_for,
            keeps_share_commitments=keeps_share_commitments,
            compares_by_resource=compares_by_resource,
        )
        self.newcomers_by_use = newcomers_by_use
        """Whether users count by their use in `newcomers_use`, if `counts_for` is finite."""
        self._begins_by_use = newcomers_by_use and policy.begins_at_mean and counts_for < math.inf
        self._last_queue_place = 0
        self._accounts: dict[User, Account] = {}
        self._watch = watch
        self._ranking = self._new_ranking(self._phase())
        self._events = 0
        """Number of possible position changes that the replaced rankings processed."""
        self._active = 0
        self._unrated = self._unranked = self._must_place = False
        """Whether all users must be rated, or ranked, because parameters of the whole pool changed;
        and whether users of `_changed` have become active or inactive."""
        self._sampled_at = now
        """The time of the latest `look`, in seconds."""
        self.has_claims = True
        """Whether a user may have to count with some weight, because it is named or uses resources,
        or has used resources. `count_users` updates this."""
        self._counts_are_current = False
        """Whether nothing has changed on which `count_users` depends, since it has set
        entitlements."""
        self._accrued_at = now
        """The time at which all accounts were last accrued, in seconds."""
        self._summed_use = 0.0
        """Sum of all users' accumulated use, each divided by its weight, at `_summed_at`."""
        self._summed_at = -math.inf
        """Time of the sum in seconds; −∞ if the sum is outdated."""
        self._changed: dict[User, Account] = {}
        """Accounts of which the allocation, the demand or `active` has changed since they were last
        ranked."""
        self._new_trajectories: set[User] = set()
        """Users whose allocation has changed since the last call of `take_diverted`."""
        self._all_trajectories_new = True
        """Whether any user's commitment trajectory may have changed since the last call of
        `take_diverted`."""
        self._near_users: list[User] = []
        """Users with nearly equal priorities at the latest read. Empty if there were at most
        `_MANY_NEAR`."""
        self._journal: deque[JournalEntry] | None = None
        self._meter: Meter | None = None

    @property
    def now(self) -> float:
        """The pool's time in seconds."""
        return self._clock.now

    @property
    def capacity(self) -> Quantities:
        """The resources that are shared."""
        return self._parameters.capacity

    @property
    def active(self) -> int:
        """The number of active users, which want resources."""
        return self._active

    @property
    def events(self) -> int:
        """The number of possible swaps of two users that were processed because time passed."""
        return self._events + self._ranking.events

    def advance(self, now: float) -> None:
        """Move the pool's time forward. A time before the present one has no effect.

        Only for pools with a clock of their own.

        Args:
            now: The new time in seconds.
        """
        if not now > self._clock.now:  # also if `now` is NaN
            return
        watched = self._watch is not None
        if watched or self._parameters.remembers or self._meter is not None:
            self._rate_if_needed()
        if watched:
            self._rank_if_needed()
        self._clock.now = now
        if self.must_rebase:
            self.rebase()

    @property
    def must_rebase(self) -> bool:
        """Whether `rebase` must be called, because the policy's phases began too long ago."""
        return self._clock.now - self._base > self._rebased_after

    @property
    def _must_rate(self) -> bool:
        """Whether users must be rated as of the last change of a parameter before a new change."""
        return (
            self._unrated
            and self._accrued_at < self._clock.now
            and (self._parameters.remembers or self._meter is not None)
        )

    @property
    def base(self) -> float:
        """The time at which the policy's phases begin, in seconds."""
        return self._base

    @property
    def must_count(self) -> bool:
        """Whether `count_users` may change entitlements."""
        return not (self._counts_are_current and self._ranks_late)

    def rebase(self) -> None:
        """Let the policy's phases begin now, so that they stay exact."""
        self._accrue_all()
        self._base = self._clock.now

    def finish_rating(self) -> None:
        """Rate users as of the last change of the pool's parameters, if time has passed since.

        Each change of a user or parameter begins with this call, because the clock may have been
        advanced by its owner. So must a change of the machines that a user's tasks may run on.
        """
        if self._must_rate:
            self._rate_if_needed()

    def accrue_in_steps(self) -> Cooperative[None]:
        """Move all users' commitments forward to now, before a parameter of the pool changes.

        The change would do so in one step. Generator for cooperative steps; the pool must not be
        used until it is exhausted.
        """
        return self._accrue_all_in_steps()

    def rank_in_steps(self) -> Cooperative[None]:
        """Rate and rank all users, if a parameter of the pool or many users have changed.

        The next read would do so in one step. Nothing is done for policies under which the time of
        ranking could matter. Generator for cooperative steps; the pool must not be used until it is
        exhausted.
        """
        if not self._ranks_late:
            return
        yield from self.rate_in_steps()
        yield from self._rank_in_steps()
        while len(self._changed) > _USERS_A_STEP:
            self._move_ranking()
            step = dict(islice(self._changed.items(), _USERS_A_STEP))
            for user in step:
                del self._changed[user]
            self._rank_changed(step)
            yield

    def rank_ahead(self) -> None:
        """Rank users whose allocation has changed, if they are few, before the next read does so.

        The order does not depend on this call, but the next read is shorter. Nothing is done for
        policies under which the time of ranking could matter.
        """
        if len(self._changed) <= _FEW_CHANGED and self._has_levels and self._watch is None:
            self._update_order()

    def set_capacity(self, capacity: Quantities) -> None:
        """Replace the resources that are shared, for example after agents were added."""
        run_to_completion(self.set_capacity_in_steps(capacity))

    def set_capacity_in_steps(self, capacity: Quantities) -> Cooperative[None]:
        """Generator form of `set_capacity`. The pool must not be used until it is exhausted."""
        if capacity is not self._parameters.capacity and capacity != self._parameters.capacity:
            yield from self._accrue_all_in_steps()
            self._record(Pool.set_capacity, capacity)
            if list(capacity) != list(self._parameters.capacity):
                self._counts_are_current = False
            self._parameters.capacity = capacity

    def attach(self, meter: Meter) -> None:
        """Attach a meter, which integrates the allocations and commitments of users from now on."""
        self._meter = meter
        for account in self._accounts.values():
            account.counted_until = max(self._clock.now, meter.since)

    def count(self, user: User) -> AccountCheckpoint:
        """Pass a user's usage up to now to the meter, if one is attached; return a checkpoint.

        The checkpoint contains the time up to which the account is metered, and the account's
        state at that time.

        Raises:
            KeyError: the user is not known.
        """
        self._update_order()
        account = self._account(user)
        self._meter_span(user, account)
        return AccountCheckpoint(
            self._clock.now if self._meter is None else account.counted_until,
            AccountState(
                account.allocation,
                account.entitlement,
                account.commitments_at(self._clock.now, self._parameters.tau),
                account.overuse,
                account.active,
            ),
        )

    def set_fading(self, tau: float | None) -> None:
        """Set how fast commitments decay under a policy that does not create commitments.

        Such commitments remain from a former policy of the users. Under any other policy, this call
        has no effect, because the policy sets the decay.

        Args:
            tau: Time constant of the decay in seconds. None: commitments do not decay.
        """
        if not self._has_memory and tau != self._parameters.tau:
            self._accrue_all()
            for account in self._accounts.values():
                account.settle(self._clock.now, self._parameters.tau)  # also if nothing decayed
            self._parameters.tau = tau
            self._counts_are_current = False

    def set_charging(self, *, charging: bool) -> None:
        """Set whether over-use creates commitments. If not, existing commitments only decay."""
        if charging != self._parameters.charging:
            self._accrue_all()
            self._parameters.charging = charging

    def machines_changed(self) -> None:
        """Announce a change of the cluster's machines.

        The next read then recounts how many tasks each user could run if it had the machines alone.
        Call this method at the time of a change of `machines`, before the change if pools share a
        clock. After a change of one user's constraints, call `set_demand` instead.
        """
        if self.policy.counts_tasks:
            self._record(Pool.machines_changed)
            self._accrue_all()

    def set_part(self, part: float) -> bool:
        """Set the sum of the entitlements of all users of this pool, which is initially 1.

        Args:
            part: Fraction of the capacity. In a role tree, the parent's entitlement.

        Returns:
            True if the sum has changed.
        """
        if part == self._parameters.part:
            return False
        self._accrue_all()
        self._parameters.part = part
        self._note_new_part()
        return True

    def set_parts(self, parts: Mapping[str, float]) -> bool:
        """Set the fraction of each resource to which all users of this pool together are entitled.

        Args:
            parts: Fractions by resource: in a role tree, the parent's `entitlements`.

        Returns:
            True if a fraction has changed.
        """
        if parts == self._parameters.parts:
            return False
        self._accrue_all()
        self._parameters.parts = parts
        self._note_new_part()
        return True

    def _note_new_part(self) -> None:
        """Record that users' counted weights depend on a new part, unless all weights are 0."""
        if self.has_claims:
            self._counts_are_current = False

    @property
    def counts_for(self) -> float:
        """Limit of the weight with which a user counts in n, the total weight of the pool's users.

        A user's fraction of n is at most this multiple of the fraction of the resource that it
        uses. Infinite: each user counts with its whole weight.
        """
        return self._parameters.counts_for

    @property
    def keeps_share_commitments(self) -> bool:
        """Whether users with commitments in task shares keep commitments by resource, too."""
        return self._parameters.keeps_share_commitments

    @property
    def compares_by_resource(self) -> bool:
        """Whether policies compare with the entitlement to the compared resource."""
        return self._parameters.compares_by_resource

    @property
    def counted(self) -> Mapping[str, float]:
        """The total weight of the pool's users for each resource (n in the SDRF paper, Eq. 7).

        The most used resource comes first. Only pools whose users count by their use
        (`counts_for`) have these totals. In them, a user's weight is reduced if it uses little.
        """
        return self._parameters.totals

    def look(self, used: Mapping[User, Quantities] | None = None) -> None:
        """Sample how much of their allocations users really use. O(n).

        The samples determine each user's average use, and with `count_users` the entitlements.
        Between two samples, a user is assumed to have used the smaller of both.

        Args:
            used: Used resources by user, at most the user's allocation. None: users use all of
                their allocations.
        """
        run_to_completion(self.look_in_steps(used))

    def look_in_steps(self, used: Mapping[User, Quantities] | None = None) -> Cooperative[None]:
        """Generator form of `look`. The pool must not be used until the generator is exhausted."""
        yield from self.rate_in_steps()
        self._rate_changed()
        elapsed, tau = self._clock.now - self._sampled_at, self._parameters.tau
        self._sampled_at = self._clock.now
        if self._begins_by_use:
            self._summed_at = -math.inf
            tau = _RECENT if tau is None else tau
        for number, (user, account) in enumerate(self._accounts.items(), 1):
            if not number % _USERS_A_STEP:
                yield
            shares = account.shares
            if used is None:
                in_use = {name: share for name, share in shares.items() if share}
            elif (used_by_user := used.get(user)) is not None:
                parts = self._parameters.shares(used_by_user)
                in_use = {
                    name: min(part, shares[name])
                    for name, part in parts.items()
                    if part and shares.get(name)
                }
            elif account.in_use or account.mean_use:
                in_use = {}
            else:
                continue  # the user has used nothing, as thousands of names may
            self._counts_are_current = False
            account.use(in_use, elapsed, tau)

    def count_users(self, noticed: float = 0.0) -> bool:
        """Recompute entitlements from the use that the latest `look` sampled. O(n).

        Args:
            noticed: Entitlements change only if counted weights for a resource have changed, all
                users together, by more than this fraction of their total. Changes of different
                users do not cancel each other.

        Returns:
            True if entitlements may have changed.
        """
        return run_to_completion(self.count_users_in_steps(noticed))

    def count_users_in_steps(self, noticed: float = 0.0) -> Cooperative[bool]:
        """Generator form of `count_users`. The pool must not be used until it is exhausted."""
        totals, counted = yield from self._parameters.count_users(self._accounts)
        self.has_claims = bool(counted)
        if noticed and not self._count_changes(counted, noticed):
            return False
        yield from self._accrue_all_in_steps()
        self.set_counted(totals, counted)
        self._counts_are_current = True
        return True

    def _count_changes(self, counted: Mapping[User, Mapping[str, float]], noticed: float) -> bool:
        """Return whether counted weights change by more than the fraction `noticed` of a total.

        The weight of a removed user is a change.
        """
        earlier = self.counted
        changes, removed = dict[str, float](), dict(earlier)
        for user, weights in counted.items():
            before = self._accounts[user].counted
            for name, weight in before.items():
                removed[name] = removed.get(name, 0.0) - weight
            if weights != before:
                for name in {**weights, **before}:
                    change = abs(weights.get(name, 0.0) - before.get(name, 0.0))
                    changes[name] = changes.get(name, 0.0) + change
        return any(
            changes.get(name, 0.0) + abs(removed.get(name, 0.0)) > noticed * earlier.get(name, 0.0)
            for name in {**changes, **removed}
        )

    def set_counted(
        self, totals: Mapping[str, float], counted: Mapping[User, Mapping[str, float]]
    ) -> None:
        """Set the weight with which each user counts from now on, and so all entitlements.

        Only pools whose users count by their use (`counts_for`) need this.

        Args:
            totals: The sum of all users' counted weights, by resource.
            counted: New counted weights by user and resource; a user without an entry keeps its
                present ones.
        """
        self._record(Pool.set_counted, totals, counted)
        self._accrue_all()
        self._parameters.totals = totals
        self._counts_are_current = False
        for user, weights in counted.items():
            if user in self._accounts:
                self._accounts[user].counted = weights

    def set_named(self, user: User, named: bool) -> None:  # noqa: FBT001 - a setter
        """Set whether a user is named: an operator has declared the user or set its weight.

        A named user counts with its whole weight in n, the total weight of the pool's users,
        whatever it uses. The caller must also call this method for the user's ancestors in the role
        tree.

        Raises:
            KeyError: the user is not known.
        """
        account = self._account(user)
        if account.named != named:
            account.named = named
            self._counts_are_current = False

    def mean_use(self, user: User) -> Mapping[str, float]:
        """Return a user's decayed average shares in use, by resource, up to the latest `look`.

        Older use has less weight in the average: it decays as commitments do.

        Raises:
            KeyError: the user is not known.
        """
        return self._account(user).mean_use

    def accumulated_use(self, user: User) -> float:
        """Return the integral of a user's use over time, divided by its weight, in seconds.

        The integral is 0 under policies that do not rank by accumulated use.

        Raises:
            KeyError: the user is not known.
        """
        account = self._account(user)
        self.finish_rating()
        self._rate_again(account)
        return account.cumulative_at(self._clock.now) / account.weight

    def newcomers_use(self) -> float:
        """Return the accumulated use, divided by its weight, with which a new user would begin.

        Under policies with `begins_at_mean`, this is the mean of all users. With
        `newcomers_by_use` and a finite `counts_for`, each user counts by its recent mean use of the
        accumulated resource. If the mean of the users that still use the resource is larger, that
        mean applies. If no user has used the resource, each user counts by its allocation. So names
        that hold nothing do not change the mean. If no user holds the resource, all users count
        equally.

        The first call at each time costs O(n).
        """
        if not self.policy.begins_at_mean or not self._accounts:
            return 0.0
        now = self._clock.now
        if self._summed_at != now:
            self.finish_rating()
            for account in self._changed.values():
                self._rate_again(account)
            self._summed_at, accounts = now, self._accounts.values()
            by_use = self._begins_by_use
            self._summed_use = self._mean_by_use(accounts) if by_use else self._sum_of_use(accounts)
        return self._summed_use if self._begins_by_use else self._summed_use / len(self._accounts)

    def _sum_of_use(self, accounts: Collection[Account]) -> float:
        """Return the sum of the accumulated use of users, each divided by the user's weight."""
        summed = 0.0
        for account in accounts:  # `sum` rounds otherwise in newer Pythons
            summed += account.cumulative_at(self._clock.now) / account.weight
        return summed

    def _mean_by_use(self, accounts: Collection[Account]) -> float:
        """Return the mean accumulated use over the weight of at least one user, weighted by use.

        Users count by their recent mean use. The mean of the users that still use resources takes
        its place if it is larger. Otherwise, a user that takes one new name after another would
        leave names with little use, which lower the mean.
        """
        mean = self._weighted_mean(accounts, [account.mean_use for account in accounts])
        if mean is not None:
            lasting = [
                {name: min(use, user.in_use.get(name, 0.0)) for name, use in user.mean_use.items()}
                for user in accounts
            ]
            present = self._weighted_mean(accounts, lasting)
            return mean if present is None else max(mean, present)
        held = [self._parameters.shares(account.allocation) for account in accounts]
        mean = self._weighted_mean(accounts, held)
        return self._sum_of_use(accounts) / len(accounts) if mean is None else mean

    def _weighted_mean(
        self, accounts: Collection[Account], shares: Sequence[Mapping[str, float]]
    ) -> float | None:
        """Return the mean accumulated use over the weight of users that count by their shares.

        Args:
            accounts: The users.
            shares: For each user, shares by resource.

        Returns:
            The mean; None if no user has a share of the accumulated resource.
        """
        probe, now, total, summed = Account(weight=1.0, settled_at=0.0), self._clock.now, 0.0, 0.0
        for account, own in zip(accounts, shares, strict=True):
            probe.shares = dict(own)
            use = self.policy.rate_of_use(probe)
            total += use
            summed += use * (account.cumulative_at(now) / account.weight)
        return summed / total if total else None

    def set_mean_use(self, user: User, shares: Mapping[str, float]) -> None:
        """Set a user's average shares in use by resource, for example as saved from a former pool.

        Raises:
            KeyError: the user is not known.
        """
        self._account(user).mean_use = shares
        self._counts_are_current = False
        if self._begins_by_use:
            self._summed_at = -math.inf

    def add(
        self, user: User, weight: float = 1.0, *, commitment: float | Mapping[str, float] = 0.0
    ) -> None:
        """Make a user known. The user is not active yet, so it is not ranked.

        Args:
            user: A new id.
            weight: The user's entitlement is proportional to this weight.
            commitment: The user's initial commitment as a fraction of the capacity: one number for
                every resource, or numbers by resource name.

        Raises:
            ValueError: the user is known, or a number is out of range.
        """
        if user in self._accounts:
            raise ValueError(f"user {user!r} is known already")
        account = Account(weight=in_range(user, weight), settled_at=self._clock.now)
        account.set_debts(user, commitment)
        self._record(Pool.add, user, weight)
        self.finish_rating()
        account.cumulative = self.newcomers_use() * weight
        account.compares_by_resource = self._parameters.compares_by_resource
        if not self._begins_by_use:
            self._summed_use += account.cumulative / weight
        alone = self._parameters.counts_by_use
        if not alone:
            self._accrue_all()
        self._accounts[user] = account
        self._parameters.reweigh(weight, 0.0)
        if self._meter is not None:
            account.counted_until = max(self._clock.now, self._meter.since)
        if alone and not self._unrated:
            self._parameters.rate(account)
            self._new_trajectories.add(user)

    def remove(self, user: User) -> None:
        """Forget a user and its commitments.

        Raises:
            KeyError: the user is not known.
            ValueError: the user still has an allocation.
        """
        account = self._account(user)
        if account.allocation:
            raise ValueError(f"user {user!r} still holds {account.allocation}")
        self.finish_rating()
        self.set_active(user, False)
        self._record(Pool.remove, user)
        if self._parameters.counts_by_use:
            self._meter_span(user, account)
            self._changed.pop(user, None)
            if account.ranked and not self._unranked:
                self._ranking.delete(user)
            self._new_trajectories.discard(user)
        else:
            self._accrue_all()
        self._summed_at = -math.inf
        if account.in_use or account.mean_use or account.named or account.counted:
            self._counts_are_current = False
        del self._accounts[user]
        self._parameters.reweigh(0.0, account.weight)

    def set_weight(self, user: User, weight: float) -> None:
        """Change a user's weight.

        Raises:
            KeyError: the user is not known.
            ValueError: the weight is not a positive number.
        """
        account = self._account(user)
        in_range(user, weight)
        self._record(Pool.set_weight, user, weight)
        self._accrue_all()
        self._parameters.reweigh(weight, account.weight)
        self._summed_at = -math.inf
        account.weight = weight
        self._counts_are_current = False

    def set_commitment(
        self, user: User, commitment: float | Mapping[str, float], *, others: float = 0.0
    ) -> None:
        """Replace a user's commitments, which are fractions of the capacity.

        Args:
            user: A known user.
            commitment: One number for every resource, or numbers by resource name.
            others: The commitment for resources that `commitment` does not name.

        Raises:
            KeyError: the user is not known.
            ValueError: a commitment is negative or not finite.
        """
        account = self._account(user)
        self._accrue_all()
        account.set_debts(user, commitment, others)

    def set_demand(self, user: User, demand: Quantities | None) -> None:
        """Set the resources that one task of a user needs. O(classes of machines).

        Call this method also after a change of the machines that the user's tasks may run on.

        Args:
            user: A known user.
            demand: Resources of one task. None: the demand is unknown.

        Raises:
            KeyError: the user is not known.
        """
        account = self._account(user)
        self.finish_rating()
        rated = self.policy.counts_tasks and not self._unrated
        if rated:
            self._accrue(user, account)
        former, account.demand = account.demand, self._parameters.counted(demand)
        if account.demand != former:
            self._parameters.renew_task_commitment(account, former)
        self._record(Pool.set_demand, user, account.demand)
        if rated:
            if not self._all_trajectories_new:
                self._new_trajectories.add(user)
            self._parameters.count_tasks(user, account)
            self._note_change(user, account)

    def set_active(self, user: User, active: bool) -> None:  # noqa: FBT001 - a setter
        """Set whether a user is active. Only active users, which want resources, are ranked.

        Raises:
            KeyError: the user is not known.
        """
        account = self._account(user)
        if account.active == active:
            return
        if self._unrated:
            self.finish_rating()
        self._meter_span(user, account)
        account.active = active
        self._record(Pool.set_active, user, active)
        if active and not account.allocation:
            self._last_queue_place += 1
            account.turn = self._last_queue_place
        self._active += 1 if active else -1
        if self._unranked:
            return
        if self._ranks_late:
            self._changed[user] = account
            self._must_place = True
            if self._shares_clock and len(self._changed) > _USERS_A_STEP:
                self._clock.unranked[self] = None
            return
        if self._changed.pop(user, None) is not None:
            self._rate_again(account)
        self._ranking.advance(self._phase())
        self._rank_changed({user: account})

    def allocate(self, user: User, quantities: Quantities, *, times: int = 1) -> None:
        """Add resources to a user's allocation.

        Args:
            user: A known user.
            quantities: The resources to add.
            times: Number to add to the user's allocation count. Among users with equal priorities,
                the user with the lowest count comes first.

        Raises:
            KeyError: the user is not known.
        """
        account = self._account(user)
        self._hold(user, account, account.allocation + quantities, account.count + times)

    def release(self, user: User, quantities: Quantities) -> None:
        """Subtract resources from a user's allocation.

        Raises:
            KeyError: the user is not known.
            ValueError: the allocation is smaller than the quantities; nothing has changed.
        """
        account = self._account(user)
        try:
            remaining = account.allocation - quantities
        except ValueError as error:
            raise ValueError(f"user {user!r}: {error}") from None
        self._hold(user, account, remaining, account.count)

    def hold(self, user: User, quantities: Quantities, gifts: int) -> None:
        """Replace a user's allocation and allocation count.

        Args:
            user: A known user.
            quantities: The new allocation.
            gifts: The new allocation count: how often resources were allocated to the user.

        Raises:
            KeyError: the user is not known.
        """
        self._hold(user, self._account(user), quantities, gifts)

    def held(self, user: User | None = None) -> Quantities:
        """Return the allocation of a user. Without an argument, return the sum of all allocations.

        Raises:
            KeyError: the user is not known.
        """
        if user is not None:
            return self._account(user).allocation
        return sum((account.allocation for account in self._accounts.values()), start=Quantities())

    def entitlement(self, user: User) -> float:
        """Return the fraction of the capacity that a user is entitled to.

        If users count by their use, this is the entitlement to the user's dominant resource.

        Raises:
            KeyError: the user is not known.
        """
        return self._parameters.entitlement(self._account(user))

    def entitlements(self, user: User) -> Mapping[str, float]:
        """Return the fraction of each resource to which a user is entitled, if users count by use.

        Raises:
            KeyError: the user is not known.
        """
        return self._parameters.entitlements(self._account(user))

    def minimum(self) -> User:
        """Return the active user with the lowest priority value, which is served first.

        Raises:
            KeyError: no user is active.
        """
        if not self._active:
            raise KeyError("no user is active")
        self._update_order()
        first_user: User = self._ranking.minimum()
        if self._has_levels and self._active > 1:
            first_user = next(self._ranking.by_level(self._in_order))
        return first_user

    def standing(self, user: User) -> Standing[User]:
        """Return a user's present shares, commitments and priority.

        Raises:
            KeyError: the user is not known.
        """
        self._update_order()
        return standing(
            self.policy, self._parameters.tau, user, self._account(user), self._clock.now
        )

    def commitments(self, user: User) -> dict[str, float]:
        """Return a user's present commitments by resource, as fractions of the capacity.

        Raises:
            KeyError: the user is not known.
        """
        self._update_order()
        return self._account(user).commitments_at(self._clock.now, self._parameters.tau)

    def standings(self) -> list[Standing[User]]:
        """Return the present standings of all known users, in order of priority."""
        return self.standings_at(self._clock.now)

    def standings_at(self, when: float) -> list[Standing[User]]:
        """Return the standings of all known users at a later time, in order of priority.

        The standings hold if no allocation or parameter changes until then.

        Args:
            when: A time in seconds, not before the pool's.
        """
        standings = self.still().standings_at(when)
        return sorted(standings, key=lambda standing: (standing.priority, standing.user))

    def still(self) -> "PoolSnapshot[User]":
        """Return a copy of all accounts, from which standings can be computed later. O(n).

        Later changes of the pool do not affect the snapshot. The call takes about two microseconds
        a user.
        """
        return run_to_completion(self.still_in_steps())

    def still_in_steps(self) -> "Cooperative[PoolSnapshot[User]]":
        """Generator form of `still`. The pool must not be used until it is exhausted."""
        yield from self.rate_in_steps()
        self._rate_changed()
        accounts: dict[User, Account] = {}
        for number, (user, account) in enumerate(self._accounts.items(), 1):
            accounts[user] = account.copy()
            if not number % _USERS_A_STEP:
                yield
        return PoolSnapshot(
            self.policy, self._parameters.tau, self._parameters.capacity, self._clock.now, accounts
        )

    def twin(self, clock: PoolClock | None = None) -> "Pool[User]":
        """Return an independent copy of this pool, for hypothetical changes. O(n).

        Args:
            clock: The clock of the copy, with the pool's present time; None: a new clock.
        """
        self._rate_changed()
        fork: Pool[User] = Pool(self.policy, now=self._clock.now, clock=clock)
        fork._has_levels, fork._rounds_keys = self._has_levels, self._rounds_keys
        fork._forgets_held, fork._offset = self._forgets_held, self._offset
        fork._parameters = self._parameters.copy()
        fork._base, fork._last_queue_place, fork._active = (
            self._base,
            self._last_queue_place,
            self._active,
        )
        fork.newcomers_by_use = self.newcomers_by_use
        fork._begins_by_use = self._begins_by_use
        fork.has_claims = self.has_claims
        fork._counts_are_current = self._counts_are_current
        fork._accounts = {user: account.copy() for user, account in self._accounts.items()}
        fork._accrue_all()
        return fork

    def attribute(self, user: User) -> Any:  # noqa: ANN401 - the policy's own
        """Return a user's priority as a function of the policy's phase, as the ranking stores it.

        The type depends on the policy, for example `Envelope` for SDRF.

        Raises:
            KeyError: the user is not known.
        """
        self._update_order()
        return self._attribute(self._account(user), self._phase())

    def phase_at(self, when: float) -> float:
        """Return the policy's phase (seconds, or −e^(−t/τ)) at a time in seconds."""
        return self.policy.phase(when - self._base)

    def instant(self, phase: float) -> float:
        """Return the pool's time in seconds at which the policy reaches a phase.

        Inverse of `phase_at`. The result is never before the pool's present time.
        """
        return max(self._base + self.policy.elapsed(phase), self._clock.now)

    def take_diverted(self) -> Collection[User] | None:
        """Return the users whose commitment trajectory may have changed since the last call.

        Returns:
            The users. None: the trajectory of any user may have changed.
        """
        diverted = None if self._all_trajectories_new else self._new_trajectories
        self._new_trajectories, self._all_trajectories_new = set(), False
        return diverted

    @property
    def excluded(self) -> frozenset[str]:
        """Names of resources that do not count in shares."""
        return self._parameters.excluded

    @property
    def machines(self) -> Machines[User]:
        """The machines that make up the capacity."""
        return self._parameters.machines

    def keep_journal(self) -> deque[JournalEntry]:
        """Start a journal of all changes and return it. A second pool can then repeat the changes.

        The pool appends an entry for each change; the caller may remove entries from the left.
        Changes of commitments alone are not recorded.
        """
        self._journal = deque()
        return self._journal

    def accounts(self) -> Mapping[User, Account]:
        """Return all accounts by user, for reading only."""
        return self._accounts

    def course(self, user: User) -> CommitmentTrajectory:
        """Return a user's present commitments, and the over-use that they approach. O(resources).

        Later commitments can be computed from these values until the allocation changes.

        Raises:
            KeyError: the user is not known.
        """
        self._update_order()
        account = self._account(user)
        return CommitmentTrajectory(
            account.settled_at,
            dict(account.commitments),
            dict(account.overuse),
            account.inherited,
        )

    def debts(self, user: User) -> tuple[dict[str, float], float]:
        """Return a user's present commitments, as fractions of the capacity. O(resources).

        Returns:
            The commitments by resource, and the one commitment for all resources without an entry.

        Raises:
            KeyError: the user is not known.
        """
        account = self._account(user)
        if account.settled_at < self._clock.now:
            self._rate_changed()
        now, tau = self._clock.now, self._parameters.tau
        return account.commitments_at(now, tau), account.inherited_at(now, tau)

    def crossings(self) -> Iterator[Crossing[User]]:
        """Yield upcoming changes of the order, soonest first, if no allocation changes.

        At the time `when` in seconds, the user `right` passes the user `left`. Only policies whose
        priorities change with time have crossings. At some crossings the order turns out not to
        change.
        """
        self._update_order()
        for phase, passed, passing in self._ranking.crossings():
            yield Crossing(self.instant(phase), passed, passing)

    def __contains__(self, user: object) -> bool:
        return user in self._accounts

    def __len__(self) -> int:
        return len(self._accounts)

    def __iter__(self) -> Iterator[User]:
        """Iterate over active users, first served first. The pool must not change meanwhile."""
        # A single user is first with any allocation.
        if self._active > 1 or self._unranked or self._must_place:
            self._update_order()
            if self._has_levels:
                if self._watch is not None:
                    iter(self._ranking)  # the watch counts calls of `__iter__`
                return self._ranking.by_level(self._in_order)
        return iter(self._ranking)

    def _in_order(self, near: list[Iterable[User]]) -> Iterable[User]:
        """Sort users whose priorities are equal except for rounding errors; for `by_level`.

        A ranking computes a user's priority from a line, with rounding errors that differ between
        users. So this method sorts by `Policy.level`, which avoids these differences, and then by
        allocation count. O(k log k) for k users.

        Args:
            near: Groups of users. The users of a group have the same priority function and are in
                order.
        """
        accounts = self._accounts
        keys = [
            (*self._level_key(accounts[user]), accounts[user].count, user)
            for part in near
            for user in part
        ]
        users = [user for *_, user in sorted(keys)]
        if isinstance(self.policy, Sdrf) and len(near) > _MANY_NEAR:
            self._near_users = users
        return users

    def _merge_near_users(self) -> None:
        """Treat commitments that have almost decayed as 0, for users with nearly equal priorities.

        Users with equal allocations then have the same priority function, so later reads need not
        sort them. The order does not change, because `Sdrf.level` ignores such small commitments,
        too.
        """
        phase = self._phase()
        for user in self._near_users:
            account = self._accounts.get(user)
            if account is not None and account.active and user not in self._changed:
                attribute: Any = self._attribute(account, phase)
                constant = attribute.constant_if_decayed(-phase)
                if constant is not attribute:
                    self._ranking.replace(user, constant)
        self._near_users = []

    def holding(self, user: User) -> tuple[Quantities, int]:
        """Return a user's allocation, and how often resources were allocated to the user.

        Raises:
            KeyError: the user is not known.
        """
        account = self._account(user)
        return account.allocation, account.count

    def prospect(self, user: User) -> "RankPreview":
        """Return a user's present rank, and a function for its rank with another allocation.

        Allocation cycles compute ranks of hypothetical allocations with this function. It does not
        change the pool.

        Raises:
            KeyError: the user is not known.
        """
        account = self._account(user)
        if self._has_levels:  # these policies rank without the order of other users
            self._rate_if_needed()
            self._rate_again(account)
        else:
            self._update_order()
        accrued = account.settled(self._clock.now, self._parameters.tau)
        accrued.count = 0
        if self._has_levels:
            return self._level_preview(accrued)
        phase = self._phase()
        current = self.policy.rank(self._attribute(account, phase), phase)
        _, priority, remainder, _ = current[0]
        fixed = not self.policy.moves_at_once

        def rank(allocation: Quantities) -> tuple[Rank, float]:
            accrued.allocation = allocation
            self._parameters.rate_allocation(accrued)
            rank_then, tolerance = self.policy.rank(self._attribute(accrued, phase), phase)
            if fixed:  # and rounding must not change the rank task by task
                rank_then = rank_then[0], priority, remainder, rank_then[3]
            return rank_then, tolerance

        kind = self._likeness(accrued)
        return RankPreview(current, (kind, priority, remainder) if fixed else kind, rank)

    def _level_preview(self, accrued: Account) -> "RankPreview":
        """Return a user's rank preview under a policy that treats nearly equal priorities as equal.

        Such policies set `has_levels`.

        Args:
            accrued: A copy of the user's account, with commitments moved forward to now. The
                preview changes this copy.
        """
        policy = self.policy
        moves = policy.moves_at_once
        first, current, growth = self._level_key(accrued)
        tolerance = 4.0 * NEAR * max(abs(current), 1.0) if moves else 0.0
        kind = self._likeness(accrued)
        ranks = _LevelRanks(self, accrued, None if moves else current, tolerance)
        now = (first, current, (), growth), tolerance
        return RankPreview(now, kind if moves else (kind, current), ranks.rank_of)

    def _level_rank(self, account: Account, allocation: Quantities) -> tuple[int, float, float]:
        """Give an account an allocation, and return the key of its `Policy.level` then."""
        account.allocation = allocation
        self._parameters.rate_allocation(account)
        return self._level_key(account)

    def local_share(self, user: User, held: Quantities, machine: Quantities) -> float:
        """Return a user's dominant share of one machine, divided by the user's weight.

        Policies that rank users on each machine separately use this number.

        Args:
            user: A known user.
            held: Resources that the user holds on the machine.
            machine: Total resources of the machine.

        Raises:
            KeyError: the user is not known.
        """
        share = local_share(self._account(user), held, machine)
        return forty_bits(share) if self._rounds_keys else share

    def users(self) -> Collection[User]:
        """Return all known users."""
        return self._accounts.keys()

    def order_on(self, machine: Quantities, held: Mapping[User, Quantities]) -> Iterator[User]:
        """Yield active users in the order in which they are offered one machine.

        The order differs from the pool's order only under a policy that ranks per machine. Then it
        costs O(k log k) more for the k users that hold resources on the machine.

        Args:
            machine: Total resources of the machine.
            held: Resources of the machine that users hold, by user; missing users hold nothing.
        """
        if not self.policy.per_machine:
            yield from self
            return
        holders = []
        for position, user in enumerate(self):
            if user in held:
                holders.append((self.local_share(user, held[user], machine), position, user))
            else:
                yield user
        for _share, _place, user in sorted(holders, key=lambda holder: holder[:2]):
            yield user

    def _account(self, user: User) -> Account:
        """Return a user's account.

        Raises:
            KeyError: the user is not known.
        """
        try:
            return self._accounts[user]
        except KeyError:
            raise KeyError(f"user {user!r} is not known") from None

    def _hold(self, user: User, account: Account, allocation: Quantities, count: int) -> None:
        """Accrue a user's account up to now, then replace its allocation and allocation count."""
        if self._unrated:
            self.finish_rating()
        unchanged = count == account.count and allocation is account.allocation
        if unchanged and account.rated and not account.accrues:
            return
        if not self._unrated:
            self._accrue(user, account)
        account.allocation = allocation
        account.count = count
        if not self._all_trajectories_new:
            self._new_trajectories.add(user)
        if self._journal is not None:  # seldom, so the arguments are packed only then
            self._record(Pool.hold, user, allocation, count)
        if not self._unrated:
            self._note_change(user, account)

    def _record(self, method: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - its
        """Append a call of a public method to the journal, if a journal is kept."""
        if self._journal is not None:
            self._journal.append((self._clock.now, method, arguments))

    def _accrue(self, user: User, account: Account) -> None:
        """Move a user's commitments forward to now, before the user's allocation changes."""
        if account.counted_until < self._clock.now:
            self._meter_span(user, account)
        if self._parameters.remembers and account.settled_at < self._clock.now:
            self._rate_again(account)
            account.settle(self._clock.now, self._parameters.tau)

    def _meter_span(self, user: User, account: Account) -> None:
        """Pass a user's usage since the last call to the meter, if one is attached.

        Call this method before the account changes, because the usage is computed from its present
        values. The meter may integrate later: it keeps the account's dictionary of commitments,
        which accrual replaces instead of changing it.
        """
        meter, now, at = self._meter, self._clock.now, account.counted_until
        if meter is None or not at < now or self._unrated:
            return
        self._rate_again(account)
        account.counted_until = now
        counted = meter.counted
        counted.spans.append(
            (
                str(user),
                at,
                now,
                self._parameters.capacity,
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
        """Record that a user's priority must be recomputed, at the next read of the order.

        If the pool has a `watch`, which counts operations, the priority is recomputed at once.
        """
        self._changed[user] = account
        account.rated = False
        if self._watch is not None:
            self._update_order()

    def _accrue_all(self) -> None:
        """Move all users' commitments forward to now, before a parameter of the pool changes.

        The next read then recomputes all users' shares, over-use and priorities.
        """
        if not (self._unrated and self._accrued_at == self._clock.now):
            run_to_completion(self._accrue_all_in_steps())

    def _accrue_all_in_steps(self) -> Cooperative[None]:
        """Generator form of `_accrue_all`."""
        if self._unrated and self._accrued_at == self._clock.now:
            return
        if self._must_rate:
            yield from self.rate_in_steps()
        self._rate_changed_accounts()
        self._changed.clear()
        if (
            self._parameters.remembers
            or self._parameters.tau is not None
            or self._meter is not None
        ):
            for number, (user, account) in enumerate(self._accounts.items(), 1):
                self._meter_span(user, account)
                account.settle(self._clock.now, self._parameters.tau)
                if not number % _USERS_A_STEP:
                    yield
        self._accrued_at = self._clock.now
        self._unrated = self._unranked = self._all_trajectories_new = True
        self._new_trajectories.clear()
        if self._shares_clock:
            remembers = self._parameters.remembers or self._meter is not None
            self._clock.note_change(self, remembers=remembers)

    def _update_order(self) -> None:
        """Move the ranking to now, and rank the users whose allocation has changed."""
        if self._unrated or self._unranked:
            self._rate_if_needed()
            self._rank_if_needed()
        self._move_ranking()
        self._rank_changed(self._changed)
        self._changed.clear()
        self._must_place = False

    def _move_ranking(self) -> None:
        """Move the ranking to the present time."""
        self._ranking.advance(self._phase())
        if self._near_users:
            self._merge_near_users()

    def _rank_changed(self, changed: Mapping[User, Account]) -> None:
        """Rank users whose accounts have changed; the ranking must be at the present time.

        Args:
            changed: The accounts by user.
        """
        ranking, phase = self._ranking, self._phase()
        arrived: list[tuple[User, Any]] = []
        for user, account in changed.items():
            self._rate_again(account)
            if not account.active:
                if account.ranked:
                    ranking.delete(user)
            elif account.ranked:
                ranking.replace(user, self._attribute(account, phase))
            else:
                arrived.append((user, self._attribute(account, phase)))
            account.ranked = account.active
        if arrived:
            ranking.insert_all(arrived)

    def _rate_changed(self) -> None:
        """Compute shares and over-use of users whose allocation has changed; do not rank them."""
        self._rate_if_needed()
        self._rate_changed_accounts()

    def _rate_changed_accounts(self) -> None:
        for account in self._changed.values():
            self._rate_again(account)

    def _rate_again(self, account: Account) -> None:
        """Rate an account, if its allocation or demand has changed since it was last rated."""
        if not account.rated:
            account.rated = True
            self._parameters.rate_allocation(account)

    def _rate_if_needed(self) -> None:
        """Compute all users' shares and over-use, if a parameter of the pool has changed."""
        if self._unrated:
            run_to_completion(self.rate_in_steps())

    def rate_in_steps(self) -> Cooperative[None]:
        """Compute all users' shares and over-use, if a parameter of the pool has changed.

        Generator for cooperative steps. The pool must not be used until it is exhausted.
        """
        if self._unrated:
            for number, (user, account) in enumerate(self._accounts.items(), 1):
                self._parameters.count_tasks(user, account)
                self._parameters.rate(account)
                if not number % _USERS_A_STEP:
                    yield
            self._unrated = False

    def _rank_if_needed(self) -> None:
        """Fill a new ranking with all active users, if a parameter of the pool has changed.

        The users' shares and over-use must have been computed.
        """
        if self._unranked:
            run_to_completion(self._rank_in_steps())

    def _rank_in_steps(self) -> Cooperative[None]:
        """Generator form of `_rank_if_needed`."""
        if not self._unranked:
            return
        self._rate_changed_accounts()
        self._changed.clear()
        phase, accounts = self._phase(), self._accounts
        self._events += self._ranking.events
        # Few users will have moved, so the earlier order sorts fast. A watch counts all work.
        earlier_order = dict.fromkeys(self._ranking if self._watch is None else ())
        ranking, elements = self._new_ranking(phase), list[tuple[User, Any]]()
        for number, user in enumerate(earlier_order | dict.fromkeys(accounts), 1):
            if user in accounts:
                account = accounts[user]
                account.ranked = account.active
                if account.active:
                    elements.append((user, self._attribute(account, phase)))
            if not number % _USERS_A_STEP:
                yield
        yield from ranking.fill_in_steps(elements)
        self._ranking, self._unranked, self._must_place = ranking, False, False

    def _new_ranking(self, phase: float) -> Ranking[Any, Any]:
        """Return an empty ranking that begins at a phase.

        If the pool has a `watch`, this is the ranking that the watch returns for the new one.
        """
        ranking = self.policy.new_ranking(phase)
        return ranking if self._watch is None else self._watch(ranking)

    def _likeness(self, account: Account) -> Hashable:
        """Return all values on which a user's rank depends, except for its allocation.

        Users with equal values get equal ranks for equal allocations, so ranks can be shared.
        """
        # Users count by their use, so users of equal weight can have different guarantees.
        guarantees = self._parameters.compares_by_resource and self.policy.has_guarantees
        return (
            account.weight,
            account.inherited,
            frozenset(account.commitments.items()),
            account.cumulative,
            account.demand and frozenset(account.demand.items()),
            account.monopoly,
            account.constrained_monopoly,
            account.turn if self.policy.queues else 0,
            tuple(account.entitlements.values()) if guarantees else (),
        )

    def _attribute(self, account: Account, phase: float) -> object:
        """Return a user's priority as a function of the phase, as the ranking stores it.

        Keys of a `KeyPolicy` are rounded, so that rounding errors do not break ties.
        """
        if self._sdrf and not self._forgets_held:
            return self._sdrf_priority(account, self._base, phase)
        attribute = self.policy.attribute(account, self._base, phase)
        if self._rounds_keys:  # users with other weights have other rounding errors
            return forty_bits(attribute[0]), attribute[1]
        if self._forgets_held:
            attribute.held = 0.0
        return attribute

    def _phase(self) -> float:
        """Return the policy's phase (seconds, or −e^(−t/τ)) at the pool's present time."""
        if self._sdrf:
            return decay_phase(self._clock.now - self._base, self._tau)
        return self.policy.phase(self._clock.now - self._base)

    def _level_key(self, account: Account) -> tuple[int, float, float]:
        """Return the key of a user's present `Policy.level`."""
        now = self._clock.now
        if self._sdrf:
            priority = self._sdrf_priority(account, now, -1.0)  # the phase at `now` is −1
            return level_key(priority, self._offset)
        return self.policy.level(account, now).key_after(self._offset)

    def _sdrf_priority(self, account: Account, base: float, phase: float) -> Envelope:
        """Return the result of `Sdrf.attribute`."""
        factor = stretch(account.settled_at, base, self._tau) / account.weight
        return commitment_envelope(account, factor, -phase, thesis=self._sdrf == "thesis")


def _sdrf_form(policy: Policy) -> str:
    """Return the form of SDRF; empty if the policy computes priorities in another way."""
    if not isinstance(policy, Sdrf):
        return ""
    kind = type(policy)
    if (
        kind.attribute is Sdrf.attribute
        and kind.level is Sdrf.level
        and kind.phase is DecayPolicy.phase
        and kind.stretch is DecayPolicy.stretch
    ):
        return policy.form
    return ""


def restore_accumulated_use(
    pool: Pool[User], amounts: Mapping[User, float], newcomers: Collection[User] = ()
) -> None:
    """Set the accumulated use of users, for example as saved from a former pool.

    Args:
        pool: The users' pool.
        amounts: By known user, the integral of its use over time in share × seconds, not divided by
            its weight.
        newcomers: Known users that begin as new users, who join the users of `amounts`.

    Raises:
        KeyError: a user is not known.
    """
    pool._accrue_all()  # noqa: SLF001 - of this module
    accounts = pool.accounts()
    restored = [accounts[user] for user in amounts]
    for account, amount in zip(restored, amounts.values(), strict=True):
        account.cumulative = amount
    if pool.policy.begins_at_mean and restored:
        if pool._begins_by_use:  # noqa: SLF001 - of this module
            mean = pool._mean_by_use(restored)  # noqa: SLF001 - of this module
        else:
            mean = sum(account.cumulative / account.weight for account in restored) / len(restored)
        for user in newcomers:
            accounts[user].cumulative = mean * accounts[user].weight
    pool._summed_at = -math.inf  # noqa: SLF001 - of this module


class _LevelRanks:
    """Computes the rank that a user would have with another allocation.

    The user's policy sets `has_levels`.

    A nested function in place of this class would refer to itself if compiled, so that only the
    garbage collector could free it.

    Args:
        pool: The user's pool.
        accrued: A copy of the user's account, with commitments moved forward to now.
        priority: The priority with each allocation; None: the allocation determines the priority.
        tolerance: The tolerance of each rank.
    """

    __slots__ = ("_accrued", "_pool", "_priority", "_tolerance")

    def __init__(
        self, pool: Pool[Any], accrued: Account, priority: float | None, tolerance: float
    ) -> None:
        self._pool, self._accrued = pool, accrued
        self._priority, self._tolerance = priority, tolerance

    def rank_of(self, allocation: Quantities) -> tuple[Rank, float]:
        """Return the user's rank with an allocation, and the rank's tolerance."""
        first, value, growth = self._pool._level_rank(  # noqa: SLF001 - its own kind
            self._accrued, allocation
        )
        priority = value if self._priority is None else self._priority
        return (first, priority, (), growth), self._tolerance
