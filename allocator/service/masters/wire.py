"""Reads what masters send: nothing larger than it says, and text whatever it is made of.

A few bytes become a hundred when they are parsed and some thousand when the engine keeps them, so
parts are weighed before. Long messages are read step by step. The contract's text must be UTF-8,
Mesos's need not be: a role or a host name that is not comes as bytes that the parser refuses
together with all that is in the message. What is not UTF-8 is escaped then.
"""

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from allocator.cluster.cooperative import Cooperative, run_to_completion
from allocator.cluster.input.text import readable
from allocator.contract import allocator_pb2 as contract

_LENGTH_DELIMITED = 2
_FIXED = {1: 8, 5: 4}
"""Wire type → bytes of a number."""
M = TypeVar("M", bound=Message)
_CONTRACT: Descriptor = contract.FromMaster.DESCRIPTOR
SHORT = 2**16
"""Bytes of a message that is read at a stretch; also those of a part of a longer one."""
_QUICK = 2**18
"""Bytes that the parser alone reads in 8 ms, whatever they are, and in a fifth of one as masters
write them: looking for places to stop at would take several times as long."""
_STRETCH = 2**20
"""Bytes whose weight is bounded at a stretch, in some milliseconds."""
_HEAVY: dict[str, int] = {
    contract.AddAgent.DESCRIPTOR.full_name: 20,
    contract.AddFramework.DESCRIPTOR.full_name: 24,
}
"""What messages weigh of which much is kept, however short they are; other parts weigh 1."""
_DENSEST = max(_HEAVY.values()) / 2
"""The most that a byte can weigh: such a message without content takes two."""
_OPAQUE = 12
"""What one of Mesos's own messages weighs beside its length: most are resources."""
_BYTES = 16
"""Bytes of such a message that weigh as much as a part."""
_BOUNDED = frozenset(
    {
        contract.AddFramework.DESCRIPTOR.full_name,
        contract.UpdateFramework.DESCRIPTOR.full_name,
    }
)
"""Messages in which the length of Mesos's own does not count: what is kept of it has limits, and no
framework is to make a master's message too heavy."""


class WireError(ValueError):
    """Bytes are no message of the contract; says why."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """What is known of a message's fields that have a length."""

    weight: int
    """Of the message itself."""
    nested: dict[int, "Descriptor"]
    """Those that are messages."""
    texts: frozenset[int]
    opaque: frozenset[int]
    """Those that are Mesos's own messages."""
    per_byte: float
    """What a byte of these weighs."""


def parse(data: bytes, most_parts: int) -> contract.FromMaster:
    """Read a message at a stretch.

    Args:
        data: What came.
        most_parts: What its parts may weigh together; most weigh 1.

    Raises:
        WireError: it is no message, or weighs more.
    """
    if len(data) <= SHORT:
        return _read(contract.FromMaster, data)
    return run_to_completion(reading(data, most_parts))


def reading(data: bytes, most_parts: int) -> Cooperative[contract.FromMaster]:
    """Read a message, step by step if it is long."""
    if len(data) <= SHORT:
        return _read(contract.FromMaster, data)
    if len(data) <= _QUICK and len(data) * _DENSEST <= most_parts:
        with suppress(DecodeError):  # what is not UTF-8 is found part by part
            return contract.FromMaster.FromString(data)
    whole = contract.FromMaster()
    left = most_parts if (yield from _may_weigh(data, most_parts)) else math.inf
    for number, kind, start, stop in _fields(data, 0, len(data)):
        field = _CONTRACT.fields_by_number.get(number)
        if kind == _LENGTH_DELIMITED and field is not None:
            part = getattr(whole, field.name)
            part.SetInParent()
            left = yield from _merging(part, data, (start, stop), left - 1, most_parts)
    return whole


def _may_weigh(data: bytes, most: int) -> Cooperative[bool]:
    """Tell whether a message may weigh more; if not, nobody need look at each of its parts.

    A part begins with a byte that says in what field it is, so there are no more parts of a field
    than such bytes. Counting them is C's, and finds some four times what a snapshot weighs.
    """
    if len(data) * _DENSEST <= most:
        return False
    left = most - 1 - len(data) / _BYTES
    for begin in range(0, len(data), _STRETCH):
        stretch = data[begin : begin + _STRETCH]
        for weight, beginnings in _beginnings():
            left -= weight * (len(stretch) - len(stretch.translate(None, beginnings)))
        if left < 0:
            return True
        yield
    return False


def _merging(
    message: Message, data: bytes, place: tuple[int, int], left: float, most_parts: int
) -> Cooperative[float]:
    """Read what is at a place into a message; return what may still come (inf: anything)."""
    shape, (since, end) = _shape(message.DESCRIPTOR), place
    for number, kind, start, stop in _fields(data, since, end):
        if left < math.inf and kind == _LENGTH_DELIMITED:
            left = _weighed(data, start, stop, number, shape, left)
            if left < 0:
                raise WireError(f"it has more than {most_parts} parts (listen.most_parts)")
            yield
        if stop - since >= SHORT:
            message.MergeFrom(_read(type(message), data[since:stop]))
            since = stop
            yield
    message.MergeFrom(_read(type(message), data[since:end]))
    return left


def _read(kind: type[M], data: bytes) -> M:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        of: Any = kind.DESCRIPTOR
        try:
            return kind.FromString(_repaired(data, of))
        except (DecodeError, WireError):
            raise WireError(str(error)) from error


def _weighed(  # noqa: PLR0913, PLR0917 - a field, where it is, and in what
    data: bytes, start: int, stop: int, number: int, shape: _Shape, left: float
) -> float:
    """Return what is left after a field that has a length; below 0: it weighs more."""
    within = shape.nested.get(number)
    if within is not None:
        return _count(data, start, stop, within, left)
    if number in shape.opaque:
        return left - _OPAQUE - int((stop - start) * shape.per_byte)
    return left - 1


def _count(data: bytes, begin: int, end: int, of: Descriptor, left: float) -> float:
    """Return what is left after a message and all in it; below 0: it weighs more."""
    shape = _shape(of)
    left -= shape.weight
    for number, kind, start, stop in _fields(data, begin, end):
        if left < 0:
            break
        if kind == _LENGTH_DELIMITED:
            left = _weighed(data, start, stop, number, shape, left)
    return left


def _repaired(data: bytes, of: Descriptor) -> bytes:
    """Return a message with the text in it that is not UTF-8 escaped."""
    shape, out, last = _shape(of), bytearray(), 0
    for number, kind, start, stop in _fields(data, 0, len(data)):
        if kind != _LENGTH_DELIMITED:
            continue
        value = data[start:stop]
        if number in shape.nested:
            value = _repaired(value, shape.nested[number])
        elif number in shape.texts and not _is_utf8(value):
            value = readable(value).encode()
        if value != data[start:stop]:
            out += data[last : start - len(_varint(stop - start))] + _varint(len(value)) + value
            last = stop
    return bytes(out + data[last:])


def _fields(data: bytes, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Go through a message's fields: number, wire type, and where the value begins and ends.

    Raises:
        WireError: it ends within a field, or is no message.
    """
    at = begin
    while at < end:
        tag = data[at]
        at += 1
        if tag > 0x7F:  # as a rule it is one byte, and of these there are many
            tag, at = _read_varint(data, at - 1, end)
        kind = tag & 7
        start = at
        if kind == _LENGTH_DELIMITED:
            if at + 1 < end and data[at + 1] <= 0x7F < data[at]:  # two bytes, as an agent has
                length, start = data[at] & 0x7F | data[at + 1] << 7, at + 2
            else:
                length, start = _read_varint(data, at, end)
            at = start + length
        elif kind == 0:
            _number, at = _read_varint(data, at, end)
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            raise WireError("a group")
        if at > end:
            raise WireError("a field is longer than its message")
        yield tag >> 3, kind, start, at


def _read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number, and where it ends."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise WireError("a number that does not end")


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


@cache
def _shape(of: Descriptor) -> _Shape:
    return _Shape(
        _HEAVY.get(of.full_name, 1),
        {field.number: field.message_type for field in of.fields if field.message_type is not None},
        frozenset(f.number for f in of.fields if f.type == FieldDescriptor.TYPE_STRING),
        frozenset(f.number for f in of.fields if f.type == FieldDescriptor.TYPE_BYTES),
        0.0 if of.full_name in _BOUNDED else 1 / _BYTES,
    )


@cache
def _beginnings() -> list[tuple[int, bytes]]:
    """Return the bytes that a part may begin with, by the most that one weighs which does.

    What is not of the contract weighs as little as a name.
    """
    weights = {byte: 1 for byte in range(256) if byte & 7 == _LENGTH_DELIMITED}
    for of in _within(_CONTRACT):
        shape = _shape(of)
        for number in (*shape.nested, *shape.opaque):
            within = shape.nested.get(number)
            weight = _OPAQUE if within is None else _shape(within).weight
            first = (number << 3 | _LENGTH_DELIMITED) & 0x7F
            for byte in (first, first | 0x80):  # the latter where the number goes on, or is padded
                weights[byte] = max(weights[byte], weight)
    return [
        (each, bytes(byte for byte, weight in weights.items() if weight == each))
        for each in sorted(set(weights.values()))
    ]


def _within(of: Descriptor) -> set[Descriptor]:
    """Return the descriptors of a message and of all that can be in it."""
    found, new = set[Descriptor](), {of}
    while new:
        found |= new
        new = {inner for each in new for inner in _shape(each).nested.values()} - found
    return found
