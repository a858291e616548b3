"""Bags of resources: maps from resource kinds to amounts, with the arithmetic of Mesos."""

from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

from typing_extensions import override

from allocator.cluster.resources import ranges
from allocator.cluster.resources.amounts import Amount, covers, minus, plus, portion, total
from allocator.cluster.resources.cache import Cache
from allocator.cluster.resources.kinds import (
    NOBODY,
    InvalidResource,
    Kind,
    decoded,
    encoded,
    is_for_sum,
)
from allocator.cluster.resources.lazily import lazily
from allocator.cooperative import Cooperative, run_to_completion
from allocator.fairness.quantities import Quantities

_BAGS: "Final[Cache[tuple[bytes, ...], tuple[str, Resources]]]" = Cache(2**26)
_TOTALS: "Cache[tuple[bytes, ...], Resources]" = Cache(2**24)


_BYTES_A_STEP = 2**14
"""Bytes of serialised resources that are parsed in one cooperative step."""
_ENTRY = 100
"""Bytes that take as long to parse as the overhead of one resource."""
KINDS_A_STEP = 200
"""Number of kinds of which a cooperative step writes the messages."""
_MANY = 16
"""Number of kinds above which a changed bag takes its parts over from the bag before the change."""


class _Parts(NamedTuple):
    """The kinds of a bag by reservation."""

    kinds: dict[str | None, dict[Kind, int]]
    """role that entries are reserved for, or None → kind → its position in the bag"""
    length: int
    """A number that is larger than all positions."""


class Resources(Mapping[Kind, Amount]):
    """An immutable bag of resources: kind → amount, without zero amounts.

    The constructor takes ownership of the dictionary of amounts.

    Operations cost O(kinds) of their operands. The same bag is offered, declined and free again
    many times. An operation whose result equals an operand therefore returns this operand itself,
    with its cached properties.
    """

    __slots__ = ("__dict__", "_amounts")

    def __init__(self, amounts: dict[Kind, Amount] | None = None) -> None:
        self._amounts: dict[Kind, Amount] = {} if amounts is None else amounts

    def __getitem__(self, kind: Kind) -> Amount:
        return self._amounts[kind]

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._amounts)

    def __bool__(self) -> bool:  # compiled code takes `Resources | None` without it for true
        return bool(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    @override
    def items(self) -> ItemsView[Kind, Amount]:
        return self._amounts.items()  # the inherited view looks every kind up again

    def __add__(self, addend: "Resources") -> "Resources":
        if not self._amounts:
            return addend
        if not addend._amounts:
            return self
        amounts = dict(self._amounts)
        add(amounts, addend)
        return self._changed(addend, amounts) if len(amounts) > _MANY else Resources(amounts)

    def __sub__(self, subtrahend: "Resources") -> "Resources":
        """Return the difference, clipped at zero; kinds that are not in this bag are ignored."""
        if self._amounts == subtrahend._amounts:
            return NOTHING
        if not subtrahend._amounts:
            return self
        amounts = dict(self._amounts)
        subtract(amounts, subtrahend)
        return self._changed(subtrahend, amounts) if len(amounts) > _MANY else Resources(amounts)

    def __contains__(self, item: object) -> bool:
        """Return whether the bag contains all of `item`, which is another bag or a kind."""
        if not isinstance(item, Resources):
            return item in self._amounts
        if item is not self:
            amounts = self._amounts
            entries = item._amounts.items()  # noqa: SLF001 - another bag
            if len(entries) > len(amounts):
                return False
            for kind, amount in reversed(entries):  # ranges differ more often, and come last
                present = amounts.get(kind)
                if present is not amount and (present is None or not covers(present, amount)):
                    return False
        return True

    def without(self, part: "Resources") -> "Resources | None":
        """Return the difference, as `-` does, if the bag contains all of `part`; else None."""
        entries = part._amounts  # noqa: SLF001 - another bag
        if self._amounts == entries:
            return NOTHING
        if not entries:
            return self
        amounts = dict(self._amounts)
        for kind, amount in entries.items():
            present = amounts.get(kind)
            if present is not amount and (present is None or not covers(present, amount)):
                return None
            rest = minus(present, amount)
            if rest:
                amounts[kind] = rest
            else:
                del amounts[kind]
        return self._changed(part, amounts) if len(amounts) > _MANY else Resources(amounts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Resources) and self._amounts == other._amounts

    __hash__ = None  # type: ignore[assignment]  # compared by value, but never a key

    def __repr__(self) -> str:
        return f"Resources({'; '.join(map(_text, self._amounts.items()))})"

    def _changed(self, change: "Resources", amounts: dict[Kind, Amount]) -> "Resources":
        """Return a bag with other amounts, and with the parts of this bag that have not changed.

        Many small allocations on an agent with many reservations thus cost no sorting each time.

        Args:
            change: A bag with all kinds whose amount has changed.
            amounts: The amounts of the new bag.
        """
        changed = Resources(amounts)
        # An object of a compiled class has no `__dict__` until an attribute is set.
        known: dict[str, object] = getattr(self, "__dict__", {})
        if "_parts" not in known or len(change) ** 2 > len(self):
            return changed
        kinds, length = self._parts
        kinds = dict(kinds)
        for kind in change:
            part = kinds.get(kind.reservation, {})
            if kind in part and kind not in amounts:
                part = dict(part)
                del part[kind]
            elif kind in amounts and kind not in part:
                part = part | {kind: length}
                length += 1
            kinds[kind.reservation] = part
            if not part:
                del kinds[kind.reservation]
        derived: dict[str, object] = {"_parts": _Parts(kinds, length)}
        if kinds.keys() == self._parts.kinds.keys():
            derived["reservations"] = self.reservations
        if "unreserved" in known and all(kind.reservation is not None for kind in change):
            derived["unreserved"] = self.unreserved
        for name, value in derived.items():
            setattr(changed, name, value)
        return changed

    def where(self, keep: Callable[[Kind], bool]) -> "Resources":
        """Return the entries for whose kind `keep` returns true."""
        kept = {kind: amount for kind, amount in self._amounts.items() if keep(kind)}
        return self if len(kept) == len(self._amounts) else Resources(kept)

    def with_shared_of(self, total: "Resources") -> "Resources":
        """Return this bag plus all shared volumes of an agent's total.

        Shared volumes are free even while they are used (Mesos semantics, §2.3).
        """
        if not total.has_shared:
            return self
        shared = {kind: amount for kind, amount in total.items() if kind.shared}
        return Resources(self._amounts | shared)

    @lazily
    def ordinary(self) -> bool:
        """Whether every framework of every role may use all of the bag.

        Reserved, revocable and shared resources are not ordinary.
        """
        for kind in self._amounts:
            if kind.reservation is not None or kind.revocable or kind.shared:
                return False
        return True

    @lazily
    def key(self) -> frozenset[tuple[Kind, Amount]]:
        """A hashable key for caches; equal bags have equal keys."""
        return frozenset(self._amounts.items())

    @lazily
    def plain(self) -> "Resources":
        """The unreserved entries that are not revocable."""
        return self if self.ordinary else self.unreserved.where(lambda kind: kind.plain)

    @lazily
    def revocable(self) -> "Resources":
        """The revocable entries, which Mesos may take back at any time."""
        return NOTHING if self.ordinary else self.where(lambda kind: kind.revocable)

    @lazily
    def _parts(self) -> _Parts:
        """The kinds by the role that they are reserved for."""
        kinds: dict[str | None, dict[Kind, int]] = {}
        for position, kind in enumerate(self._amounts):
            kinds.setdefault(kind.reservation, {})[kind] = position
        return _Parts(kinds, len(self._amounts))

    @lazily
    def reservations(self) -> frozenset[str]:
        """The roles that entries are reserved for."""
        return frozenset([role for role in self._parts.kinds if role is not None])

    @lazily
    def roles_of_sums(self) -> frozenset[str]:
        """The roles that sums of reservations are reserved for."""
        ending = [role for role in self.reservations if role.endswith(NOBODY)]
        return frozenset(filter(is_for_sum, ending))

    @lazily
    def unreserved(self) -> "Resources":
        """The entries that are not reserved for a role."""
        return self if self.ordinary else self._part([None])

    def offerable_to(self, role: str) -> "Resources":
        """Return the entries that reservations allow to offer to a role.

        These are unreserved entries, and entries reserved for the role or one of its ancestors.
        Roles with the same entries share one object. Costs O(entries of the result).
        """
        reserved = self._parts.kinds
        roles = []
        while role:
            if role in reserved:
                roles.append(role)
            role = role.rpartition("/")[0]
        if not roles:
            return self.unreserved
        key = tuple(roles)
        offerable = self._offerable.get(key)
        if offerable is None:
            offerable = self._offerable[key] = self._part([None, *roles])
        return offerable

    def covers_reserved(self, free: "Resources", role: str) -> bool:
        """Return whether the bag contains what another bag has reserved for a role.

        Entries reserved for the role's ancestors count, too. Costs O(these entries).

        Args:
            free: The other bag.
            role: The role.
        """
        reserved, amounts = free._parts.kinds, self._amounts  # noqa: SLF001 - another bag
        while role:
            for kind in reserved.get(role, ()):
                present = amounts.get(kind)
                if present is None or not covers(present, free[kind]):
                    return False
            role = role.rpartition("/")[0]
        return True

    def offerable_below(self, top: str) -> "Resources":
        """Return the entries that reservations allow to offer to a top-level role or a sub-role.

        Args:
            top: The top-level role; empty for a role that no entry is reserved for.
        """
        below = self._below.get(top, ()) if top else ()
        return self._part([None, *below]) if below else self.unreserved

    def has_reserved_below(self, top: str) -> bool:
        """Return whether entries are reserved for a top-level role or a sub-role."""
        return top in self._below

    @lazily
    def _below(self) -> dict[str, list[str]]:
        """The roles that entries are reserved for, by their top-level roles."""
        below: dict[str, list[str]] = {}
        for role in self.reservations:
            below.setdefault(role.partition("/")[0], []).append(role)
        return below

    @lazily
    def _offerable(self) -> dict[tuple[str, ...], "Resources"]:
        """Cached results of `offerable_to`, by the roles that have reservations."""
        return {}

    def _part(self, roles: Sequence[str | None]) -> "Resources":
        """Return the entries reserved for some roles, in the order of this bag.

        Args:
            roles: Different roles; None stands for unreserved entries.
        """
        positions: dict[Kind, int] = {}
        for role in roles:
            positions |= self._parts.kinds.get(role, {})
        if len(positions) == len(self._amounts):
            return self
        order = sorted(positions, key=positions.__getitem__) if len(roles) > 1 else positions
        return Resources({kind: self._amounts[kind] for kind in order})

    @lazily
    def restricted(self) -> bool:
        """Whether only frameworks with certain capabilities may use some of the entries."""
        return any(kind.revocable or kind.shared or kind.refined for kind in self._amounts)

    @lazily
    def has_shared(self) -> bool:
        """Whether the bag contains shared volumes."""
        return not self.ordinary and any(kind.shared for kind in self._amounts)

    @lazily
    def reserved(self) -> Mapping[str, Quantities]:
        """Reserved scalar quantities, by the role that they are reserved for."""
        if self.ordinary:
            return {}
        return {role: self._part([role]).scalars for role in self.reservations}

    @lazily
    def has_whole(self) -> bool:
        """Whether the bag contains entries that are only available as a whole, such as volumes."""
        return any(kind.whole is not None for kind in self._amounts)

    def limited_to(self, limit: Quantities) -> "Resources":
        """Return the scalar resources of the bag, up to a limit for each name.

        Indivisible entries are kept as a whole or left out (Mesos semantics, §2.3). Ranges and sets
        are left out.

        Args:
            limit: Thousandths by resource name; names without an entry are left out.
        """
        remaining = dict(limit.items())
        kept: dict[Kind, Amount] = {}
        for kind, amount in self._amounts.items():
            limit_left = remaining.get(kind.name, 0)
            if not isinstance(amount, int) or limit_left <= 0:
                continue
            if kind.whole is None:
                taken: Amount = min(amount, limit_left)
                size = cast("int", taken)
            else:
                copies = min(amount, limit_left // kind.whole)
                if not copies:
                    continue
                taken, size = copies, copies * kind.whole
            kept[kind] = taken
            remaining[kind.name] = limit_left - size
        return Resources(kept)

    def take_demand(self, demand: Quantities) -> "Resources | None":
        """Return a part with exactly the demanded quantities; None if the bag has less.

        A port or an item of a set counts as one. Indivisible entries are not taken, because a
        task's demand would match the size of a whole disk only by chance.

        Args:
            demand: Thousandths by resource.
        """
        taken: dict[Kind, Amount] = {}
        remaining = dict(demand.items())
        for kind, amount in self._amounts.items():
            wanted = remaining.get(kind.name, 0)
            if wanted <= 0 or kind.whole is not None:
                continue
            part, size = portion(amount, wanted)
            if size:
                taken[kind] = part
                remaining[kind.name] = wanted - size
        return None if any(rest > 0 for rest in remaining.values()) else Resources(taken)

    @lazily
    def counted(self) -> frozenset[str]:
        """Names of resources counted in whole units: ports and items of sets.

        Reserved and revocable resources are not considered.
        """
        if self.plain is not self:
            return self.plain.counted
        return frozenset(
            kind.name for kind, amount in self._amounts.items() if not isinstance(amount, int)
        )

    @lazily
    def divisible(self) -> Mapping[str, int]:
        """Quantities in thousandths, by name, of resources that tasks of any framework can use.

        Reserved, revocable and indivisible entries do not count. A port or an item of a set counts
        as one. A name used for both scalars and counted resources has 0.
        """
        if self.plain is not self:
            return self.plain.divisible
        parts: dict[str, int] = {}
        for kind, amount in self._amounts.items():
            if kind.whole is None:
                _all, size = portion(amount, 1 << 80)
                mixed = isinstance(amount, int) and kind.name in self.counted
                ambiguous = mixed or parts.get(kind.name) == 0
                parts[kind.name] = 0 if ambiguous else parts.get(kind.name, 0) + size
        return parts

    @lazily
    def all_divisible(self) -> bool:
        """Whether all entries are unreserved, non-revocable and divisible."""
        return all(kind.plain and kind.whole is None for kind in self._amounts)

    @lazily
    def scalars(self) -> Quantities:
        """Scalar quantities by name; a shared volume counts once, whatever its copies.

        Volumes are counted in this way in allocations (Mesos semantics, §2.3).
        """
        total: dict[str, int] = {}
        for kind, amount in self._amounts.items():
            if isinstance(amount, int):
                size = amount
                if kind.whole is not None:
                    size = kind.whole * (1 if kind.shared else amount)
                total[kind.name] = total.get(kind.name, 0) + size
        return Quantities(total)

    @lazily
    def quantities(self) -> Quantities:
        """Quantities by name; a port or an item of a set counts as one (Mesos semantics, §3.6)."""
        counted: dict[str, int] = {}
        for kind, amount in self._amounts.items():
            if not isinstance(amount, int):
                size = ranges.size(amount) if isinstance(amount, tuple) else len(amount)
                counted[kind.name] = counted.get(kind.name, 0) + 1000 * size
        return self.scalars + Quantities(counted) if counted else self.scalars

    @lazily
    def copies(self) -> Quantities:
        """Scalar quantities by name; a shared volume counts once for each of its copies.

        Operations must keep these quantities unchanged (Mesos semantics, §4.1).
        """
        total: dict[str, int] = {}
        for kind, amount in self._amounts.items():
            if isinstance(amount, int):
                size = amount if kind.whole is None else kind.whole * amount
                total[kind.name] = total.get(kind.name, 0) + size
        return Quantities(total)

    def messages(self, role: str) -> list[bytes]:
        """Return the bag as serialised Resource messages that are allocated to a role."""
        messages = self._messages.get(role)
        return run_to_completion(self.messages_in_steps(role)) if messages is None else messages

    def messages_in_steps(self, role: str) -> Cooperative[list[bytes]]:
        """Generator form of `messages`, because a bag may have thousands of kinds."""
        messages = self._messages.get(role)
        if messages is None:
            messages = []
            for number, (kind, amount) in enumerate(self._amounts.items(), 1):
                if not number % KINDS_A_STEP:
                    yield
                size, copies = (amount, 1) if kind.whole is None else (kind.whole, amount)
                messages += [encoded(kind, size, role)] * cast("int", copies)
            self._messages[role] = messages
        return messages

    @lazily
    def _messages(self) -> dict[str, list[bytes]]:
        """Cached results of `messages`, by role."""
        return {}


NOTHING: Final = Resources()


def add(amounts: dict[Kind, Amount], addend: Resources) -> None:
    """Add resources to amounts by kind; O(kinds of the addend)."""
    for kind, amount in addend._amounts.items():  # noqa: SLF001 - of this module
        present = amounts.get(kind)
        amounts[kind] = amount if present is None else plus(present, amount)


def subtract(amounts: dict[Kind, Amount], subtrahend: Resources) -> None:
    """Subtract resources from amounts by kind, clipped at zero; O(kinds of the subtrahend).

    Kinds without an amount are ignored.
    """
    for kind, amount in subtrahend._amounts.items():  # noqa: SLF001 - of this module
        present = amounts.get(kind)
        if present is None:
            continue
        rest = minus(present, amount)
        if rest:
            amounts[kind] = rest
        else:
            del amounts[kind]


def parse_total(messages: Iterable[bytes]) -> Resources:
    """Parse resources that have no allocation, such as an agent's total.

    Agents with equal totals share one object, with its cached properties.

    Raises:
        InvalidResource: A message is malformed or has an allocation.
    """
    key = tuple(messages)
    known = _TOTALS.get(key)
    if known is not None:
        return known
    return _TOTALS.put(key, run_to_completion(_sum(key, None)), sum(map(len, key)))


def parse_allocated(messages: Iterable[bytes]) -> tuple[str, Resources]:
    """Parse resources that are all allocated to one role; return the role and the resources.

    An empty list has no role: the result is ("", NOTHING).

    Raises:
        InvalidResource: A message is malformed, unallocated, or allocated to another role than the
            first.
    """
    return run_to_completion(parse_allocated_in_steps(messages))


def known_allocated(messages: tuple[bytes, ...]) -> tuple[str, Resources] | None:
    """Return the result of `parse_allocated` for messages that were parsed before, if cached."""
    return _BAGS.get(messages)


def parse_allocated_in_steps(messages: Iterable[bytes]) -> Cooperative[tuple[str, Resources]]:
    """Generator form of `parse_allocated`."""
    key = tuple(messages)
    known = known_allocated(key)
    if known is not None:
        return known
    if not key:
        return "", NOTHING
    role = decoded(key[0])[2]
    if role is None:
        raise InvalidResource(
            f"resource {decoded(key[0])[0].name!r} has no allocation_info.role; "
            "offered, used and recovered resources must have one"
        )
    resources = yield from _sum(key, role)
    return _BAGS.put(key, (role, resources), sum(map(len, key)))


def parse_used(messages: Iterable[bytes]) -> dict[str, Resources]:
    """Parse resources that are allocated to any number of roles; return them by role.

    Raises:
        InvalidResource: A message is malformed or unallocated.
    """
    key = tuple(messages)
    known = _BAGS.get(key)
    if known is not None:
        return {known[0]: known[1]}
    by_role: dict[str, list[bytes]] = {}
    for data in key:
        role = decoded(data)[2]
        if role is None:
            raise InvalidResource(
                f"used resource {decoded(data)[0].name!r} has no allocation_info.role"
            )
        by_role.setdefault(role, []).append(data)
    return {role: parse_allocated(entries)[1] for role, entries in by_role.items()}


def _sum(messages: Iterable[bytes], role: str | None) -> Cooperative[Resources]:
    """Parse resources, and return their sum. Generator for cooperative steps.

    Args:
        messages: Serialised resources.
        role: The role that all of them must be allocated to; None: they must be unallocated.

    Raises:
        InvalidResource: A message is malformed, or has another allocation.
    """
    amounts: dict[Kind, Amount] = {}
    repeated: dict[Kind, list[Amount]] = {}
    remaining = _BYTES_A_STEP
    for data in messages:
        remaining -= len(data) + _ENTRY
        if remaining < 0:
            remaining = _BYTES_A_STEP
            yield
        kind, amount, allocated_to = decoded(data)
        if allocated_to != role:
            raise InvalidResource(
                f"resource {kind.name!r} is allocated to role {allocated_to!r}, "
                f"but {'none' if role is None else repr(role)} was expected here"
            )
        if amount:
            present = amounts.get(kind)
            if present is None:
                amounts[kind] = amount
            else:
                repeated.setdefault(kind, [present]).append(amount)
    for kind, several in repeated.items():
        amounts[kind] = total(several)
    return Resources(amounts)


def _text(entry: tuple[Kind, Amount]) -> str:
    """Return an entry as Mesos prints it, for error messages."""
    kind, amount = entry
    marks = [f"({kind.reservation})"] if kind.reservation is not None else []
    marks += ["{REV}"] if kind.revocable else []
    marks += ["<SHARED>"] if kind.shared else []
    if isinstance(amount, tuple):
        value = f"[{','.join(f'{begin}-{end}' for begin, end in ranges.intervals(amount))}]"
    elif isinstance(amount, frozenset):
        value = f"{{{','.join(sorted(amount))}}}"
    elif kind.whole is None:
        value = f"{amount / 1000:g}"
    else:
        value = f"{amount}×{kind.whole / 1000:g}"
    return f"{kind.name}{''.join(marks)}:{value}"
