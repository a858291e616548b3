"""The users among whom fairness is kept: a tree where users are roles, else a plain list.

Siblings are ranked level by level, by what their subtrees hold and owe. A role that has both
frameworks of its own and sub-roles competes with these through a *virtual leaf*, `ROLE/.`.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from allocator.cluster.frameworks import Client
from allocator.cluster.largest import Largest
from allocator.cluster.memory import Boost, Changes, Course, Memory, Remembered
from allocator.cluster.settings import EngineSettings
from allocator.cluster.steps import Steps, finished
from allocator.cluster.weights import Weights
from allocator.fairness.bounds import LARGEST_COMMITMENT, LARGEST_WEIGHT, LEAST_WEIGHT
from allocator.fairness.commitment import decayed
from allocator.fairness.machines import Machines, MayUse
from allocator.fairness.metering import Former, Meter
from allocator.fairness.peers import Peers
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.fairness.standing import Standing

FADED = 1e-3
"""A dominant commitment below this does not keep a user known."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is known of the tasks of a client."""

    demand: Quantities | None = None
    """What one needs; None: nobody knows."""
    may_use: MayUse | None = None
    """On which agents, by id, they may run; None: on all."""


@dataclass(slots=True, eq=False)
class User:
    """One node of the tree: its own clients, and its sub-users if it has any."""

    name: str
    parent: "User | None"
    clients: Peers[Client]
    """Its own clients, in DRF order."""
    below: Pool[str] | None = None
    """Its sub-users and its virtual leaf, in the order of the policy; None: it has none."""
    children: dict[str, "User"] = field(default_factory=dict)
    tasks: dict[Client, "Task"] = field(default_factory=dict)
    """Of those of its own clients of which something is known."""
    own: Largest = field(default_factory=Largest)
    """Of what its tasks need."""
    all: Largest = field(default_factory=Largest)
    """Likewise, with those of all below it."""
    line: tuple[str, ...] = ()
    """Its name, and those of all above it; the root has none."""

    def __post_init__(self) -> None:
        if self.parent is not None:
            self.line = (self.name, *self.parent.line)

    @property
    def shown(self) -> tuple[str, ...]:
        """All names under which what it itself holds is shown, its own first."""
        if self.below is None:
            return self.line
        return (self.name, self.leaf, *self.line[1:])

    @property
    def leaf(self) -> str:
        """Name of its virtual leaf."""
        return f"{self.name}/."

    @property
    def names(self) -> Iterator[str]:
        """Its name, that of its virtual leaf, and those of all above it."""
        yield self.leaf
        user = self
        while user.parent is not None:
            yield user.name
            user = user.parent

    @property
    def siblings(self) -> Pool[str]:
        """The pool in which it competes."""
        assert self.parent is not None
        assert self.parent.below is not None
        return self.parent.below

    def places(self) -> "Iterator[tuple[Pool[str], str]]":
        """Go through where what its own clients hold counts: pools, and as whose in each."""
        if self.below is not None:
            yield self.below, self.leaf
        user = self
        while user.parent is not None:
            yield user.siblings, user.name
            user = user.parent

    @property
    def wants(self) -> bool:
        """Whether somebody in its subtree is to get offers."""
        return self.clients.active > 0 or (self.below is not None and self.below.active > 0)


class Users:
    """All users, what they hold and owe, and the order in which they are served."""

    def __init__(self, settings: EngineSettings, now: float, excluded: tuple[str, ...]) -> None:
        self._settings = settings
        self._excluded = excluded
        self._now = now
        self._capacity = Quantities()
        self._machines: Machines[str] = Machines()
        self._known: dict[str, User] = {}
        self._idle_since: dict[str, float] = {}
        self._declared = {declared.name: declared for declared in settings.users}
        self._leaves: dict[str, tuple[float, Remembered]] = {}
        """Virtual leaves that are not there (yet): since when they owe what."""
        self._tau = settings.policy.tau
        """With which debts fade: the policy's, or, if it makes none, that of the one before."""
        self._charging = True
        self._meter: Meter | None = None
        self._weights = Weights(settings)
        self._root = User("", None, self._new_clients())
        self.pool: Pool[str] = self._new_pool()
        """The users at the top."""
        self._root.below = self.pool
        self._branches: dict[User, None] = {}
        """Users with sub-users, those above first."""
        self._renewed = True
        """Whether there are other users than when somebody asked what has changed."""
        self._uneven = False
        """Whether levels do not know yet what part of the cluster is theirs."""
        for declared in settings.users:
            self.get(declared.name)

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def get(self, name: str) -> User:
        """Return a user, which becomes known with those above it."""
        user = self._known.get(name)
        if user is None:
            above, slash, _ = name.rpartition("/")
            tree = slash and self._settings.user_key == "role"
            parent = self.get(above) if tree else self._root
            user = User(name, parent, self._new_clients())
            below = self._branch(parent)
            declared = self._declared.get(name)
            below.add(
                name,
                weight=self._weights.of(name),
                commitment=declared.commitment if declared is not None else 0.0,
            )
            parent.children[name] = self._known[name] = user
            self._idle_since.pop(parent.name, None)
            self._idle_since[name] = self._now
            self._share_out()
        return user

    def settle(self) -> None:
        """Tell every level what part of the cluster its members are entitled to together.

        To be called after each event: it costs O(users with sub-users) if there are others now, or
        weights have changed, and an event may bring hundreds.
        """
        if self._uneven:
            self._uneven = False
            for user in self._branches:
                assert user.below is not None
                user.below.set_part(user.siblings.entitlement(user.name))

    def advance(self, now: float) -> None:
        """Move to a later instant; boosts that are over by then end when they are."""
        self.settle()
        while (end := self._weights.next_end) <= now:
            self._advance(end)
            over = self._weights.ended(end)
            self._reweigh(over)
            for name in over:
                self._note_idle(self._known[name])
            self.settle()
        self._advance(now)

    def _advance(self, now: float) -> None:
        self._now = max(self._now, now)
        self.pool.advance(now)
        for user in self._branches:
            assert user.below is not None
            user.below.advance(now)

    def set_capacity(self, capacity: Quantities) -> None:
        """Change the total of all agents."""
        if self._meter is not None:
            self._meter.count_capacity(self._capacity, self._now)
        self._capacity = capacity
        self.pool.set_capacity(capacity)
        for user in self._branches:
            assert user.below is not None
            user.below.set_capacity(capacity)

    def set_charging(self, *, charging: bool) -> None:
        """Say whether over-use makes debts; while it does not, debts still fade."""
        if charging != self._charging:
            self._charging = charging
            for pool in self._pools():
                pool.set_charging(charging=charging)

    def attach(self, meter: Meter) -> None:
        """Have counted from now on what users hold and owe, in the place of users before."""
        self._meter = meter
        meter.begin_anew(self._now, self._tau, self._excluded)
        for pool in self._pools():
            pool.attach(meter)

    def count(self, name: str) -> Former | None:
        """Have counted what a user or a virtual leaf has had until now; None: it is not known."""
        self.settle()
        pool = self._pool_of(name)
        return None if pool is None else pool.count(name)

    def count_capacity(self) -> None:
        """Have counted what the cluster has had until now."""
        if self._meter is not None:
            self._meter.count_capacity(self._capacity, self._now)

    def put_agent(self, agent: str, total: Quantities) -> None:
        """Make an agent known, or say anew what it has; the capacity is set apart from this."""
        self._machines.put(agent, total)
        self._machines_changed()

    def discard_agent(self, agent: str) -> None:
        """Forget an agent."""
        self._machines.discard(agent)
        self._machines_changed()

    def set_task(self, user: User, client: Client, task: Task) -> bool:
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

    def add(self, user: User, client: Client) -> None:
        """Make a client of a user known; it gets no offers yet."""
        self._idle_since.pop(user.name, None)
        self._idle_since.pop(user.leaf, None)
        user.clients.add(client)
        if user.below is not None and user.leaf not in user.below:
            user.below.add(user.leaf)
            owed, others = self._leaf_debt(user.leaf)
            user.below.set_commitment(user.leaf, owed, others=others)
            self._leaves.pop(user.leaf, None)
            self._share_out()

    def remove(self, user: User, client: Client) -> None:
        """Forget a client that holds nothing."""
        self.set_wanting(user, client, wanting=False)
        user.clients.remove(client)
        before = user.tasks.pop(client, None)
        if before is not None:
            self._replace(user, before, None)
        self._note_idle(user)

    def set_wanting(self, user: User, client: Client, *, wanting: bool) -> None:
        """Say whether a client is to get offers."""
        user.clients.set_active(client, wanting)
        if user.below is not None and user.leaf in user.below:
            user.below.set_active(user.leaf, user.clients.active > 0)
        while user.parent is not None:
            user.siblings.set_active(user.name, user.wants)
            user = user.parent

    def allocate(self, user: User, client: Client, quantities: Quantities) -> None:
        """Count scalars as held by a client, its user, and all above."""
        before, gifts = user.clients.holding(client)
        after = before + quantities
        user.clients.hold(client, after, gifts + 1)
        for pool, name in user.places():
            held, gifts = pool.holding(name)  # the very same where it is the user's only client
            more = after if held is before else held + quantities
            pool.hold(name, more, gifts + 1)

    def release(self, user: User, client: Client, quantities: Quantities) -> None:
        """Count scalars as no longer held.

        Raises:
            ValueError: the client does not hold that much; nothing has changed.
        """
        before, gifts = user.clients.holding(client)
        after = before - quantities
        user.clients.hold(client, after, gifts)
        for pool, name in user.places():
            held, gifts = pool.holding(name)  # the very same where it is the user's only client
            pool.hold(name, after if held is before else held - quantities, gifts)

    @property
    def now(self) -> float:
        """The users' time in seconds."""
        return self._now

    @property
    def root(self) -> User:
        """What is above the users at the top; it has no clients."""
        return self._root

    def clients_of(self, user: User) -> Peers[Client]:
        """Return a user's own clients, ranked by the capacity there is now."""
        user.clients.set_capacity(self._capacity)  # where it is looked at is early enough
        return user.clients

    @property
    def counts_tasks(self) -> bool:
        """Whether the policy asks how many tasks the machines could run."""
        return self._settings.policy.counts_tasks

    @property
    def per_machine(self) -> bool:
        """Whether the order depends on what is held on an agent."""
        return self._settings.policy.per_machine

    def standings(self) -> list[Standing[str]]:
        """Return how all users stand now, each level in order of priority, sub-users after."""
        self.settle()
        return [standing for below in self._pools() for standing in below.standings()]

    def names(self) -> list[str]:
        """Return who competes anywhere: users and virtual leaves, those at the top first."""
        return [user for pool in self._pools() for user in pool.users()]

    def standing(self, name: str) -> Standing[str] | None:
        """Return how a user or a virtual leaf stands now, O(resources); None: it is not known."""
        self.settle()
        pool = self._pool_of(name)
        return None if pool is None else pool.standing(name)

    @property
    def weights(self) -> Weights:
        """Whose word the users' weights are."""
        return self._weights

    def twin(self, name: str) -> Pool[str] | None:
        """Return a copy of the pool in which a user competes; None: it is not known."""
        self.settle()
        pool = self._pool_of(name)
        return None if pool is None else pool.twin()

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Take over weights of roles; roles that are not named keep theirs."""
        self._weights.take_over(weights)
        if self._settings.user_key == "role":
            self._reweigh(weights)

    def order_weight(self, name: str, weight: float | None, seconds: float | None = None) -> None:
        """Set a user's weight as an operator wants it; None: as it would be without.

        Args:
            name: A known user.
            weight: A positive number.
            seconds: For how long; None: for good.

        Raises:
            ValueError: it is not a positive number.
        """
        if weight is not None:
            self._known[name].siblings.set_weight(name, weight)
        if weight is not None and seconds is not None:
            self._weights.order_boost(name, Boost(weight, self._now + seconds))
        else:
            self._weights.order(name, weight)
            self._note_idle(self._known[name])
        self._reweigh([name])

    def owe(self, name: str, commitments: Mapping[str, float], others: float) -> None:
        """Say what a user owes; what those below it owe stays.

        Args:
            name: A known user.
            commitments: By resource.
            others: Of resources that are not named.
        """
        self._known[name].siblings.set_commitment(name, commitments, others=others)

    def forgive(self, name: str) -> None:
        """Reset what a user and those below it owe."""
        user = self._known[name]
        user.siblings.set_commitment(name, 0.0)
        if user.below is not None and user.leaf in user.below:
            user.below.set_commitment(user.leaf, 0.0)
        for child in user.children:
            self.forgive(child)

    def forgive_all(self) -> None:
        """Reset what everybody owes."""
        for name in self._root.children:
            self.forgive(name)

    def memory(self) -> Memory:
        """Return what users owe now, and what was ordered for them."""
        return finished(self.remembering())

    def remembering(self) -> Steps[Memory]:
        """Do so step by step; nothing may change meanwhile."""
        self.settle()
        debts = {name: self._leaf_debt(name) for name in self._leaves}
        users = {name: Remembered(owed, others=others) for name, (owed, others) in debts.items()}
        for pool in self._pools():
            still, standings = pool.still(), list[Standing[str]]()
            for standing in still.standings_at(still.now):
                standings.append(standing)
                yield
            for standing in sorted(standings, key=lambda one: (one.priority, one.user)):
                users[standing.user] = Remembered(
                    commitments=standing.commitments,
                    overuse=standing.overuse,
                    others=standing.inherited,
                    weight=self._weights.ordered(standing.user),
                    boost=self._weights.boost(standing.user),
                )
        return Memory(time=self._now, tau=self._tau, users=users)

    def changes(self) -> Changes:
        """Return who goes on otherwise than when this was last asked; at first everybody.

        O(resources) for each; for everybody after a change that concerns everybody.
        """
        self.settle()
        pools = list(self._pools())
        changed = [pool.take_diverted() for pool in pools]
        complete = self._renewed or None in changed
        self._renewed = False
        courses = {
            user: self._course(pool, user)
            for pool, users in zip(pools, changed, strict=True)
            for user in (pool.users() if complete or users is None else users)
        }
        if complete:
            for name, (since, remembered) in self._leaves.items():
                courses[name] = Course(since, self._tau, remembered)
        return Changes(self._now, courses, complete)

    def inherit(self, memory: Memory) -> None:
        """Take over what users owe, settled for the time that has passed since.

        What a user held in excess both then and now, it is taken to have held in between: exact
        if nothing changed meanwhile, else in its favour.
        """
        finished(self.inheriting(memory))

    def inheriting(self, memory: Memory) -> Steps[None]:
        """Do so step by step; nobody may look meanwhile."""
        self.settle()
        elapsed = max(self._now - memory.time, 0.0) if memory.time else 0.0
        present = {
            user: dict(account.overuse)
            for pool in self._pools()
            for user, account in pool.still().accounts.items()
        }
        if self._settings.policy.tau is None:
            self._tau = memory.tau
            for pool in self._pools():
                pool.set_fading(memory.tau)
        tau = self._tau if memory.tau is None else memory.tau
        for name, remembered in self._possible(memory.users):
            yield
            owed, others = _settled(remembered, present.get(name, {}), elapsed, tau)
            if name.endswith("/.") and name not in self._known:
                branch = self._known.get(name[:-2])
                if branch is not None and branch.below is not None and name in branch.below:
                    branch.below.set_commitment(name, owed, others=others)
                elif max(owed.values(), default=others) >= FADED:
                    self._leaves[name] = self._now, Remembered(owed, others=others)
                continue
            if name not in self._known:
                owes = max(owed.values(), default=others) >= FADED
                if not owes and remembered.weight is None and not self._lasts(remembered.boost):
                    continue
            self.get(name).siblings.set_commitment(name, owed, others=others)
            self._obey_again(name, remembered)

    def forget_idle(self) -> None:
        """Forget undeclared users that have been gone, and owe nothing, for long enough."""
        for name in list(self._leaves):
            owed, others = self._leaf_debt(name)
            if max(owed.values(), default=others) < FADED:
                del self._leaves[name]
                self._renewed = True
        latest = self._now - self._settings.forget_after
        idle = [name for name, since in self._idle_since.items() if since <= latest]
        most = self._settings.limits.idle_users
        if len(self._idle_since) - len(idle) > most:
            by_age = sorted(self._idle_since, key=lambda name: self._idle_since[name])
            idle = by_age[: len(by_age) - most]
        kept = {name for name in idle if self._weights.keeps(name)}  # something was said of them
        for name in kept:
            del self._idle_since[name]
        # What they owe is asked before the first goes: after it, it would be worked out anew.
        going = [name for name in idle if name not in kept and self._owes_nothing(name)]
        for name in going:
            if name not in self._idle_since:
                continue  # with the last that was below the same user
            user = self._known.get(name)
            if user is None:
                self._forget_leaf(self._known[name[:-2]])
            else:
                self._remove(user)

    def _owes_nothing(self, name: str) -> bool:
        pool = self._pool_of(name)
        assert pool is not None
        return max(pool.standing(name).commitments.values(), default=0.0) < FADED

    def _possible(self, users: Mapping[str, Remembered]) -> Iterator[tuple[str, Remembered]]:
        """Leave out roles that nobody can have any more."""
        deepest = (
            self._settings.limits.role_depth if self._settings.user_key == "role" else math.inf
        )
        for name, remembered in users.items():
            if name.count("/") < deepest:
                yield name, remembered

    def _leaf_debt(self, name: str) -> tuple[dict[str, float], float]:
        """Return what a virtual leaf owes that is not there."""
        since, remembered = self._leaves.get(name, (self._now, Remembered()))
        return _settled(remembered, {}, self._now - since, self._tau)

    def _machines_changed(self) -> None:
        for pool in self._pools():
            pool.machines_changed()

    def _replace(self, user: User, before: Task | None, after: Task | None) -> None:
        """Follow a change of a task of a user's own, if the policy asks; None: it is not there."""
        if not self._settings.policy.counts_tasks:
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
        before: Task | None,
        after: Task | None,
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

    def held_below(self, user: User, held: Mapping[Client, Quantities]) -> dict[str, Quantities]:
        """Return what the members of a user's pool hold, of what clients hold."""
        sums: dict[str, Quantities] = {}
        for client, quantities in held.items():
            name = self._member(user, client)
            if name is not None:
                sums[name] = sums.get(name, Quantities()) + quantities
        return sums

    def _member(self, user: User, client: Client) -> str | None:
        if client in user.clients:
            return user.leaf
        for name, child in user.children.items():
            if _acts_below(child, client):
                return name
        return None

    def _pool_of(self, name: str) -> Pool[str] | None:
        """Return the pool in which a user or a virtual leaf competes; None: it is not known."""
        user = self._known.get(name)
        if user is not None:
            return user.siblings
        branch = self._known.get(name.removesuffix("/."))
        below = branch.below if branch is not None else None
        return below if below is not None and name in below else None

    def _pools(self) -> Iterator[Pool[str]]:
        yield self.pool
        for user in self._branches:
            assert user.below is not None
            yield user.below

    def _branch(self, user: User) -> Pool[str]:
        """Return the pool of a user's sub-users; it begins with what its own clients hold.

        All that the user owes so far is their doing, too.
        """
        if user.below is None:
            user.below = self._new_pool()
            self._branches[user] = None
            if len(user.clients):
                owed, others = user.siblings.debts(user.name)
                if user.leaf in self._leaves:
                    owed, others = self._leaf_debt(user.leaf)
                user.below.add(user.leaf)
                user.below.set_commitment(user.leaf, owed, others=others)
                if self._settings.policy.counts_tasks:
                    for task in user.tasks.values():
                        self._machines.admit(user.leaf, task.may_use)
                    user.below.set_demand(user.leaf, _needed(user.own))
                self._leaves.pop(user.leaf, None)
                user.below.allocate(user.leaf, user.clients.held(), times=0)
                user.below.set_active(user.leaf, user.clients.active > 0)
        return user.below

    def _course(self, pool: Pool[str], user: str) -> Course:
        since, commitments, overuse, inherited = pool.course(user)
        weight, boost = self._weights.ordered(user), self._weights.boost(user)
        remembered = Remembered(commitments, overuse, inherited, weight, boost)
        return Course(since, self._tau, remembered)

    def _remove(self, user: User) -> None:
        self._renewed = True
        del self._idle_since[user.name]
        del self._known[user.name]
        parent = user.parent
        assert parent is not None
        user.siblings.remove(user.name)
        del parent.children[user.name]
        if parent is not self._root and not parent.children:
            parent.below = None
            del self._branches[parent]
            self._machines.restrict(parent.leaf, None)
            self._idle_since.pop(parent.leaf, None)
            self._note_idle(parent)
        self._share_out()

    def _forget_leaf(self, user: User) -> None:
        assert user.below is not None
        del self._idle_since[user.leaf]
        user.below.remove(user.leaf)
        self._share_out()

    def _note_idle(self, user: User) -> None:
        if len(user.clients):
            return
        if not user.children:
            self._idle_since[user.name] = self._now
        elif user.below is not None and user.leaf in user.below:
            self._idle_since[user.leaf] = self._now

    def _lasts(self, boost: Boost | None) -> bool:
        return boost is not None and boost.until > self._now

    def _obey_again(self, name: str, remembered: Remembered) -> None:
        """Follow what an operator has ordered for a user, as it was remembered."""
        if remembered.weight is not None:
            self.order_weight(name, in_range(remembered.weight))
        boost = remembered.boost
        if boost is not None and self._lasts(boost):
            self._weights.order_boost(name, Boost(in_range(boost.weight), boost.until))
            self._reweigh([name])

    def _reweigh(self, names: "Mapping[str, float] | list[str]") -> None:
        for name in names:
            if name in self._known:
                self._known[name].siblings.set_weight(name, self._weights.of(name))
        self._share_out()

    def _share_out(self) -> None:
        """Have every level told; once for all that changes at one instant."""
        self._uneven = True

    def _new_pool(self) -> Pool[str]:
        pool: Pool[str] = Pool(
            self._settings.policy,
            now=self._now,
            capacity=self._capacity,
            excluded=self._excluded,
            machines=self._machines,
        )
        pool.set_fading(self._tau)
        pool.set_charging(charging=self._charging)
        if self._meter is not None:
            pool.attach(self._meter)
        return pool

    def _new_clients(self) -> Peers[Client]:
        return Peers(self._capacity, self._excluded)


def _bounded(owed: Mapping[str, float]) -> dict[str, float]:
    return {name: min(commitment, LARGEST_COMMITMENT) for name, commitment in owed.items()}


def in_range(weight: float) -> float:
    """Return the weight that is counted for one that is positive."""
    return min(max(weight, LEAST_WEIGHT), LARGEST_WEIGHT)


def _settled(
    remembered: Remembered, overuse: Mapping[str, float], elapsed: float, tau: float | None
) -> tuple[dict[str, float], float]:
    """Return what is owed after some time, by resource and of all others."""
    if tau is None:
        return _bounded(remembered.commitments), min(remembered.others, LARGEST_COMMITMENT)
    owed = {
        name: decayed(
            commitment,
            min(remembered.overuse.get(name, 0.0), overuse.get(name, 0.0)),
            elapsed,
            tau,
        )
        for name, commitment in remembered.commitments.items()
    }
    others = decayed(remembered.others, 0.0, elapsed, tau)
    return _bounded(owed), min(others, LARGEST_COMMITMENT)


def _renew(needs: Largest, before: Task | None, after: Task | None) -> None:
    if after is not None and after.demand is not None:
        needs.put(after.demand)
    if before is not None and before.demand is not None:
        needs.discard(before.demand)


def _needed(needs: Largest) -> Quantities | None:
    return Quantities(dict(needs.of)) if needs.of else None


def _acts_below(user: User, client: Client) -> bool:
    return client in user.clients or any(
        _acts_below(child, client) for child in user.children.values()
    )
