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

After a failover, frameworks come back one by one. If `reserved_for_ns` is set, the places of a
framework that is not in the snapshot stay reserved for some time. Other frameworks cannot take
reserved places. If `counts_reserved` is set, reserved places count for their principal. So a
principal whose frameworks return under new IDs cannot add to its reservations. The store keeps
principals and ends of reservations, so both also hold after a restart of the service.

The number of frameworks is limited by the same rules (`limits.frameworks`): each framework with
roles takes one place, and none is exempt. The store keeps these places, too. Otherwise frameworks
of invented principals, which subscribe while the service is away, could displace frameworks that
hold nothing. In event logs without `few_outlive_restarts`, this is so only once the frameworks take
more than 1/`_CROWD` of the limit.
"""

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from allocator.cluster.input.quarantine import ValidationError
from allocator.users.memory import OccupiedPlaces

FEW = 4
"""Number of places that a framework always gets, for example for one role of four levels."""
_CROWD = 16
"""Fraction, 1/16, of the limit above which places are crowded."""


class PlaceRequest(NamedTuple):
    """A framework's request to occupy nodes of the role tree.

    The framework needs one place for each of its roles, and for each ancestor of its roles.
    """

    framework: str
    principal: str
    """The framework's principal; empty without a principal."""
    places: int
    """Number of nodes that the framework's roles and their ancestors occupy."""


@dataclass(frozen=True, slots=True)
class PlaceRules:
    """A limit of places, and the rules by which frameworks share them."""

    most: float
    """Maximum number of places of all frameworks together; infinite without a limit."""
    leaves_room: bool
    """True to limit each principal to half of the places that other principals leave. Frameworks
    with at most `few` places then do not count."""
    reserved_for_ns: int = 0
    """Time in nanoseconds for which places stay reserved for frameworks that are not back after a
    snapshot; 0 for no reservations."""
    counts_reserved: bool = False
    """Whether reserved places count for their principal. If false, they count as places of other
    principals."""
    outlive_restarts: bool = False
    """Whether places of frameworks are kept over a restart of the service."""
    few_outlive_restarts: bool = False
    """Whether this is so however few places are taken. If false, only *crowded* places are kept:
    those of frameworks that take more than 1/`_CROWD` of the limit."""
    same_principal: bool = False
    """Whether a framework that comes back under another principal has no earlier places."""
    few: int = FEW
    """Number of places that a framework always gets if `leaves_room` is set."""
    things: str = "roles"
    """Plural noun for places in messages."""
    setting: str = "limits.all_roles"
    """Name of the setting of `most` in messages."""


class LimitedPlaces:
    """Counts the places that frameworks occupy, and decides on requests for more.

    A place is a node of the role tree that a framework's roles, or their ancestors, occupy. Another
    instance limits the number of frameworks; each then occupies one place.
    """

    def __init__(self, rules: PlaceRules) -> None:
        self.rules = rules
        self._principals: dict[str, str] = {}
        """`digest` of the principals of frameworks with counted or reserved places, by `digest` of
        the framework ID; empty unless `counts_reserved` is set."""
        self._reserved_by_principal: Counter[str] = Counter()
        """Number of reserved places, by `digest` of the principal."""
        self._reserved: dict[str, int] = {}
        """Number of reserved places, by `digest` of the framework ID."""
        self._reserved_total = 0
        self._reserved_until_ns: dict[str, int] = {}
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
        reserved = self._reserved_for(wish) if self._reserved else 0
        if additional <= 0 or additional <= min(reserved, self.rules.most - self._taken):
            return None
        taken = self._taken + self._reserved_total - reserved
        if taken + additional > self.rules.most:
            together = (
                f"all frameworks together would have {taken + additional} {self.rules.things}"
            )
            return ValidationError(
                "limit", f"{together}, more than {self.rules.most:.0f} ({self.rules.setting})"
            )
        own = self._by_principal[wish.principal]
        if self._reserved_by_principal:
            principal = digest(wish.principal)
            own += self._reserved_by_principal[principal]
            if reserved and self._principals.get(digest(wish.framework)) == principal:
                own -= reserved
        available = self.rules.most - (taken - own)
        if self.rules.leaves_room and 2 * (own + additional) > available:
            owner = f"of principal {wish.principal!r}" if wish.principal else "without a principal"
            message = (
                f"frameworks {owner} would have {own + additional} {self.rules.things}, more than"
            )
            return ValidationError(
                "limit",
                f"{message} half of {available:.0f} that others leave ({self.rules.setting})",
            )
        return None

    def _reserved_for(self, wish: PlaceRequest) -> int:
        """Return the number of places that are reserved for a framework and its principal."""
        name = digest(wish.framework)
        owned = self._is_owner(wish, self._principals.get(name))
        return self._reserved.get(name, 0) if owned else 0

    def _is_owner(self, wish: PlaceRequest, principal: str | None) -> bool:
        """Return whether earlier places of a framework, of a known principal or not, are usable."""
        return not self.rules.same_principal or principal in {None, digest(wish.principal)}

    def put(self, wish: PlaceRequest) -> None:
        """Count the places of a framework whose request was granted.

        The places count until the same request is passed to `discard`.
        """
        counted, name = self._counted(wish.places), digest(wish.framework)
        self._taken += counted
        self._by_principal[wish.principal] += counted
        if counted and self.rules.leaves_room:
            self._by_framework[name] = counted
        if wish.places and self._reserved:
            self._end_reservation(name)
        if counted and self.rules.counts_reserved:
            self._principals[name] = digest(wish.principal)

    def discard(self, wish: PlaceRequest) -> None:
        """Free the places of a framework that was removed or has changed its roles.

        Args:
            wish: The request that was granted, and counted by `put`.
        """
        counted, name = self._counted(wish.places), digest(wish.framework)
        self._taken -= counted
        self._by_principal[wish.principal] -= counted
        self._by_framework.pop(name, None)
        self._principals.pop(name, None)
        if not self._by_principal[wish.principal]:
            del self._by_principal[wish.principal]

    def counted(self) -> dict[str, OccupiedPlaces]:
        """Return each framework's places that count towards the limit.

        Keys are `digest` of the framework ID. The result is stored, so that frameworks keep their
        places across a restart. Reserved places are included. The result is empty unless
        `leaves_room` is set.
        """
        return {
            name: OccupiedPlaces(
                counted, self._principals.get(name), self._reserved_until_ns.get(name)
            )
            for name, counted in (self._reserved | self._by_framework).items()
        }

    @property
    def outlive_restart(self) -> bool:
        """Whether the store must keep these places, as the rules say."""
        rules, occupied = self.rules, self._taken + self._reserved_total
        if not rules.outlive_restarts or math.isinf(rules.most):
            return False
        return rules.few_outlive_restarts or occupied > rules.most / _CROWD

    def end_reservations(self, now_ns: int) -> None:
        """End the reservations that have lasted long enough.

        Args:
            now_ns: The current time in nanoseconds.
        """
        if self._reserved and now_ns >= min(self._reserved_until_ns.values()):
            ended = [name for name, end in self._reserved_until_ns.items() if end <= now_ns]
            for name in ended:
                self._end_reservation(name)

    def _end_reservation(self, name: str) -> None:
        counted = self._reserved.pop(name, 0)
        self._reserved_total -= counted
        self._reserved_until_ns.pop(name, None)
        principal = self._principals.pop(name, None)
        if principal is not None and counted:
            self._reserved_by_principal[principal] -= counted
            if not self._reserved_by_principal[principal]:
                del self._reserved_by_principal[principal]

    def _reserve(
        self, former: Mapping[str, OccupiedPlaces], present: Collection[str], now_ns: int
    ) -> None:
        """Reserve the former places of frameworks that are not present.

        Args:
            former: The places before a snapshot, by `digest` of the framework ID.
            present: `digest` of the IDs of frameworks in the snapshot.
            now_ns: The time of the snapshot in nanoseconds.
        """
        latest = now_ns + self.rules.reserved_for_ns
        for name, (counted, principal, former_end_ns) in former.items():
            until_ns = latest if former_end_ns is None else min(former_end_ns, latest)
            if name not in present and until_ns > now_ns:
                self._reserved[name] = counted
                self._reserved_until_ns[name] = until_ns
                self._reserved_total += counted
                if self.rules.counts_reserved and principal is not None:
                    self._principals[name] = principal
                    self._reserved_by_principal[principal] += counted

    def plan(
        self,
        wishes: Iterable[PlaceRequest],
        before: Mapping[str, OccupiedPlaces],
        holding: Collection[str] = (),
        now_ns: int = 0,
    ) -> None:
        """Decide on the requests of all frameworks of a snapshot, before the frameworks are added.

        Until `end_plan` is called, `rejection` returns these decisions.

        Args:
            wishes: Requests of all frameworks of the snapshot.
            before: Places before the snapshot, by `digest` of the framework ID. Frameworks that had
                places are served first.
            holding: IDs of frameworks that hold resources; these are served second.
            now_ns: The time of the snapshot in nanoseconds.
        """
        wishes = list(wishes)
        present = {digest(wish.framework) for wish in wishes}
        planned = LimitedPlaces(self.rules)
        self._reserve(before, present, now_ns)
        planned._reserve(before, present, now_ns)
        holders, newcomers = list[PlaceRequest](), list[PlaceRequest]()
        for wish in sorted(wishes, key=lambda wish: (wish.places, wish.framework)):
            counted = self._counted(wish.places)
            if (
                counted <= self._earlier(wish, before)
                and planned._taken + counted <= self.rules.most
            ):
                planned.put(wish)
            elif wish.framework in holding:
                holders.append(wish)
            else:
                newcomers.append(wish)
        rejected = planned._assign(holders) | planned._assign(newcomers)
        self._rejected = rejected

    def _earlier(self, wish: PlaceRequest, before: Mapping[str, OccupiedPlaces]) -> int:
        """Return the number of places that a framework had before a snapshot."""
        places = before.get(digest(wish.framework))
        if places is None or not self._is_owner(wish, places.principal):
            return 0
        return places.nodes

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

        If `leaves_room` is set, the places of a framework with at most `few` places do not count.

        Args:
            places: Number of places that the framework has.
        """
        return 0 if self.rules.leaves_room and places <= self.rules.few else places

    def end_plan(self) -> None:
        """Forget the decisions of `plan`. Called once all frameworks of the snapshot are added."""
        self._rejected = None


def digest(name: str) -> str:
    """Return a short hash of a framework ID or principal, under which places are stored."""
    return blake2b(name.encode(errors="surrogatepass"), digest_size=8).hexdigest()
