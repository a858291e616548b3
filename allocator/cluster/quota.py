"""Quota: guarantees and limits of top-level roles, and the headroom (§3.2)."""

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
    """Guarantees and limits of one role, including all roles below it."""

    guarantees: Quantities
    limits: Mapping[str, int] = field(default_factory=dict)
    """Limits in thousandths, by resource. A resource without an entry is unlimited, unlike a
    limit of 0."""
    capped: bool = False
    """Whether the guarantee is also the limit, as in Mesos 1.8. Other resources come with it
    only."""

    def __bool__(self) -> bool:
        return self.capped or bool(self.guarantees) or bool(self.limits)

    @property
    def shown_limits(self) -> Mapping[str, int]:
        """Limits by resource, under either rule."""
        return dict(self.guarantees.items()) if self.capped else self.limits


class Quotas:
    """Quotas by role, and the sums that an allocation cycle needs.

    Sums are updated with each change. Without a quota, no sums are kept; the first quota costs a
    pass over all agents.
    """

    def __init__(self) -> None:
        self._quotas: dict[str, Quota] = {}
        self._sums = _Sums()

    def __bool__(self) -> bool:
        return bool(self._quotas)

    def __contains__(self, role: object) -> bool:
        return role in self._quotas

    def items(self) -> Iterator[tuple[str, Quota]]:
        """Return an iterator over roles and their quotas."""
        return iter(self._quotas.items())

    def set(self, role: str, quota: Quota, agents: "dict[str, Agent]") -> None:
        """Set the quota of a role.

        A quota without guarantees and limits removes the role's quota.
        """
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
        """Remove the quota of a role, if it has one."""
        self._quotas.pop(role, None)

    def note_total(self, before: Resources, after: Resources) -> None:
        """Update the sums for a change of an agent's total resources."""
        if self._quotas and before is not after:
            self._sums.add_total(before, -1)
            self._sums.add_total(after, 1)

    def note_held(self, role: str, before: Resources, after: Resources) -> None:
        """Update the sums for a change of a framework's resources for a role on an agent."""
        if self._quotas:
            self._sums.add_held(role, before, -1)
            self._sums.add_held(role, after, 1)

    def headroom(self) -> "Headroom":
        """Return the headroom at the start of an allocation cycle."""
        return Headroom(self._quotas, self.consumed(), available=self._sums.available())

    def consumed(self) -> dict[str, Quantities]:
        """Return the consumed quota by role: reservations and other held resources."""
        return {role: self._sums.counted(role) for role in self._quotas}


class Headroom:
    """The unreserved resources that exceed all unmet guarantees. An allocation cycle updates them.

    Construction costs O(quotas). A query or an allocation costs O(resource names in it).

    Args:
        quotas: Quotas by top-level role.
        consumed: The consumed quota of each of these roles.
        available: Unreserved available resources of all agents in total.
    """

    def __init__(
        self, quotas: Mapping[str, Quota], consumed: dict[str, Quantities], available: Quantities
    ) -> None:
        self.quotas = quotas
        self.divisible = not any(quota.capped for quota in quotas.values())
        """Whether other roles may get a part of resources that they may not get in full (since
        Mesos 1.9)."""
        self._consumed = consumed
        self._available = dict(available.items())
        self._required: dict[str, int] = {}
        """Thousandths required for unmet guarantees, by resource. A name without requirement has
        no entry."""
        for role in quotas:
            _add(self._required, self.missing(role), 1)
        self._scarce = {name for name in self._required if self._slack(name) < 0}
        """Resources of which less is available than required."""

    def missing(self, role: str) -> Quantities:
        """Return the resources that a role lacks to its guarantee."""
        return _less(self.quotas[role].guarantees, self._consumed[role])

    def spare(self) -> Quantities:
        """Return the available resources that are not required for guarantees."""
        required = self._required
        return Quantities(
            {n: max(amount - required.get(n, 0), 0) for n, amount in self._available.items()}
        )

    def within(self, role: str, plain: Resources, besides: Resources = NOTHING) -> Resources:
        """Return the unreserved scalars that a role may get under its limits and the headroom.

        Args:
            role: The role. The limits of its top-level role apply.
            plain: The unreserved scalars.
            besides: Resources that the role gets in any case.
        """
        top = top_level(role)
        quota = self.quotas.get(top)
        if quota is not None and quota.limits:
            amounts = {}
            for name, amount in plain.scalars.items():
                remaining = self.remaining_limit(top, name)
                maximum = amount if remaining is None else max(remaining - besides.scalars[name], 0)
                amounts[name] = min(amount, maximum)
            plain = plain.shrunk(Quantities(amounts))
        if self._required and plain:
            plain = plain.shrunk(self.spare())
        return plain

    def admits(self, role: str, quantities: Quantities) -> bool:
        """Return whether limits and all guarantees permit an allocation to a role."""
        top = top_level(role)
        if any(
            (remaining := self.remaining_limit(top, name)) is not None and amount > remaining
            for name, amount in quantities.items()
        ):
            return False
        return not self._scarce and all(
            amount <= self._slack(name)
            for name, amount in quantities.items()
            if name in self._required
        )

    def slack(self, names: Iterable[str]) -> dict[str, int] | None:
        """Return the spare amounts of required resources; None if a resource is scarce.

        Together with the role's limits (`remaining_limit`), the result decides the same as
        `admits`.
        """
        if self._scarce:
            return None
        return {name: self._slack(name) for name in names if name in self._required}

    def remaining_limit(self, top: str, name: str) -> int | None:
        """Return the remaining limit of a top-level role for a resource; None if unlimited."""
        quota = self.quotas.get(top)
        limit = quota.limits.get(name) if quota is not None else None
        return limit - self._consumed[top][name] if limit is not None else None

    def allocate_guarantee(self, role: str, towards: Quantities, quantities: Quantities) -> None:
        """Record an allocation to a role with a quota.

        Args:
            role: The top-level role.
            towards: The part that counts towards the role's guarantee.
            quantities: The whole allocation.
        """
        self._consumed[role] = self._consumed[role] + quantities
        for name, amount in towards.items():
            remaining = self._required.pop(name, 0) - amount
            if remaining > 0:
                self._required[name] = remaining
        self._subtract(quantities)

    def allocate(self, role: str, quantities: Quantities) -> None:
        """Record an allocation to a role beyond its guarantee."""
        top = top_level(role)
        if top in self._consumed:
            self._consumed[top] = self._consumed[top] + quantities
        self._subtract(quantities)

    def _slack(self, name: str) -> int:
        return self._available.get(name, 0) - self._required.get(name, 0)

    def _subtract(self, quantities: Quantities) -> None:
        for name, amount in quantities.items():
            self._available[name] = max(self._available.get(name, 0) - amount, 0)
        self._update_scarce(quantities)

    def _update_scarce(self, names: Iterable[str]) -> None:
        """Update the set of scarce resources."""
        for name in names:
            if self._slack(name) < 0:
                self._scarce.add(name)
            else:
                self._scarce.discard(name)


class _Sums:
    """Sums of the scalars of the whole cluster, by kind. Roles without resources have no entry."""

    def __init__(self) -> None:
        self._total: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self._reserved: dict[str, int] = {}
        self._held_reserved: dict[str, int] = {}
        self._revocable: dict[str, int] = {}
        self._held_revocable: dict[str, int] = {}
        self._counted: dict[str, dict[str, int]] = {}
        """Thousandths that count against a quota: top-level role → resource → amount."""

    def add_total(self, total: Resources, sign: int) -> None:
        """Add (1) or subtract (−1) an agent's total resources."""
        _add(self._total, total.scalars, sign)
        _add(self._revocable, total.revocable.scalars, sign)
        for role, quantities in total.reserved.items():
            _add(self._reserved, quantities, sign)
            self._count(role, quantities, sign)

    def add_held(self, role: str, held: Resources, sign: int) -> None:
        """Add (1) or subtract (−1) resources held for a role on an agent."""
        _add(self._held, held.scalars, sign)
        _add(self._held_revocable, held.revocable.scalars, sign)
        self._count(role, held.plain.scalars, sign)
        for quantities in held.reserved.values():
            _add(self._held_reserved, quantities, sign)

    def available(self) -> Quantities:
        """Return the available resources that are neither reserved nor revocable."""
        free = {}
        for name, total in self._total.items():
            unused = max(self._reserved.get(name, 0) - self._held_reserved.get(name, 0), 0)
            revocable = max(self._revocable.get(name, 0) - self._held_revocable.get(name, 0), 0)
            free[name] = max(max(total - self._held.get(name, 0), 0) - unused, 0)
            free[name] = max(free[name] - revocable, 0)
        return Quantities(free)

    def counted(self, top: str) -> Quantities:
        """Return resources that a top-level role and its sub-roles hold or have reserved."""
        return Quantities(dict(self._counted.get(top, {})))

    def _count(self, role: str, quantities: Quantities, sign: int) -> None:
        sums = self._counted.setdefault(top_level(role), {})
        _add(sums, quantities, sign)
        if not sums:
            del self._counted[top_level(role)]


def parse_quota(call: contract.SetQuota) -> Quota:
    """Parse a quota of Mesos 1.8.

    Raises:
        InvalidEvent: The quota is malformed, has other resources than plain scalars, or is for a
            role that cannot have a quota.
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
    """Parse a quota of Mesos 1.9 or later. A guarantee beyond the limit is reduced to the limit.

    Raises:
        InvalidEvent: The quota is malformed, or the role cannot have a quota.
    """
    _require_top_level(call.role)
    given = call.limits.amounts
    limited = _amounts(call.role, given)
    limits = {name: limited[name] for name in given}
    guarantees = _amounts(call.role, call.guarantees.amounts)
    return Quota(
        Quantities(
            {name: min(amount, limits.get(name, amount)) for name, amount in guarantees.items()}
        ),
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
    """Return the top-level role of a role."""
    return role.partition("/")[0]


def _less(minuend: Quantities, subtrahend: Quantities) -> Quantities:
    """Return the difference of two quantities; negative amounts become 0."""
    return Quantities({name: max(amount - subtrahend[name], 0) for name, amount in minuend.items()})


def _add(sums: dict[str, int], quantities: Quantities, sign: int) -> None:
    for name, amount in quantities.items():
        after = sums.get(name, 0) + sign * amount
        if after:
            sums[name] = after
        else:
            sums.pop(name, None)
