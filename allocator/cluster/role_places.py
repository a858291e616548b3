"""Places in the tree of roles: how many frameworks take, and how many each may.

All frameworks share `limits.all_roles`. With the rule that leaves room, no principal takes more
than half of the places that other principals leave. A framework with few roles always gets its
places, and these places do not count. So neither a principal nor
many invented principals keep such a newcomer out. The number of places is at most the limit and
`FEW` for each framework. In a snapshot, frameworks keep
the places that they had before it, and then smaller ones come first, whatever the order in which
the master lists them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from allocator.cluster.quarantine import Flaw

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
        self._turned_away: dict[str, Flaw] | None = None
        """Frameworks of the snapshot at hand that get no places; None: no snapshot is at hand."""

    def flaw(self, wish: Wish, before: int = 0) -> Flaw | None:
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
            return Flaw("limit", f"{words} {self._most} (limits.all_roles)")
        own = self._by_principal[wish.principal]
        available = self._most - (self._taken - own)
        if self.leaves_room and 2 * (own + additional) > available:
            owner = f"of principal {wish.principal!r}" if wish.principal else "without a principal"
            words = f"frameworks {owner} would have {own + additional} roles, more than half of"
            return Flaw("limit", f"{words} {available} that others leave (limits.all_roles)")
        return None

    def put(self, principal: str, places: int) -> None:
        """Count the places of a framework of a principal."""
        self._taken += self._counted(places)
        self._by_principal[principal] += self._counted(places)

    def discard(self, principal: str, places: int) -> None:
        """Count the places of a framework no more."""
        self._taken -= self._counted(places)
        self._by_principal[principal] -= self._counted(places)
        if not self._by_principal[principal]:
            del self._by_principal[principal]

    def plan(self, wishes: Iterable[Wish], before: Mapping[str, int]) -> None:
        """Decide which frameworks of a snapshot get places.

        Args:
            wishes: By all frameworks of the snapshot.
            before: Places that frameworks had before it.
        """
        planned = RolePlaces(self._most, leaves_room=self.leaves_room)
        turned_away: dict[str, Flaw] = {}
        newcomers = []
        for wish in wishes:
            if wish.places <= before.get(wish.framework, 0):
                planned.put(wish.principal, wish.places)
            else:
                newcomers.append(wish)
        for wish in sorted(newcomers, key=lambda wish: (wish.places, wish.framework)):
            flaw = planned.flaw(wish)
            if flaw is None:
                planned.put(wish.principal, wish.places)
            else:
                turned_away[wish.framework] = flaw
        self._turned_away = turned_away

    def _counted(self, places: int) -> int:
        return 0 if self.leaves_room and places <= FEW else places

    def end_plan(self) -> None:
        """Follow that the snapshot has been taken in."""
        self._turned_away = None
