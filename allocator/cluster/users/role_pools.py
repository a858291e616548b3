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
"""Seconds between two looks at what users use, so that n follows it."""
_NOTICED = 0.01
"""By which part n must differ from what use says before a look changes it."""


class RolePools:
    """All pools, and what holds for each of them: time, capacity, machines, how debts fade."""

    def __init__(self, settings: EngineSettings, now: float, excluded: tuple[str, ...]) -> None:
        self._policy = settings.policy
        self._exact_ties = settings.exact_ties
        self._excluded = excluded
        self._capacity = Quantities()
        self._charging = True
        self._meter: Meter | None = None
        self._counts_for = math.inf if settings.counts_for is None else settings.counts_for
        self._looked = -math.inf
        """Number of the period in which it was looked last at what users use."""
        self._miscounted = False
        """Whether users are to be counted anew before anything else."""
        self._uneven = False
        """Whether levels do not know yet what part of the cluster is theirs."""
        self.now = now
        """The users' time in seconds."""
        self.tau = settings.policy.tau
        """With which debts fade: the policy's, or, if it makes none, that of the one before."""
        self.machines: Machines[str] = Machines()
        self.top: Pool[str] = self._new_pool()
        """The users at the top."""
        self._branches: dict[User, Pool[str]] = {}
        """What is below users with sub-users, those above first."""

    def __iter__(self) -> Iterator[Pool[str]]:
        yield self.top
        yield from self._branches.values()

    def begin(self, user: User) -> Pool[str]:
        """Have a level below a user that has none."""
        user.below = self._branches[user] = self._new_pool()
        return user.below

    def end(self, user: User) -> None:
        """Have none below a user again."""
        user.below = None
        del self._branches[user]
        self.machines.restrict(user.leaf, None)

    def share_out(self) -> None:
        """Have every level told its part; once for all that changes at one instant."""
        self._uneven = True

    def settle(self) -> None:
        """Tell every level what part of the cluster its members are entitled to together.

        To be called after each event: it costs O(users with sub-users) if there are others now, or
        weights have changed, and an event may bring hundreds.
        """
        if self._miscounted:
            self._count_users(0.0)
        if self._uneven:
            self._uneven = False
            for user, below in self._branches.items():
                below.set_part(user.siblings.entitlement(user.name))

    def miscount(self) -> None:
        """Have users counted anew, once for all that changes at one instant."""
        self._miscounted = self._counts_for < math.inf

    @property
    def look_is_due(self) -> bool:
        """Whether n depends on use, and it is time to look at it again."""
        return self._counts_for < math.inf and self.now // LOOK != self._looked

    def look(self, used: Mapping[str, Quantities] | None) -> None:
        """Let n follow what users use; None: what they hold. O(users)."""
        self._looked = self.now // LOOK
        for pool in self:
            pool.look(used)
        self._count_users(_NOTICED)

    def _count_users(self, noticed: float) -> None:
        """Count users by what they use at every level, those above first.

        Args:
            noticed: By which part n must differ to be changed.
        """
        self._miscounted = self._uneven = False
        for user, pool in ((None, self.top), *self._branches.items()):
            if user is not None:
                pool.set_part(user.siblings.entitlement(user.name))
            pool.count_users(noticed)

    def advance(self, now: float) -> None:
        """Move to a later instant."""
        self.now = max(self.now, now)
        for pool in self:
            pool.advance(now)

    def set_capacity(self, capacity: Quantities) -> None:
        """Change the total of all agents."""
        self.count_capacity()
        self._capacity = capacity
        for pool in self:
            pool.set_capacity(capacity)

    def set_charging(self, *, charging: bool) -> None:
        """Say whether over-use makes debts; while it does not, debts still fade."""
        if charging != self._charging:
            self._charging = charging
            for pool in self:
                pool.set_charging(charging=charging)

    def set_fading(self, tau: float | None) -> None:
        """Have debts fade with a time constant, in seconds, under a policy that makes none."""
        self.tau = tau
        for pool in self:
            pool.set_fading(tau)

    def attach(self, meter: Meter) -> None:
        """Have counted from now on what users hold and owe, in the place of users before."""
        self._meter = meter
        meter.begin_anew(self.now, self.tau, self._excluded)
        for pool in self:
            pool.attach(meter)

    def count_capacity(self) -> None:
        """Have counted what the cluster has had until now."""
        if self._meter is not None:
            self._meter.count_capacity(self._capacity, self.now)

    def put_agent(self, agent: str, total: Quantities) -> None:
        """Make an agent known, or say anew what it has; the capacity is set apart from this."""
        self.machines.put(agent, total)
        self._machines_changed()

    def discard_agent(self, agent: str) -> None:
        """Forget an agent."""
        self.machines.discard(agent)
        self._machines_changed()

    def clients_of(self, user: User) -> FrameworkSorter[Client]:
        """Return a user's own clients, ranked by the capacity there is now."""
        user.clients.set_capacity(self._capacity)  # where it is looked at is early enough
        return user.clients

    def new_clients(self) -> FrameworkSorter[Client]:
        """Return the place for the clients of a user that has none yet."""
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
    """Follows clients' tasks for their users, and all above, if the policy counts tasks."""

    def __init__(self, settings: EngineSettings, levels: RolePools) -> None:
        self._counts = settings.policy.counts_tasks
        self._machines = levels.machines

    def put(self, user: User, client: Client, task: UserTask) -> bool:
        """Say what a client's tasks need, and where they may run; return whether that is new.

        A user's tasks may run wherever one of its clients' may, or one of its sub-users', and need
        as much of each resource as the greediest of them. Costs O(resources) at each level, and
        O(agents) where a constraint is new there.
        """
        before = user.tasks.get(client)
        if before == task:
            return False
        user.tasks[client] = task
        self._replace(user, before, task)
        return True

    def discard(self, user: User, client: Client) -> None:
        """Forget what is known of a client's tasks."""
        before = user.tasks.pop(client, None)
        if before is not None:
            self._replace(user, before, None)

    def begin_leaf(self, user: User) -> None:
        """Have the tasks of a user's own be those of its virtual leaf, which is new."""
        if self._counts:
            assert user.below is not None
            for task in user.tasks.values():
                self._machines.admit(user.leaf, task.may_use)
            user.below.set_demand(user.leaf, _needed(user.own))

    def _replace(self, user: User, before: UserTask | None, after: UserTask | None) -> None:
        """Follow a change of a task of a user's own; None: it is not there."""
        if not self._counts:
            return
        if user.below is not None and user.leaf in user.below:
            self._follow(user.below, user.leaf, user.own, before, after)
        else:
            _renew(user.own, before, after)
        level = user
        while level.parent is not None:
            self._follow(level.siblings, level.name, level.all, before, after)
            level = level.parent

    def _follow(
        self,
        pool: Pool[str],
        name: str,
        needs: Largest,
        before: UserTask | None,
        after: UserTask | None,
    ) -> None:
        """Follow it for a user, or a virtual leaf, that has it among its tasks."""
        version = needs.version
        _renew(needs, before, after)
        moves = before is None or after is None or before.may_use != after.may_use
        if moves and after is not None:
            self._machines.admit(name, after.may_use)
        if moves and before is not None:
            self._machines.withdraw(name, before.may_use)
        if moves or needs.version != version:
            pool.set_demand(name, _needed(needs))


def _renew(needs: Largest, before: UserTask | None, after: UserTask | None) -> None:
    if after is not None and after.demand is not None:
        needs.put(after.demand)
    if before is not None and before.demand is not None:
        needs.discard(before.demand)


def _needed(needs: Largest) -> Quantities | None:
    return Quantities(dict(needs.of)) if needs.of else None
