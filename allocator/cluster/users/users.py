"""All users: who there is, what they hold and owe, and the order in which they are served."""

import math
from collections.abc import Iterator, Mapping

from allocator.cluster.agents.shared_volumes import NO_REPEATS, Repeats, SharedVolumes
from allocator.cluster.cooperative import Cooperative, run_to_completion
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.memory import Boost, Memory, MemoryChanges, Remembered
from allocator.cluster.settings import EngineSettings
from allocator.cluster.users.commitments import FADED, AbsentUsers, MemoryExport, matters, settled
from allocator.cluster.users.role_pools import RoleDemands, RolePools
from allocator.cluster.users.user import User, UserTask
from allocator.cluster.users.weights import Weights
from allocator.fairness.bounds import LARGEST_WEIGHT, LEAST_WEIGHT
from allocator.fairness.commitment import decayed
from allocator.fairness.framework_sorter import FrameworkSorter
from allocator.fairness.metering import AccountCheckpoint, Meter
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.fairness.standing import Standing


class Users:
    """The tree of users, and what of each is asked for and said."""

    def __init__(self, settings: EngineSettings, now: float, excluded: tuple[str, ...]) -> None:
        self._settings = settings
        self._levels = RolePools(settings, now, excluded)
        self._needs = RoleDemands(settings, self._levels)
        self._away = AbsentUsers(self._levels)
        self._weights = Weights(settings)
        self._remembering = MemoryExport(self._levels, self._away, self._weights)
        self.volumes = SharedVolumes()
        """Empty if a shared volume counts for each client that holds it."""
        self._known: dict[str, User] = {}
        self._idle_since: dict[str, float] = {}
        self._declared = {declared.name: declared for declared in settings.users}
        self.pool: Pool[str] = self._levels.top
        """The users at the top."""
        self._root = User("", None, self._levels.new_clients(), below=self.pool)
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
            user = User(name, parent, self._levels.new_clients())
            below = self._branch(parent)
            declared = self._declared.get(name)
            below.add(
                name,
                weight=self._weights.of(name),
                commitment=declared.commitment if declared is not None else 0.0,
            )
            parent.children[name] = self._known[name] = user
            if self._weights.by(name):
                self._follow_named(user)
            self._idle_since.pop(parent.name, None)
            self._idle_since[name] = self.now
            self._levels.share_out()
        return user

    def settle(self) -> None:
        """Tell every level its part, to be called after each event (`RolePools.settle`)."""
        self._levels.settle()

    def advance(self, now: float) -> None:
        """Move to a later instant; boosts that are over by then end when they are."""
        self.settle()
        while (end := self._weights.next_end) <= now:
            self._levels.advance(end)
            over = self._weights.ended(end)
            self._reweigh(over)
            for name in over:
                self._note_idle(self._known[name])
            self.settle()
        self._levels.advance(now)

    def set_capacity(self, capacity: Quantities) -> None:
        """Change the total of all agents."""
        self._levels.set_capacity(capacity)

    def set_charging(self, *, charging: bool) -> None:
        """Say whether over-use makes debts; while it does not, debts still fade."""
        self._levels.set_charging(charging=charging)

    def attach(self, meter: Meter) -> None:
        """Have counted from now on what users hold and owe, in the place of users before."""
        self._levels.attach(meter)

    def count(self, name: str) -> AccountCheckpoint | None:
        """Have counted what a user or a virtual leaf has had until now; None: it is not known."""
        self.settle()
        pool = self._pool_of(name)
        return None if pool is None else pool.count(name)

    def count_capacity(self) -> None:
        """Have counted what the cluster has had until now."""
        self._levels.count_capacity()

    def put_agent(self, agent: str, total: Quantities) -> None:
        """Make an agent known, or say anew what it has; the capacity is set apart from this."""
        self._levels.put_agent(agent, total)

    def discard_agent(self, agent: str) -> None:
        """Forget an agent."""
        self._levels.discard_agent(agent)

    def set_task(self, user: User, client: Client, task: UserTask) -> bool:
        """Say what a client's tasks need, and where they may run; return whether that is new."""
        return self._needs.put(user, client, task)

    def add(self, user: User, client: Client) -> None:
        """Make a client of a user known; it gets no offers yet."""
        self._idle_since.pop(user.name, None)
        self._idle_since.pop(user.leaf, None)
        user.clients.add(client)
        if user.below is not None and user.leaf not in user.below:
            user.below.add(user.leaf)
            owed, others = self._away.owes(user.leaf)
            user.below.set_commitment(user.leaf, owed, others=others)
            self._away.discard(user.leaf)
            self._levels.share_out()

    def remove(self, user: User, client: Client) -> None:
        """Forget a client that holds nothing."""
        self.set_wanting(user, client, wanting=False)
        user.clients.remove(client)
        self._needs.discard(user, client)
        self._note_idle(user)

    def set_wanting(self, user: User, client: Client, *, wanting: bool) -> None:
        """Say whether a client is to get offers."""
        user.clients.set_active(client, wanting)
        if user.below is not None and user.leaf in user.below:
            user.below.set_active(user.leaf, user.clients.active > 0)
        while user.parent is not None:
            user.siblings.set_active(user.name, user.wants)
            user = user.parent

    def allocate(
        self, user: User, client: Client, quantities: Quantities, repeats: Repeats = NO_REPEATS
    ) -> None:
        """Count scalars as held by a client, its user, and all above.

        Args:
            user: The user of the client.
            client: The holder.
            quantities: All that it gets.
            repeats: Quantities, by user, that other clients of that user hold as well.
        """
        before, gifts = user.clients.holding(client)
        after = before + quantities
        user.clients.hold(client, after, gifts + 1)
        for pool, name in user.places():
            held, gifts = pool.holding(name)  # the very same where it is the user's only client
            if name in repeats:
                repeated, single = repeats[name]
                total = held + quantities + single - repeated
            else:
                total = after if held is before else held + quantities
            pool.hold(name, total, gifts + 1)

    def release(
        self, user: User, client: Client, quantities: Quantities, repeats: Repeats = NO_REPEATS
    ) -> None:
        """Count scalars as no longer held; `repeats` as in `allocate`.

        Raises:
            ValueError: the client does not hold that much; nothing has changed.
        """
        before, gifts = user.clients.holding(client)
        after = before - quantities
        user.clients.hold(client, after, gifts)
        for pool, name in user.places():
            held, gifts = pool.holding(name)  # the very same where it is the user's only client
            if name in repeats:
                repeated, single = repeats[name]
                remaining = held + single - quantities - repeated
            else:
                remaining = after if held is before else held - quantities
            pool.hold(name, remaining, gifts)

    @property
    def now(self) -> float:
        """The users' time in seconds."""
        return self._levels.now

    @property
    def root(self) -> User:
        """What is above the users at the top; it has no clients."""
        return self._root

    def clients_of(self, user: User) -> FrameworkSorter[Client]:
        """Return a user's own clients, ranked by the capacity there is now."""
        return self._levels.clients_of(user)

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
        return [standing for below in self._levels for standing in below.standings()]

    def names(self) -> list[str]:
        """Return who competes anywhere: users and virtual leaves, those at the top first."""
        return [user for pool in self._levels for user in pool.users()]

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

    def path(self, name: str) -> list[tuple[Pool[str], str]]:
        """Return where a user competes, and as which member of each pool, the top first."""
        self.settle()
        user = self._known.get(name)
        if user is None:
            pool = self._pool_of(name)
            return [] if pool is None else [*self.path(name.removesuffix("/.")), (pool, name)]
        places = []
        while user.parent is not None:
            places.append((user.siblings, user.name))
            user = user.parent
        return places[::-1]

    def pools(self) -> Iterator[Pool[str]]:
        """Go through the pools of all levels, the top first."""
        yield from self._levels

    def clients(self, name: str) -> Iterator[Client]:
        """Go through the clients of a user, and of those below it; leaves no trace."""
        user = self._known[name]
        yield from user.tasks
        for child in user.children:
            yield from self.clients(child)

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
            self._weights.order_boost(name, Boost(weight, self.now + seconds))
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

    def kept_by(self, name: str) -> str | None:
        """Return why a user cannot be forgotten, it or one below it; None: it can be.

        Args:
            name: A known user.
        """
        user = self._known[name]
        if len(user.clients):
            return (
                f"user {name!r} has frameworks, so it comes back at once; remove them first, or "
                "forgive it what it owes with `commitments reset`"
            )
        if name in self._declared:
            return f"user {name!r} is declared; remove it from [[users.declared]] instead"
        return next(filter(None, map(self.kept_by, user.children)), None)

    def forget(self, name: str) -> None:
        """Forget a user without frameworks, all below it, and what was ordered for them.

        Args:
            name: A known user that `kept_by` says nothing of.
        """
        user = self._known[name]
        for child in list(user.children):
            self.forget(child)
        self._weights.order(name, None)
        self._away.discard(user.leaf)
        self._idle_since[name] = self.now
        self._remove(user)
        self._levels.miscount()

    def forgive_all(self) -> None:
        """Reset what everybody owes."""
        for name in self._root.children:
            self.forgive(name)

    def memory(self) -> Memory:
        """Return what users owe now, and what was ordered for them."""
        return run_to_completion(self.remembering())

    def remembering(self) -> Cooperative[Memory]:
        """Do so step by step; nothing may change meanwhile."""
        self.settle()
        return (yield from self._remembering.steps())

    def changes(self) -> MemoryChanges:
        """Return who goes on otherwise than when this was last asked; at first everybody.

        O(resources) for each; for everybody after a change that concerns everybody.
        """
        self.settle()
        return self._remembering.changes()

    def inherit(self, memory: Memory) -> None:
        """Take over what users owe, settled for the time that has passed since.

        What a user held in excess both then and now, it is taken to have held in between: exact
        if nothing changed meanwhile, else in its favour.
        """
        run_to_completion(self.inheriting(memory))

    def inheriting(self, memory: Memory) -> Cooperative[None]:
        """Do so step by step; nobody may look meanwhile."""
        self.settle()
        elapsed = max(self.now - memory.time, 0.0) if memory.time else 0.0
        present = {
            user: dict(account.overuse)
            for pool in self._levels
            for user, account in pool.still().accounts.items()
        }
        if self._settings.policy.tau is None:
            self._levels.set_fading(memory.tau)
        tau = self._levels.tau if memory.tau is None else memory.tau
        for name, remembered in self._possible(memory.users):
            yield
            owed, others = settled(remembered, present.get(name, {}), elapsed, tau)
            mean_use = remembered.mean_use
            if tau is not None:
                mean_use = decayed(mean_use, 0.0, elapsed, tau)
            if name.endswith("/.") and name not in self._known:
                branch = self._known.get(name[:-2])
                if branch is not None and branch.below is not None and name in branch.below:
                    branch.below.set_commitment(name, owed, others=others)
                    branch.below.set_mean_use(name, mean_use)
                elif matters(owed, others):
                    self._away.put(name, owed, others)
                continue
            if name not in self._known:
                told = remembered.weight is not None or self._lasts(remembered.boost)
                if not told and not matters(owed, others) and mean_use < FADED:
                    continue
            siblings = self.get(name).siblings
            siblings.set_commitment(name, owed, others=others)
            siblings.set_mean_use(name, mean_use)
            self._obey_again(name, remembered)

    @property
    def look_is_due(self) -> bool:
        """Whether n depends on use, and it is time to look at it again."""
        return self._levels.look_is_due

    def look(self, used: Mapping[str, Quantities] | None) -> None:
        """Let n follow what users use.

        Args:
            used: By user and virtual leaf; None: what they hold.
        """
        self._levels.look(used)

    def forget_idle(self) -> None:
        """Forget undeclared users that have been gone, and owe nothing, for long enough."""
        if self._away.forget_faded():
            self._remembering.begin_anew()
        latest = self.now - self._settings.forget_after
        idle = [name for name, since in self._idle_since.items() if since <= latest]
        most = self._settings.limits.idle_users
        if len(self._idle_since) - len(idle) > most:
            order = sorted(self._idle_since, key=lambda name: self._expendable(name, latest))
            idle = order[: len(order) - most]
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

    def _expendable(self, name: str, latest: float) -> tuple[bool, float, float]:
        """Return what orders idle users if there are too many: those to be forgotten first.

        Users that have used less on average come first. So names without use never have the
        service forget a user with a claim, and all that have more than one are few.
        """
        since = self._idle_since[name]
        pool = self._pool_of(name)
        assert pool is not None
        return since > latest, pool.mean_use(name), since

    def _owes_nothing(self, name: str) -> bool:
        pool = self._pool_of(name)
        assert pool is not None
        return not matters(pool.standing(name).commitments)

    def _possible(self, users: Mapping[str, Remembered]) -> Iterator[tuple[str, Remembered]]:
        """Leave out roles that nobody can have any more."""
        deepest = (
            self._settings.limits.role_depth if self._settings.user_key == "role" else math.inf
        )
        for name, remembered in users.items():
            if name.count("/") < deepest:
                yield name, remembered

    def held_below(
        self, user: User, held: Mapping[Client, Quantities], agent: str = ""
    ) -> dict[str, Quantities]:
        """Return what the members of a user's pool hold on an agent, of what clients hold there."""
        sums: dict[str, Quantities] = {}
        for client, quantities in held.items():
            name = user.member(client)
            if name is not None:
                sums[name] = sums.get(name, Quantities()) + quantities
        return {name: total - self.volumes.repeated(name, agent) for name, total in sums.items()}

    def _pool_of(self, name: str) -> Pool[str] | None:
        """Return the pool in which a user or a virtual leaf competes; None: it is not known."""
        user = self._known.get(name)
        if user is not None:
            return user.siblings
        branch = self._known.get(name.removesuffix("/."))
        below = branch.below if branch is not None else None
        return below if below is not None and name in below else None

    def _branch(self, user: User) -> Pool[str]:
        """Return the pool of a user's sub-users; it begins with what its own clients hold.

        All that the user owes so far is their doing, too.
        """
        if user.below is not None:
            return user.below
        below = self._levels.begin(user)
        if len(user.clients):
            owed, others = user.siblings.debts(user.name)
            if user.leaf in self._away:
                owed, others = self._away.owes(user.leaf)
            below.add(user.leaf)
            below.set_commitment(user.leaf, owed, others=others)
            below.set_mean_use(user.leaf, user.siblings.mean_use(user.name))
            self._needs.begin_leaf(user)
            self._away.discard(user.leaf)
            held = user.clients.held() - self.volumes.repeated(user.leaf)
            below.allocate(user.leaf, held, times=0)
            below.set_active(user.leaf, user.clients.active > 0)
        return below

    def _remove(self, user: User) -> None:
        self._remembering.begin_anew()
        del self._idle_since[user.name]
        del self._known[user.name]
        parent = user.parent
        assert parent is not None
        user.siblings.remove(user.name)
        del parent.children[user.name]
        if self._weights.by(user.name) and parent is not self._root:
            self._follow_named(parent)
        if parent is not self._root and not parent.children:
            self._levels.end(parent)
            self._idle_since.pop(parent.leaf, None)
            self._note_idle(parent)
        self._levels.share_out()

    def _forget_leaf(self, user: User) -> None:
        assert user.below is not None
        del self._idle_since[user.leaf]
        user.below.remove(user.leaf)
        self._levels.share_out()

    def _note_idle(self, user: User) -> None:
        if len(user.clients):
            return
        if not user.children:
            self._idle_since[user.name] = self.now
        elif user.below is not None and user.leaf in user.below:
            self._idle_since[user.leaf] = self.now

    def _lasts(self, boost: Boost | None) -> bool:
        return boost is not None and boost.until > self.now

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
                self._follow_named(self._known[name])
        self._levels.share_out()

    def _follow_named(self, user: User) -> None:
        """Have a user counted whole if an operator has named it, or one below it."""
        named = False
        while user.parent is not None:
            below = {} if user.below is None else user.below.accounts()
            named = (
                named
                or bool(self._weights.by(user.name))
                or any(account.named for account in below.values())
            )
            user.siblings.set_named(user.name, named)
            user = user.parent
        self._levels.miscount()


def in_range(weight: float) -> float:
    """Return the weight that is counted for one that is positive."""
    return min(max(weight, LEAST_WEIGHT), LARGEST_WEIGHT)
