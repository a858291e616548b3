"""Clients, and which user each of them belongs to.

A *client* is a framework in one of its roles; what a user is, is configuration.
"""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from allocator.cluster.agents.shared_volumes import NO_REPEATS, Repeats, Volume
from allocator.cluster.frameworks.framework import Client, Framework
from allocator.cluster.input.limits import Limits
from allocator.cluster.input.text import is_path
from allocator.cluster.settings import EngineSettings, UserKey
from allocator.cluster.users import User, Users, UserTask
from allocator.fairness.quantities import Quantities

if TYPE_CHECKING:
    from allocator.cluster.metering.role_meter import RoleMeter

_NOTHING = Quantities()


class Clients:
    """All clients, with what they hold."""

    def __init__(self, settings: EngineSettings, now: float, excluded: tuple[str, ...]) -> None:
        self._key: UserKey = settings.user_key
        self._limits = settings.limits
        self._volumes_once = settings.shared_volumes_once
        self.users = Users(settings, now, excluded)
        self.roles: RoleMeter | None = None
        """Counts what is held in roles; None: nobody does, or users are roles."""
        self._users: dict[Client, User] = {}
        """Whom each acts for."""
        self._of: dict[str, list[Client]] = {}
        self._wanting: dict[Client, None] = {}
        self.version = 0
        """Changes when a client begins or ceases to want offers, or its tasks are others."""

    def __contains__(self, client: object) -> bool:
        return client in self._users

    @property
    def wanting(self) -> Iterator[Client]:
        """The clients that are to get offers, in no particular order."""
        return iter(self._wanting)

    def add(self, client: Client, framework: Framework) -> None:
        """Make a client known, and its user with it; it gets no offers yet."""
        user = self.users.get(user_of(self._key, client.role, framework, self._limits))
        self.users.add(user, client)
        self._users[client] = user
        self._of.setdefault(client.framework, []).append(client)

    def remove(self, client: Client) -> None:
        """Forget a client; what it still holds is released."""
        self.set_wanting(client, wanting=False)
        self.release(client, self.held(client), lost=self.users.volumes.of(client))
        self.users.remove(self._users.pop(client), client)
        self._of[client.framework].remove(client)
        if not self._of[client.framework]:
            del self._of[client.framework]

    def __iter__(self) -> Iterator[Client]:
        return iter(self._users)

    def of(self, framework: str) -> list[Client]:
        """Return the clients of a framework."""
        return list(self._of.get(framework, ()))

    def reassign(self, framework: Framework) -> None:
        """Move clients of the framework whose user is another one now."""
        for client in self.of(framework.id):
            if user_of(self._key, client.role, framework, self._limits) != self.user(client):
                held, volumes = self.held(client), self.users.volumes.of(client)
                self.remove(client)
                self.add(client, framework)
                self.allocate(client, held, gained=volumes)

    def set_wanting(self, client: Client, *, wanting: bool) -> None:
        """Say whether a client is to get offers."""
        if (client in self._wanting) == wanting:
            return
        if wanting:
            self._wanting[client] = None
        else:
            del self._wanting[client]
        self.version += 1
        self.users.set_wanting(self._users[client], client, wanting=wanting)

    def allocate(
        self,
        client: Client,
        quantities: Quantities,
        *,
        lost: Collection[Volume] = (),
        gained: Collection[Volume] = (),
    ) -> None:
        """Count scalars as held by the client.

        Args:
            client: The holder.
            quantities: The quantities that it gets, shared volumes included.
            lost: Shared volumes that it holds no longer.
            gained: Shared volumes that it did not hold.
        """
        repeats = self.repeats(client, lost, gained)
        self.users.allocate(self._users[client], client, quantities, repeats)
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
        """Count scalars as no longer held by the client; `lost` and `gained` as in `allocate`."""
        repeats = self.repeats(client, lost, gained)
        self.users.release(self._users[client], client, quantities, repeats)
        if self.roles is not None:
            self.roles.note(client.role, self.users.now, _NOTHING, quantities)

    def repeats(
        self, client: Client, lost: Collection[Volume], gained: Collection[Volume]
    ) -> Repeats:
        """Note which shared volumes a client holds; return what its users count repeatedly."""
        if not self._volumes_once or not (lost or gained):
            return NO_REPEATS
        return self.users.volumes.change(client, self._users[client].names, lost, gained)

    def set_task(self, client: Client, task: UserTask) -> None:
        """Say what a client's tasks need, and on which agents they may run."""
        if self.users.set_task(self._users[client], client, task):
            self.version += 1

    def held(self, client: Client) -> Quantities:
        """Return the scalars that a client holds."""
        return self._users[client].clients.held(client)

    def node(self, client: Client) -> User:
        """Return the user that a client belongs to, with those above and below."""
        return self._users[client]

    def shown(self, client: Client) -> tuple[str, ...]:
        """Return all names under which what a client holds is shown; none, if it is not known."""
        user = self._users.get(client)
        return () if user is None else user.shown

    def user(self, client: Client) -> str:
        """Return the name of the user that a client belongs to."""
        return self._users[client].name


def user_of(key: UserKey, role: str, framework: Framework, limits: Limits) -> str:
    """Return the user that a framework acts for in a role.

    A framework without a principal is a user of its own; likewise one whose name could not be
    read, or that holds something for a role that is beyond the limits, or is none.
    """
    if key == "role":
        if len(role) <= limits.name and role.count("/") < limits.role_depth and is_path(role):
            return role
        return framework.id.replace("/", ".")
    if key == "framework_name" and framework.name:
        return framework.name
    if key == "principal" and framework.said.principal:
        return framework.said.principal
    return framework.id
