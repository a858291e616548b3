"""Role-tree places: the nodes of the role tree that frameworks use, limited for all frameworks.

All frameworks together share `limits.all_roles` places. If `leaves_room` is set, no principal takes
more than half of the places that other principals leave. A framework with at most `FEW` places
always gets its places, and they do not count. Neither one principal nor many invented principals
can therefore exclude a new framework. The number of places is at most the limit, plus `FEW` for
each framework.

When a snapshot arrives, places are assigned in this order:

1. Frameworks keep the places that they had before the snapshot, also across a restart.
2. Frameworks that hold resources.
3. All other frameworks.

In the latter two groups, the principal with the fewest places is next each time, with its smallest
framework. The master's order of frameworks does not matter.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from allocator.cluster.input.quarantine import ValidationError

FEW = 4
"""Number of places that a framework always gets: a role of four levels, or four roles."""


class Wish(NamedTuple):
    """The number of role-tree places that a framework requests."""

    framework: str
    principal: str
    """The framework's principal; empty without a principal."""
    places: int
    """Number of its roles and their ancestors."""


class RolePlaces:
    """Counts the places that frameworks take, by principal.

    Args:
        most: Maximum number of places of all frameworks together.
        leaves_room: Whether principals must leave places to each other, and frameworks with at most
            `FEW` places do not count.
    """

    def __init__(self, most: int, *, leaves_room: bool) -> None:
        self._most = most
        self.leaves_room = leaves_room
        self._taken = 0
        self._by_principal: Counter[str] = Counter()
        self._by_framework: dict[str, int] = {}
        self._rejected: dict[str, ValidationError] | None = None
        """framework → why it gets no places in the current snapshot; None outside of snapshots"""

    def flaw(self, wish: Wish, before: int = 0) -> ValidationError | None:
        """Return why a framework is not granted the places it requests; None if granted.

        Args:
            wish: All places of the framework, including those that it has.
            before: Number of places that the framework has.
        """
        if self._rejected is not None:
            return self._rejected.get(wish.framework)
        if wish.places <= before:
            return None
        additional = self._counted(wish.places) - self._counted(before)
        if additional <= 0:
            return None
        if self._taken + additional > self._most:
            message = (
                f"all frameworks together would have {self._taken + additional} roles, more than"
            )
            return ValidationError("limit", f"{message} {self._most} (limits.all_roles)")
        own = self._by_principal[wish.principal]
        available = self._most - (self._taken - own)
        if self.leaves_room and 2 * (own + additional) > available:
            owner = f"of principal {wish.principal!r}" if wish.principal else "without a principal"
            message = f"frameworks {owner} would have {own + additional} roles, more than half of"
            return ValidationError(
                "limit", f"{message} {available} that others leave (limits.all_roles)"
            )
        return None

    def put(self, wish: Wish) -> None:
        """Count the places of a framework."""
        counted = self._counted(wish.places)
        self._taken += counted
        self._by_principal[wish.principal] += counted
        if counted and self.leaves_room:
            self._by_framework[digest(wish.framework)] = counted

    def discard(self, wish: Wish) -> None:
        """Release the places of a framework."""
        counted = self._counted(wish.places)
        self._taken -= counted
        self._by_principal[wish.principal] -= counted
        self._by_framework.pop(digest(wish.framework), None)
        if not self._by_principal[wish.principal]:
            del self._by_principal[wish.principal]

    def counted(self) -> dict[str, int]:
        """Return frameworks' counted places, by `digest`; empty unless `leaves_room` is set."""
        return dict(self._by_framework)

    def plan(
        self, wishes: Iterable[Wish], before: Mapping[str, int], holding: Collection[str] = ()
    ) -> None:
        """Assign places to the frameworks of a snapshot.

        Args:
            wishes: Requests of all frameworks of the snapshot.
            before: Counted places of frameworks before the snapshot, by `digest`.
            holding: Frameworks that hold resources.
        """
        planned = RolePlaces(self._most, leaves_room=self.leaves_room)
        holders, newcomers = list[Wish](), list[Wish]()
        for wish in sorted(wishes, key=lambda wish: (wish.places, wish.framework)):
            counted = self._counted(wish.places)
            if (
                counted <= before.get(digest(wish.framework), 0)
                and planned._taken + counted <= self._most
            ):
                planned.put(wish)
            elif wish.framework in holding:
                holders.append(wish)
            else:
                newcomers.append(wish)
        rejected = planned._assign(holders) | planned._assign(newcomers)
        self._rejected = rejected

    def _assign(self, wishes: Iterable[Wish]) -> dict[str, ValidationError]:
        """Grant requests, always to the principal with the fewest places next; return rejections.

        Args:
            wishes: Requests in ascending order of places.

        Returns:
            framework → why it gets no places
        """
        rejected: dict[str, ValidationError] = {}
        waiting: dict[str, deque[Wish]] = {}
        for wish in wishes:
            waiting.setdefault(wish.principal, deque()).append(wish)
        turns = [(self._by_principal[principal], principal) for principal in waiting]
        heapify(turns)
        while turns:
            _, principal = heappop(turns)
            wish = waiting[principal].popleft()
            flaw = self.flaw(wish)
            if flaw is None:
                self.put(wish)
            else:
                rejected[wish.framework] = flaw
            if waiting[principal]:
                heappush(turns, (self._by_principal[principal], principal))
        return rejected

    def _counted(self, places: int) -> int:
        """Return the number of a framework's places that count towards the limit."""
        return 0 if self.leaves_room and places <= FEW else places

    def end_plan(self) -> None:
        """Finish the snapshot for which `plan` assigned places."""
        self._rejected = None


def digest(framework: str) -> str:
    """Return a short hash of a framework ID, as a key of remembered places."""
    return blake2b(framework.encode(errors="surrogatepass"), digest_size=8).hexdigest()
