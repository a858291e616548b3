"""One user: a node of the user tree, with its own clients and the demands of their tasks."""

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from allocator.fairness.framework_sorter import FrameworkSorter
from allocator.fairness.largest import Largest
from allocator.fairness.machines import MayUse
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities

Client = TypeVar("Client", bound=Hashable)
"""A client of a user: the smallest unit that holds resources, such as a framework in a role."""


@dataclass(frozen=True, slots=True)
class UserTask:
    """Known properties of a client's tasks: the demand of one task, and the eligible machines."""

    demand: Quantities | None = None
    """Resources of one task; None if unknown."""
    may_use: MayUse | None = None
    """Predicate over machines' names: may the tasks run there? None: on all machines."""


class ClientDemands:
    """The task demands of a group of clients, and the one demand that stands for the group."""

    def __init__(self) -> None:
        self.largest = Largest()
        """The largest demand of each resource."""
        self._clients: Counter[Quantities | None] = Counter()
        """demand → number of clients with this demand; None: the demand is unknown"""

    @property
    def common(self) -> Quantities | None:
        """The demand of every client; None if demands differ, or if one is unknown."""
        return next(iter(self._clients)) if len(self._clients) == 1 else None

    @property
    def maximum(self) -> Quantities | None:
        """The largest demand of each resource; None if all demands are unknown."""
        return Quantities(dict(self.largest.of)) if self.largest.of else None

    def replace(self, before: UserTask | None, after: UserTask | None) -> None:
        """Update the demands after a change of one client's task.

        Args:
            before: The task before the change; None: the client is new.
            after: The task after the change; None: the client is gone.
        """
        if after is not None:
            self._clients[after.demand] += 1
            if after.demand is not None:
                self.largest.put(after.demand)
        if before is not None:
            self._clients[before.demand] -= 1
            if not self._clients[before.demand]:
                del self._clients[before.demand]
            if before.demand is not None:
                self.largest.discard(before.demand)


class User(Generic[Client]):
    """One user, a node of the user tree.

    A user has clients of its own, sub-users, or both.

    Args:
        name: The user's name.
        parent: The user above; None for the root.
        clients: The user's own clients, in DRF order.
        sub_pool: Pool of the sub-users and the virtual leaf, in the policy's order; None without
            sub-users.
    """

    __slots__ = (
        "above",
        "all",
        "ancestry",
        "children",
        "clients",
        "name",
        "own_demand",
        "parent",
        "sub_pool",
        "tasks",
        "total_clients",
    )

    def __init__(
        self,
        name: str,
        parent: "User[Client] | None",
        clients: FrameworkSorter[Client],
        sub_pool: Pool[str] | None = None,
    ) -> None:
        self.name = name
        self.parent = parent
        self.clients = clients
        self.sub_pool = sub_pool
        self.children: dict[str, User[Client]] = {}
        """Sub-users by name."""
        self.tasks: dict[Client, UserTask] = {}
        """Own client → demand and eligible machines of its tasks."""
        self.own_demand = ClientDemands()
        """Task demands of the user's own clients."""
        self.all = ClientDemands()
        """Task demands of the clients of the user and its descendants."""
        self.total_clients = 0
        """Number of clients of the user and its descendants."""
        self.ancestry: tuple[str, ...] = () if parent is None else (name, *parent.ancestry)
        """Names of the user and its ancestors, the user first; empty for the root."""
        self.above: tuple[tuple[Pool[str], str], ...] = (
            () if parent is None else ((self.siblings, name), *parent.above)
        )
        """The pools in which the user and its ancestors compete, each with the name of the member,
        the user first; empty for the root. The parent's pool must exist before the user."""

    def fork(self, parent: "User[Client] | None") -> "User[Client]":
        """Return a copy below another parent, without sub-users. It shares all other state."""
        forked = User(self.name, parent, self.clients)
        forked.tasks, forked.own_demand, forked.all = self.tasks, self.own_demand, self.all
        forked.total_clients = self.total_clients
        return forked

    @property
    def display_names(self) -> tuple[str, ...]:
        """Names under which allocations of the user's own clients are displayed.

        The first name is the user's. If the user has sub-users, the virtual leaf `USER/.` follows,
        which represents the user's own clients. The ancestors come last.
        """
        if self.sub_pool is None:
            return self.ancestry
        return (self.name, self.leaf, *self.ancestry[1:])

    @property
    def leaf(self) -> str:
        """Name of the virtual leaf, by which the user's own clients compete with its sub-users."""
        return f"{self.name}/."

    @property
    def names(self) -> Iterator[str]:
        """Names of the user's virtual leaf, of the user, and of its ancestors, in this order.

        The leaf's name is included even if the user has no sub-users, and therefore no leaf.
        """
        yield self.leaf
        user: User[Client] = self
        while user.parent is not None:
            yield user.name
            user = user.parent

    @property
    def siblings(self) -> Pool[str]:
        """The pool in which the user competes with the other users below the same parent."""
        assert self.parent is not None
        assert self.parent.sub_pool is not None
        return self.parent.sub_pool

    def memberships(self) -> tuple[tuple[Pool[str], str], ...]:
        """Return the pools in which allocations of the user's own clients count.

        Each item has a pool, and the name under which the allocations count in this pool: the
        virtual leaf's, the user's, or an ancestor's.
        """
        if self.sub_pool is None:
            return self.above
        return ((self.sub_pool, self.leaf), *self.above)

    @property
    def wants(self) -> bool:
        """Whether a client of the user or of a descendant wants offers."""
        return self.clients.active > 0 or (self.sub_pool is not None and self.sub_pool.active > 0)

    def member(self, client: Client) -> str | None:
        """Return the name of the sub-user or virtual leaf, directly below this user, with a client.

        The sub-user has the client itself or through a descendant. The result is None if the client
        is not below this user.
        """
        if client in self.clients:
            return self.leaf
        for name, child in self.children.items():
            if child.member(client) is not None:
                return name
        return None


def depth_of(user: User[Any]) -> int:
    """Return the level of a user in the tree: 0 for the root, 1 for top-level users."""
    return len(user.ancestry)
