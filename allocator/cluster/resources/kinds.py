"""Resource kinds: everything that identifies a resource except its amount; parsing and writing."""

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal, cast

from google.protobuf.message import DecodeError

from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.quarantine import Reason
from allocator.cluster.input.text import excerpt, is_text, text_of
from allocator.cluster.resources import ranges
from allocator.cluster.resources.amounts import Amount
from allocator.cluster.resources.cache import Cache, MessageCache
from allocator.contract import mesos_pb2 as mesos
from allocator.cooperative import Cooperative
from allocator.fairness.quantities import to_milli

_INDIVISIBLE_SOURCES = (mesos.Resource.DiskInfo.Source.MOUNT, mesos.Resource.DiskInfo.Source.BLOCK)
_AMOUNTS: tuple[Literal["scalar", "ranges", "set", "allocation_info"], ...] = (
    "scalar",
    "ranges",
    "set",
    "allocation_info",
)
"""Fields of a Resource that are no part of its kind."""
_VALUES: dict[int, Literal["scalar", "ranges", "set"]] = {
    mesos.Value.SCALAR: "scalar",
    mesos.Value.RANGES: "ranges",
    mesos.Value.SET: "set",
}
"""Type of a resource → the field with its amount."""
_ABSURD = 1e15
"""No cluster has so much of a resource."""
SMALL: Final = 256
"""Length of a resource in bytes that exceeds no limit. The settings allow no smaller
`limits.resource` or `limits.resource_kind`, and no fewer `limits.entries` than 500, which take two
bytes each."""
_ENTRY = 128
"""Bytes that stand for the time to compare one reservation or label of two kinds."""
RESERVATIONS_A_STEP = 100
"""Reserved resources that are read in one cooperative step."""
FEW_RESERVATIONS = 20
"""Reserved resources of one principal on an agent that are never added up."""
_IDENTIFIER = 255
"""Longest identifier of a volume that Mesos permits."""
NOBODY = ".."
"""Last level of the role that a resource of a too long kind is reserved for. Mesos permits no such
role."""
_OF_QUOTA = f"/{NOBODY}/{NOBODY}"
"""End of the role of a sum that counts against the quota of a top-level role."""
_BYTES = 16 * 2**20
_DECODED: "Cache[bytes, tuple[Kind, Amount, str | None]]" = Cache(4 * _BYTES)
_KINDS: "Cache[tuple[bytes, int | None], Kind]" = Cache(_BYTES)
_ENCODED: "Cache[tuple[bytes, Amount, str], bytes]" = Cache(4 * _BYTES)
_LONG: "MessageCache[tuple[bytes, int, str], tuple[Kind, Amount, str | None]]" = MessageCache(
    11 * _BYTES
)
"""Allocated scalar resources of more than `SMALL` bytes, such as reservations with long labels. The
cache has room for 10,000 resources of 7.8 kB."""


class InvalidResource(InvalidEvent):
    """A Resource message is invalid by the rules of Mesos.

    Args:
        message: The reason, for people.
        reason: The kind of error, for programs.
    """

    def __init__(self, message: str, reason: Reason = "malformed") -> None:
        super().__init__(message)
        self.reason: Reason = reason


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """The identity of a resource: everything except its amount and its allocation.

    Two kinds are equal if Mesos would add their amounts (Mesos semantics, §2.2). Fields outside of
    the identity, such as the mount path of a volume, are kept in the template.
    """

    identity: bytes
    """Serialised fields that distinguish the kind from other kinds, or their digest if they are
    longer than `SMALL`."""
    name: str
    """Name of the resource, such as `cpus`."""
    type: int
    """The value type of the amount, a `mesos.Value.Type`."""
    whole: int | None
    """Thousandths of one copy of an indivisible or shared resource, whose amount is a number of
    copies. None for other resources, whose amounts add up."""
    reservation: str | None
    """Role of the last reservation; None if unreserved."""
    refined: bool
    """Whether the resource has several reservations, one refining the other."""
    revocable: bool
    """Whether Mesos may take the resource back at any time."""
    shared: bool
    """Whether the resource is a shared volume."""
    template: bytes
    """The serialised message without its amount and without `allocation_info`."""
    _hash: int

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Kind) and self.identity == other.identity)

    @property
    def scalar(self) -> bool:
        """Whether the amount is a number, not ranges or a set."""
        return self.type == mesos.Value.SCALAR

    @property
    def plain(self) -> bool:
        """Whether the resource is unreserved and not revocable, and thus subject to quotas."""
        return self.reservation is None and not self.revocable

    def offerable_to(self, role: str) -> bool:
        """Return whether reservations allow offers to a role.

        The resource is unreserved, or reserved for the role or one of its ancestors.
        """
        reserved = self.reservation
        return reserved is None or reserved == role or role.startswith(reserved + "/")


def decoded(data: bytes) -> tuple[Kind, Amount, str | None]:
    """Parse a serialised Resource into kind, amount and the role that it is allocated to.

    The role is None if the resource is not allocated. Results are cached.

    Raises:
        InvalidResource: The resource is unusable.
    """
    if len(data) > SMALL:
        entry = _LONG.received(data)
        if entry is not None:
            return entry.parsed
    known = _DECODED.get(data)
    if known is not None:
        return known
    result = _decode(data)
    if len(data) > SMALL and result[2] is not None and isinstance(result[1], int):
        _LONG.put(data, result, len(data) + len(result[0].template))
        return result
    return _DECODED.put(data, result, len(data), compact=isinstance(result[1], ranges.Mask))


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
    role = message.allocation_info.role or None  # "" is not a role
    for field in _AMOUNTS:
        message.ClearField(field)
    template = message.SerializePartialToString(deterministic=True)
    kind = _kind(template, amount if _is_whole(message) else None)
    return kind, (1 if amount else 0) if kind.whole is not None else amount, role


def shortened(data: bytes, longest: int) -> bytes:
    """Return a serialised resource, in a short form if its kind is too long.

    Fields that Mesos does not know are left out if the kind is too long together with them. Mesos
    ignores them when it compares resources, so the resource stays of the same kind. If the kind is
    too long even without them, the resource gets its short form.

    The short form has the same amount and allocation, and counts for the same role. No role can be
    offered it, because its reservation is for a role that cannot exist, with `NOBODY` as last
    level. Kinds that Mesos finds equal have the same short form. Other kinds can have it, too; then
    their amounts add up. The C++ module makes the same short forms (short_form.cc).

    Args:
        data: The serialised resource. A malformed resource is returned unchanged.
        longest: Maximum length of the texts that distinguish the kind, in bytes. Each reservation
            and label counts as `_ENTRY` bytes more.
    """
    entry = _LONG.received(data)
    if entry is not None and entry.checked == longest:
        return data
    short = _shortened(data, longest)
    if entry is not None and short is data:
        entry.checked = longest
    return short


def _shortened(data: bytes, longest: int) -> bytes:
    """Return the result of `shortened`, without looking the resource up in the cache."""
    # A label contains two bytes 10, and a reservation begins with the byte 106.
    if len(data) + _ENTRY * (data.count(b"\n") // 2 + data.count(b"j")) <= longest:
        return data
    try:
        message = mesos.Resource.FromString(data)
    except DecodeError:
        return data  # rejected by `decoded`
    length = _length_of_kind(message, longest)
    if length <= longest:
        return _with_few_unknown_fields(data, message, longest - length)
    kind = mesos.Resource()
    kind.CopyFrom(message)
    role = kind.reservations[-1].role if kind.reservations else ""
    if not is_text(kind.name) or not is_text(role) or len(kind.name) > longest:
        return data
    for long in ("disk", "provider_id", "reservations"):
        message.ClearField(long)
    message.DiscardUnknownFields()  # type: ignore[no-untyped-call,unused-ignore]
    if kind.HasField("disk"):
        _shorten_disk(message.disk, kind.disk)
    reservation = message.reservations.add(type=mesos.Resource.ReservationInfo.DYNAMIC)
    if len(role) > longest:
        role = role.partition("/")[0]  # quotas of top-level roles count it
    reservation.role = f"{role}/{NOBODY}" if role and len(role) <= longest else NOBODY
    return message.SerializePartialToString(deterministic=True)


def _with_few_unknown_fields(data: bytes, message: mesos.Resource, most: int) -> bytes:
    """Return a serialised resource, without its unknown fields if they are too long.

    Args:
        data: The serialised resource.
        message: The same resource, parsed; it is changed.
        most: Maximum bytes of the unknown fields.
    """
    message.DiscardUnknownFields()  # type: ignore[no-untyped-call,unused-ignore]
    known = message.SerializePartialToString(deterministic=True)
    return data if len(data) - len(known) <= most else known


def has_short_form(kind: Kind) -> bool:
    """Return whether a kind is that of a short form, which no role can be offered."""
    return kind.reservation is not None and kind.reservation.rpartition("/")[2] == NOBODY


def reserver(data: bytes) -> bytes | None:
    """Return the principal that reserved a serialised resource; empty without a principal.

    The result is None if `merge_reservations` cannot add the resource to others. It adds resources
    whose last reservation is dynamic, except indivisible disks, of which an agent has few.
    """
    reserved = _parsed_reservation(data)
    return None if reserved is None else reserved[0]


def _parsed_reservation(data: bytes) -> tuple[bytes, mesos.Resource] | None:
    """Return the result of `reserver`, and the parsed resource; None if `reserver` returns None."""
    if b"j" not in data:  # the first byte of a reservation
        return None
    try:
        message = mesos.Resource.FromString(data)
    except DecodeError:
        return None  # rejected by `decoded`
    last = message.reservations[-1] if message.reservations else None
    if last is None or last.type != mesos.Resource.ReservationInfo.DYNAMIC:
        return None
    if is_for_sum(text_of(last, "role")):
        return None
    source = message.disk.source
    if message.disk.HasField("source") and not (
        source.type == mesos.Resource.DiskInfo.Source.PATH
        or (source.type == mesos.Resource.DiskInfo.Source.RAW and not text_of(source, "id"))
    ):
        return None
    principal = text_of(last, "principal")
    return principal.encode() if isinstance(principal, str) else principal, message


def is_for_sum(role: str | bytes) -> bool:
    """Return whether a role is that for which sums of reservations are reserved."""
    return is_text(role) and (role == NOBODY or role.endswith(_OF_QUOTA))


def may_be_in_sum(kind: Kind) -> bool:
    """Return whether `merge_reservations` can add resources of a kind up, or has done so."""
    reserved_for = kind.reservation
    return reserved_for is not None and (
        is_for_sum(reserved_for) or reserver(kind.template) is not None
    )


def merge_reservations(
    resources: Iterable[bytes], principal: bytes, quotas: Collection[str], *, used: bool
) -> Cooperative[list[bytes]]:
    """Add up all reserved resources of one principal, across its roles, labels and volumes.

    The sums count for the roles that hold the resources. No role can be offered a sum, because
    its reservation is for `NOBODY`. Resources that are reserved for a role with a quota, or for a
    sub-role of it, have a sum of their own, which counts against this quota. Shared volumes count
    for their agent only, because several frameworks may use them at the same time. The C++ module
    does the same (short_form.cc). Generator for cooperative steps.

    Args:
        resources: Serialised resources.
        principal: The principal, as `reserver` returns it.
        quotas: Top-level roles with quotas.
        used: Whether frameworks use or hold the resources; false for an agent's total.
    """
    kept, merged = list[bytes](), dict[bytes, mesos.Resource]()
    for number, data in enumerate(resources, 1):
        if not number % RESERVATIONS_A_STEP:
            yield
        reserved = _parsed_reservation(data)
        if reserved is None or reserved[0] != principal:
            kept.append(data)
            continue
        message = reserved[1]
        if used and message.HasField("shared"):
            continue
        key = mesos.Resource()
        key.CopyFrom(message)
        for field in ("scalar", "ranges", "set", "disk", "shared", "provider_id", "reservations"):
            key.ClearField(field)
        key.DiscardUnknownFields()  # type: ignore[no-untyped-call,unused-ignore]
        role = text_of(message.reservations[-1], "role")
        top = role.partition("/")[0] if is_text(role) else ""
        role = top + _OF_QUOTA if top in quotas else NOBODY
        key.reservations.add(role=role, type=mesos.Resource.ReservationInfo.DYNAMIC)
        total = merged.setdefault(key.SerializePartialToString(deterministic=True), key)
        total.ranges.MergeFrom(message.ranges)
        total.set.MergeFrom(message.set)
        # Thousandths, in which Mesos compares scalars.
        total.scalar.value = (round(total.scalar.value * 1000) + _thousandths(message)) / 1000
    for total in merged.values():
        for kind, field in _VALUES.items():
            if total.type != kind:
                total.ClearField(field)
        total.DiscardUnknownFields()  # type: ignore[no-untyped-call,unused-ignore]
        kept.append(total.SerializePartialToString(deterministic=True))
    return kept


def _thousandths(message: mesos.Resource) -> int:
    """Return the amount of a scalar resource; 0 for other amounts, or absurd ones."""
    value = message.scalar.value
    return round(value * 1000) if abs(value) < _ABSURD else 0


def _length_of_kind(message: mesos.Resource, longest: int) -> int:
    """Return the length of the texts that distinguish the kind, and `_ENTRY` for each list entry.

    Kinds that Mesos finds equal have the same length. Either both have short forms, or neither has
    one. The mount path of a volume, for example, does not count. Lists of labels that Mesos finds
    equal have the same number of labels, and the same different labels.

    Args:
        message: The resource.
        longest: Beyond this result, labels need not be read.
    """
    reservations, source = message.reservations, message.disk.source
    lists = [reservation.labels for reservation in reservations]
    lists.append(source.metadata)
    length = _ENTRY * (len(reservations) + sum(len(labels.labels) for labels in lists))
    if length > longest:
        return length
    texts = [text_of(message, "name"), text_of(message.provider_id, "value")]
    texts += [text_of(message.disk.persistence, "id"), text_of(source.path, "root")]
    texts += [text_of(source.mount, "root")]
    texts += [text_of(source, field) for field in ("id", "profile", "vendor")]
    for reservation in reservations:
        texts += [text_of(reservation, "role"), text_of(reservation, "principal")]
    for labels in lists:
        different = {(text_of(label, "key"), text_of(label, "value")) for label in labels.labels}
        texts += chain.from_iterable(different)
    return length + sum(len(t.encode() if isinstance(t, str) else t) for t in texts)


def _shorten_disk(short: mesos.Resource.DiskInfo, disk: mesos.Resource.DiskInfo) -> None:
    """Fill in what decides whether a disk is indivisible, and its identifiers."""
    if disk.HasField("persistence"):
        short.persistence.id = _short_identifier(text_of(disk.persistence, "id"))
    if disk.HasField("source"):
        short.source.type = disk.source.type
        if disk.source.HasField("id"):
            short.source.id = _short_identifier(text_of(disk.source, "id"))


def _short_identifier(text: str | bytes) -> str:
    """Return an identifier, or a digest if it is longer than Mesos permits, or not UTF-8."""
    if isinstance(text, str) and len(text) <= _IDENTIFIER:
        return text
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def entries(data: bytes) -> int:
    """Return how many reservations and labels of reservations a serialised resource has in total.

    The number is checked against a limit. It is 0 if the message is malformed.
    """
    try:
        reservations = mesos.Resource.FromString(data).reservations
    except DecodeError:
        return 0  # rejected by `decoded`
    return len(reservations) + sum(len(entry.labels.labels) for entry in reservations)


def _kind(template: bytes, whole: Amount | None) -> Kind:
    """Return the kind for a template, from a cache if possible.

    Args:
        template: The serialised Resource without amount and allocation.
        whole: The amount in thousandths of one copy of an indivisible resource; None for others.
    """
    key = template, cast("int | None", whole)
    known = _KINDS.get(key)
    return known if known is not None else _KINDS.put(key, _new_kind(*key), len(template))


def _new_kind(template: bytes, whole: int | None) -> Kind:
    message = mesos.Resource.FromString(template)
    _canonicalise(message)
    identity = message.SerializePartialToString(deterministic=True)
    if whole is not None:
        identity += b"\0%d" % whole
    if len(identity) > SMALL:
        identity = hashlib.sha256(identity).digest()
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


def _canonicalise(message: mesos.Resource) -> None:
    """Remove everything that Mesos ignores when it compares two resources (§2.2).

    Mesos ignores unknown fields, and a volume's mount path and principal. An unset field that Mesos
    compares without testing its presence equals its default value.
    """
    message.DiscardUnknownFields()  # type: ignore[no-untyped-call,unused-ignore]
    if message.HasField("disk"):
        message.disk.ClearField("volume")
        if message.disk.HasField("persistence"):
            message.disk.persistence.ClearField("principal")
        if message.disk.source.HasField("metadata"):
            _canonicalise_labels(message.disk.source.metadata)
    for reservation in message.reservations:
        if reservation.type == mesos.Resource.ReservationInfo.UNKNOWN:
            reservation.ClearField("type")
        if reservation.HasField("labels"):
            _canonicalise_labels(reservation.labels)


def _canonicalise_labels(message: mesos.Labels) -> None:
    """Give labels that Mesos finds equal the same form.

    Mesos compares the number of labels, and searches each label in the other list. Lists of equal
    length with the same distinct labels are therefore equal. Their form is the sorted distinct
    labels, of which the last is repeated.
    """
    for label in message.labels:
        if not label.value:  # Mesos does not distinguish an empty value from an unset one
            label.ClearField("value")
    number = len(message.labels)
    if number < 2:
        return
    distinct = {
        label.SerializePartialToString(deterministic=True): label for label in message.labels
    }
    ordered = [distinct[key] for key in sorted(distinct)]
    ordered += ordered[-1:] * (number - len(ordered))
    canonical = mesos.Labels(labels=ordered)
    message.CopyFrom(canonical)


def _is_whole(message: mesos.Resource) -> bool:
    """Return whether a resource is only usable as a whole: a volume, MOUNT, BLOCK or RAW disk."""
    if not message.HasField("disk") or message.type != mesos.Value.SCALAR:
        return False
    disk = message.disk
    if disk.HasField("persistence"):
        return True
    source = disk.source
    return disk.HasField("source") and (
        source.type in _INDIVISIBLE_SOURCES
        or (source.type == mesos.Resource.DiskInfo.Source.RAW and source.HasField("id"))
    )


def encoded(kind: Kind, amount: Amount, role: str) -> bytes:
    """Return a serialised Resource with an amount, allocated to a role.

    Args:
        kind: The kind of the resource.
        amount: The amount, of the type that the kind requires; in thousandths also for resources
            that are counted in copies.
        role: The role that the resource is allocated to.
    """
    template = kind.template
    if len(template) > SMALL and isinstance(amount, int):
        return _encoded_long(kind, amount, role)
    key = template, amount, role
    known = _ENCODED.get(key)
    if known is not None:
        return known
    data = _encode(template, amount, role)
    compact = isinstance(amount, ranges.Mask)
    if compact:  # an offer that is declined comes back as it was sent
        _DECODED.put(data, (_kind(template, None), amount, role), len(data), compact=True)
    return _ENCODED.put(key, data, 2 * len(data) + len(template), compact=compact)


def _encoded_long(kind: Kind, amount: int, role: str) -> bytes:
    """Do what `encoded` does for a long scalar resource.

    An offer that is declined comes back as it was sent. The cache therefore also receives the
    parsed form of the message.
    """
    content = kind.template, amount, role
    data = _LONG.written(content)
    if data is None:
        data = _encode(kind.template, amount, role)
        parsed = kind, amount if kind.whole is None else 1, role
        _LONG.put(data, parsed, len(data) + len(kind.template), content)
    return data


def _encode(template: bytes, amount: Amount, role: str) -> bytes:
    message = mesos.Resource.FromString(template)
    if isinstance(amount, tuple):
        message.ranges.SetInParent()
        add = message.ranges.range.add
        for begin, end in ranges.intervals(amount):
            entry = add()
            entry.begin, entry.end = begin, end
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
            return ranges.coalesced([(entry.begin, entry.end) for entry in message.ranges.range])
        except ValueError as error:
            raise InvalidResource(f"resource {message.name!r}: {error}") from error
    items = frozenset(message.set.item)
    if len(items) != len(message.set.item):
        raise InvalidResource(f"resource {message.name!r} names an item of its set twice")
    return items


def _require_essentials(data: bytes) -> None:
    """Raise `InvalidResource` if a required field is missing.

    The fields `disk` and `provider_id` are not checked, because the allocator only passes them on.
    """
    message = mesos.Resource.FromString(data)
    message.ClearField("disk")
    message.ClearField("provider_id")
    if not message.IsInitialized():
        raise InvalidResource("not a whole mesos.Resource: a required field is missing")


def _require_text(message: mesos.Resource) -> None:
    """Raise `InvalidResource` if a field that this module reads is not UTF-8."""
    name = text_of(message, "name")
    texts: list[str | bytes] = [name, text_of(message.allocation_info, "role")]
    texts += message.set.item
    texts += (text_of(reservation, "role") for reservation in message.reservations)
    for text in texts:
        if not is_text(text):
            raise InvalidResource(
                f"resource {excerpt(name)!r}: {excerpt(text)!r} is not UTF-8", "text"
            )


def _validate(message: mesos.Resource) -> None:
    """Raise `InvalidResource` if Mesos's C++ Resources would drop a message, or abort on it.

    The rules are in Mesos semantics: §2.2, and items M6 and M7 of §1.8.
    """
    name = message.name
    if not name:
        raise InvalidResource("a resource without a name")
    wanted = _VALUES.get(message.type)
    if wanted is None:
        raise InvalidResource(f"resource {name!r} is of type TEXT, which Mesos does not allow")
    for field in _VALUES.values():
        if message.HasField(field) != (field == wanted):
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
    """Raise `InvalidResource` if one reservation does not refine the reservation before it."""
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
