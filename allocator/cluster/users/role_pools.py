"""Pools of the role tree, one for each role with sub-roles, and the demands of members."""

import math
from collections.abc import Iterator, Mapping

from allocator.cluster.frameworks.framework import Client
from allocator.cluster.resources.largest import Largest
from allocator.cluster.settings import EngineSettings
from allocator.cluster.users.user import User, UserTask
from allocator.fairness.framework_sorter import FrameworkSorter
from allocator.fairness.machines import Machines
from allocator.fairness.metering import Meter
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities

LOOK = 5.0
"""Seconds between two samples of the users' use, from which counted weights are computed."""
_THRESHOLD = 0.01
"""Relative difference below which a sample leaves the counted weight of a pool unchanged."""


class RolePools:
    """All pools of the role tree, with their common time, capacity, machines and decay."""

    def __init__(self, settings: EngineSettings, now: float, excluded: tuple[str, ...]) -> None:
        self._policy = settings.policy
        self._exact_ties = settings.exact_ties
        self._excluded = excluded
        self._capacity = Quantities()
        self._charging = True
        self._meter: Meter | None = None
        self._counts_for = math.inf if settings.counts_for is None else settings.counts_for
        self._sampled_period = -math.inf
        """Number of the `LOOK` period in which use was sampled last."""
        self._recount_due = False
        """True if counted weights must be recomputed before anything else."""
        self._outdated = False
        """True if entitlements of the pools below the top must be updated."""
        self.now = now
        """The users' time in seconds."""
        self.tau = settings.policy.tau
        """Time constant of decay in seconds: the policy's, or, if the policy has no commitments,
        the last one's."""
        self.machines: Machines[str] = Machines()
        self.top: Pool[str] = self._new_pool()
        """The pool of the top-level users."""
        self._sub_pools: dict[User, Pool[str]] = {}
        """user → pool of its sub-users, ancestors first"""

    def __iter__(self) -> Iterator[Pool[str]]:
        """Iterate over all pools, the top-level pool first."""
        yield self.top
        yield from self._sub_pools.values()

    def begin(self, user: User) -> Pool[str]:
        """Create the pool of sub-users for a user that has none."""
        user.below = self._sub_pools[user] = self._new_pool()
        return user.below

    def end(self, user: User) -> None:
        """Remove the pool of a user's sub-users."""
        user.below = None
        del self._sub_pools[user]
        self.machines.restrict(user.leaf, None)

    def mark_outdated(self) -> None:
        """Mark entitlements as outdated, to be updated once for all changes of one instant."""
        self._outdated = True

    def update_entitlements(self) -> None:
        """Update the entitlement of every pool below the top.

        To be called after each event, which may bring hundreds of changes. Costs O(users with
        sub-users) if users or weights have changed, otherwise O(1).
        """
        if self._recount_due:
            self._count_users(0.0)
        if self._outdated:
            self._outdated = False
            for user, below in self._sub_pools.items():
                below.set_part(user.siblings.entitlement(user.name))

    def miscount(self) -> None:
        """Mark counted weights as outdated.

        They are recomputed once for all changes of one instant.
        """
        self._recount_due = self._counts_for < math.inf

    @property
    def look_is_due(self) -> bool:
        """Whether counted weights depend on use, and use must be sampled again."""
        return self._counts_for < math.inf and self.now // LOOK != self._sampled_period

    def look(self, used: Mapping[str, Quantities] | None) -> None:
        """Sample the users' use, and update counted weights; O(users).

        Args:
            used: Used resources by user and virtual leaf; None: allocations count as used.
        """
        self._sampled_period = self.now // LOOK
        for pool in self:
            pool.look(used)
        self._count_users(_THRESHOLD)

    def _count_users(self, threshold: float) -> None:
        """Recompute the counted weights in every pool, ancestors first.

        Args:
            threshold: Relative difference below which a pool's counted weight stays unchanged.
        """
        self._recount_due = self._outdated = False
        for user, pool in ((None, self.top), *self._sub_pools.items()):
            if user is not None:
                pool.set_part(user.siblings.entitlement(user.name))
            pool.count_users(threshold)

    def advance(self, now: float) -> None:
        """Move to a later time, in seconds."""
        self.now = max(self.now, now)
        for pool in self:
            pool.advance(now)

    def set_capacity(self, capacity: Quantities) -> None:
        """Set the total resources of all agents."""
        self.count_capacity()
        self._capacity = capacity
        for pool in self:
            pool.set_capacity(capacity)

    def set_charging(self, *, charging: bool) -> None:
        """Set whether over-use increases commitments; existing commitments decay in any case."""
        if charging != self._charging:
            self._charging = charging
            for pool in self:
                pool.set_charging(charging=charging)

    def set_fading(self, tau: float | None) -> None:
        """Set the decay of inherited commitments under a policy without commitments.

        Args:
            tau: Time constant in seconds; None: commitments do not decay.
        """
        self.tau = tau
        for pool in self:
            pool.set_fading(tau)

    def attach(self, meter: Meter) -> None:
        """Meter the users' allocations and commitments from now on, in place of earlier users."""
        self._meter = meter
        meter.begin_anew(self.now, self.tau, self._excluded)
        for pool in self:
            pool.attach(meter)

    def count_capacity(self) -> None:
        """Accrue the cluster's capacity until now."""
        if self._meter is not None:
            self._meter.count_capacity(self._capacity, self.now)

    def put_agent(self, agent: str, total: Quantities) -> None:
        """Add an agent or replace its total resources; `set_capacity` is a separate call."""
        self.machines.put(agent, total)
        self._machines_changed()

    def discard_agent(self, agent: str) -> None:
        """Forget an agent."""
        self.machines.discard(agent)
        self._machines_changed()

    def clients_of(self, user: User) -> FrameworkSorter[Client]:
        """Return the framework sorter of a user's own clients, at the current capacity."""
        user.clients.set_capacity(self._capacity)  # updated lazily, on access
        return user.clients

    def new_clients(self) -> FrameworkSorter[Client]:
        """Return an empty framework sorter for a new user."""
        return FrameworkSorter(self._capacity, self._excluded)

    def _machines_changed(self) -> None:
        for pool in self:
            pool.machines_changed()

    def _new_pool(self) -> Pool[str]:
        pool: Pool[str] = Pool(
            self._policy,
            now=self.now,
            capacity=self._capacity,
            excluded=self._excluded,
            machines=self.machines,
            exact_ties=self._exact_ties,
            counts_for=self._counts_for,
        )
        pool.set_fading(self.tau)
        pool.set_charging(charging=self._charging)
        if self._meter is not None:
            pool.attach(self._meter)
        return pool


class RoleDemands:
    """Aggregates the demands of clients' tasks by user, if the policy counts tasks."""

    def __init__(self, settings: EngineSettings, pools: RolePools) -> None:
        self._counts = settings.policy.counts_tasks
        self._machines = pools.machines

    def put(self, user: User, client: Client, task: UserTask) -> bool:
        """Set the demand and eligible agents of a client's tasks; return whether they changed.

        The tasks of a user may run on any agent eligible for one of its clients or sub-users. The
        demand of a user is the largest demand of them in each resource. Costs O(resources) for each
        level of the tree, and O(agents) where a constraint is new at that level.
        """
        before = user.tasks.get(client)
        if before == task:
            return False
        user.tasks[client] = task
        self._replace(user, before, task)
        return True

    def discard(self, user: User, client: Client) -> None:
        """Forget the tasks of a client."""
        before = user.tasks.pop(client, None)
        if before is not None:
            self._replace(user, before, None)

    def begin_leaf(self, user: User) -> None:
        """Copy the demands of a user's own clients to its new virtual leaf."""
        if self._counts:
            assert user.below is not None
            for task in user.tasks.values():
                self._machines.admit(user.leaf, task.may_use)
            user.below.set_demand(user.leaf, _largest_demand(user.own))

    def _replace(self, user: User, before: UserTask | None, after: UserTask | None) -> None:
        """Replace a task of a user's own client, for the user and its ancestors; None: no task."""
        if not self._counts:
            return
        if user.below is not None and user.leaf in user.below:
            self._update_member(user.below, user.leaf, user.own, before, after)
        else:
            _replace_demand(user.own, before, after)
        node = user
        while node.parent is not None:
            self._update_member(node.siblings, node.name, node.all, before, after)
            node = node.parent

    def _update_member(
        self,
        pool: Pool[str],
        name: str,
        largest: Largest,
        before: UserTask | None,
        after: UserTask | None,
    ) -> None:
        """Replace a task in the demands of one member of a pool: a user or virtual leaf."""
        version = largest.version
        _replace_demand(largest, before, after)
        agents_changed = before is None or after is None or before.may_use != after.may_use
        if agents_changed and after is not None:
            self._machines.admit(name, after.may_use)
        if agents_changed and before is not None:
            self._machines.withdraw(name, before.may_use)
        if agents_changed or largest.version != version:
            pool.set_demand(name, _largest_demand(largest))


def _replace_demand(largest: Largest, before: UserTask | None, after: UserTask | None) -> None:
    if after is not None and after.demand is not None:
        largest.put(after.demand)
    if before is not None and before.demand is not None:
        largest.discard(before.demand)


def _largest_demand(largest: Largest) -> Quantities | None:
    return Quantities(dict(largest.of)) if largest.of else None
