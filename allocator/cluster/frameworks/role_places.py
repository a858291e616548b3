"""Places in the tree of roles: how many frameworks take, and how many each may.

All frameworks share `limits.all_roles`. With the rule that leaves room, no principal takes more
than half of the places that other principals leave. A framework with few roles always gets its
places, and these places do not count. So neither a principal nor
many invented principals keep such a newcomer out. The number of places is at most the limit and
`FEW` for each framework. In a snapshot, frameworks keep the places that they had before it, also
before a restart. Frameworks that hold resources come next, then all others. Among these, the
principal that has the fewest places is next each time, with its smallest framework, whatever the
order in which the master lists them.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from allocator.cluster.input.quarantine import ValidationError

FEW = 4
"""Places that a framework may always have: a role of four levels, or four roles."""


class Wish(NamedTuple):
    """The places that a framework of a snapshot takes."""

    framework: str
    principal: str
    places: int


class RolePlaces:
    """Counts the places that frameworks take, by principal.

    Args:
        most: Places of all frameworks together.
        leaves_room: Whether principals have to leave room for others, and few places are free.
    """

    def __init__(self, most: int, *, leaves_room: bool) -> None:
        self._most = most
        self.leaves_room = leaves_room
        self._taken = 0
        self._by_principal: Counter[str] = Counter()
        self._by_framework: dict[str, int] = {}
        self._turned_away: dict[str, ValidationError] | None = None
        """Frameworks of the snapshot at hand that get no places; None: no snapshot is at hand."""

    def flaw(self, wish: Wish, before: int = 0) -> ValidationError | None:
        """Return why a framework may not have the places it wishes; None: it may.

        Args:
            wish: All places of the framework, with those that it has.
            before: Places that it has.
        """
        if self._turned_away is not None:
            return self._turned_away.get(wish.framework)
        if wish.places <= before:
            return None
        additional = self._counted(wish.places) - self._counted(before)
        if additional <= 0:
            return None
        if self._taken + additional > self._most:
            words = (
                f"all frameworks together would have {self._taken + additional} roles, more than"
            )
            return ValidationError("limit", f"{words} {self._most} (limits.all_roles)")
        own = self._by_principal[wish.principal]
        available = self._most - (self._taken - own)
        if self.leaves_room and 2 * (own + additional) > available:
            owner = f"of principal {wish.principal!r}" if wish.principal else "without a principal"
            words = f"frameworks {owner} would have {own + additional} roles, more than half of"
            return ValidationError(
                "limit", f"{words} {available} that others leave (limits.all_roles)"
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
        """Count the places of a framework no more."""
        counted = self._counted(wish.places)
        self._taken -= counted
        self._by_principal[wish.principal] -= counted
        self._by_framework.pop(digest(wish.framework), None)
        if not self._by_principal[wish.principal]:
            del self._by_principal[wish.principal]

    def counted(self) -> dict[str, int]:
        """Return the counted places of frameworks, by `digest`; none with the former rule."""
        return dict(self._by_framework)

    def plan(
        self, wishes: Iterable[Wish], before: Mapping[str, int], holding: Collection[str] = ()
    ) -> None:
        """Decide which frameworks of a snapshot get places.

        Args:
            wishes: By all frameworks of the snapshot.
            before: Counted places that frameworks had before it, by `digest`.
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
        turned_away = planned._deal(holders) | planned._deal(newcomers)
        self._turned_away = turned_away

    def _deal(self, wishes: Iterable[Wish]) -> dict[str, ValidationError]:
        """Give places to the principal that has fewest, again and again; return who gets none.

        Args:
            wishes: Smallest first.
        """
        turned_away: dict[str, ValidationError] = {}
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
                turned_away[wish.framework] = flaw
            if waiting[principal]:
                heappush(turns, (self._by_principal[principal], principal))
        return turned_away

    def _counted(self, places: int) -> int:
        return 0 if self.leaves_room and places <= FEW else places

    def end_plan(self) -> None:
        """Follow that the snapshot has been taken in."""
        self._turned_away = None


def digest(framework: str) -> str:
    """Return under which short name a framework's places are remembered."""
    return blake2b(framework.encode(errors="surrogatepass"), digest_size=8).hexdigest()
