"""Quota: what top-level roles are guaranteed, and what must be held back for that (§3.2)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from allocator.cluster.errors import InvalidEvent
from allocator.cluster.resources import Resources
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.quantities import Quantities

_NONE = Quantities()

if TYPE_CHECKING:
    from allocator.cluster.agents import Agent


class Quotas:
    """Guarantees by role, and the sums that a run needs, kept up to date as things change.

    Without any quota nothing is summed up; the first one costs a pass over all agents.
    """

    def __init__(self) -> None:
        self._guarantees: dict[str, Quantities] = {}
        self._sums = _Sums()

    def __bool__(self) -> bool:
        return bool(self._guarantees)

    def __contains__(self, role: object) -> bool:
        return role in self._guarantees

    def items(self) -> Iterator[tuple[str, Quantities]]:
        """Go through roles and what they are guaranteed."""
        return iter(self._guarantees.items())

    def set(self, role: str, guarantee: Quantities, agents: "dict[str, Agent]") -> None:
        """Guarantee a role something."""
        if not self._guarantees:
            self._sums = _Sums()
            for agent in agents.values():
                self._sums.add_total(agent.total, 1)
                for _framework, held_for, held in agent.allocations():
                    self._sums.add_held(held_for, held, 1)
        self._guarantees[role] = guarantee

    def remove(self, role: str) -> None:
        """Guarantee a role nothing any more; it need not have had a quota."""
        self._guarantees.pop(role, None)

    def note_total(self, before: Resources, after: Resources) -> None:
        """Learn that the total of an agent changes."""
        if self._guarantees and before is not after:
            self._sums.add_total(before, -1)
            self._sums.add_total(after, 1)

    def note_held(self, role: str, before: Resources, after: Resources) -> None:
        """Learn that what a framework holds for a role on an agent changes."""
        if self._guarantees:
            self._sums.add_held(role, before, -1)
            self._sums.add_held(role, after, 1)

    def headroom(self) -> "Headroom":
        """Return how things stand at the start of a run."""
        consumed = {role: self.consumed(role) for role in self._guarantees}
        return Headroom(
            self._guarantees,
            consumed,
            available=self._sums.available(),
        )

    def consumed(self, role: str) -> Quantities:
        """Return what counts against a role's quota: reservations, and what else it holds."""
        return self._sums.reserved_below(role) + self._sums.plain_below(role)


@dataclass
class Headroom:
    """What is free for everybody once all guarantees are honoured; changes as a run goes on."""

    guarantees: dict[str, Quantities]
    consumed: dict[str, Quantities]
    available: Quantities
    """Unreserved and free, on all agents together."""

    def __post_init__(self) -> None:
        self.required = sum((self.missing(role) for role in self.guarantees), start=Quantities())
        """What must be held back for guarantees that are not met."""

    def missing(self, role: str) -> Quantities:
        """Return what a role has not got of its guarantee."""
        return _less(self.guarantees[role], self.consumed[role])

    def spare(self) -> Quantities:
        """Return what may go to others."""
        return _less(self.available, self.required)

    def admits(self, quantities: Quantities) -> bool:
        """Whether guarantees can still be met without these."""
        return _less(self.available, quantities).contains(self.required)

    def slack(self) -> dict[str, int] | None:
        """Return what `admits` would admit, of what must be held back; None: nothing at all."""
        slack = {name: self.available[name] - held for name, held in self.required.items()}
        return None if any(amount < 0 for amount in slack.values()) else slack

    def give_guaranteed(self, role: str, towards: Quantities, quantities: Quantities) -> None:
        """Book what a role with a quota gets: all of it, and the part its guarantee asks for."""
        self.consumed[role] = self.consumed[role] + quantities
        self.required = _less(self.required, towards)
        self.available = _less(self.available, quantities)

    def take_back(self, quantities: Quantities) -> None:
        """Undo `give`."""
        self.available = self.available + quantities

    def give(self, quantities: Quantities) -> None:
        """Book what somebody else gets."""
        self.available = _less(self.available, quantities)


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


def parse_quota(call: contract.SetQuota) -> Quantities:
    """Read the guarantee of a quota.

    Raises:
        InvalidEvent: it is malformed, for a role that can have none, or not of plain scalars.
    """
    role = call.role
    if not role or role == "*" or "/" in role:
        raise InvalidEvent(
            f"role {role!r} cannot have a quota: only top-level roles other than '*'"
        )
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
    try:
        return Quantities.from_doubles(amounts)
    except ValueError as error:
        raise InvalidEvent(f"quota of {role!r}: {error}") from error


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
