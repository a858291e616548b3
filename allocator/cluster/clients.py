"""Who is next: users in the order of the policy, their clients in DRF order.

A *client* is a framework in one of its roles; which user it belongs to is configuration.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from allocator.cluster.frameworks import Framework
from allocator.cluster.memory import Memory, Remembered
from allocator.cluster.settings import EngineSettings, UserKey
from allocator.fairness import policies
from allocator.fairness.commitment import decayed
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities

FADED = 1e-3
"""A dominant commitment below this does not keep a user known."""


class Client(NamedTuple):
    """A framework in one of its roles."""

    role: str
    framework: str


@dataclass(slots=True)
class _Member:
    user: str
    held: Quantities


class Clients:
    """All clients, the users they belong to, and the order in which they are served."""

    def __init__(
        self, settings: EngineSettings, now: float, excluded: tuple[str, ...] = ()
    ) -> None:
        self._settings = settings
        self._excluded = excluded
        self._drf = policies.create("drf", {})
        self.pool: Pool[str] = Pool(settings.policy, now=now, excluded=excluded)
        self._declared = {declared.name for declared in settings.users}
        self._members: dict[Client, _Member] = {}
        self._of: dict[str, list[Client]] = {}
        self._inner: dict[str, Pool[Client]] = {}
        self._idle_since: dict[str, float] = {}
        self._ordered: dict[str, float] = {}
        """Weights set by an operator."""
        for declared in settings.users:
            self.pool.add(declared.name, weight=declared.weight, commitment=declared.commitment)

    def memory(self) -> Memory:
        """Return what users owe now, and what was ordered for them."""
        return Memory(
            time=self.pool.now,
            users={
                standing.user: Remembered(
                    commitments=standing.commitments,
                    overuse=standing.overuse,
                    others=standing.inherited,
                    weight=self._ordered.get(standing.user),
                )
                for standing in self.pool.standings()
            },
        )

    def inherit(self, memory: Memory) -> None:
        """Take over what users owe, settled for the time that has passed since.

        What a user held in excess both then and now, it is taken to have held in between: exact
        if nothing changed meanwhile, else in its favour.
        """
        elapsed = max(self.pool.now - memory.time, 0.0) if memory.time else 0.0
        tau = self._settings.policy.tau
        for user, remembered in memory.users.items():
            present = self.pool.standing(user).overuse if user in self.pool else {}
            commitments = dict(remembered.commitments)
            others = remembered.others
            if tau is not None:
                commitments = {
                    name: decayed(
                        owed,
                        min(remembered.overuse.get(name, 0.0), present.get(name, 0.0)),
                        elapsed,
                        tau,
                    )
                    for name, owed in commitments.items()
                }
                others = decayed(others, 0.0, elapsed, tau)
            if user not in self.pool:
                owes = max(commitments.values(), default=others) >= FADED
                if not owes and remembered.weight is None:
                    continue
                self.pool.add(user)
                self._idle_since[user] = self.pool.now
            self.pool.set_commitment(user, commitments, others=others)
            if remembered.weight is not None:
                self.order_weight(user, remembered.weight)

    def order_weight(self, user: str, weight: float | None) -> None:
        """Set a user's weight as an operator wants it; None: as it would be without."""
        if weight is None:
            self._ordered.pop(user, None)
            declared = {user.name: user.weight for user in self._settings.users}
            self.pool.set_weight(user, declared.get(user, 1.0))
        else:
            self.pool.set_weight(user, weight)
            self._ordered[user] = weight

    def advance(self, now: float) -> None:
        """Move to a later instant."""
        self.pool.advance(now)

    def set_capacity(self, capacity: Quantities) -> None:
        """Change the total of all agents."""
        self.pool.set_capacity(capacity)

    def __contains__(self, client: object) -> bool:
        return client in self._members

    def add(self, client: Client, framework: Framework) -> None:
        """Make a client known, and its user with it; it gets no offers yet."""
        user = user_of(self._settings.user_key, client.role, framework)
        if user not in self.pool:
            self.pool.add(user)
        self._idle_since.pop(user, None)
        self._members[client] = _Member(user, Quantities())
        self._of.setdefault(client.framework, []).append(client)
        if user not in self._inner:
            self._inner[user] = Pool(self._drf, now=self.pool.now, excluded=self._excluded)
        self._inner[user].add(client)

    def remove(self, client: Client) -> None:
        """Forget a client; what it still holds is released."""
        self.set_wanting(client, wanting=False)
        member = self._members[client]
        self.release(client, member.held)
        del self._members[client]
        self._of[client.framework].remove(client)
        if not self._of[client.framework]:
            del self._of[client.framework]
        inner = self._inner[member.user]
        inner.remove(client)
        if not len(inner):
            del self._inner[member.user]
            self._idle_since[member.user] = self.pool.now

    def of(self, framework: str) -> list[Client]:
        """Return the clients of a framework."""
        return list(self._of.get(framework, ()))

    def reassign(self, framework: Framework) -> None:
        """Move clients of the framework whose user is another one now."""
        for client in self.of(framework.id):
            user = user_of(self._settings.user_key, client.role, framework)
            if user != self._members[client].user:
                held = self.held(client)
                self.remove(client)
                self.add(client, framework)
                self.allocate(client, held)

    def set_wanting(self, client: Client, *, wanting: bool) -> None:
        """Say whether a client is to get offers."""
        user = self._members[client].user
        inner = self._inner[user]
        inner.set_active(client, wanting)
        self.pool.set_active(user, inner.active > 0)

    def allocate(self, client: Client, quantities: Quantities) -> None:
        """Count scalars as held by the client."""
        member = self._members[client]
        member.held = member.held + quantities
        self.pool.allocate(member.user, quantities)
        self._inner[member.user].allocate(client, quantities)

    def release(self, client: Client, quantities: Quantities) -> None:
        """Count scalars as no longer held by the client."""
        member = self._members[client]
        member.held = member.held - quantities
        self.pool.release(member.user, quantities)
        self._inner[member.user].release(client, quantities)

    def held(self, client: Client) -> Quantities:
        """Return the scalars that a client holds."""
        return self._members[client].held

    def order(self) -> Iterator[Client]:
        """Go through the clients that want offers, the next one first.

        The order is that of the moment; booking during the iteration invalidates the iterator.
        """
        capacity = self.pool.capacity
        for user in self.pool:
            inner = self._inner[user]
            inner.set_capacity(capacity)  # kept up to date only where it is looked at
            yield from inner

    def forget_idle(self) -> None:
        """Forget undeclared users that have been gone, and owe nothing, for long enough."""
        latest = self.pool.now - self._settings.forget_after
        gone = [user for user, since in self._idle_since.items() if since <= latest]
        for user in gone:
            if user in self._declared:
                del self._idle_since[user]
            elif max(self.pool.standing(user).commitments.values(), default=0.0) < FADED:
                del self._idle_since[user]
                self.pool.remove(user)


def user_of(key: UserKey, role: str, framework: Framework) -> str:
    """Return the user that a framework acts for in a role.

    A framework without a principal is a user of its own.
    """
    if key == "role":
        return role
    if key == "framework_name":
        return framework.info.name
    if key == "principal" and framework.info.principal:
        return framework.info.principal
    return framework.id
