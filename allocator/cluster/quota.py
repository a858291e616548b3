"""Quota of top-level roles: guarantees, limits, and headroom (Mesos semantics, §3.2)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.text import readable, text_of
from allocator.cluster.resources import NOTHING, Resources
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.quantities import Quantities

if TYPE_CHECKING:
    from allocator.cluster.agents.agent import Agent

_BOUNDLESS = 1 << 62
"""An amount in thousandths that no guarantee exceeds."""


@dataclass(frozen=True, slots=True)
class Quota:
    """The guarantees and limits of one role; they include all roles below the role."""

    guarantees: Quantities
    limits: Mapping[str, int] = field(default_factory=dict)
    """Limits in thousandths, by resource. A resource without an entry is unlimited, unlike a
    limit of 0."""
    capped: bool = False
    """Whether the guarantee is also the limit, as in Mesos 1.8. The role gets resources without
    a guarantee only together with guaranteed ones."""

    def __bool__(self) -> bool:
        return self.capped or bool(self.guarantees) or bool(self.limits)

    def unmet(self, consumed: Quantities) -> Quantities:
        """Return the part of the guarantees that the consumed quantities do not reach."""
        return _less(self.guarantees, consumed)

    @property
    def shown_limits(self) -> Mapping[str, int]:
        """Limits in thousandths by resource, for displays.

        For a quota of Mesos 1.8, these are the guarantees, because they are also the limits.
        """
        return dict(self.guarantees.items()) if self.capped else self.limits


class Quotas:
    """The quotas of roles, and the cluster-wide sums that an allocation cycle needs for them.

    Sums are updated with each change. Without a quota, no sums are kept. The first quota costs a
    pass over all agents.

    Args:
        volumes_once: See `EngineSettings.headroom_counts_volumes_once`.
    """

    def __init__(self, *, volumes_once: bool = True) -> None:
        self._quotas: dict[str, Quota] = {}
        self._volumes_once = volumes_once
        self._sums = _Sums(volumes_once)

    def __bool__(self) -> bool:
        return bool(self._quotas)

    def __contains__(self, role: object) -> bool:
        return role in self._quotas

    def items(self) -> Iterator[tuple[str, Quota]]:
        """Return an iterator over pairs of a top-level role and its quota."""
        return iter(self._quotas.items())

    def set(self, role: str, quota: Quota, agents: "dict[str, Agent]") -> None:
        """Set the quota of a role.

        A quota without guarantees and limits removes the role's quota.

        Args:
            role: A top-level role.
            quota: The new quota.
            agents: All agents; if this is the first quota, the sums are computed from them.
        """
        if not quota:
            self.remove(role)
            return
        if not self._quotas:
            self._sums = _Sums(self._volumes_once)
            for agent in agents.values():
                self._sums.add_total(agent.total, 1)
                for _framework, held_for, held in agent.allocations():
                    self._sums.add_held(held_for, held, 1)
        self._quotas[role] = quota

    def remove(self, role: str) -> None:
        """Remove the quota of a role, if it has one."""
        self._quotas.pop(role, None)

    def note_total(self, before: Resources, after: Resources) -> None:
        """Update the cluster-wide sums after an agent's total resources changed.

        Args:
            before: The agent's total resources before the change.
            after: The agent's total resources after the change.
        """
        if self._quotas and before is not after:
            self._sums.add_total(before, -1)
            self._sums.add_total(after, 1)

    def note_held(self, role: str, before: Resources, after: Resources) -> None:
        """Update the sums after a framework's allocation for a role on one agent has changed.

        Args:
            role: The role that the resources are allocated to.
            before: The framework's resources for the role on the agent before the change.
            after: These resources after the change.
        """
        if self._quotas:
            self._sums.add_held(role, before, -1)
            self._sums.add_held(role, after, 1)

    def headroom(self) -> "Headroom":
        """Return the headroom for an allocation cycle that begins now."""
        return Headroom(self._quotas, self.consumed(), available=self._sums.available())

    def limits(self) -> "Headroom":
        """Return the headroom if each agent were empty, so that only the roles' limits bind."""
        quotas = self._quotas.values()
        names = {name for quota in quotas for name in quota.guarantees}
        boundless = Quantities(dict.fromkeys(names, _BOUNDLESS))
        return Headroom(self._quotas, self.consumed(), available=boundless)

    def consumed(self) -> dict[str, Quantities]:
        """Return the quantities that count against each quota, by role.

        These are the role's reservations, plus the unreserved resources allocated to it.
        """
        return {role: self._sums.counted(role) for role in self._quotas}


class Headroom:
    """The resources that each role may still be allocated in one allocation cycle.

    Two bounds apply: the limit of the role, and the resources that unmet guarantees require. In
    Mesos, *headroom* means the available unreserved resources minus all unmet guarantees. The
    allocation cycle records each of its allocations here. Construction costs O(quotas). A query
    or an allocation costs O(resource names in it).

    Args:
        quotas: Quotas by top-level role.
        consumed: For each of these roles, the quantities that count against its quota.
        available: Unreserved available resources of all agents in total.
    """

    def __init__(
        self, quotas: Mapping[str, Quota], consumed: dict[str, Quantities], available: Quantities
    ) -> None:
        self.quotas = quotas
        self.separate_limits = not any(quota.capped for quota in quotas.values())
        """Whether limits are separate from guarantees, as since Mesos 1.9.

        Roles with a quota then also take part in the second stage of a cycle. A role may get a part
        of an agent's resources if quotas forbid all of them."""
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
        """Return the quantities by which a role's consumption is below its guarantee."""
        return _less(self.quotas[role].guarantees, self._consumed[role])

    def spare(self) -> Quantities:
        """Return the available quantities of the cluster that no unmet guarantee requires."""
        required = self._required
        return Quantities(
            {n: max(amount - required.get(n, 0), 0) for n, amount in self._available.items()}
        )

    def within(self, role: str, plain: Resources, besides: Resources = NOTHING) -> Resources:
        """Return the part of unreserved scalars that quotas still permit for a role.

        Args:
            role: The role to allocate to; the limits of its top-level role apply.
            plain: The unreserved scalars.
            besides: Resources that the role gets in the same allocation; they use up part of the
                limits.
        """
        top = top_level(role)
        quota = self.quotas.get(top)
        if quota is not None and quota.limits:
            amounts = {}
            for name, amount in plain.scalars.items():
                remaining = self.remaining_limit(top, name)
                maximum = amount if remaining is None else max(remaining - besides.scalars[name], 0)
                amounts[name] = min(amount, maximum)
            plain = plain.limited_to(Quantities(amounts))
        if self._required and plain:
            plain = plain.limited_to(self.spare())
        return plain

    def fair_share(self, role: str, usable: Resources) -> Resources:
        """Return the part of usable resources that quotas permit for a role in the second stage.

        The role's limits must not be exceeded. Resources that the unmet guarantees of other roles
        need must remain.

        Args:
            role: The role that would be allocated the resources.
            usable: Resources of an agent that a client of the role can use.
        """
        if self.admits(role, usable.plain.scalars):
            return usable
        special = usable.where(lambda kind: not (kind.plain and kind.scalar))
        if not self.separate_limits:
            return special
        return special + self.within(role, usable.plain.where(lambda kind: kind.scalar))

    def guarantee_share(self, role: str, usable: Resources) -> tuple[Resources, Resources]:
        """Return the part that counts towards a role's unmet guarantee, and the whole share.

        This share belongs to the first stage (Mesos semantics, §3.3). The whole share also contains
        resources without a guarantee, which go into the same offer.

        Args:
            role: A role with a quota.
            usable: Resources of an agent that a client of the role can use.
        """
        plain = usable.plain
        counted = plain.limited_to(self.missing(role))
        if self.separate_limits:
            if not counted:
                return NOTHING, NOTHING
            scalars = plain.where(lambda kind: kind.scalar)
            special = usable.where(
                lambda kind: kind.reservation == role or not kind.scalar or kind.revocable
            )
            within_limits = self.within(role, scalars - counted, besides=counted)
            return counted, special + counted + within_limits
        reserved = usable.where(lambda kind: kind.reservation == role and not kind.revocable)
        if not reserved and not counted:
            return NOTHING, NOTHING
        guaranteed = self.quotas[role].guarantees
        unguaranteed = plain.where(lambda kind: kind.name not in guaranteed)
        extra = unguaranteed.limited_to(self.spare()) + plain.where(lambda kind: not kind.scalar)
        return counted, reserved + counted + extra

    def most_tasks(self, role: str, task: Quantities, most: int) -> int:
        """Return how many equal tasks of a role all quotas permit together, at most `most`.

        Args:
            role: The role to allocate to; the limits of its top-level role apply.
            task: The unreserved scalars of one task.
            most: The largest number to return.
        """
        if self._scarce:
            return 0
        top = top_level(role)
        for name, amount in task.items():
            remaining = self.remaining_limit(top, name)
            if remaining is not None and amount:
                most = min(most, max(remaining, 0) // amount)
            if name in self._required and amount:
                most = min(most, self._slack(name) // amount)
        return most

    def most(self, role: str, plain: Quantities) -> Quantities:
        """Return an upper bound of the unreserved scalars that quotas permit for a role.

        Args:
            role: The role to allocate to; the limits of its top-level role apply.
            plain: Unreserved scalars of an agent.
        """
        top, bounded = top_level(role), {}
        for name, amount in plain.items():
            left = self.remaining_limit(top, name)
            most = amount if left is None else min(amount, left)
            bounded[name] = max(min(most, self._slack(name)) if name in self._required else most, 0)
        return Quantities(bounded)

    def admits(self, role: str, quantities: Quantities) -> bool:
        """Return whether the role's limits and all unmet guarantees permit an allocation.

        Args:
            role: The role to allocate to; the limits of its top-level role apply.
            quantities: The quantities to allocate.
        """
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
        """Return how much of each resource may be allocated without touching unmet guarantees.

        `CapacityBudget` uses this result and `remaining_limit` instead of `admits`, to save time.

        Args:
            names: The names of the resources to look up.

        Returns:
            Thousandths by resource, without resources that no unmet guarantee needs. The result is
            None if no allocation is permitted, because unmet guarantees need more of a resource
            than is available.
        """
        if self._scarce:
            return None
        return {name: self._slack(name) for name in names if name in self._required}

    def remaining_limit(self, top: str, name: str) -> int | None:
        """Return how much more of a resource a role's limit permits; None if there is no limit.

        Args:
            top: A top-level role.
            name: The resource's name.
        """
        quota = self.quotas.get(top)
        limit = quota.limits.get(name) if quota is not None else None
        return limit - self._consumed[top][name] if limit is not None else None

    def allocate_guarantee(self, role: str, towards: Quantities, quantities: Quantities) -> None:
        """Record an allocation to a role whose guarantee is not met.

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
        """Record an allocation of which nothing counts towards an unmet guarantee of its role."""
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
        """Update the set of scarce resources: less is available than unmet guarantees need.

        Args:
            names: Names of the resources whose amounts have changed.
        """
        for name in names:
            if self._slack(name) < 0:
                self._scarce.add(name)
            else:
                self._scarce.discard(name)


class _Sums:
    """Cluster-wide sums of scalar quantities, from which quotas and headroom are computed.

    The sums cover agents' totals, allocations and reservations. The sums for `available` leave out
    shared volumes, which are reserved. Several roles can hold a volume at once, and would count the
    volume several times.

    Args:
        volumes_once: See `EngineSettings.headroom_counts_volumes_once`.
    """

    def __init__(self, volumes_once: bool) -> None:  # noqa: FBT001
        self._volumes_once = volumes_once
        self._total: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self._reserved: dict[str, int] = {}
        self._held_reserved: dict[str, int] = {}
        self._revocable: dict[str, int] = {}
        self._held_revocable: dict[str, int] = {}
        self._counted: dict[str, dict[str, int]] = {}
        """Thousandths that count against a quota: top-level role → resource → amount."""

    def add_total(self, total: Resources, sign: int) -> None:
        """Add an agent's total resources to the sums, or subtract them.

        Args:
            total: The agent's total resources.
            sign: 1 to add, −1 to subtract.
        """
        for role, quantities in total.reserved.items():
            self._count(role, quantities, sign)
        total = self._without_volumes(total)
        _add(self._total, total.scalars, sign)
        _add(self._revocable, total.revocable.scalars, sign)
        for quantities in total.reserved.values():
            _add(self._reserved, quantities, sign)

    def add_held(self, role: str, held: Resources, sign: int) -> None:
        """Add resources that are allocated to a role on one agent to the sums, or subtract them.

        Args:
            role: The role that holds the resources.
            held: The allocated resources.
            sign: 1 to add, −1 to subtract.
        """
        self._count(role, held.plain.scalars, sign)
        held = self._without_volumes(held)
        _add(self._held, held.scalars, sign)
        _add(self._held_revocable, held.revocable.scalars, sign)
        for quantities in held.reserved.values():
            _add(self._held_reserved, quantities, sign)

    def _without_volumes(self, resources: Resources) -> Resources:
        """Return resources without shared volumes, unless the sums contain volumes."""
        if not self._volumes_once or not resources.has_shared:
            return resources
        return resources.where(lambda kind: not kind.shared)

    def available(self) -> Quantities:
        """Return the cluster's available quantities that are neither reserved nor revocable."""
        free = {}
        for name, total in self._total.items():
            unused = max(self._reserved.get(name, 0) - self._held_reserved.get(name, 0), 0)
            revocable = max(self._revocable.get(name, 0) - self._held_revocable.get(name, 0), 0)
            free[name] = max(max(total - self._held.get(name, 0), 0) - unused, 0)
            free[name] = max(free[name] - revocable, 0)
        return Quantities(free)

    def counted(self, top: str) -> Quantities:
        """Return the quantities that a top-level role and its sub-roles hold or have reserved."""
        return Quantities(dict(self._counted.get(top, {})))

    def _count(self, role: str, quantities: Quantities, sign: int) -> None:
        sums = self._counted.setdefault(top_level(role), {})
        _add(sums, quantities, sign)
        if not sums:
            del self._counted[top_level(role)]


def parse_quota(call: contract.SetQuota) -> Quota:
    """Parse a quota of Mesos 1.8, where the guarantee is also the limit.

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
        name = readable(text_of(resource, "name"))
        if resource.type != mesos.Value.SCALAR or resource.reservations:
            raise InvalidEvent(f"quota of {role!r}: {name!r} is not an unreserved scalar")
        if name in amounts:
            raise InvalidEvent(f"quota of {role!r} names {name!r} twice")
        amounts[name] = resource.scalar.value
    return Quota(_amounts(role, amounts), capped=True)


def parse_limited_quota(call: contract.UpdateQuota) -> Quota:
    """Parse a quota of Mesos 1.9 or later, which has separate guarantees and limits.

    A guarantee beyond the limit is reduced to the limit.

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
    """Return the first level of a role's path: "a" for "a/b"."""
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
