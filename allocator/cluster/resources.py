"""Mesos resource objects: identity, arithmetic, reservation, sharing.

A Mesos `Resource` message is split into its *kind* (everything but the amount and the role it
is allocated to) and its *amount*; `Resources` maps kinds to amounts. Fields that this module
does not know stay in the kind's template and leave as they came.

Rules: `mesos-allocator.md` §2, after `src/common/resources.cpp` of Mesos 1.8.
"""

from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast

from google.protobuf.message import DecodeError
from typing_extensions import override

from allocator.cluster import ranges
from allocator.cluster.caches import Cache
from allocator.cluster.errors import InvalidEvent
from allocator.cluster.lazily import lazily
from allocator.cluster.quarantine import Reason
from allocator.cluster.text import is_text, readable
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.quantities import Quantities, to_milli

Amount: TypeAlias = int | ranges.Ranges | frozenset[str]
"""Thousandths of a scalar, copies of something indivisible, intervals, or items."""

_INDIVISIBLE_SOURCES = (mesos.Resource.DiskInfo.Source.MOUNT, mesos.Resource.DiskInfo.Source.BLOCK)


_BYTES = 16 * 2**20
_DECODED: "Cache[bytes, tuple[Kind, Amount, str | None]]" = Cache(4 * _BYTES)
_BAGS: "Cache[tuple[bytes, ...], tuple[str, Resources]]" = Cache(4 * _BYTES)
_TOTALS: "Cache[tuple[bytes, ...], Resources]" = Cache(_BYTES)
_KINDS: "Cache[tuple[bytes, int | None], Kind]" = Cache(_BYTES)
_ENCODED: "Cache[tuple[bytes, Amount, str], bytes]" = Cache(4 * _BYTES)


class InvalidResource(InvalidEvent):
    """A Resource that Mesos itself would refuse; the message says why.

    Args:
        words: For people.
        reason: For programs.
    """

    def __init__(self, words: str, reason: Reason = "malformed") -> None:
        super().__init__(words)
        self.reason: Reason = reason


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """What a resource is, apart from how much of it there is.

    Two kinds are equal when Mesos would add their amounts up (§2.2). What an identity leaves
    out (the path a volume is mounted at) still travels in the template.
    """

    identity: bytes
    name: str
    type: int
    """A `Value.Type`."""
    whole: int | None
    """Thousandths of one copy where the resource can only be had whole, or is shared: then the
    amount counts copies. None where amounts add up."""
    reservation: str | None
    """Role of the last reservation; None when unreserved."""
    refined: bool
    revocable: bool
    shared: bool
    template: bytes
    """The message without its amount and without `allocation_info`."""
    _hash: int

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Kind) and self.identity == other.identity)

    @property
    def scalar(self) -> bool:
        """Whether its amount is a number."""
        return self.type == mesos.Value.SCALAR

    @property
    def plain(self) -> bool:
        """Whether it is unreserved and not revocable: what quota and sharing are about."""
        return self.reservation is None and not self.revocable

    def offerable_to(self, role: str) -> bool:
        """Whether the resource is unreserved, or reserved to the role or an ancestor of it."""
        reserved = self.reservation
        return reserved is None or reserved == role or role.startswith(reserved + "/")


class Resources(Mapping[Kind, Amount]):
    """An immutable bag of resources: kind → amount, without zero amounts.

    The amounts that it is made of are its own from then on.

    Operations cost O(kinds) of their operands. Where the outcome is one of the operands, it is
    that very object, with all that has been worked out about it: the same bag is offered,
    refused and free again many times.
    """

    __slots__ = ("__dict__", "_amounts")

    def __init__(self, amounts: dict[Kind, Amount] | None = None) -> None:
        self._amounts: dict[Kind, Amount] = {} if amounts is None else amounts

    def __getitem__(self, kind: Kind) -> Amount:
        return self._amounts[kind]

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    @override
    def items(self) -> ItemsView[Kind, Amount]:
        return self._amounts.items()  # the inherited view looks every kind up again

    def __add__(self, other: "Resources") -> "Resources":
        if not self._amounts:
            return other
        if not other._amounts:
            return self
        amounts = dict(self._amounts)
        for kind, amount in other._amounts.items():
            present = amounts.get(kind)
            amounts[kind] = amount if present is None else _plus(present, amount)
        return Resources(amounts)

    def __sub__(self, other: "Resources") -> "Resources":
        """What is left, clipped at nothing; kinds that are not there are passed over."""
        if self._amounts == other._amounts:
            return NOTHING
        if not other._amounts:
            return self
        amounts = dict(self._amounts)
        for kind, amount in other._amounts.items():
            present = amounts.get(kind)
            if present is None:
                continue
            rest = _minus(present, amount)
            if rest:
                amounts[kind] = rest
            else:
                del amounts[kind]
        return Resources(amounts)

    def __contains__(self, other: object) -> bool:
        """Whether all of `other` (a bag, or a kind) is in here."""
        if not isinstance(other, Resources):
            return other in self._amounts
        if other is self:
            return True
        for kind, amount in other.items():
            present = self._amounts.get(kind)
            if present is not amount and (present is None or not _covers(present, amount)):
                return False
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Resources) and self._amounts == other._amounts

    __hash__ = None  # type: ignore[assignment]  # compared by value, but never a key

    def __repr__(self) -> str:
        return f"Resources({'; '.join(map(_text, self._amounts.items()))})"

    def where(self, keep: Callable[[Kind], bool]) -> "Resources":
        """Return the entries whose kind passes."""
        kept = {kind: amount for kind, amount in self._amounts.items() if keep(kind)}
        return self if len(kept) == len(self._amounts) else Resources(kept)

    def with_shared_of(self, total: "Resources") -> "Resources":
        """Return this and the shared volumes of a total: they are free, also in use (§2.3)."""
        if not total.has_shared:
            return self
        shared = {kind: amount for kind, amount in total.items() if kind.shared}
        return Resources(self._amounts | shared)

    @lazily
    def ordinary(self) -> bool:
        """Whether any framework of any role may have all of it."""
        for kind in self._amounts:
            if kind.reservation is not None or kind.revocable or kind.shared:
                return False
        return True

    @lazily
    def key(self) -> frozenset[tuple[Kind, Amount]]:
        """What two bags have in common when they are equal."""
        return frozenset(self._amounts.items())

    @lazily
    def plain(self) -> "Resources":
        """The unreserved entries that are not revocable."""
        return self if self.ordinary else self.where(lambda kind: kind.plain)

    @lazily
    def revocable(self) -> "Resources":
        """The entries that may be taken back at any time."""
        return NOTHING if self.ordinary else self.where(lambda kind: kind.revocable)

    @lazily
    def has_shared(self) -> bool:
        """Whether there are shared volumes among them."""
        return not self.ordinary and any(kind.shared for kind in self._amounts)

    @lazily
    def reserved(self) -> Mapping[str, Quantities]:
        """Reserved scalars by the role they are reserved for."""
        if self.ordinary:
            return {}
        roles = {kind.reservation for kind in self._amounts} - {None}
        return {
            role: self.where(lambda kind, role=role: kind.reservation == role).scalars  # type: ignore[misc]
            for role in cast("set[str]", roles)
        }

    @lazily
    def has_whole(self) -> bool:
        """Whether there are entries among them that can only be had whole."""
        return any(kind.whole is not None for kind in self._amounts)

    def shrunk(self, limit: Quantities) -> "Resources":
        """Return scalars up to a limit for each name; what is whole is in or out (§2.3)."""
        left = dict(limit.items())
        kept: dict[Kind, Amount] = {}
        for kind, amount in self._amounts.items():
            room = left.get(kind.name, 0)
            if not isinstance(amount, int) or room <= 0:
                continue
            if kind.whole is None:
                taken: Amount = min(amount, room)
                size = cast("int", taken)
            else:
                copies = min(amount, room // kind.whole) if kind.whole else 0
                if not copies:
                    continue
                taken, size = copies, copies * kind.whole
            kept[kind] = taken
            left[kind.name] = room - size
        return Resources(kept)

    def taken(self, demand: Quantities) -> "Resources | None":
        """Return exactly so much of each name, a port or an item counting as one; None: too little.

        Whole entries are left out: nobody's task is as big as a disk by chance.
        """
        taken: dict[Kind, Amount] = {}
        left = dict(demand.items())
        for kind, amount in self._amounts.items():
            wanted = left.get(kind.name, 0)
            if wanted <= 0 or kind.whole is not None:
                continue
            part, size = _part(amount, wanted)
            if size:
                taken[kind] = part
                left[kind.name] = wanted - size
        return None if any(rest > 0 for rest in left.values()) else Resources(taken)

    @lazily
    def counted(self) -> frozenset[str]:
        """Names of what is there for everybody, and comes by the piece: ports, items of sets."""
        return frozenset(
            kind.name
            for kind, amount in self._amounts.items()
            if kind.plain and not isinstance(amount, int)
        )

    @lazily
    def divisible(self) -> Mapping[str, int]:
        """What there is for everybody by name, a port or an item counting as one, as `taken` takes.

        Of a name that stands for both amounts and pieces nothing is.
        """
        parts: dict[str, int] = {}
        for kind, amount in self._amounts.items():
            if kind.plain and kind.whole is None:
                _all, size = _part(amount, 1 << 80)
                mixed = isinstance(amount, int) and kind.name in self.counted
                parts[kind.name] = 0 if mixed else parts.get(kind.name, 0) + size
        return parts

    @lazily
    def all_divisible(self) -> bool:
        """Whether there is nothing else."""
        return all(kind.plain and kind.whole is None for kind in self._amounts)

    @lazily
    def scalars(self) -> Quantities:
        """Quantities of scalars by name; of a shared volume, one copy (§2.3)."""
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
        """Quantities by name, a port or an item of a set counting as one (§3.6)."""
        counted: dict[str, int] = {}
        for kind, amount in self._amounts.items():
            if not isinstance(amount, int):
                size = ranges.size(amount) if isinstance(amount, tuple) else len(amount)
                counted[kind.name] = counted.get(kind.name, 0) + 1000 * size
        return self.scalars + Quantities(counted) if counted else self.scalars

    @lazily
    def copies(self) -> Quantities:
        """Quantities of scalars by name, each copy of a shared volume counting (§4.1)."""
        total: dict[str, int] = {}
        for kind, amount in self._amounts.items():
            if isinstance(amount, int):
                size = amount if kind.whole is None else kind.whole * amount
                total[kind.name] = total.get(kind.name, 0) + size
        return Quantities(total)

    def messages(self, role: str) -> list[bytes]:
        """Return serialised Resource messages, allocated to the role."""
        messages = self._messages.get(role)
        if messages is None:
            messages = self._messages[role] = [
                _encoded(kind.template, amount if kind.whole is None else kind.whole, role)
                for kind, amount in self._amounts.items()
                for _copy in range(1 if kind.whole is None else cast("int", amount))
            ]
        return messages

    @lazily
    def _messages(self) -> dict[str, list[bytes]]:
        """What `messages` has returned, by role."""
        return {}


NOTHING = Resources()


def parse_total(messages: Iterable[bytes]) -> Resources:
    """Read an agent's total.

    Agents are alike: what is alike is one object, with all that has been worked out about it.

    Raises:
        InvalidResource: a message is malformed or carries an allocation.
    """
    together = tuple(messages)
    known = _TOTALS.get(together)
    if known is not None:
        return known
    return _TOTALS.put(together, _sum(together, None), sum(map(len, together)))


def parse_allocated(messages: Iterable[bytes]) -> tuple[str, Resources]:
    """Read resources that are all allocated to one role, and return that role.

    An empty list belongs to no role: ("", NOTHING).

    Raises:
        InvalidResource: a message is malformed, unallocated, or of another role than the first.
    """
    together = tuple(messages)
    known = _BAGS.get(together)
    if known is not None:
        return known
    if not together:
        return "", NOTHING
    role = decoded(together[0])[2]
    if role is None:
        raise InvalidResource(
            f"resource {decoded(together[0])[0].name!r} has no allocation_info.role; "
            "what is offered, used or recovered must carry one"
        )
    return _BAGS.put(together, (role, _sum(together, role)), sum(map(len, together)))


def parse_used(messages: Iterable[bytes]) -> dict[str, Resources]:
    """Read resources allocated to any number of roles: role → resources.

    Raises:
        InvalidResource: a message is malformed or unallocated.
    """
    by_role: dict[str, list[bytes]] = {}
    for data in messages:
        role = decoded(data)[2]
        if role is None:
            raise InvalidResource(
                f"used resource {decoded(data)[0].name!r} has no allocation_info.role"
            )
        by_role.setdefault(role, []).append(data)
    return {role: parse_allocated(entries)[1] for role, entries in by_role.items()}


def _sum(messages: Iterable[bytes], role: str | None) -> Resources:
    amounts: dict[Kind, Amount] = {}
    for data in messages:
        kind, amount, allocated_to = decoded(data)
        if allocated_to != role:
            raise InvalidResource(
                f"resource {kind.name!r} is allocated to role {allocated_to!r}, "
                f"but {'none' if role is None else repr(role)} was expected here"
            )
        if amount:
            present = amounts.get(kind)
            amounts[kind] = amount if present is None else _plus(present, amount)
    return Resources(amounts)


def _plus(a: Amount, b: Amount) -> Amount:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if isinstance(a, tuple) and isinstance(b, tuple):
        return ranges.union(a, b)
    if isinstance(a, frozenset) and isinstance(b, frozenset):
        return a | b
    raise TypeError(f"amounts of one kind differ in type: {a!r}, {b!r}")


def _minus(a: Amount, b: Amount) -> Amount:
    if isinstance(a, int) and isinstance(b, int):
        return max(a - b, 0)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return ranges.difference(a, b)
    if isinstance(a, frozenset) and isinstance(b, frozenset):
        return a - b
    raise TypeError(f"amounts of one kind differ in type: {a!r}, {b!r}")


def _covers(a: Amount, b: Amount) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a >= b
    if isinstance(a, tuple) and isinstance(b, tuple):
        return not ranges.difference(b, a)
    return isinstance(a, frozenset) and isinstance(b, frozenset) and a >= b


def _part(amount: Amount, wanted: int) -> tuple[Amount, int]:
    """Take up to so many thousandths; return the part and its size in thousandths."""
    if isinstance(amount, int):
        return min(amount, wanted), min(amount, wanted)
    count = -(-wanted // 1000)
    if isinstance(amount, tuple):
        part = ranges.first(amount, count)
        return part, 1000 * ranges.size(part)
    items = frozenset(sorted(amount)[:count])
    return items, 1000 * len(items)


def _text(entry: tuple[Kind, Amount]) -> str:
    kind, amount = entry
    marks = [f"({kind.reservation})"] if kind.reservation is not None else []
    marks += ["{REV}"] if kind.revocable else []
    marks += ["<SHARED>"] if kind.shared else []
    if isinstance(amount, tuple):
        value = f"[{','.join(f'{begin}-{end}' for begin, end in amount)}]"
    elif isinstance(amount, frozenset):
        value = f"{{{','.join(sorted(amount))}}}"
    elif kind.whole is None:
        value = f"{amount / 1000:g}"
    else:
        value = f"{amount}×{kind.whole / 1000:g}"
    return f"{kind.name}{''.join(marks)}:{value}"


def decoded(data: bytes) -> tuple[Kind, Amount, str | None]:
    """Split a serialised Resource into kind, amount and the role it is allocated to.

    Raises:
        InvalidResource: it cannot be used; says why.
    """
    known = _DECODED.get(data)
    return known if known is not None else _DECODED.put(data, _decode(data), len(data))


def _decode(data: bytes) -> tuple[Kind, Amount, str | None]:
    try:
        message = mesos.Resource.FromString(data)
    except DecodeError as error:
        raise InvalidResource(f"not a serialised mesos.Resource: {error}") from error
    if not message.IsInitialized():
        _require_essentials(data)
    _require_text(message)
    _validate(message)
    amount = _amount(message)
    role = message.allocation_info.role or None  # nobody has the role ""
    for field in ("scalar", "ranges", "set", "allocation_info"):
        message.ClearField(field)  # all four are fields of Resource
    template = message.SerializePartialToString(deterministic=True)
    kind = _kind(template, amount if _is_whole(message) else None)
    return kind, (1 if amount else 0) if kind.whole is not None else amount, role


def _kind(template: bytes, whole: Amount | None) -> Kind:
    """Return what a resource is; of resources of one kind the same object, as a rule."""
    key = template, cast("int | None", whole)
    known = _KINDS.get(key)
    return known if known is not None else _KINDS.put(key, _new_kind(*key), len(template))


def _new_kind(template: bytes, whole: int | None) -> Kind:
    message = mesos.Resource.FromString(template)
    # Neither where a volume is mounted nor who made it belongs to its identity (§2.2).
    if message.HasField("disk"):
        message.disk.ClearField("volume")
        if message.disk.HasField("persistence"):
            message.disk.persistence.ClearField("principal")
    for reservation in message.reservations:
        pairs = sorted(label.SerializePartialToString() for label in reservation.labels.labels)
        del reservation.labels.labels[:]
        for pair in pairs:
            reservation.labels.labels.add().MergeFromString(pair)
    identity = message.SerializePartialToString(deterministic=True)
    if whole is not None:
        identity += b"\0%d" % whole
    reservations = message.reservations
    return Kind(
        identity=identity,
        name=message.name,
        type=message.type,
        whole=whole,
        reservation=reservations[-1].role if reservations else None,
        refined=len(reservations) > 1,
        revocable=message.HasField("revocable"),
        shared=message.HasField("shared"),
        template=template,
        _hash=hash(identity),
    )


def _is_whole(message: mesos.Resource) -> bool:
    """Whether the resource can only be had whole: volumes, and MOUNT, BLOCK and RAW disks."""
    if not message.HasField("disk"):
        return False
    disk = message.disk
    if disk.HasField("persistence"):
        return True
    source = disk.source
    return disk.HasField("source") and (
        source.type in _INDIVISIBLE_SOURCES
        or (source.type == mesos.Resource.DiskInfo.Source.RAW and source.HasField("id"))
    )


def _encoded(template: bytes, amount: Amount, role: str) -> bytes:
    """Return a serialised Resource that is allocated to a role."""
    key = template, amount, role
    known = _ENCODED.get(key)
    if known is not None:
        return known
    data = _encode(template, amount, role)
    return _ENCODED.put(key, data, 2 * len(data) + len(template))


def _encode(template: bytes, amount: Amount, role: str) -> bytes:
    message = mesos.Resource.FromString(template)
    if isinstance(amount, tuple):
        for begin, end in amount:
            message.ranges.range.add(begin=begin, end=end)
    elif isinstance(amount, frozenset):
        message.set.item.extend(sorted(amount))
    else:
        message.scalar.value = amount / 1000
    message.allocation_info.role = role
    return message.SerializePartialToString(deterministic=True)


def _amount(message: mesos.Resource) -> Amount:
    if message.type == mesos.Value.SCALAR:
        try:
            amount = to_milli(message.scalar.value)
        except ValueError as error:
            raise InvalidResource(f"resource {message.name!r}: {error}") from error
        if amount < 0:
            raise InvalidResource(f"resource {message.name!r} is negative: {message.scalar.value}")
        return amount
    if message.type == mesos.Value.RANGES:
        try:
            return ranges.coalesced((entry.begin, entry.end) for entry in message.ranges.range)
        except ValueError as error:
            raise InvalidResource(f"resource {message.name!r}: {error}") from error
    items = frozenset(message.set.item)
    if len(items) != len(message.set.item):
        raise InvalidResource(f"resource {message.name!r} names an item of its set twice")
    return items


def _require_essentials(data: bytes) -> None:
    """Refuse what lacks more than details of a disk or of a provider, which only pass through."""
    message = mesos.Resource.FromString(data)
    message.ClearField("disk")
    message.ClearField("provider_id")
    if not message.IsInitialized():
        raise InvalidResource("not a whole mesos.Resource: a required field is missing")


def _require_text(message: mesos.Resource) -> None:
    """Refuse what is not UTF-8 where this module reads text."""
    texts = [message.name, message.allocation_info.role, *message.set.item]
    texts += (reservation.role for reservation in message.reservations)
    for text in texts:
        if not is_text(text):
            raise InvalidResource(
                f"resource {readable(message.name)!r}: {readable(text)!r} is not UTF-8", "text"
            )


def _validate(message: mesos.Resource) -> None:
    """Refuse what Mesos's C++ Resources would silently drop or abort on (§2.2, M6, M7)."""
    name = message.name
    if not name:
        raise InvalidResource("a resource without a name")
    fields = {
        mesos.Value.SCALAR: "scalar",
        mesos.Value.RANGES: "ranges",
        mesos.Value.SET: "set",
    }
    wanted = fields.get(message.type)
    if wanted is None:
        raise InvalidResource(f"resource {name!r} is of type TEXT, which Mesos does not allow")
    for field in fields.values():
        if message.HasField(field) != (field == wanted):  # type: ignore[arg-type]
            raise InvalidResource(f"resource {name!r} must carry {wanted!r} and no other value")
    if message.HasField("role") or message.HasField("reservation"):
        raise InvalidResource(
            f"resource {name!r} sets the deprecated field 'role' or 'reservation'; "
            "reservations go into 'reservations'"
        )
    if message.HasField("disk"):
        if name != "disk":
            raise InvalidResource(f"resource {name!r} carries DiskInfo, which only 'disk' may")
        if message.disk.source.type == mesos.Resource.DiskInfo.Source.UNKNOWN and (
            message.disk.HasField("source")
        ):
            raise InvalidResource("resource 'disk' has a source of unknown type")
    if message.HasField("shared") and not message.disk.HasField("persistence"):
        raise InvalidResource(f"resource {name!r} is shared, but only a persistent volume can be")
    _validate_reservations(message)


def _validate_reservations(message: mesos.Resource) -> None:
    outer: str | None = None
    for reservation in message.reservations:
        role = reservation.role
        if not role or role == "*":
            raise InvalidResource(f"resource {message.name!r} is reserved to the role {role!r}")
        if outer is not None and not role.startswith(outer + "/"):
            raise InvalidResource(
                f"resource {message.name!r}: reservation to {role!r} does not refine {outer!r}"
            )
        if outer is not None and reservation.type == mesos.Resource.ReservationInfo.STATIC:
            raise InvalidResource(
                f"resource {message.name!r}: only the first reservation may be static"
            )
        outer = role
