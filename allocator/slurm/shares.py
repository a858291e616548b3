"""The tree of users: paths of names over the tree that all schedulers share."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import copy
from typing import TypeAlias

from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.fairness.standing import Standing
from allocator.slurm.timelines import UserPath
from allocator.users.memory import Memory
from allocator.users.settings import UserSettings
from allocator.users.tree import UserTree, in_range

ROOT: UserPath = ()
Users: TypeAlias = UserTree[UserPath]
"""The tree of users. No clients are registered: jobs come and go by the thousand."""


def name_of(path: UserPath) -> str:
    """Return the name of a node in the tree of users: `physics/alice`."""
    return "/".join(path)


class ShareTree:
    """Ranks the users of a cluster. A path of names leads from the root to a user.

    Without a tree of accounts, all users are in the pool of the root. All pools share a time and a
    capacity. The users below an inner node share the entitlement of this node.

    Args:
        settings: The policy, and the settings of the users.
        now: The first time in seconds.
        excluded: Names of resources that do not count.
    """

    def __init__(self, settings: UserSettings, now: float, excluded: Collection[str] = ()) -> None:
        self._settings = settings
        self._weighted: set[str] = set()
        """Nodes for which Slurm has told shares."""
        self.tree: Users = UserTree(settings, now, tuple(excluded))
        """The users, by their names in the tree."""

    def __contains__(self, path: UserPath) -> bool:
        return name_of(path) in self.tree

    @property
    def now(self) -> float:
        """The time of all pools in seconds."""
        return self.tree.now

    @property
    def capacity(self) -> Quantities:
        """The resources that are shared."""
        return self.tree.pool.capacity

    @property
    def pools(self) -> dict[UserPath, Pool[str]]:
        """The pool below each inner node, ancestors first. Its members have full names."""
        pools = {ROOT: self.tree.pool}
        for name in self.tree.names():
            below = self._below(name)
            if below is not None:
                pools[self.path_of(name)] = below
        return pools

    def path_of(self, name: str) -> UserPath:
        """Return the path to a node of the tree."""
        return tuple(name.split("/")) if self._settings.tree else (name,)

    def users(self) -> Iterator[UserPath]:
        """Yield the paths of all users, which are the leaves of the tree, also virtual leaves."""
        for name in self.tree.names():
            if self._below(name) is None:
                yield self.path_of(name)

    def _below(self, name: str) -> Pool[str] | None:
        """Return the pool below a node; None for users and virtual leaves."""
        return self.tree.get(name).sub_pool if name in self.tree else None

    def add(self, path: UserPath) -> None:
        """Make a user known, with all nodes above it. A known user stays as it is.

        Entitlements change once time advances, however many users are added at one time.
        """
        self.tree.get(name_of(path))

    def set_weights(self, weights: Mapping[UserPath, float]) -> None:
        """Replace the weights of nodes by Slurm's; a node without an entry has the weight 1."""
        named = {name_of(path): in_range(weight) for path, weight in weights.items()}
        former = dict.fromkeys(self._weighted - named.keys(), 1.0)
        self._weighted = set(named)
        self.tree.set_weights(former | named)
        self.tree.update_entitlements()

    def set_capacity(self, capacity: Quantities) -> None:
        """Replace the resources that are shared."""
        self.tree.set_capacity(capacity)

    def inherit(self, memory: Memory) -> None:
        """Take over commitments, and the weights that operators have set, from a store."""
        self.tree.inherit(memory)

    def activate(self, paths: Iterable[UserPath]) -> None:
        """Mark the users with pending jobs, and the nodes above them, as active; no other nodes."""
        active = {name_of(path[:depth]) for path in paths for depth in range(1, len(path) + 1)}
        for pool in self.tree.pools():
            for name in pool.users():
                pool.set_active(name, name in active)

    def advance(self, now: float) -> None:
        """Move the time of all pools forward. A time before the present one has no effect."""
        if now > self.tree.now:
            self.tree.advance(now)

    def change(self, path: UserPath, before: Quantities, after: Quantities) -> None:
        """Replace what a job of a user holds, in the pools of all nodes of the path.

        Args:
            path: A known user. An account may have got the user's name after the job's start.
                The job then counts in the virtual leaf of the account.
            before: The resources that the job held.
            after: The resources that the job holds from now on.
        """
        user = self.tree.get(name_of(path))
        self.tree.begin_leaf(user)
        for pool, name in user.memberships():
            held, count = pool.holding(name)
            pool.hold(name, held.exchanged(before, after), count + (not before))

    def count_users(self) -> None:
        """Sample the use of all users if a sample is due, and update counted weights."""
        if self.tree.look_is_due:
            self.tree.look(None)
        self.tree.update_entitlements()

    def fork(self) -> "ShareTree":
        """Return an independent copy, for changes that are not final. O(users)."""
        shares = copy(self)
        shares.tree = self.tree.fork()
        return shares

    def standing(self, path: UserPath) -> Standing[str]:
        """Return a user's present shares, commitments and priority among its siblings.

        Raises:
            KeyError: The user is not known.
        """
        standing = self.tree.standing(name_of(path))
        if standing is None:
            raise KeyError(path)
        return standing

    def commitments(self, path: UserPath) -> tuple[dict[str, float], float]:
        """Return a node's present commitments by resource, and that for other resources."""
        return self.tree.get(name_of(path)).siblings.debts(name_of(path))
