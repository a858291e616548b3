"""The order of clients in one allocation cycle, and the iteration over the role tree."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from allocator.cluster.agents.agent import Agent
from allocator.cluster.agents.shared_volumes import NO_REPEATS, Repeats
from allocator.cluster.allocation.client_index import ClientIndex, ones
from allocator.cluster.allocation.progressive_filling import ClientNode, Node, RoleNode
from allocator.cluster.frameworks.clients import Clients
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.users import User
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.fairness.sorter_snapshot import SorterSnapshot, SortKey


@dataclass(frozen=True, slots=True)
class LocalSorterSnapshot:
    """A front on one machine, under a policy that ranks on each machine apart."""

    front: SorterSnapshot[str]
    pool: Pool[str]
    machine: Quantities
    here: Mapping[str, Quantities]
    """What users hold of the machine; those who are not named hold nothing."""

    def __iter__(self) -> Iterator[str]:
        """Go through active users: those who hold nothing here first, then by what they hold."""
        holders = []
        for user in self.front:
            if user in self.here:
                holders.append(user)
            else:
                yield user
        yield from sorted(holders, key=lambda user: self.place(user).position)

    def place(self, user: str) -> SortKey:
        """Return where a user stands now."""
        place = self.front.place(user)
        if user not in self.here:
            return SortKey((0, 0.0, *place.position), place.blur)
        share = self.pool.local_share(user, self.here[user], self.machine)
        return SortKey((1, share, *place.position), place.blur)

    def after(self, user: str, more: Quantities, times: int) -> SortKey:
        """Return where a user would stand after so many gifts that amount to this."""
        there = self.front.after(user, more, times)
        here = self.here.get(user, Quantities()) + more
        share = self.pool.local_share(user, here, self.machine)
        return SortKey((1, share, *there.position), there.blur)

    def held(self, user: str) -> Quantities:
        """Return what a user holds now, here and elsewhere."""
        return self.front.held(user)

    def holding(self, user: str, total: Quantities, times: int) -> SortKey:
        """Return where a user would stand if it held so much, after so many gifts more."""
        return self.after(user, total - self.held(user), times)


class SorterView:
    """Who is next while a run gives; the users themselves follow once, when it is over."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._own: dict[User, SorterSnapshot[Client]] = {}
        self._below: dict[User, SorterSnapshot[str]] = {}

    def own(self, user: User) -> SorterSnapshot[Client]:
        """Return the front of a user's own clients."""
        front = self._own.get(user)
        if front is None:
            front = self._own[user] = SorterSnapshot(self._clients.users.clients_of(user))
        return front

    def below(self, user: User) -> SorterSnapshot[str]:
        """Return the front of a user's sub-users, and of its virtual leaf."""
        front = self._below.get(user)
        if front is None:
            assert user.below is not None
            front = self._below[user] = SorterSnapshot(user.below)
        return front

    def on(
        self, user: User, agent: Agent, held: Mapping[Client, Quantities]
    ) -> SorterSnapshot[str] | LocalSorterSnapshot:
        """Return the front of a user's sub-users on an agent of which clients hold something."""
        users = self._clients.users
        if not users.per_machine:
            return self.below(user)
        assert user.below is not None
        held_on_agent = users.held_below(user, held, agent.id)
        return LocalSorterSnapshot(self.below(user), user.below, agent.total.scalars, held_on_agent)

    def give(
        self, client: Client, quantities: Quantities, times: int, repeats: Repeats = NO_REPEATS
    ) -> None:
        """Note that a client has got something, in so many gifts.

        Args:
            client: The client.
            quantities: All that it has got.
            times: The number of gifts.
            repeats: Quantities, by user, that other clients of that user hold as well.
        """
        user = self._clients.node(client)
        own = self.own(user)
        before = own.held(client)
        after = before + quantities
        own.hold(client, after, times)
        for front, name in self._fronts(user):
            held = front.held(name)  # the very same where it is the user's only client
            if name in repeats:
                repeated, single = repeats[name]
                front.hold(name, held + quantities + single - repeated, times)
            else:
                front.hold(name, after if held is before else held + quantities, times)

    def commit(self) -> None:
        """Have clients and users hold what they have got; the run is over."""
        roles = self._clients.roles
        for user, own in self._own.items():
            for client, quantities, gifts in own.changed():
                if roles is not None:
                    now, before = self._clients.users.now, user.clients.held(client)
                    roles.note(client.role, now, quantities, before)
                user.clients.hold(client, quantities, gifts)
        for user, below in self._below.items():
            assert user.below is not None
            for name, quantities, gifts in below.changed():
                user.below.hold(name, quantities, gifts)

    def _fronts(self, user: User) -> Iterator[tuple[SorterSnapshot[str], str]]:
        """Go through where what a user's own client gets is seen: who competes as what."""
        if user.below is not None:
            yield self.below(user), user.leaf
        while user.parent is not None:
            yield self.below(user.parent), user.name
            user = user.parent


Leaves: TypeAlias = Callable[[Client, bool], ClientNode | None]
"""Makes a leaf of a client, which competes below others or not; None: it gets nothing."""

_FEW = 8
"""So many passed over cost as much as one that is found and sorted."""


class RoleTreeIterator:
    """The users of one run, seen from an agent."""

    def __init__(self, clients: Clients, order: SorterView, wanting: ClientIndex) -> None:
        self._all = clients
        self._users = clients.users
        self._order = order
        self._wanting = wanting

    @property
    def per_machine(self) -> bool:
        """Whether the order depends on what is held on an agent."""
        return self._users.per_machine

    def clients(self, agent: Agent, live: int) -> Iterator[Client]:
        """Go through clients of a set, the next one first; nobody may get anything meanwhile."""
        only = self._wanting.client.get(live)
        if only is not None:
            yield only
        else:
            yield from self._clients(self._users.root, agent, live)

    def tree(self, agent: Agent, live: int, leaves: Leaves) -> Node | None:
        """Return those of a set who compete for an agent; None: none of them can use it."""
        only = self._wanting.client.get(live)
        if only is not None:
            return leaves(only, False)
        return self._tree(self._users.root, agent, live, leaves, nested=False)

    def _clients(self, user: User, agent: Agent, live: int) -> Iterator[Client]:
        front = self._order.on(user, agent, self._held(agent))
        for name, below in self._present(user, front, live):
            if below in self._wanting.client:
                yield self._wanting.client[below]
                continue
            child = user.children.get(name, user)
            if child is not user and child.below is not None:
                yield from self._clients(child, agent, below)
            else:
                yield from self._own(child, self._order.own(child), below)

    def _tree(
        self, user: User, agent: Agent, live: int, leaves: Leaves, *, nested: bool
    ) -> Node | None:
        front = self._order.on(user, agent, self._held(agent))
        present = self._present(user, front, live)
        first = next(present, None)
        if first is not None and first[1] == live:
            return self._member(user, first[0], agent, live, leaves, nested=nested, among=False)
        members = chain([first] if first is not None else [], present)
        return RoleNode(self._members(user, members, agent, leaves, nested=nested), front)

    def _members(
        self,
        user: User,
        present: Iterable[tuple[str, int]],
        agent: Agent,
        leaves: Leaves,
        *,
        nested: bool,
    ) -> Iterator[tuple[str, Node]]:
        for name, below in present:
            node = self._member(user, name, agent, below, leaves, nested=nested, among=True)
            if node is not None:
                yield name, node

    def _member(  # noqa: PLR0913 - likewise
        self,
        user: User,
        name: str,
        agent: Agent,
        live: int,
        leaves: Leaves,
        *,
        nested: bool,
        among: bool,
    ) -> Node | None:
        """Return what competes as a member of a user's pool.

        Args:
            user: Whose pool.
            name: The member.
            agent: Where.
            live: Those below the member who can get something.
            leaves: Makes leaves.
            nested: Whether the pool itself is below members of another who compete.
            among: Whether there are others in this pool.
        """
        only = self._wanting.client.get(live)
        if only is not None:
            return leaves(only, nested)
        nested = nested or among
        child = user.children.get(name, user)
        if child is not user and child.below is not None:
            return self._tree(child, agent, live, leaves, nested=nested)
        own = self._order.own(child)
        return RoleNode(self._leaves(child, own, live, leaves, nested=nested), own)

    def _leaves(
        self, user: User, own: SorterSnapshot[Client], live: int, leaves: Leaves, *, nested: bool
    ) -> Iterator[tuple[Client, Node]]:
        for client in self._own(user, own, live):
            leaf = leaves(client, nested)
            if leaf is not None:
                yield client, leaf

    def _present(
        self, user: User, front: SorterSnapshot[str] | LocalSorterSnapshot, live: int
    ) -> Iterator[tuple[str, int]]:
        """Go through members of a user's pool, the next one first, with those of a set below."""
        of, depth = self._wanting.of, len(user.line)
        if not self._few(live, of[user.name] if depth else self._wanting.everybody):
            for name in front:
                below = of.get(name, 0) & live
                if below:
                    yield name, below
            return
        found: dict[str, int] = {}
        for bit in ones(live):
            line = self._all.node(self._wanting.client[bit]).line
            name = line[-1 - depth] if len(line) > depth else user.leaf
            found[name] = found.get(name, 0) | bit
        for name in sorted(found, key=lambda name: front.place(name).position):
            yield name, found[name]

    def _own(self, user: User, own: SorterSnapshot[Client], live: int) -> Iterator[Client]:
        """Go through a user's own clients that are of a set, the next one first."""
        if self._few(live, self._wanting.of[user.leaf]):
            those = [self._wanting.client[bit] for bit in ones(live)]
            yield from sorted(those, key=lambda client: own.place(client).position)
        else:
            for client in own:
                if self._wanting.bit.get(client, 0) & live:
                    yield client

    @staticmethod
    def _few(live: int, of: int) -> bool:
        """Whether it is less work to find those of a set than to pass over all others."""
        return live.bit_count() * _FEW < of.bit_count()

    def _held(self, agent: Agent) -> dict[Client, Quantities]:
        if not self._users.per_machine:
            return {}
        return {Client(role, name): held.scalars for name, role, held in agent.allocations()}
