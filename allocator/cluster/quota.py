"""Quota: what top-level roles are guaranteed or limited to, and what that holds back (§3.2)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.resources import NOTHING, Resources
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.quantities import Quantities

if TYPE_CHECKING:
    from allocator.cluster.agents.agent import Agent


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
        return Headroom(self._quotas, self.consumed(), available=self._sums.available())

    def consumed(self) -> dict[str, Quantities]:
        """Return by role what counts against its quota: reservations, and what else it holds."""
        return {role: self._sums.counted(role) for role in self._quotas}


class Headroom:
    """What is free for everybody once all guarantees are honoured; changes as a run goes on.

    Making one costs O(quotas); a question or a gift, O(names of resources in it).

    Args:
        quotas: By top-level role.
        consumed: What counts against each of them.
        available: Unreserved and free, on all agents together.
    """

    def __init__(
        self, quotas: Mapping[str, Quota], consumed: dict[str, Quantities], available: Quantities
    ) -> None:
        self.quotas = quotas
        self.divisible = not any(quota.capped for quota in quotas.values())
        """Whether a part goes to others where not all can: since Mesos 1.9."""
        self._consumed = consumed
        self._available = dict(available.items())
        self._required: dict[str, int] = {}
        """What must be held back for guarantees that are not met; nothing is left out."""
        for role in quotas:
            _add(self._required, self.missing(role), 1)
        self._short = {name for name in self._required if self._slack(name) < 0}
        """Of what there is less than must be held back."""

    def missing(self, role: str) -> Quantities:
        """Return what a role has not got of its guarantee."""
        return _less(self.quotas[role].guarantees, self._consumed[role])

    def spare(self) -> Quantities:
        """Return what may go to others."""
        required = self._required
        return Quantities(
            {n: max(amount - required.get(n, 0), 0) for n, amount in self._available.items()}
        )

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
            room = {}
            for name, amount in plain.scalars.items():
                left = self.left(top, name)
                most = amount if left is None else max(left - besides.scalars[name], 0)
                room[name] = min(amount, most)
            plain = plain.shrunk(Quantities(room))
        if self._required and plain:
            plain = plain.shrunk(self.spare())
        return plain

    def admits(self, role: str, quantities: Quantities) -> bool:
        """Whether a role may have so much: its limits allow it, and all guarantees can be met."""
        top = top_level(role)
        if any(
            (left := self.left(top, name)) is not None and amount > left
            for name, amount in quantities.items()
        ):
            return False
        return not self._short and all(
            amount <= self._slack(name)
            for name, amount in quantities.items()
            if name in self._required
        )

    def slack(self, names: Iterable[str]) -> dict[str, int] | None:
        """Return what guarantees leave of what must be held back for them; None: nothing at all.

        With the role's limits (`left`) it says what `admits` would admit.
        """
        if self._short:
            return None
        return {name: self._slack(name) for name in names if name in self._required}

    def left(self, top: str, name: str) -> int | None:
        """Return what the limits of a top-level role leave it of something; None: all there is."""
        quota = self.quotas.get(top)
        limit = quota.limits.get(name) if quota is not None else None
        return limit - self._consumed[top][name] if limit is not None else None

    def give_guaranteed(self, role: str, towards: Quantities, quantities: Quantities) -> None:
        """Book what a role with a quota gets: the part its guarantee asks for, and all of it."""
        self._consumed[role] = self._consumed[role] + quantities
        for name, amount in towards.items():
            left = self._required.pop(name, 0) - amount
            if left > 0:
                self._required[name] = left
        self._take(quantities)

    def give(self, role: str, quantities: Quantities) -> None:
        """Book what a role gets beside what it is guaranteed."""
        top = top_level(role)
        if top in self._consumed:
            self._consumed[top] = self._consumed[top] + quantities
        self._take(quantities)

    def _slack(self, name: str) -> int:
        return self._available.get(name, 0) - self._required.get(name, 0)

    def _take(self, quantities: Quantities) -> None:
        for name, amount in quantities.items():
            self._available[name] = max(self._available.get(name, 0) - amount, 0)
        self._judge(quantities)

    def _judge(self, names: Iterable[str]) -> None:
        """Look again of what there is too little."""
        for name in names:
            if self._slack(name) < 0:
                self._short.add(name)
            else:
                self._short.discard(name)


class _Sums:
    """Scalars of the whole cluster by what they are; of roles that have nothing, nothing."""

    def __init__(self) -> None:
        self._total: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self._reserved: dict[str, int] = {}
        self._held_reserved: dict[str, int] = {}
        self._revocable: dict[str, int] = {}
        self._held_revocable: dict[str, int] = {}
        self._counted: dict[str, dict[str, int]] = {}
        """By top-level role."""

    def add_total(self, total: Resources, sign: int) -> None:
        """Count an agent's total in (1) or out (−1)."""
        _add(self._total, total.scalars, sign)
        _add(self._revocable, total.revocable.scalars, sign)
        for role, quantities in total.reserved.items():
            _add(self._reserved, quantities, sign)
            self._count(role, quantities, sign)

    def add_held(self, role: str, held: Resources, sign: int) -> None:
        """Count what is held for a role on an agent in (1) or out (−1)."""
        _add(self._held, held.scalars, sign)
        _add(self._held_revocable, held.revocable.scalars, sign)
        self._count(role, held.plain.scalars, sign)
        for quantities in held.reserved.values():
            _add(self._held_reserved, quantities, sign)

    def available(self) -> Quantities:
        """Return what is free, unreserved and not revocable."""
        free = {}
        for name, total in self._total.items():
            idle = max(self._reserved.get(name, 0) - self._held_reserved.get(name, 0), 0)
            revocable = max(self._revocable.get(name, 0) - self._held_revocable.get(name, 0), 0)
            free[name] = max(max(total - self._held.get(name, 0), 0) - idle, 0)
            free[name] = max(free[name] - revocable, 0)
        return Quantities(free)

    def counted(self, top: str) -> Quantities:
        """Return what is reserved for a top-level role and those below it, or held besides."""
        return Quantities(dict(self._counted.get(top, {})))

    def _count(self, role: str, quantities: Quantities, sign: int) -> None:
        sums = self._counted.setdefault(top_level(role), {})
        _add(sums, quantities, sign)
        if not sums:
            del self._counted[top_level(role)]


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
        after = sums.get(name, 0) + sign * amount
        if after:
            sums[name] = after
        else:
            sums.pop(name, None)
