"""Quota: what top-level roles are guaranteed or limited to, and what that holds back (§3.2)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from allocator.cluster.errors import InvalidEvent
from allocator.cluster.resources import NOTHING, Resources
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.quantities import Quantities

if TYPE_CHECKING:
    from allocator.cluster.agents import Agent


@dataclass(frozen=True, slots=True)
class Quota:
    """What one role, with all roles below it, is guaranteed and limited to."""

    guarantees: Quantities
    limits: Mapping[str, int] = field(default_factory=dict)
    """In thousandths; a name that is absent has none, which is not the same as 0."""
    capped: bool = False
    """As in Mesos 1.8: what is guaranteed is all it gets, and the rest only as its company."""

    def __bool__(self) -> bool:
        return self.capped or bool(self.guarantees) or bool(self.limits)

    @property
    def shown_limits(self) -> Mapping[str, int]:
        """What it can have at most, by name, under either rule."""
        return dict(self.guarantees.items()) if self.capped else self.limits


class Quotas:
    """Quotas by role, and the sums that a run needs, kept up to date as things change.

    Without any quota nothing is summed up; the first one costs a pass over all agents.
    """

    def __init__(self) -> None:
        self._quotas: dict[str, Quota] = {}
        self._sums = _Sums()

    def __bool__(self) -> bool:
        return bool(self._quotas)

    def __contains__(self, role: object) -> bool:
        return role in self._quotas

    def items(self) -> Iterator[tuple[str, Quota]]:
        """Go through roles and their quotas."""
        return iter(self._quotas.items())

    def set(self, role: str, quota: Quota, agents: "dict[str, Agent]") -> None:
        """Guarantee a role something, limit it, or both; neither removes its quota."""
        if not quota:
            self.remove(role)
            return
        if not self._quotas:
            self._sums = _Sums()
            for agent in agents.values():
                self._sums.add_total(agent.total, 1)
                for _framework, held_for, held in agent.allocations():
                    self._sums.add_held(held_for, held, 1)
        self._quotas[role] = quota

    def remove(self, role: str) -> None:
        """Guarantee a role nothing any more; it need not have had a quota."""
        self._quotas.pop(role, None)

    def note_total(self, before: Resources, after: Resources) -> None:
        """Learn that the total of an agent changes."""
        if self._quotas and before is not after:
            self._sums.add_total(before, -1)
            self._sums.add_total(after, 1)

    def note_held(self, role: str, before: Resources, after: Resources) -> None:
        """Learn that what a framework holds for a role on an agent changes."""
        if self._quotas:
            self._sums.add_held(role, before, -1)
            self._sums.add_held(role, after, 1)

    def headroom(self) -> "Headroom":
        """Return how things stand at the start of a run."""
        consumed = {role: self.consumed(role) for role in self._quotas}
        return Headroom(self._quotas, consumed, available=self._sums.available())

    def consumed(self, role: str) -> Quantities:
        """Return what counts against a role's quota: reservations, and what else it holds."""
        return self._sums.reserved_below(role) + self._sums.plain_below(role)


@dataclass
class Headroom:
    """What is free for everybody once all guarantees are honoured; changes as a run goes on."""

    quotas: Mapping[str, Quota]
    consumed: dict[str, Quantities]
    available: Quantities
    """Unreserved and free, on all agents together."""

    def __post_init__(self) -> None:
        self.required = sum((self.missing(role) for role in self.quotas), start=Quantities())
        """What must be held back for guarantees that are not met."""
        self.divisible = not any(quota.capped for quota in self.quotas.values())
        """Whether a part goes to others where not all can: since Mesos 1.9."""

    def missing(self, role: str) -> Quantities:
        """Return what a role has not got of its guarantee."""
        return _less(self.quotas[role].guarantees, self.consumed[role])

    def spare(self) -> Quantities:
        """Return what may go to others."""
        return _less(self.available, self.required)

    def within(self, role: str, plain: Resources, besides: Resources = NOTHING) -> Resources:
        """Return what of unreserved scalars a role may have, under its limits and the headroom.

        Args:
            role: Which; the limits of its top-level role bind it.
            plain: What there is.
            besides: What it gets in any case.
        """
        top = top_level(role)
        quota = self.quotas.get(top)
        if quota is not None and quota.limits:
            room = dict(plain.scalars.items())
            for name, limit in quota.limits.items():
                left = limit - self.consumed[top][name] - besides.scalars[name]
                room[name] = min(room.get(name, 0), max(left, 0))
            plain = plain.shrunk(Quantities(room))
        if self.required and plain:
            plain = plain.shrunk(self.spare())
        return plain

    def admits(self, role: str, quantities: Quantities) -> bool:
        """Whether a role may have so much: its limits allow it, and all guarantees can be met."""
        top = top_level(role)
        quota = self.quotas.get(top)
        if quota is not None and any(
            quantities[name] and self.consumed[top][name] + quantities[name] > limit
            for name, limit in quota.limits.items()
        ):
            return False
        return _less(self.available, quantities).contains(self.required)

    def slack(self) -> dict[str, int] | None:
        """Return what guarantees leave of what must be held back for them; None: nothing at all.

        With the role's limits (`left`) it says what `admits` would admit.
        """
        slack = {name: self.available[name] - held for name, held in self.required.items()}
        return None if any(amount < 0 for amount in slack.values()) else slack

    def left(self, top: str) -> Mapping[str, int]:
        """Return by name what the limits of a top-level role leave it."""
        quota = self.quotas.get(top)
        if quota is None:
            return {}
        consumed = self.consumed[top]
        return {name: limit - consumed[name] for name, limit in quota.limits.items()}

    def give_guaranteed(self, role: str, towards: Quantities, quantities: Quantities) -> None:
        """Book what a role with a quota gets: all of it, and the part its guarantee asks for."""
        self.consumed[role] = self.consumed[role] + quantities
        self.required = _less(self.required, towards)
        self.available = _less(self.available, quantities)

    def give(self, role: str, quantities: Quantities) -> None:
        """Book what a role gets beside what it is guaranteed."""
        top = top_level(role)
        if top in self.consumed:
            self.consumed[top] = self.consumed[top] + quantities
        self.available = _less(self.available, quantities)

    def take_back(self, role: str, quantities: Quantities) -> None:
        """Undo `give`."""
        top = top_level(role)
        if top in self.consumed:
            self.consumed[top] = self.consumed[top] - quantities
        self.available = self.available + quantities


class _Sums:
    """Scalars of the whole cluster by what they are."""

    def __init__(self) -> None:
        self._total: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self._reserved: dict[str, dict[str, int]] = {}
        self._held_reserved: dict[str, int] = {}
        self._revocable: dict[str, int] = {}
        self._held_revocable: dict[str, int] = {}
        self._plain: dict[str, dict[str, int]] = {}
        """By the role it is held for."""

    def add_total(self, total: Resources, sign: int) -> None:
        """Count an agent's total in (1) or out (−1)."""
        _add(self._total, total.scalars, sign)
        _add(self._revocable, total.revocable.scalars, sign)
        for role, quantities in total.reserved.items():
            _add(self._reserved.setdefault(role, {}), quantities, sign)

    def add_held(self, role: str, held: Resources, sign: int) -> None:
        """Count what is held for a role on an agent in (1) or out (−1)."""
        _add(self._held, held.scalars, sign)
        _add(self._held_revocable, held.revocable.scalars, sign)
        _add(self._plain.setdefault(role, {}), held.plain.scalars, sign)
        for quantities in held.reserved.values():
            _add(self._held_reserved, quantities, sign)

    def available(self) -> Quantities:
        """Return what is free, unreserved and not revocable."""
        reserved: dict[str, int] = {}
        for by_name in self._reserved.values():
            for name, amount in by_name.items():
                reserved[name] = reserved.get(name, 0) + amount
        free = {}
        for name, total in self._total.items():
            idle = max(reserved.get(name, 0) - self._held_reserved.get(name, 0), 0)
            revocable = max(self._revocable.get(name, 0) - self._held_revocable.get(name, 0), 0)
            free[name] = max(max(total - self._held.get(name, 0), 0) - idle, 0)
            free[name] = max(free[name] - revocable, 0)
        return Quantities(free)

    def reserved_below(self, role: str) -> Quantities:
        """Return what is reserved for a role and those below it, held or not."""
        return _total_below(self._reserved, role)

    def plain_below(self, role: str) -> Quantities:
        """Return what else is held for a role and those below it."""
        return _total_below(self._plain, role)


def parse_quota(call: contract.SetQuota) -> Quota:
    """Read a quota of Mesos 1.8.

    Raises:
        InvalidEvent: it is malformed, for a role that can have none, or not of plain scalars.
    """
    role = call.role
    _require_top_level(role)
    if role == "*":
        raise InvalidEvent("role '*' cannot have a quota before Mesos 1.9")
    try:
        info = mesos.QuotaInfo.FromString(call.info)
    except DecodeError as error:
        raise InvalidEvent(
            f"quota of {role!r}: not a serialised mesos.quota.QuotaInfo: {error}"
        ) from error
    amounts: dict[str, float] = {}
    for resource in info.guarantee:
        if resource.type != mesos.Value.SCALAR or resource.reservations:
            raise InvalidEvent(f"quota of {role!r}: {resource.name!r} is not an unreserved scalar")
        if resource.name in amounts:
            raise InvalidEvent(f"quota of {role!r} names {resource.name!r} twice")
        amounts[resource.name] = resource.scalar.value
    return Quota(_amounts(role, amounts), capped=True)


def parse_limited_quota(call: contract.UpdateQuota) -> Quota:
    """Read a quota of Mesos 1.9 or later; a guarantee beyond the limit counts up to the limit.

    Raises:
        InvalidEvent: it is malformed, or for a role that can have none.
    """
    _require_top_level(call.role)
    given = call.limits.amounts
    limited = _amounts(call.role, given)
    limits = {name: limited[name] for name in given}
    guarantees = _amounts(call.role, call.guarantees.amounts)
    return Quota(
        Quantities({n: min(amount, limits.get(n, amount)) for n, amount in guarantees.items()}),
        limits,
    )


def _require_top_level(role: str) -> None:
    if not role or "/" in role:
        raise InvalidEvent(f"role {role!r} cannot have a quota: only top-level roles")


def _amounts(role: str, amounts: Mapping[str, float]) -> Quantities:
    try:
        return Quantities.from_doubles(amounts)
    except ValueError as error:
        raise InvalidEvent(f"quota of {role!r}: {error}") from error


def top_level(role: str) -> str:
    """Return the top-level role that a role is below, or is."""
    return role.partition("/")[0]


def _less(a: Quantities, b: Quantities) -> Quantities:
    """Return a − b, clipped at nothing."""
    return Quantities({name: max(amount - b[name], 0) for name, amount in a.items()})


def _add(sums: dict[str, int], quantities: Quantities, sign: int) -> None:
    for name, amount in quantities.items():
        sums[name] = sums.get(name, 0) + sign * amount


def _total_below(by_role: dict[str, dict[str, int]], top: str) -> Quantities:
    total: dict[str, int] = {}
    for role, by_name in by_role.items():
        if role == top or role.startswith(top + "/"):
            for name, amount in by_name.items():
                total[name] = total.get(name, 0) + amount
    return Quantities(total)
