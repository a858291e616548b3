"""The order of the clients in one run: fronts of all levels of the tree of users."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from allocator.cluster.agents import Agent
from allocator.cluster.clients import Clients
from allocator.cluster.frameworks import Client
from allocator.cluster.users import User
from allocator.cluster.volumes import NO_REPEATS, Repeats
from allocator.fairness.front import Front, Place
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities


@dataclass(frozen=True, slots=True)
class LocalFront:
    """A front on one machine, under a policy that ranks on each machine apart."""

    front: Front[str]
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

    def place(self, user: str) -> Place:
        """Return where a user stands now."""
        place = self.front.place(user)
        if user not in self.here:
            return Place((0, 0.0, *place.position), place.blur)
        share = self.pool.local_share(user, self.here[user], self.machine)
        return Place((1, share, *place.position), place.blur)

    def after(self, user: str, more: Quantities, times: int) -> Place:
        """Return where a user would stand after so many gifts that amount to this."""
        there = self.front.after(user, more, times)
        here = self.here.get(user, Quantities()) + more
        share = self.pool.local_share(user, here, self.machine)
        return Place((1, share, *there.position), there.blur)

    def held(self, user: str) -> Quantities:
        """Return what a user holds now, here and elsewhere."""
        return self.front.held(user)

    def holding(self, user: str, total: Quantities, times: int) -> Place:
        """Return where a user would stand if it held so much, after so many gifts more."""
        return self.after(user, total - self.held(user), times)


class Order:
    """Who is next while a run gives; the users themselves follow once, when it is over."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._own: dict[User, Front[Client]] = {}
        self._below: dict[User, Front[str]] = {}

    def own(self, user: User) -> Front[Client]:
        """Return the front of a user's own clients."""
        front = self._own.get(user)
        if front is None:
            front = self._own[user] = Front(self._clients.users.clients_of(user))
        return front

    def below(self, user: User) -> Front[str]:
        """Return the front of a user's sub-users, and of its virtual leaf."""
        front = self._below.get(user)
        if front is None:
            assert user.below is not None
            front = self._below[user] = Front(user.below)
        return front

    def on(
        self, user: User, agent: Agent, held: Mapping[Client, Quantities]
    ) -> Front[str] | LocalFront:
        """Return the front of a user's sub-users on an agent of which clients hold something."""
        users = self._clients.users
        if not users.per_machine:
            return self.below(user)
        assert user.below is not None
        held_on_agent = users.held_below(user, held, agent.id)
        return LocalFront(self.below(user), user.below, agent.total.scalars, held_on_agent)

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

    def _fronts(self, user: User) -> Iterator[tuple[Front[str], str]]:
        """Go through where what a user's own client gets is seen: who competes as what."""
        if user.below is not None:
            yield self.below(user), user.leaf
        while user.parent is not None:
            yield self.below(user.parent), user.name
            user = user.parent
