"""The clients of the cluster, and the user that each client belongs to.

A *client* is a framework in one of its roles. The setting `users.key` determines the user of a
client.
"""

from collections.abc import Collection, Iterable, Iterator
from itertools import count
from typing import TYPE_CHECKING

from allocator.cluster.agents.shared_volumes import Volume
from allocator.cluster.frameworks.framework import Client, Framework
from allocator.cluster.input.limits import Limits
from allocator.cluster.input.text import is_valid_role
from allocator.cluster.settings import EngineSettings, UserKey
from allocator.cluster.users import User, Users, UserTask
from allocator.fairness.quantities import NO_QUANTITIES, Quantities
from allocator.users.tree import NO_REPEATS, Repeats

if TYPE_CHECKING:
    from allocator.cluster.agents.used_resources import LeastUse
    from allocator.cluster.metering.role_meter import RoleMeter

_MANY = 1000
"""Number of changed clients, in addition to the known clients, at which all count as changed."""


class Clients:
    """All known clients, with their users, their allocations and their interest in offers."""

    def __init__(self, settings: EngineSettings, now: float, excluded: tuple[str, ...]) -> None:
        self._key: UserKey = settings.user_key
        self._limits = settings.limits
        self._volumes_once = settings.shared_volumes_once
        self.users = Users(settings, now, excluded)
        self.roles: RoleMeter | None = None
        """Meters allocations by role; None if roles are not metered, or if users are roles."""
        self._users: dict[Client, User] = {}
        """client → its user"""
        self._by_framework: dict[str, dict[str, Client]] = {}
        """framework → role → client, in order of arrival"""
        self._wanting: dict[Client, int] = {}
        """Client that wants offers → its number in the order in which clients began to want them"""
        self._began = count()
        self.least_held: LeastUse | None = None
        """Allocations between samples of the users' use; None if used resources are sampled."""
        self.changed: dict[Client, None] = {}
        """Clients that have started or stopped wanting offers, or whose tasks or framework have
        changed, since `ClientIndex` was updated. Removed clients are included."""
        self.version = 0
        """Changes when all clients count as changed, because `changed` has become too long."""

    def __contains__(self, client: object) -> bool:
        return client in self._users

    @property
    def wanting_offers(self) -> Iterator[Client]:
        """The clients that want offers, in the order in which they began to want them."""
        return iter(self._wanting)

    def wanting_among(self, clients: Iterable[Client]) -> list[Client]:
        """Return those of the given clients that want offers, in the order of `wanting_offers`."""
        wanting = self._wanting
        return sorted((client for client in clients if client in wanting), key=wanting.__getitem__)

    def mark_changed(self, client: Client) -> None:
        """Record in `changed` that a fact about a client has changed."""
        self.changed[client] = None
        if len(self.changed) > _MANY + len(self._users):
            self.changed.clear()
            self.version += 1

    def add(self, client: Client, framework: Framework) -> None:
        """Add a client, and the user that its framework and role determine, if unknown.

        The client does not want offers yet (see `set_wanting`).
        """
        user = self.users.get(user_of(self._key, client.role, framework, self._limits))
        self.users.add(user, client)
        self._users[client] = user
        self._by_framework.setdefault(client.framework, {})[client.role] = client

    def remove(self, client: Client) -> None:
        """Forget a client, and subtract its allocation from its user and the user's ancestors."""
        self.set_wanting(client, wanting=False)
        self.release(client, self.held(client), lost=self.users.volumes.of(client))
        self.users.remove(self._users.pop(client), client)
        del self._by_framework[client.framework][client.role]
        if not self._by_framework[client.framework]:
            del self._by_framework[client.framework]

    def __iter__(self) -> Iterator[Client]:
        """Iterate over all clients, in order of arrival."""
        return iter(self._users)

    def of(self, framework: str) -> list[Client]:
        """Return the clients of a framework, given by its ID."""
        return list(self._by_framework.get(framework, {}).values())

    def find(self, role: str, framework: str) -> Client:
        """Return the client of a framework in a role: the same object at each call, if known.

        The same object costs less to create, and less to look up, than an equal object.
        """
        roles = self._by_framework.get(framework)
        client = None if roles is None else roles.get(role)
        return Client(role, framework) if client is None else client

    def reassign(self, framework: Framework) -> None:
        """Assign the framework's clients to the users that its new subscription determines.

        Nothing happens if the users are the same.
        """
        if self._key == "role":
            return
        for client in self.of(framework.id):
            if user_of(self._key, client.role, framework, self._limits) != self.user(client):
                held, volumes = self.held(client), self.users.volumes.of(client)
                self.remove(client)
                self.add(client, framework)
                self.allocate(client, held, gained=volumes)

    def set_wanting(self, client: Client, *, wanting: bool) -> None:
        """Set whether a client wants offers."""
        if (client in self._wanting) == wanting:
            return
        if wanting:
            self._wanting[client] = next(self._began)
        else:
            del self._wanting[client]
        self.mark_changed(client)
        self.users.set_wanting(self._users[client], client, wanting=wanting)

    def allocate(
        self,
        client: Client,
        quantities: Quantities,
        *,
        count: int = 1,
        lost: Collection[Volume] = (),
        gained: Collection[Volume] = (),
    ) -> None:
        """Add scalar quantities to the allocation of a client and its user.

        Args:
            client: A known client.
            quantities: The added quantities, including shared volumes.
            count: The number of allocations in which the client gets them.
            lost: Shared volumes that the client no longer holds.
            gained: Shared volumes that the client did not hold before.
        """
        repeats = self.change_volumes(client, lost, gained) if lost or gained else NO_REPEATS
        self.users.allocate(self._users[client], client, quantities, repeats, count)
        if self.roles is not None:
            self.roles.note(client.role, self.users.now, quantities)

    def release(
        self,
        client: Client,
        quantities: Quantities,
        *,
        lost: Collection[Volume] = (),
        gained: Collection[Volume] = (),
    ) -> None:
        """Subtract scalar quantities from the allocation of a client and its user.

        Args:
            client: A known client.
            quantities: The released quantities, including shared volumes.
            lost: Shared volumes that the client no longer holds.
            gained: Shared volumes that the client did not hold before.
        """
        repeats = self.change_volumes(client, lost, gained) if lost or gained else NO_REPEATS
        remaining = self.users.release(self._users[client], client, quantities, repeats)
        if self.least_held is not None:
            self.least_held.lower(client, remaining - self.users.volumes.size(client))
        if self.roles is not None:
            self.roles.note(client.role, self.users.now, NO_QUANTITIES, quantities)

    def change_volumes(
        self, client: Client, lost: Collection[Volume], gained: Collection[Volume]
    ) -> Repeats:
        """Update which shared volumes a client holds.

        Args:
            client: A known client.
            lost: Shared volumes that the client no longer holds.
            gained: Shared volumes that the client did not hold before.

        Returns:
            By user, how its repeated quantities change. Quantities are repeated if several clients
            of a user hold the same volume, which counts once for the user.
        """
        if not self._volumes_once:
            return NO_REPEATS
        if self.least_held is not None:
            self.least_held.end_volumes(client, set(lost).difference(gained))
        return self.users.volumes.change(client, self._users[client].names, lost, gained)

    def set_task(self, client: Client, task: UserTask) -> None:
        """Set the demand of a client's tasks, and the agents on which they may run, in its user."""
        if self.users.set_task(self._users[client], client, task):
            self.mark_changed(client)

    def held(self, client: Client) -> Quantities:
        """Return the scalar quantities allocated to a client on all agents."""
        return self._users[client].clients.held(client)

    def node(self, client: Client) -> User:
        """Return the user that a client belongs to, as a node of the user tree."""
        return self._users[client]

    def display_names(self, client: Client) -> tuple[str, ...]:
        """Return the names of all users (for example, role and parent roles) that contain a client.

        A client's allocation is displayed for each of them. The result is empty if the client is
        unknown.
        """
        user = self._users.get(client)
        return () if user is None else user.display_names

    def user(self, client: Client) -> str:
        """Return the name of the user that a client belongs to."""
        return self._users[client].name


def user_of(key: UserKey, role: str, framework: Framework, limits: Limits) -> str:
    """Return the name of the user that a framework acts for in a role.

    If users are principals, a framework without a principal is a user of its own. The same applies
    to a framework without a readable name, if users are framework names. If users are roles, the
    same applies to resources held for a role that is invalid or exceeds the limits.

    A framework's ID may equal a principal or a framework name, so both are then one user. No other
    name would prevent this: a master that lets frameworks subscribe without a principal also lets
    them subscribe with any principal.

    Args:
        key: The identity that makes a user, from the setting `users.key`.
        role: One of the framework's roles, or a role that resources are allocated to.
        framework: The framework, of which name and principal are used.
        limits: Bounds on the length and depth of roles.
    """
    if key == "role":
        if len(role) <= limits.name and role.count("/") < limits.role_depth and is_valid_role(role):
            return role
        return framework.id.replace("/", ".")
    if key == "framework_name" and framework.name:
        return framework.name
    if key == "principal" and framework.subscription.principal:
        return framework.subscription.principal
    return framework.id
