"""Structurally hostile messages: valid calls in which a few fields, at any depth, are absurd.

The contract carries Mesos's own messages as bytes. The generator parses these bytes, spoils the
parsed message by its descriptor, and serialises the message again. An absurd value thus reaches
the code that reads the field.
"""

import random
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError, Message

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.service.hostile import HUGE, NUMBERS, WORDS, calls

NOT_TEXT = "NOT-TEXT"
"""Placeholder for bytes that are not UTF-8; replaced when the message is serialised."""
_RAW = b"\xff\xfe-\xc0\xaf-\x80\x80"
NAMES = (*WORDS, "b", "f2", "f9", "s2", "/".join("r" * 60), "a/.", "[/red]", "\x1b[2J", NOT_TEXT)
LABELS = (
    *("longshare.demand", "longshare.whitelist", "longshare.blacklist", "longshare.attributes"),
    "x",
)
VALUES = (
    *("cpus:1;mem:64", "cpus:0.001", "cpus:-1", "mem:1e300", "cpus:nan", ";" * 300, "cpus:1;" * 40),
    *("[" * 500, "node-[1-9]*, 10.0.0.0/8", "*a*a*a*a*a*b", " ".join(f"h{n}*" for n in range(60))),
    *("rack:1;rack", "1.2.3.4-1.2.3.3", NOT_TEXT),
)
_INSIDE: dict[tuple[str, str], type[Message]] = {
    ("AddAgent", "info"): mesos.SlaveInfo,
    ("UpdateAgent", "info"): mesos.SlaveInfo,
    ("AddFramework", "info"): mesos.FrameworkInfo,
    ("UpdateFramework", "info"): mesos.FrameworkInfo,
    ("RequestResources", "requests"): mesos.Request,
    ("UpdateAvailable", "operations"): mesos.Operation,
    ("RecoverResources", "filters"): mesos.Filters,
    ("UpdateInverseOffer", "filters"): mesos.Filters,
    ("UpdateInverseOffer", "status"): mesos.InverseOfferStatus,
    ("UpdateUnavailability", "unavailability"): mesos.Unavailability,
    ("SetQuota", "info"): mesos.QuotaInfo,
}
"""Message type inside each field of bytes; all other fields of bytes hold resources."""
_HOW_MANY = (0, 1, 1, 3, 3, 3, 30, 300)
"""Numbers of values in a list that is made absurd."""
T = TypeVar("T")


def hostile_events(chance: random.Random) -> Iterator[bytes]:
    """Yield hostile events endlessly, serialised without sequence numbers and timestamps."""
    valid = [(event.WhichOneof("call") or "", event.SerializeToString()) for event in calls()]
    while True:
        name, data = _one_of(valid, chance)
        event = contract.Event.FromString(data)
        call = getattr(event, name)
        for _ in range(_one_of((1, 1, 2, 3), chance)):
            _spoil(call, chance)
        yield event.SerializePartialToString().replace(NOT_TEXT.encode(), _RAW)


def _one_of(several: Sequence[T], chance: random.Random) -> T:
    """Return a random element: faster than `Random.choice`, and nearly uniform for short lists."""
    return several[int(chance.random() * len(several))]


@cache
def _fields(of: Descriptor) -> tuple[Any, ...]:
    return tuple(of.fields)


def _spoil(message: Message, chance: random.Random) -> None:
    """Make one field of the message absurd."""
    fields = _fields(message.DESCRIPTOR)
    if not fields:
        return
    field = _one_of(fields, chance)
    if field.type == FieldDescriptor.TYPE_BYTES:
        _spoil_bytes(message, field, chance)
    elif field.message_type is not None:
        _spoil_part(message, field, chance)
    elif field.is_repeated:
        values = [_odd(field, chance) for _ in range(_one_of(_HOW_MANY, chance))]
        if chance.random() < 0.5:
            message.ClearField(field.name)
        getattr(message, field.name).extend(values)
    elif chance.random() < 0.2:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, _odd(field, chance))


def _spoil_bytes(message: Message, field: FieldDescriptor, chance: random.Random) -> None:
    kind = _INSIDE.get((message.DESCRIPTOR.name, field.name), mesos.Resource)
    value = getattr(message, field.name)
    if not field.is_repeated:
        setattr(message, field.name, _spoiled(value, kind, chance))
    elif value and chance.random() < 0.8:
        place = int(chance.random() * len(value))
        value[place] = _spoiled(value[place], kind, chance)
    else:
        value.append(_spoiled(b"", kind, chance))


def _spoiled(data: bytes, kind: type[Message], chance: random.Random) -> bytes:
    if chance.random() < 0.03:
        return chance.randbytes(_one_of((1, 9, 200), chance))
    try:
        inside = kind.FromString(data)
    except DecodeError:  # the bytes were already spoiled
        inside = kind()
    if isinstance(inside, mesos.FrameworkInfo) and chance.random() < 0.5:
        key, value = _one_of(LABELS, chance), _one_of(VALUES, chance)
        inside.labels.labels.add(key=key, value=value)
    _spoil(inside, chance)
    return _closed(inside)


def _spoil_part(message: Message, field: FieldDescriptor, chance: random.Random) -> None:
    part: Any = getattr(message, field.name)
    assert field.message_type is not None
    if field.message_type.GetOptions().map_entry:
        entry = part[_one_of(NAMES, chance)]
        if isinstance(entry, Message):
            _spoil(entry, chance)
        return
    if not field.is_repeated:
        _spoil(part, chance)
        part.SetInParent()
    elif part and chance.random() < 0.6:
        _spoil(_one_of(part, chance), chance)
    else:
        _spoil(part.add(), chance)


def _odd(field: FieldDescriptor, chance: random.Random) -> Any:  # noqa: ANN401 - any scalar
    if field.type == FieldDescriptor.TYPE_STRING:
        return _one_of(NAMES, chance)
    if field.type in {FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT}:
        return _one_of(NUMBERS, chance)
    if field.enum_type is not None:
        return _one_of(field.enum_type.values, chance).number
    if field.type == FieldDescriptor.TYPE_BOOL:
        return chance.random() < 0.5
    small = field.type in {FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_UINT32}
    unsigned = field.type in {FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64}
    value = _one_of(HUGE, chance)
    value = value % 2**31 if small else value
    return abs(value) % 2**63 if unsigned else value


def _closed(message: Message) -> bytes:
    try:
        return message.SerializePartialToString()
    except EncodeError:  # a part without required fields cannot be serialised, even partially
        return b""
