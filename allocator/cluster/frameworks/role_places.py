"""Role-tree places: the nodes of the role tree that frameworks' roles occupy, and their limit.

All frameworks together share `limits.all_roles` places. If `leaves_room` is set, each principal
takes at most half of the places that other principals leave. A framework with at most `FEW` places
always gets its places, and these do not count. Neither one principal nor many invented principals
can therefore exclude a new framework. The number of places is at most the limit, plus `FEW` for
each framework.

When a snapshot arrives, frameworks get places in this order:

1. Frameworks that had these places before the snapshot, also across a restart.
2. Frameworks that hold resources.
3. All other frameworks.

In the latter two groups, the principal with the fewest places is next each time. Its framework that
requests the fewest places comes first. The master's order of frameworks does not matter.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from allocator.cluster.input.quarantine import ValidationError

FEW = 4
"""Number of places that a framework always gets, for example for one role of four levels."""


class PlaceRequest(NamedTuple):
    """A framework's request to occupy nodes of the role tree.

    The framework needs one place for each of its roles, and for each ancestor of its roles.
    """

    framework: str
    principal: str
    """The framework's principal; empty without a principal."""
    places: int
    """Number of nodes that the framework's roles and their ancestors occupy."""


class RolePlaces:
    """Counts the role-tree places that frameworks occupy, and decides on requests for more.

    A place is a node of the role tree that a framework's roles, or their ancestors, occupy.

    Args:
        most: Maximum number of places of all frameworks together.
        leaves_room: True to limit each principal to half of the places that other principals leave.
            Frameworks with at most `FEW` places then do not count.
    """

    def __init__(self, most: int, *, leaves_room: bool) -> None:
        self._most = most
        self.leaves_room = leaves_room
        self._taken = 0
        self._by_principal: Counter[str] = Counter()
        self._by_framework: dict[str, int] = {}
        self._rejected: dict[str, ValidationError] | None = None
        """framework → why it gets no places in the current snapshot; None outside of snapshots"""

    def rejection(self, wish: PlaceRequest, before: int = 0) -> ValidationError | None:
        """Return the error if a framework's request for places is rejected; None if it is granted.

        Args:
            wish: All places that the framework requests, including the places that it has already.
            before: Number of places that the framework has already.
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

    def put(self, wish: PlaceRequest) -> None:
        """Count the places of a framework whose request was granted.

        The places count until the same request is passed to `discard`.
        """
        counted = self._counted(wish.places)
        self._taken += counted
        self._by_principal[wish.principal] += counted
        if counted and self.leaves_room:
            self._by_framework[digest(wish.framework)] = counted

    def discard(self, wish: PlaceRequest) -> None:
        """Free the places of a framework that was removed or has changed its roles.

        Args:
            wish: The request that was granted, and counted by `put`.
        """
        counted = self._counted(wish.places)
        self._taken -= counted
        self._by_principal[wish.principal] -= counted
        self._by_framework.pop(digest(wish.framework), None)
        if not self._by_principal[wish.principal]:
            del self._by_principal[wish.principal]

    def counted(self) -> dict[str, int]:
        """Return each framework's number of places that count towards the limit.

        Keys are `digest` of the framework ID. The result is stored, so that frameworks keep their
        places across a restart. It is empty unless `leaves_room` is set.
        """
        return dict(self._by_framework)

    def plan(
        self,
        wishes: Iterable[PlaceRequest],
        before: Mapping[str, int],
        holding: Collection[str] = (),
    ) -> None:
        """Decide on the requests of all frameworks of a snapshot, before the frameworks are added.

        Until `end_plan` is called, `rejection` returns these decisions.

        Args:
            wishes: Requests of all frameworks of the snapshot.
            before: Result of `counted` before the snapshot; these frameworks are served first.
            holding: IDs of frameworks that hold resources; these are served second.
        """
        planned = RolePlaces(self._most, leaves_room=self.leaves_room)
        holders, newcomers = list[PlaceRequest](), list[PlaceRequest]()
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

    def _assign(self, wishes: Iterable[PlaceRequest]) -> dict[str, ValidationError]:
        """Decide on requests of a snapshot, one by one.

        Each time, the principal with the fewest places is served, because the master's order of
        frameworks must not matter.

        Args:
            wishes: Requests in ascending order of places.

        Returns:
            The errors of rejected requests, by framework ID.
        """
        rejected: dict[str, ValidationError] = {}
        waiting: dict[str, deque[PlaceRequest]] = {}
        for wish in wishes:
            waiting.setdefault(wish.principal, deque()).append(wish)
        turns = [(self._by_principal[principal], principal) for principal in waiting]
        heapify(turns)
        while turns:
            _, principal = heappop(turns)
            wish = waiting[principal].popleft()
            flaw = self.rejection(wish)
            if flaw is None:
                self.put(wish)
            else:
                rejected[wish.framework] = flaw
            if waiting[principal]:
                heappush(turns, (self._by_principal[principal], principal))
        return rejected

    def _counted(self, places: int) -> int:
        """Return how many of a framework's places count towards the limit.

        If `leaves_room` is set, the places of a framework with at most `FEW` places do not count.

        Args:
            places: Number of places that the framework has.
        """
        return 0 if self.leaves_room and places <= FEW else places

    def end_plan(self) -> None:
        """Forget the decisions of `plan`. Called once all frameworks of the snapshot are added."""
        self._rejected = None


def digest(framework: str) -> str:
    """Return a short hash of a framework ID, under which the number of its places is stored."""
    return blake2b(framework.encode(errors="surrogatepass"), digest_size=8).hexdigest()
