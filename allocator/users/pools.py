"""The pools of the user tree: one for the top-level users, one for each user with sub-users."""

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import Generic

from allocator.compilation import mypyc_attr
from allocator.cooperative import Cooperative, run_to_completion
from allocator.fairness.framework_sorter import FrameworkSorter
from allocator.fairness.machines import Machines
from allocator.fairness.metering import Meter
from allocator.fairness.pool import Pool, PoolClock
from allocator.fairness.quantities import Quantities
from allocator.users.settings import UserSettings
from allocator.users.user import Client, ClientDemands, User, UserTask, depth_of

LOOK = 5.0
"""Seconds between two samples of the users' use, from which counted weights are computed."""
_USERS_A_STEP = 200
"""Users of small pools in a cooperative step."""
_POOLS_A_STEP = 1000
"""Pools in a cooperative step of the search for pools with uncounted users."""
_THRESHOLD = 0.01
"""If a sample changes the total counted weight of a pool by a smaller fraction, the pool keeps
its counted weights."""


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class UserPools(Generic[Client]):
    """All pools of users, with one common time, capacity and time constant of decay.

    A user's entitlement is a fraction of the pool's resources: w / (w + o). Here, w is the user's
    weight, and o is the sum of the *counted weights* of the other users. The setting `counts_for`
    limits a user's counted weight by the resources that the user uses. These resources are then
    sampled once in each period of `LOOK` seconds.

    All pools share a clock, so an event costs O(changed pools).
    """

    def __init__(self, settings: UserSettings, now: float, excluded: tuple[str, ...]) -> None:
        self._policy = settings.policy
        self._exact_ties, self._steps_from_zero = settings.exact_ties, settings.steps_from_zero
        self._keeps_share_commitments = settings.demands_must_agree
        self._compares_by_resource = settings.compares_by_resource
        self._newcomers_by_use = settings.newcomers_by_use
        self._excluded = excluded
        self._capacity = Quantities()
        self._charging = True
        self._meter: Meter | None = None
        self._counts_for = math.inf if settings.counts_for is None else settings.counts_for
        self._sampled_period = -math.inf
        """Number of the `LOOK` period in which use was sampled last."""
        self._recount_due = False
        """True if counted weights must be recomputed before anything else."""
        self._outdated: dict[User[Client], None] = {}
        """Users with sub-users whose entitlements must be updated."""
        self._all_outdated = False
        """True if the next update of entitlements must visit all pools, because resources were
        added to the cluster."""
        self._sampled: dict[User[Client], None] = {}
        """Users whose sub-users may have a counted weight above 0, because of present or past
        use."""
        self.clock = PoolClock(now)
        """The time of all pools."""
        self._by_base: OrderedDict[Pool[str], None] = OrderedDict()
        """All pools, in order of the time at which their policies' phases begin."""
        self.tau = settings.policy.tau
        """Time constant of decay in seconds: the policy's. If the policy has no commitments, the
        time constant of the previous policy."""
        self.machines: Machines[str] = Machines()
        self._sub_pools: dict[User[Client], Pool[str]] = {}
        """user → pool of its sub-users, ancestors first; begins with the root"""
        self.root: User[Client] = User("", None, self.new_clients())
        """The artificial root of the users, whose children are the top-level users."""
        self.top: Pool[str] = self.begin(self.root)
        """The pool of the top-level users."""

    @property
    def now(self) -> float:
        """The time of all pools, in seconds since the Unix epoch."""
        return self.clock.now

    def __iter__(self) -> Iterator[Pool[str]]:
        """Iterate over all pools, the top-level pool first."""
        yield from self._sub_pools.values()

    def begin(self, user: User[Client]) -> Pool[str]:
        """Create and return the pool of sub-users for a user that has none."""
        pool = self._new_pool()
        user.sub_pool = self._sub_pools[user] = pool
        self._by_base[pool] = None
        self._sampled[user] = None
        self.mark_outdated(user)
        return pool

    def end(self, user: User[Client]) -> None:
        """Remove the pool of a user's sub-users, which must be empty but for the virtual leaf."""
        pool = self._sub_pools.pop(user)
        del self._by_base[pool]
        self._sampled.pop(user, None)
        self._outdated.pop(user, None)
        self.clock.forget(pool)
        user.sub_pool = None
        self.machines.restrict(user.leaf, None)

    def fork(self) -> "UserPools[Client]":
        """Return an independent copy of all pools and users. O(users).

        The copy has no meter, and shares the framework sorters and machines. Entitlements must be
        up to date.
        """
        pools: UserPools[Client] = copy(self)
        pools._meter = None
        pools.clock = PoolClock(self.now)
        pools._sub_pools, pools._outdated = {}, {}
        pools.root = self.root.fork(None)
        pools._fork_below(self.root, pools.root)
        pools._sampled = dict.fromkeys(pools._sub_pools)
        pools.top = pools._sub_pools[pools.root]
        by_base = sorted(pools._sub_pools.values(), key=lambda pool: pool.base)
        pools._by_base = OrderedDict.fromkeys(by_base)
        return pools

    def _fork_below(self, user: User[Client], forked: User[Client]) -> None:
        """Copy the pool and the descendants of a user to the user's copy."""
        if user.sub_pool is None:
            return
        self._sub_pools[forked] = forked.sub_pool = user.sub_pool.twin(self.clock)
        for name, child in user.children.items():
            forked.children[name] = child.fork(forked)
            self._fork_below(child, forked.children[name])

    def mark_outdated(self, user: User[Client]) -> None:
        """Mark the entitlements of a user's sub-users as outdated, if the user has sub-users.

        The next `update_entitlements` recomputes them.
        """
        self._outdated[user] = None

    def update_entitlements(self) -> None:
        """Update the entitlements that are outdated, in the pools below the top-level pool.

        Callers do this after each event, because one event may bring hundreds of changes. Costs
        O(sub-users of users whose entitlement has changed).
        """
        if self._recount_due or self._outdated:
            run_to_completion(self.update_entitlements_in_steps())

    def update_entitlements_in_steps(self) -> Cooperative[None]:
        """Generator form of `update_entitlements`.

        Users must not be used until the generator is exhausted.
        """
        if self._recount_due:
            yield from self._update(self._sub_pools, 0.0)
        elif self._outdated:
            yield from self._update(self._outdated)

    def mark_recount(self) -> None:
        """Mark the weights that count in entitlements as outdated.

        The next `update_entitlements` recomputes them. Without the setting `counts_for`, nothing
        happens.
        """
        self._recount_due = self._counts_for < math.inf

    @property
    def look_is_due(self) -> bool:
        """Whether `look` must be called to sample the users' use of resources.

        A sample is due once in each period of `LOOK` seconds, if `counts_for` is set.
        """
        return self._counts_for < math.inf and self.now // LOOK != self._sampled_period

    def look(
        self, used: Mapping[str, Quantities] | None, parents: Iterable[User[Client]] = ()
    ) -> Cooperative[None]:
        """Sample the resources that users use, and update their counted weights.

        A counted weight is the part of a user's weight that counts in entitlements. Costs O(users
        of pools in which a user uses or has used resources). Generator for cooperative steps.

        Args:
            used: Used resources by user and virtual leaf; None: allocations count as used.
            parents: The users above these users and virtual leaves; ignored if `used` is None.
        """
        self._sampled_period = self.now // LOOK
        everywhere = used is None or self._recount_due
        due = dict.fromkeys(self._sub_pools if everywhere else (*self._sampled, *parents))
        looked = 0
        for user in due:
            pool = self._sub_pools[user]
            yield from pool.look_in_steps(used)
            looked += len(pool)
            if looked > _USERS_A_STEP:
                yield
                looked = 0
        yield from self._update(due, 0.0 if self._recount_due else _THRESHOLD)

    def _update(
        self, users: Iterable[User[Client]], threshold: float | None = None
    ) -> Cooperative[None]:
        """Update outdated entitlements, and the counted weights of the sub-users of some users.

        Pools of ancestors come first, because they determine the entitlements of lower pools.
        Generator for cooperative steps.

        Args:
            users: Users with sub-users, whose counted weights are updated.
            threshold: If the total counted weight of a pool changes by a smaller fraction, the pool
                keeps its counted weights. None: no counted weights are updated.
        """
        counting = dict.fromkeys(users if threshold is not None else ())
        outdated = self._sub_pools if self._all_outdated else self._outdated
        uncounted = yield from self._uncounted(counting)
        waiting = sorted({**uncounted, **outdated}, key=depth_of, reverse=True)
        by_use = self._counts_for < math.inf
        # A new user or a new weight changes the entitlements of all siblings.
        changed = {} if by_use else dict(self._outdated)
        self._outdated, self._all_outdated, self._recount_due = {}, False, False
        done, updated = set[User[Client]](), len(waiting)
        while waiting:
            if updated > _USERS_A_STEP:
                yield
                updated = 0
            user = waiting.pop()
            pool = user.sub_pool
            if pool is None or user in done:
                continue
            done.add(user)
            updated += len(pool)
            concerns_lower = user in changed
            if user is not self.root:
                concerns_lower |= self._set_part(user, pool)
            if threshold is not None and user in counting and pool.must_count:
                concerns_lower |= yield from pool.count_users_in_steps(threshold)
                if pool.has_claims:
                    self._sampled[user] = None
                else:
                    self._sampled.pop(user, None)
            if concerns_lower:
                waiting += [child for child in user.children.values() if child.sub_pool is not None]

    def _uncounted(self, users: Iterable[User[Client]]) -> Cooperative[dict[User[Client], None]]:
        """Return the users with uncounted sub-users, in cooperative steps."""
        uncounted = dict[User[Client], None]()
        for number, user in enumerate(users, 1):
            if self._sub_pools[user].must_count:
                uncounted[user] = None
            if not number % _POOLS_A_STEP:
                yield
        return uncounted

    def _set_part(self, user: User[Client], below: Pool[str]) -> bool:
        """Let a user's sub-users share the user's entitlement, as the capacity of their pool.

        Args:
            user: A user with sub-users.
            below: The pool of these sub-users.

        Returns:
            True if the entitlement has changed.
        """
        if self._counts_for == math.inf:
            return below.set_part(user.siblings.entitlement(user.name))
        return below.set_parts(user.siblings.entitlements(user.name))

    def advance(self, now: float) -> None:
        """Advance the time of all pools' commitments to `now`, in seconds since the Unix epoch."""
        if not now > self.now:  # also if `now` is NaN
            return
        self.clock.now = now
        while (oldest := next(iter(self._by_base))).must_rebase:
            oldest.rebase()
            self._by_base.move_to_end(oldest)

    def set_capacity(self, capacity: Quantities) -> Cooperative[None]:
        """Set the total resources of all machines, of which shares are fractions.

        Generator for cooperative steps. Users must not be used until it is exhausted.
        """
        self.count_capacity()
        former, self._capacity = self._capacity, capacity
        if capacity == former:
            return
        self._all_outdated |= capacity.keys() != former.keys()
        users = 0
        for pool in self:
            yield from pool.set_capacity_in_steps(capacity)
            users += len(pool)
            if users > _USERS_A_STEP:
                yield
                users = 0

    def set_charging(self, *, charging: bool) -> None:
        """Set whether over-use increases commitments; existing commitments decay in any case.

        Charging stops during a failover recovery, as shares of an incomplete cluster look too
        large.
        """
        if charging != self._charging:
            self._charging = charging
            for pool in self:
                pool.set_charging(charging=charging)

    def set_decay(self, tau: float | None) -> None:
        """Set the time constant of commitments that were inherited from a policy with commitments.

        The current policy has no commitments and thus no time constant of its own.

        Args:
            tau: Time constant in seconds; None: commitments do not decay.
        """
        self.tau = tau
        for pool in self:
            pool.set_fading(tau)

    def attach(self, meter: Meter) -> None:
        """Let a meter record the allocations and commitments of these users from now on.

        The meter stops recording the users that it recorded before.
        """
        self._meter = meter
        meter.restart(self.now, self.tau, self._excluded)
        for pool in self:
            pool.attach(meter)

    def count_capacity(self) -> None:
        """Let the meter, if there is one, count the cluster's capacity up to now."""
        if self._meter is not None:
            self._meter.count_capacity(self._capacity, self.now)

    def put_machine(self, machine: str, total: Quantities) -> None:
        """Add a machine, or replace its total resources, for policies that consider each machine.

        The cluster's total is set separately, by `set_capacity`.
        """
        self._announce_other_machines()
        self.machines.put(machine, total)
        if self._policy.counts_tasks:  # at once, because the next count would settle all machines
            self.machines._settle()  # noqa: SLF001 - not for other policies

    def discard_machine(self, machine: str) -> None:
        """Remove a machine that is gone."""
        self._announce_other_machines()
        self.machines.discard(machine)

    def clients_of(self, user: User[Client]) -> FrameworkSorter[Client]:
        """Return the framework sorter of a user's own clients.

        The sorter's capacity is updated lazily, by this method.
        """
        user.clients.set_capacity(self._capacity)  # updated lazily, on access
        return user.clients

    def new_clients(self) -> FrameworkSorter[Client]:
        """Return an empty framework sorter, which will rank the clients of a new user."""
        return FrameworkSorter(self._capacity, self._excluded)

    def _announce_other_machines(self) -> None:
        if self._policy.counts_tasks:
            for pool in self:
                pool.machines_changed()

    def _new_pool(self) -> Pool[str]:
        pool: Pool[str] = Pool(
            self._policy,
            clock=self.clock,
            capacity=self._capacity,
            excluded=self._excluded,
            machines=self.machines,
            exact_ties=self._exact_ties,
            steps_from_zero=self._steps_from_zero,
            counts_for=self._counts_for,
            keeps_share_commitments=self._keeps_share_commitments,
            compares_by_resource=self._compares_by_resource,
            newcomers_by_use=self._newcomers_by_use,
        )
        pool.set_fading(self.tau)
        pool.set_charging(charging=self._charging)
        if self._meter is not None:
            pool.attach(self._meter)
        return pool


class UserDemands(Generic[Client]):
    """Aggregates the task demands of clients by user, for policies that count tasks (TSF).

    Without such a policy, the methods only store the demands.
    """

    def __init__(self, settings: UserSettings, pools: UserPools[Client]) -> None:
        self._counts = settings.policy.counts_tasks
        self._must_agree = settings.demands_must_agree
        self._machines = pools.machines

    def put(self, user: User[Client], client: Client, task: UserTask) -> bool:
        """Set the demand and eligible machines of a client's tasks.

        A user's tasks may run on every machine that is eligible for one of its clients or
        sub-users. With `demands_must_agree`, a user has a demand only if all its clients and those
        of its sub-users have this demand. Otherwise, a user's demand of a resource is the largest
        among these clients. Costs O(resources) for each level of the tree, and O(machines) where a
        constraint is new at that level.

        Returns:
            True if the demand or the eligible machines have changed.
        """
        before = user.tasks.get(client)
        if before == task:
            return False
        user.tasks[client] = task
        self._replace(user, before, task)
        return True

    def discard(self, user: User[Client], client: Client) -> None:
        """Forget the demand and eligible machines of a removed client's tasks."""
        before = user.tasks.pop(client, None)
        if before is not None:
            self._replace(user, before, None)

    def begin_leaf(self, user: User[Client]) -> None:
        """Set the task demand and eligible machines of a new virtual leaf.

        The leaf represents the user's own clients, so their tasks determine both.
        """
        if self._counts:
            assert user.sub_pool is not None
            for task in user.tasks.values():
                self._machines.admit(user.leaf, task.may_use)
            user.sub_pool.set_demand(user.leaf, self._demand_of(user.own_demand))

    def _demand_of(self, demands: ClientDemands) -> Quantities | None:
        """Return the demand that a user has because of its clients' demands."""
        return demands.common if self._must_agree else demands.maximum

    def _replace(self, user: User[Client], before: UserTask | None, after: UserTask | None) -> None:
        """Update the demands of a user and its ancestors after a change of one client's task.

        Args:
            user: The user that the client belongs to.
            before: The task before the change; None: no task.
            after: The task after the change; None: no task.
        """
        if not self._counts:
            return
        if user.sub_pool is not None and user.leaf in user.sub_pool:
            self._update_member(user.sub_pool, user.leaf, user.own_demand, before, after)
        else:
            user.own_demand.replace(before, after)
        node = user
        while node.parent is not None:
            self._update_member(node.siblings, node.name, node.all, before, after)
            node = node.parent

    def _update_member(
        self,
        pool: Pool[str],
        name: str,
        demands: ClientDemands,
        before: UserTask | None,
        after: UserTask | None,
    ) -> None:
        """Update the demand and machines of a user or virtual leaf after a change of a task.

        Args:
            pool: The pool that the member competes in.
            name: The member: a user or virtual leaf.
            demands: The task demands of all clients of the member.
            before: The task before the change; None: no task.
            after: The task after the change; None: no task.
        """
        version, common = demands.largest.version, demands.common
        demands.replace(before, after)
        if self._must_agree:
            demand_changed = demands.common != common
        else:
            demand_changed = demands.largest.version != version
        machines_changed = before is None or after is None or before.may_use != after.may_use
        pool.finish_rating()
        if machines_changed and before is not None:  # first, as two constraints cost O(machines)
            self._machines.withdraw(name, before.may_use)
        if machines_changed and after is not None:
            self._machines.admit(name, after.may_use)
        if machines_changed or demand_changed:
            pool.set_demand(name, self._demand_of(demands))
