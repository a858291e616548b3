"""All users of a cluster: their allocations, commitments and weights, and their pools."""

import math
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Final, Generic, TypeAlias

from allocator.compilation import mypyc_attr
from allocator.cooperative import Cooperative, run_to_completion
from allocator.fairness.bounds import LARGEST_WEIGHT, LEAST_WEIGHT
from allocator.fairness.commitment import decayed
from allocator.fairness.framework_sorter import FrameworkSorter
from allocator.fairness.metering import AccountCheckpoint, Meter
from allocator.fairness.policies.policy import accumulates
from allocator.fairness.pool import Pool, restore_accumulated_use
from allocator.fairness.quantities import NO_QUANTITIES, Quantities
from allocator.fairness.standing import Standing
from allocator.users.commitments import (
    NEGLIGIBLE_COMMITMENT,
    AbsentUsers,
    MemoryExport,
    commitments_after,
    is_significant,
    is_used,
)
from allocator.users.memory import (
    AccumulatedUse,
    Boost,
    Memory,
    MemoryChanges,
    RememberedUser,
)
from allocator.users.pools import UserDemands, UserPools
from allocator.users.settings import UserSettings
from allocator.users.user import Client, User, UserTask, depth_of
from allocator.users.weights import Weights

Repeats: TypeAlias = Mapping[str, tuple[Quantities, Quantities]]
"""For each user or virtual leaf, the quantities that begin to be repeated, and the quantities that
cease to be repeated. Quantities are repeated if several clients of the user hold the same
resources."""

_Past: TypeAlias = tuple[Mapping[str, float], float, Mapping[str, float]]
"""A member's commitments by resource, its commitment of other resources, and its mean use."""
_USERS_A_STEP = 100
"""Idle users that are examined or forgotten in one cooperative step."""
_SORT_AGAIN = 60.0
"""Seconds between two sorts of idle users, if the first has not reduced them to the limit."""
NO_REPEATS: Final[Repeats] = {}


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class UserTree(Generic[Client]):
    """The tree of users, with their weights, task demands, allocations and commitments.

    Args:
        settings: Settings of the users.
        now: The time of the users' commitments, in seconds since the Unix epoch.
        excluded: Resources that do not count for fairness.
    """

    def __init__(self, settings: UserSettings, now: float, excluded: tuple[str, ...] = ()) -> None:
        self._settings = settings
        self._pools: UserPools[Client] = UserPools(settings, now, excluded)
        self._demands = UserDemands(settings, self._pools)
        self._absent = AbsentUsers(self._pools)
        self._weights = Weights(settings)
        self._export = self._new_export()
        self._known: dict[str, User[Client]] = {}
        self._idle_since: dict[str, float] = {}
        self._busy: frozenset[str] = frozenset()
        """Users that are not idle although they have no clients."""
        self._sorted_at = -math.inf
        """The time at which idle users were last sorted, because there were too many."""
        self._unforgettable = 0
        """Number of idle users beyond the limit after the last sort."""
        self._without_sub_users: dict[str, None] = {}
        """Users that have a pool although their last sub-user is gone (`_end_pools`)."""
        self._declared = {declared.name: declared for declared in settings.declared}
        self.pool: Pool[str] = self._pools.top
        """The pool of the top-level users."""
        self._root = self._pools.root
        self.clock = self._pools.clock
        """The time of all pools, and the pools whose users must be rated or ranked."""
        for declared in settings.declared:
            self.get(declared.name)

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def fork(self) -> "UserTree[Client]":
        """Return an independent copy, for allocations that are not final. O(users).

        The copy has no meter. It shares the framework sorters, so clients must not change in it.
        """
        self.update_entitlements()
        tree: UserTree[Client] = copy(self)
        tree._weights = self._weights.fork()
        tree._pools = self._pools.fork()
        tree._root, tree.pool = tree._pools.root, tree._pools.top
        tree.clock = tree._pools.clock
        tree._demands = UserDemands(self._settings, tree._pools)
        tree._absent = AbsentUsers(tree._pools)
        tree._export = tree._new_export()
        tree._idle_since = dict(self._idle_since)
        tree._without_sub_users = dict(self._without_sub_users)
        tree._known = {}
        remaining = list(tree._root.children.values())
        while remaining:
            user = remaining.pop()
            tree._known[user.name] = user
            remaining += user.children.values()
        return tree

    def get(self, name: str) -> User[Client]:
        """Return the user with this name; add the user and its ancestors if unknown."""
        user = self._known.get(name)
        if user is None:
            parent_name, slash, _ = name.rpartition("/")
            tree = slash and self._settings.tree
            parent = self.get(parent_name) if tree else self._root
            below = self._sub_pool(parent)
            user = User(name, parent, self._pools.new_clients())
            declared = self._declared.get(name)
            below.add(
                name,
                weight=self._weights.of(name),
                commitment=declared.commitment if declared is not None else 0.0,
            )
            parent.children[name] = self._known[name] = user
            if self._weights.is_explicit(name):
                self._update_named([user])
            self._idle_since.pop(parent.name, None)
            self._begin_idle(name)
            self._note_idle_above(user)
            self._pools.mark_outdated(parent)
        return user

    def update_entitlements(self) -> None:
        """Update the entitlements of all pools; callers do this after each event.

        See `UserPools.update_entitlements`.
        """
        self._pools.update_entitlements()

    def update_entitlements_in_steps(self) -> Cooperative[None]:
        """Generator form of `update_entitlements`.

        Users must not be used until the generator is exhausted.
        """
        return self._pools.update_entitlements_in_steps()

    def advance(self, now: float) -> None:
        """Advance the time of all users' commitments and weights to `now`.

        The time is in seconds since the Unix epoch. Boosts that expire until then end at the exact
        instants of their expiry.
        """
        self.update_entitlements()
        while (end := self._weights.next_end) <= now:
            self._pools.advance(end)
            ended = self._weights.ended(end)
            self._reweigh(ended)
            for name in ended:
                self._note_idle(self._known[name])
            self.update_entitlements()
        self._pools.advance(now)

    def set_capacity(self, capacity: Quantities) -> None:
        """Set the total resources of all machines, of which shares are fractions."""
        run_to_completion(self.set_capacity_in_steps(capacity))

    def set_capacity_in_steps(self, capacity: Quantities) -> Cooperative[None]:
        """Generator form of `set_capacity`. Users must not be used until it is exhausted."""
        return self._pools.set_capacity(capacity)

    def set_charging(self, *, charging: bool) -> None:
        """Set whether over-use increases commitments; existing commitments decay in any case."""
        self._pools.set_charging(charging=charging)

    def attach(self, meter: Meter) -> None:
        """Let a meter record the allocations and commitments of these users from now on.

        The meter stops recording the users that it recorded before.
        """
        self._pools.attach(meter)

    def count(self, name: str) -> AccountCheckpoint | None:
        """Add a user's usage up to now to its account in the meter.

        Args:
            name: A user or virtual leaf.

        Returns:
            The account's state at this time, up to which usage is now added; None if the name is
            unknown.
        """
        self.update_entitlements()
        pool = self._pool_of(name)
        return None if pool is None else pool.count(name)

    def count_capacity(self) -> None:
        """Let the meter, if there is one, count the cluster's capacity up to now."""
        self._pools.count_capacity()

    def put_machine(self, machine: str, total: Quantities) -> None:
        """Add a machine, or replace its total resources, for policies that consider each machine.

        The cluster's total is set separately, by `set_capacity`.
        """
        self._pools.put_machine(machine, total)

    def discard_machine(self, machine: str) -> None:
        """Remove a machine that is gone."""
        self._pools.discard_machine(machine)

    def set_task(self, user: User[Client], client: Client, task: UserTask) -> bool:
        """Set the demand and eligible machines of a client's tasks; return whether they changed."""
        return self._demands.put(user, client, task)

    def add(self, user: User[Client], client: Client) -> None:
        """Add a client to a user, with nothing allocated; the client does not want offers yet."""
        self._idle_since.pop(user.leaf, None)
        user.clients.add(client)
        self._count_client(user, 1)
        self.begin_leaf(user)

    def begin_leaf(self, user: User[Client]) -> None:
        """Add the virtual leaf of a user with sub-users, unless the leaf exists.

        Allocations that no client holds need this leaf, too.
        """
        if user.sub_pool is not None and user.leaf not in user.sub_pool:
            user.sub_pool.add(user.leaf)
            commitments, rest = self._absent.commitments_of(user.leaf)
            user.sub_pool.set_commitment(user.leaf, commitments, others=rest)
            self._restore_leaf_use(user.sub_pool, user.leaf)
            self._absent.discard(user.leaf)
            self._pools.mark_outdated(user)
            if not len(user.clients):
                self._idle_since[user.leaf] = self.now

    def remove(self, user: User[Client], client: Client) -> None:
        """Forget a client that holds no resources."""
        self.set_wanting(user, client, wanting=False)
        user.clients.remove(client)
        self._count_client(user, -1)
        self._demands.discard(user, client)
        self._note_idle(user)

    def set_wanting(self, user: User[Client], client: Client, *, wanting: bool) -> None:
        """Set whether a client wants offers.

        The sorter does not rank a user if none of its clients wants offers.
        """
        if not user.clients.set_active(client, wanting):
            return
        if user.sub_pool is not None and user.leaf in user.sub_pool:
            user.sub_pool.set_active(user.leaf, user.clients.active > 0)
        while user.parent is not None:
            user.siblings.set_active(user.name, user.wants)
            user = user.parent

    def allocate(
        self,
        user: User[Client],
        client: Client,
        quantities: Quantities,
        repeats: Repeats = NO_REPEATS,
        times: int = 1,
    ) -> None:
        """Add scalar quantities to the allocation of a client, its user, and the user's ancestors.

        Args:
            user: The client's user.
            client: The client that is allocated the resources.
            quantities: All quantities, including shared volumes.
            repeats: By user, the increase and decrease of repeated quantities, which are subtracted
                because several of the user's clients share a volume (`SharedVolumes.change`).
            times: The number of allocations in which the client gets the quantities.
        """
        before, count = user.clients.holding(client)
        after = before + quantities
        user.clients.hold(client, after, count + times)
        for pool, name in user.memberships():
            held, count = pool.holding(name)  # the same object for a user with one client
            if name in repeats:
                repeated, single = repeats[name]
                total = held + quantities + single - repeated
            else:
                total = after if held is before else held + quantities
            pool.hold(name, total, count + times)

    def release(
        self,
        user: User[Client],
        client: Client,
        quantities: Quantities,
        repeats: Repeats = NO_REPEATS,
    ) -> Quantities:
        """Subtract scalar quantities from the allocation of a client, its user, and its ancestors.

        Args:
            user: The client's user.
            client: The client that releases the resources.
            quantities: All quantities, including shared volumes.
            repeats: By user, the increase and decrease of repeated quantities, which are subtracted
                because several of the user's clients share a volume (`SharedVolumes.change`).

        Returns:
            The client's remaining allocation.

        Raises:
            ValueError: The client holds less; nothing has changed.
        """
        before, count = user.clients.holding(client)
        after = before - quantities
        user.clients.hold(client, after, count)
        for pool, name in user.memberships():
            held, count = pool.holding(name)  # the same object for a user with one client
            if name in repeats:
                repeated, single = repeats[name]
                remaining = held + single - quantities - repeated
            else:
                remaining = after if held is before else held - quantities
            pool.hold(name, remaining, count)
        return after

    @property
    def now(self) -> float:
        """The time for which commitments are computed, in seconds since the Unix epoch."""
        return self._pools.now

    @property
    def root(self) -> User[Client]:
        """The artificial root of the tree, whose children are the top-level users."""
        return self._root

    def clients_of(self, user: User[Client]) -> FrameworkSorter[Client]:
        """Return the framework sorter, which ranks a user's own clients."""
        return self._pools.clients_of(user)

    @property
    def counts_tasks(self) -> bool:
        """Whether the policy depends on the number of tasks that all machines could run (TSF)."""
        return self._settings.policy.counts_tasks

    @property
    def per_machine(self) -> bool:
        """Whether the policy's sorter order depends on the machine that is allocated."""
        return self._settings.policy.per_machine

    def standings(self) -> list[Standing[str]]:
        """Return the standings of all users: rank, allocation, commitments and more.

        The users of each pool are in order of priority; the pools follow one after the other.
        """
        self.update_entitlements()
        return [standing for below in self._pools for standing in below.standings()]

    def names(self) -> list[str]:
        """Return the names of all users and virtual leaves, top-level users first."""
        return [user for pool in self._pools for user in pool.users()]

    def standing(self, name: str) -> Standing[str] | None:
        """Return the rank, allocation and commitments of a user or virtual leaf; None if unknown.

        Costs O(resources).
        """
        self.update_entitlements()
        pool = self._pool_of(name)
        return None if pool is None else pool.standing(name)

    @property
    def weights(self) -> Weights:
        """The users' weights, and for each weight its source, such as an operator."""
        return self._weights

    def twin(self, name: str) -> Pool[str] | None:
        """Return a copy of the pool in which a user competes, to compute the effects of changes.

        The result is None if the user is unknown.
        """
        self.update_entitlements()
        pool = self._pool_of(name)
        return None if pool is None else pool.twin()

    def path(self, name: str) -> list[tuple[Pool[str], str]]:
        """Return the pools in which a user and its ancestors compete, the top-level pool first.

        Args:
            name: A user or virtual leaf. For an unknown name, the result is empty.

        Returns:
            Pairs of a pool and the member that competes in it: an ancestor, or at last the user.
        """
        self.update_entitlements()
        user = self._known.get(name)
        if user is None:
            pool = self._pool_of(name)
            return [] if pool is None else [*self.path(name.removesuffix("/.")), (pool, name)]
        return list(reversed(user.above))

    def pools(self) -> Iterator[Pool[str]]:
        """Iterate over all pools, the top-level pool first."""
        yield from self._pools

    def clients(self, name: str) -> Iterator[Client]:
        """Iterate over the clients of a user and of its descendants, without changing any cache.

        Args:
            name: A known user.
        """
        user = self._known[name]
        yield from user.tasks
        for child in user.children:
            yield from self.clients(child)

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Set weights that the scheduler has sent; other users keep their weights.

        With `keeps_weighted_users`, users with a weight other than 1 are known from now on.
        """
        run_to_completion(self.set_weights_in_steps(weights))

    def set_weights_in_steps(self, weights: Mapping[str, float]) -> Cooperative[None]:
        """Generator form of `set_weights`.

        Users must not be used until the generator is exhausted.
        """
        for name in weights:
            user = self._known.get(name)
            if user is not None:
                yield from user.siblings.accrue_in_steps()
        self._set_weights(weights)

    def _set_weights(self, weights: Mapping[str, float]) -> None:
        former = [name for name in weights if self._weights.is_kept_by_scheduler(name)]
        self._weights.set_from_scheduler(weights)
        for name in weights:
            if self._weights.is_kept_by_scheduler(name):
                self.get(name)
                self._idle_since.pop(name, None)
        self._reweigh(weights)
        for name in former:
            if not self._weights.is_kept_by_scheduler(name):
                self._note_idle(self._known[name])

    def order_weight(self, name: str, weight: float | None, seconds: float | None = None) -> None:
        """Set or remove a user's weight by an operator's command.

        Args:
            name: A known user.
            weight: A positive number; None: remove the weight set by an earlier command.
            seconds: Number of seconds for which the weight applies as a boost; None: permanently.

        Raises:
            ValueError: The weight is not positive.
        """
        if weight is not None:
            self._known[name].siblings.set_weight(name, weight)
        if weight is not None and seconds is not None:
            self._weights.order_boost(name, Boost(weight, self.now + seconds))
        else:
            self._weights.order(name, weight)
            self._note_idle(self._known[name])
        self._reweigh([name])

    def set_commitments(self, name: str, commitments: Mapping[str, float], unnamed: float) -> None:
        """Replace a user's commitments; the commitments of its descendants are unchanged.

        Args:
            name: A known user.
            commitments: Commitments by resource, as fractions of the capacity.
            unnamed: Commitment of every resource that `commitments` does not name.
        """
        self._known[name].siblings.set_commitment(name, commitments, others=unnamed)

    def reset_commitments(self, name: str) -> None:
        """Reset the commitments of a user and its descendants to zero."""
        user = self._known[name]
        user.siblings.set_commitment(name, 0.0)
        if user.sub_pool is not None and user.leaf in user.sub_pool:
            user.sub_pool.set_commitment(user.leaf, 0.0)
        for child in user.children:
            self.reset_commitments(child)

    def reason_to_keep(self, name: str) -> str | None:
        """Return the reason why a user or a descendant cannot be forgotten; None if both can be.

        Args:
            name: A known user.
        """
        user = self._known[name]
        if len(user.clients):
            return (
                f"user {name!r} has {self._settings.clients}, so it would come back at once; "
                "remove them first, or set its commitments to zero with `commitments reset`"
            )
        if name in self._declared:
            return f"user {name!r} is declared; remove it from [[users.declared]] instead"
        if self._weights.is_kept_by_scheduler(name):
            return (
                f"user {name!r} has a weight of the {self._settings.scheduler}; set it to 1 there"
            )
        return next(filter(None, map(self.reason_to_keep, user.children)), None)

    def forget(self, name: str) -> None:
        """Forget a user without clients, its descendants, and the weights set by operators.

        Args:
            name: A known user for which `reason_to_keep` returns None.
        """
        user = self._known[name]
        for child in list(user.children):
            self.forget(child)
        self._weights.order(name, None)
        self._absent.discard(user.leaf)
        self._export.mark_removed([user.leaf])
        self._idle_since[name] = self.now
        self._remove(user)
        self._pools.mark_recount()

    def forgive_all(self) -> None:
        """Reset the commitments of all users to zero."""
        for name in self._root.children:
            self.reset_commitments(name)

    def memory(self) -> Memory:
        """Return the state to store: commitments, and the weights that operators have set."""
        return run_to_completion(self.memory_in_steps())

    def memory_in_steps(self) -> Cooperative[Memory]:
        """Generator form of `memory`, for cooperative steps.

        Users must not change until the generator is exhausted.
        """
        self.update_entitlements()
        return (yield from self._export.steps())

    def changes(self) -> MemoryChanges:
        """Return users whose commitment trajectory, weight or boost changed since the last call.

        The first call returns all users, as does a call after a change that concerns all users,
        such as a new capacity. Costs O(resources) for each returned user. Removed users are named.
        """
        return run_to_completion(self.changes_in_steps())

    def changes_in_steps(self) -> Cooperative[MemoryChanges]:
        """Generator form of `changes`. Users must not change until the generator is exhausted."""
        self.update_entitlements()
        yield from self.clock.rank_in_steps()
        return (yield from self._export.changes())

    def inherit(self, memory: Memory) -> None:
        """Restore commitments, and weights set by operators, from stored state.

        Commitments are advanced from the time of storage to now: they grow with over-use, and
        decay. The assumed over-use is the smaller of the stored and the current over-use. The
        result is exact if nothing changed in between. Otherwise the commitments may be too small,
        in the users' favour. The same holds for accumulated use and its rate.

        Args:
            memory: The stored state, as returned by `memory`.
        """
        run_to_completion(self.inherit_in_steps(memory))

    def inherit_in_steps(self, memory: Memory) -> Cooperative[None]:
        """Generator form of `inherit`, for cooperative steps.

        Users must not be read until the generator is exhausted.
        """
        self.update_entitlements()
        self._export.mark_all_changed()
        elapsed = max(self.now - memory.time, 0.0) if memory.time else 0.0
        present: dict[str, tuple[Mapping[str, float], float]] = {}
        for pool in self._pools:
            snapshot = yield from pool.still_in_steps()
            for member, account in snapshot.accounts.items():
                present[member] = account.overuse, account.rate_of_use
        if self._settings.policy.tau is None:
            self._pools.set_decay(memory.tau)
        tau = self._pools.tau if memory.tau is None else memory.tau
        accumulated = dict[str, AccumulatedUse]()
        users, leaves = dict[str, RememberedUser](), dict[str, RememberedUser]()
        for name, remembered in self._within_depth(memory.users):
            yield
            current = _current(remembered, *present.get(name, ({}, 0.0)), elapsed, tau)
            accumulated[name] = current.accumulated
            if self._names_leaf(name) and name not in self._known:
                leaves[name] = current
            elif name in self._known or self._must_know(current):
                self.get(name)
                users[name] = current
            if not self._settings.leaf_keeps_commitments:
                yield from self._restore(users, leaves)
                users, leaves = {}, {}
        yield from self._restore(users, leaves)
        self._restore_use(accumulated)

    def _names_leaf(self, name: str) -> bool:
        """Return whether a stored name can be the name of a virtual leaf."""
        has_leaves = self._settings.tree or not self._settings.leaves_only_in_trees
        return has_leaves and name.endswith("/.")

    def _restore(
        self, users: Mapping[str, RememberedUser], leaves: Mapping[str, RememberedUser]
    ) -> Cooperative[None]:
        """Set the commitments, mean use and orders of known users and of virtual leaves.

        All users are added before this call, because the leaf that begins with the first sub-user
        gets all commitments of its user.
        """
        for name, current in users.items():
            yield
            siblings = self._known[name].siblings
            siblings.set_commitment(name, current.commitments, others=current.others)
            siblings.set_mean_use(name, current.mean_use)
            self._restore_orders(name, current)
        for leaf, current in leaves.items():
            yield
            name = leaf.removesuffix("/.")
            user = self._known.get(name)
            if user is not None and user.sub_pool is None and name in users:
                stored = users[name]
                if _leaf_differs(
                    user,
                    (stored.commitments, stored.others, stored.mean_use),
                    (current.commitments, current.others, current.mean_use),
                ):
                    self._sub_pool(user)
                    self.begin_leaf(user)
                    self._without_sub_users[name] = None
            if (
                self._settings.leaf_keeps_use
                and user is not None
                and user.sub_pool is not None
                and is_used(current)
            ):
                self.begin_leaf(user)
            if user is not None and user.sub_pool is not None and leaf in user.sub_pool:
                user.sub_pool.set_commitment(leaf, current.commitments, others=current.others)
                user.sub_pool.set_mean_use(leaf, current.mean_use)
            elif is_significant(current.commitments, current.others) or self._keeps_accumulated_use:
                self._absent.put(leaf, current.commitments, current.others, current.accumulated)

    def _must_know(self, remembered: RememberedUser) -> bool:
        """Return whether a stored user matters although it has no clients."""
        significant = is_significant(remembered.commitments, remembered.others)
        kept = self._keeps_accumulated_use
        return is_used(remembered) or significant or kept or self._is_ordered(remembered)

    @property
    def look_is_due(self) -> bool:
        """Whether `look` must be called to sample the users' use of resources.

        A sample is due once in each period of `LOOK` seconds, if `counts_for` is set.
        """
        return self._pools.look_is_due

    def look(self, used: Mapping[str, Quantities] | None) -> None:
        """Sample the resources that users use, and update their counted weights.

        A counted weight is the part of a user's weight that counts in entitlements.

        Args:
            used: Used resources by user and virtual leaf; None: allocations count as used.
        """
        run_to_completion(self.look_in_steps(used))

    def look_in_steps(self, used: Mapping[str, Quantities] | None) -> Cooperative[None]:
        """Generator form of `look`.

        Users must not be read or changed until the generator is exhausted.
        """
        return self._pools.look(used, filter(None, map(self._parent, used or ())))

    def set_busy(self, names: Iterable[str]) -> None:
        """Replace the users that are not idle although they have no clients.

        Args:
            names: Known or unknown users of all levels. The users above a busy user are included.
                The virtual leaf of a busy user is busy, too.
        """
        former, self._busy = self._busy, frozenset(names)
        for name in former - self._busy:
            user = self._known.get(name)
            if user is not None:
                self._begin_idle(name)
                if user.sub_pool is not None and user.leaf in user.sub_pool:
                    self._idle_since[user.leaf] = self.now
        for name in self._busy:
            self._idle_since.pop(name, None)
            self._idle_since.pop(f"{name}/.", None)

    def forget_idle(self) -> list[str]:
        """Forget undeclared users that have been idle for `forget_after` seconds.

        See `forget_idle_in_steps`.
        """
        return run_to_completion(self.forget_idle_in_steps())

    def forget_idle_in_steps(self) -> Cooperative[list[str]]:
        """Generator form of `forget_idle`, for cooperative steps.

        Users must not be read or changed until the generator is exhausted.

        Users with commitments are kept, and so are the users above them, and users with much more
        accumulated use than a new user. If more users than `idle_users` are idle, the surplus is
        forgotten earlier. Accumulated use does not decay, so it does not protect a user beyond
        this limit.

        Returns:
            The names of the forgotten users and virtual leaves.
        """
        kept = self._known if self._keeps_accumulated_use else ()
        self._export.mark_removed(self._absent.forget_faded(kept))
        yield from self._end_pools()
        idle = yield from self._outdated_idle()
        removable = yield from self._removable(idle)
        for number, name in enumerate(removable, 1):
            if not number % _USERS_A_STEP:
                yield
            if name not in self._idle_since:
                continue  # removed with the last sub-user of the same user
            user = self._known.get(name)
            if user is None:
                self._forget_leaf(self._known[name[:-2]])
            else:
                self._remove(user)
        if self._sorted_at == self.now:
            self._unforgettable = max(len(self._idle_since) - self._settings.idle_users, 0)
        return list(removable)

    def _end_pools(self) -> Cooperative[None]:
        """End the pools of users without sub-users, unless virtual leaf and user differ.

        Sub-users that are gone may have caused the user's commitments and mean use. If the pool
        ended, the leaf of the user's next pool would begin with both.
        """
        ended, kept = list[User[Client]](), dict[str, None]()
        for number, name in enumerate(self._without_sub_users, 1):
            if not number % _USERS_A_STEP:
                yield
            user = self._known.get(name)
            if user is None or user.children or user.sub_pool is None:
                continue
            of_leaf: _Past = {}, 0.0, {}
            if user.leaf in user.sub_pool:
                of_leaf = _past(user.sub_pool, user.leaf)
            if _leaf_differs(user, _past(user.siblings, name), of_leaf):
                kept[name] = None
            else:
                ended.append(user)
        self._without_sub_users = kept
        for user in ended:
            self._end_pool(user)
        for name in kept:
            self.begin_leaf(self._known[name])

    def _outdated_idle(self) -> Cooperative[list[str]]:
        """Return idle users and virtual leaves to forget: long idle, or more than `idle_users`."""
        latest = self.now - self._settings.forget_after
        begins = dict[int, float]()
        idle = [name for name, since in self._idle_since.items() if since <= latest]
        if self._keeps_accumulated_use:
            gaining = {name for name in idle if self._would_gain(name, begins)}
            self._idle_since.update(dict.fromkeys(gaining, self.now))  # considered again later
            idle = [name for name in idle if name not in gaining]
        surplus = len(self._idle_since) - len(idle) - self._settings.idle_users
        if surplus > 0 and self._must_sort(surplus):
            self._sorted_at = self.now
            return (yield from self._first_to_forget(latest, begins))
        return idle

    def _removable(self, idle: list[str]) -> Cooperative[Mapping[str, None]]:
        """Return the removable users and virtual leaves among idle users, sub-users first.

        Named users are no longer recorded as idle. The caller removes users afterwards, because
        each removal makes the next read of commitments slow.
        """
        if self._settings.forgets_subtrees:
            idle.sort(key=lambda name: name.count("/"), reverse=True)
        removable = dict[str, None]()
        for number, name in enumerate(idle, 1):
            if not number % _USERS_A_STEP:
                yield
            if self._weights.keeps(name):
                del self._idle_since[name]
            elif name.removesuffix("/.") in self._without_sub_users:
                continue
            elif self._is_alone(name, removable) and self._is_decayed(name):
                removable[name] = None
        return removable

    def _must_sort(self, surplus: int) -> bool:
        """Return whether to sort idle users, because there are `surplus` more than the limit.

        If users could not be forgotten at the last sort, for example because of their commitments,
        the next sort waits for a minute, or for more users.
        """
        if not self._settings.forgets_subtrees or not self._unforgettable:
            return True
        grown = surplus > self._unforgettable + self._settings.idle_users // 20
        return grown or self.now >= self._sorted_at + _SORT_AGAIN

    def _first_to_forget(self, latest: float, begins: dict[int, float]) -> Cooperative[list[str]]:
        """Return idle users to forget so that no more than `idle_users` remain.

        If whole subtrees are forgotten, a twentieth of the limit is forgotten in advance. All idle
        users would otherwise be sorted at each tick in which a user becomes idle.

        Args:
            latest: Users that have been idle since this time or earlier, in seconds, come first.
            begins: Accumulated use of a new user, by `id` of the pool. Missing values are added.
        """
        keys = dict[str, tuple[bool, float, float, float]]()
        kept_use = begins if self._keeps_accumulated_use else None
        for name in self._idle_since:
            keys[name] = self._idle_key(name, latest, kept_use)
            if not len(keys) % _USERS_A_STEP:
                yield
        order = sorted(keys, key=keys.__getitem__)
        limit = self._settings.idle_users
        if self._settings.forgets_subtrees:
            limit -= limit // 20
        return order[: len(order) - limit]

    def _is_alone(self, name: str, removable: Mapping[str, None]) -> bool:
        """Return whether all members of the pool below a user or virtual leaf are removable."""
        user = self._known.get(name)
        members = () if user is None or user.sub_pool is None else user.sub_pool.users()
        return all(member in removable for member in members)

    def _idle_key(
        self, name: str, latest: float, begins: dict[int, float] | None
    ) -> tuple[bool, float, float, float]:
        """Return the sort key of an idle user or virtual leaf; small keys are forgotten first.

        The order has three criteria: idle for long enough, the smaller mean use, and accumulated
        use nearer to that of a new user. Invented names without use are therefore forgotten before
        users that have used resources or have credits.

        Args:
            name: The idle user or virtual leaf.
            latest: Users that have been idle since this time or earlier, in seconds, come first.
            begins: Accumulated use of a new user, by `id` of the pool. Missing values are added.
                None: accumulated use is not kept.
        """
        since = self._idle_since[name]
        pool = self._pool_of(name)
        assert pool is not None
        use = pool.mean_use(name)
        mean_use = max(use.values()) if use else 0.0
        beyond = 0.0 if begins is None else abs(self._use_beyond(name, begins))
        return since > latest, mean_use, beyond, since

    def _use_beyond(self, name: str, begins: dict[int, float]) -> float:
        """Return a user's accumulated use over its weight, minus a new user's, in seconds.

        Args:
            name: A user or virtual leaf.
            begins: Accumulated use of a new user, by `id` of the pool. Missing values are added.
        """
        pool = self._pool_of(name)
        assert pool is not None
        if id(pool) not in begins:
            begins[id(pool)] = pool.newcomers_use()
        return pool.accumulated_use(name) - begins[id(pool)]

    def _would_gain(self, name: str, begins: dict[int, float]) -> bool:
        """Return whether an idle user would gain by being forgotten and coming back as a new user.

        The user's accumulated use then exceeds a new user's by more than a negligible share during
        `forget_after`.
        """
        negligible = NEGLIGIBLE_COMMITMENT * self._settings.forget_after
        return self._use_beyond(name, begins) > negligible

    def _is_decayed(self, name: str) -> bool:
        """Return whether the commitments of a user or leaf have decayed to almost zero."""
        pool = self._pool_of(name)
        assert pool is not None
        return not is_significant(pool.commitments(name))

    def _within_depth(
        self, users: Mapping[str, RememberedUser]
    ) -> Iterator[tuple[str, RememberedUser]]:
        """Yield the stored users, except users with more levels than the current limit."""
        for name, remembered in users.items():
            if name.count("/") < self._settings.depth:
                yield name, remembered

    def _repeated(self, name: str) -> Quantities:  # noqa: ARG002 - for subclasses
        """Return quantities that the sum over a user's clients counts more than once.

        Without resources that several clients hold together, there are none.

        Args:
            name: A user or virtual leaf.
        """
        return NO_QUANTITIES

    def _pool_of(self, name: str) -> Pool[str] | None:
        """Return the pool in which a user or virtual leaf competes; None if unknown."""
        parent = self._parent(name)
        return None if parent is None else parent.sub_pool

    def _parent(self, name: str) -> User[Client] | None:
        """Return the user whose pool a user or virtual leaf competes in; None if unknown."""
        user = self._known.get(name)
        if user is not None:
            return user.parent
        branch = self._known.get(name.removesuffix("/."))
        below = branch.sub_pool if branch is not None else None
        return branch if below is not None and name in below else None

    def _sub_pool(self, user: User[Client]) -> Pool[str]:
        """Return the pool of a user's sub-users; create the pool if there is none.

        If the user has clients or resources, a new pool starts with a virtual leaf for them. The
        leaf inherits all commitments of the user, because only these clients or resources can have
        caused them.
        """
        if user.sub_pool is not None:
            return user.sub_pool
        below = self._pools.begin(user)
        held = user.siblings.held(user.name)
        if len(user.clients):
            held = user.clients.held() - self._repeated(user.leaf)
        elif held:
            self._idle_since[user.leaf] = self.now
        if len(user.clients) or held:
            commitments, rest = user.siblings.debts(user.name)
            if user.leaf in self._absent:
                commitments, rest = self._absent.commitments_of(user.leaf)
            below.add(user.leaf)
            below.set_commitment(user.leaf, commitments, others=rest)
            below.set_mean_use(user.leaf, user.siblings.mean_use(user.name))
            self._restore_leaf_use(below, user.leaf)
            self._demands.begin_leaf(user)
            self._absent.discard(user.leaf)
            below.allocate(user.leaf, held, times=0)
            below.set_active(user.leaf, user.clients.active > 0)
        return below

    def _remove(self, user: User[Client]) -> None:
        """Remove a user without clients and sub-users from the tree."""
        self._export.mark_removed([user.name])
        del self._idle_since[user.name]
        del self._known[user.name]
        parent = user.parent
        assert parent is not None
        if user.sub_pool is not None:
            self._end_pool(user)
        named = self._weights.is_explicit(user.name)
        if self._settings.forgetting_unnames_parents:
            named = user.siblings.accounts()[user.name].named
        user.siblings.remove(user.name)
        del parent.children[user.name]
        if named and parent is not self._root:
            self._update_named([parent])
        if parent is not self._root and not parent.children:
            if self._settings.leaf_keeps_commitments:
                self._without_sub_users[parent.name] = None
            else:
                self._end_pool(parent)
            if parent.name not in self._idle_since:
                self._note_idle(parent)
        self._pools.mark_outdated(parent)

    def _end_pool(self, user: User[Client]) -> None:
        """End the pool of a user without sub-users, and with it the virtual leaf."""
        assert user.sub_pool is not None
        if user.leaf in user.sub_pool:
            self._export.mark_removed([user.leaf])
        self._pools.end(user)
        self._idle_since.pop(user.leaf, None)

    def _forget_leaf(self, user: User[Client]) -> None:
        """Remove a user's virtual leaf, because the user has no clients of its own any more."""
        assert user.sub_pool is not None
        self._export.mark_removed([user.leaf])
        del self._idle_since[user.leaf]
        user.sub_pool.remove(user.leaf)
        self._pools.mark_outdated(user)

    def _note_idle(self, user: User[Client]) -> None:
        """Record a user or its virtual leaf as idle from now on, if it has no clients any more."""
        if len(user.clients):
            return
        if not user.children:
            self._begin_idle(user.name)
        if user.sub_pool is not None and user.leaf in user.sub_pool:
            self._idle_since[user.leaf] = self.now
        self._note_idle_above(user)

    def _begin_idle(self, name: str) -> None:
        """Record a user as idle from now on, unless the scheduler's weight keeps it known."""
        if not self._weights.is_kept_by_scheduler(name):
            self._idle_since[name] = self.now

    def _note_idle_above(self, user: User[Client]) -> None:
        """Record a user and its ancestors as idle from now on, up to the first with a client.

        Only if whole subtrees are forgotten at one time.
        """
        while (
            self._settings.forgets_subtrees and user.parent is not None and not user.total_clients
        ):
            self._begin_idle(user.name)
            user = user.parent

    def _count_client(self, user: User[Client], number: int) -> None:
        """Add a number to the client counts of a user and its ancestors, which are not idle."""
        while user.parent is not None:
            self._idle_since.pop(user.name, None)
            user.total_clients += number
            user = user.parent

    @property
    def _keeps_accumulated_use(self) -> bool:
        """Whether the policy ranks by accumulated use, and the rule is to keep it."""
        return self._settings.keeps_accumulated_use and accumulates(self._settings.policy)

    def _new_export(self) -> MemoryExport:
        return MemoryExport(
            self._pools,
            self._absent,
            self._weights,
            keeps_accumulated_use=self._keeps_accumulated_use,
        )

    def _restore_use(self, accumulated: Mapping[str, AccumulatedUse]) -> None:
        """Set the users' accumulated use, if use is kept; the remaining users begin as new ones."""
        if not self._keeps_accumulated_use:
            return
        for pool in self._pools:
            amounts = {
                name: accumulated[name].amount for name in pool.users() if name in accumulated
            }
            newcomers = [name for name in pool.users() if name not in accumulated]
            restore_accumulated_use(pool, amounts, newcomers)

    def _restore_leaf_use(self, pool: Pool[str], leaf: str) -> None:
        """Set the accumulated use of a new virtual leaf, if stored while the leaf was absent."""
        if leaf in self._absent and self._keeps_accumulated_use:
            amount = self._absent.accumulated_use_of(leaf).amount
            restore_accumulated_use(pool, {leaf: amount})

    def _is_ordered(self, remembered: RememberedUser) -> bool:
        """Return whether an operator's weight or boost applies to a user now."""
        return remembered.weight is not None or self._is_current(remembered.boost)

    def _is_current(self, boost: Boost | None) -> bool:
        return boost is not None and boost.until > self.now

    def _restore_orders(self, name: str, remembered: RememberedUser) -> None:
        """Apply a weight and boost that an operator set before a restart.

        A boost that has ended in the meantime is ignored.
        """
        if remembered.weight is not None:
            self.order_weight(name, in_range(remembered.weight))
        boost = remembered.boost
        if boost is not None and self._is_current(boost):
            self._weights.order_boost(name, Boost(in_range(boost.weight), boost.until))
            self._reweigh([name])

    def _reweigh(self, names: "Mapping[str, float] | list[str]") -> None:
        """Apply the current weights of these users in their pools; ignore unknown names."""
        users = [self._known[name] for name in names if name in self._known]
        for user in users:
            user.siblings.set_weight(user.name, self._weights.of(user.name))
            assert user.parent is not None
            self._pools.mark_outdated(user.parent)
        if users:
            self._update_named(users)

    def _update_named(self, users: Iterable[User[Client]]) -> None:
        """Update whether some users and their ancestors count as named.

        A user is named if the weight of the user or of a descendant was set explicitly. The counted
        weight of a named user is its full weight, regardless of its use (see `UserPools`). Each
        ancestor is examined once, because it may have thousands of sub-users.
        """
        examined = dict[User[Client], None]()
        for user in users:
            ancestor = user
            while ancestor.parent is not None and ancestor not in examined:
                examined[ancestor] = None
                ancestor = ancestor.parent
        above_named = set[User[Client]]()
        for user in sorted(examined, key=depth_of, reverse=True):
            below = {} if user.sub_pool is None else user.sub_pool.accounts()
            named = (
                user in above_named
                or self._weights.is_explicit(user.name)
                or any(account.named for account in below.values())
            )
            user.siblings.set_named(user.name, named)
            assert user.parent is not None
            if named:
                above_named.add(user.parent)
        self._pools.mark_recount()


def in_range(weight: float) -> float:
    """Return a positive weight, clipped to the range that pools support."""
    return min(max(weight, LEAST_WEIGHT), LARGEST_WEIGHT)


def _current(
    remembered: RememberedUser,
    overuse: Mapping[str, float],
    rate: float,
    elapsed: float,
    tau: float | None,
) -> RememberedUser:
    """Return a stored user's present state.

    Args:
        remembered: The stored user.
        overuse: The user's present over-use by resource.
        rate: The present increase of accumulated use per second.
        elapsed: Time since the storage, in seconds.
        tau: Time constant of the decay in seconds; None if the policy has no commitments.
    """
    commitments, rest = commitments_after(remembered, overuse, elapsed, tau)
    amount, former_rate = remembered.accumulated
    mean_use = remembered.mean_use
    if tau is not None:
        mean_use = {
            resource: decayed(mean, 0.0, elapsed, tau) for resource, mean in mean_use.items()
        }
    return replace(
        remembered,
        commitments=commitments,
        others=rest,
        mean_use=mean_use,
        accumulated=AccumulatedUse(amount, min(former_rate, rate)).after(elapsed),
    )


def _past(pool: Pool[str], member: str) -> _Past:
    """Return the past of a member of a pool."""
    return *pool.debts(member), pool.mean_use(member)


def _leaf_differs(user: User[Client], of_user: _Past, of_leaf: _Past) -> bool:
    """Return whether a virtual leaf's past is another than its user's.

    The mean use of a user without clients does not count, because it would keep the user known.
    """
    commitments, others, mean_use = of_user
    return _differ((commitments, others), of_leaf[:2]) or (
        len(user.clients) > 0 and _differ((mean_use, 0.0), (of_leaf[2], 0.0))
    )


def _differ(
    a: tuple[Mapping[str, float], float],
    b: tuple[Mapping[str, float], float],
) -> bool:
    """Return whether two users' values by resource, and for other resources, differ much."""
    (of_a, others_a), (of_b, others_b) = a, b
    differences = {
        resource: abs(of_a.get(resource, others_a) - of_b.get(resource, others_b))
        for resource in of_a.keys() | of_b.keys()
    }
    return is_significant(differences, abs(others_a - others_b))
