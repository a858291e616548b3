"""Reads what masters send: nothing larger than it says, and text whatever it is made of.

Protobuf makes a hundred bytes of two, so parts are counted before they are parsed. The contract's
text must be UTF-8, Mesos's need not be: a role or a host name that is not comes as bytes that the
parser refuses together with all that is in the message. What is not UTF-8 is escaped then.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from allocator.cluster.text import readable
from allocator.contract import allocator_pb2 as contract

_LENGTH_DELIMITED = 2
_FIXED = {1: 8, 5: 4}
"""Wire type → bytes of a number."""
_CONTRACT: Descriptor = contract.FromMaster.DESCRIPTOR
_SMALL = 2**16
"""Bytes of a message whose parts need not be counted."""


class WireError(ValueError):
    """Bytes are no message of the contract; says why."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """What is known of a message's fields that have a length."""

    nested: dict[int, "Descriptor"]
    """Those that are messages."""
    texts: frozenset[int]


def parse(data: bytes, most_parts: int) -> contract.FromMaster:
    """Read a message.

    Args:
        data: What came.
        most_parts: Fields that have a length, at all depths together, that it may consist of.

    Raises:
        WireError: it is no message, or has more parts.
    """
    if len(data) > _SMALL:
        left = _count(data, 0, len(data), _CONTRACT, most_parts)
        if left < 0:
            raise WireError(f"it has more than {most_parts} parts (listen.most_parts)")
    try:
        return contract.FromMaster.FromString(data)
    except DecodeError as error:
        try:
            return contract.FromMaster.FromString(_repaired(data, _CONTRACT))
        except (DecodeError, WireError):
            raise WireError(str(error)) from error


def _count(data: bytes, begin: int, end: int, of: Descriptor, left: int) -> int:
    """Return how many parts are left after a message; below 0: it has more."""
    nested = _shape(of).nested
    for number, kind, start, stop in _fields(data, begin, end):
        if kind != _LENGTH_DELIMITED:
            continue
        left -= 1
        if left < 0:
            break
        within = nested.get(number)
        if within is not None and start < stop:
            left = _count(data, start, stop, within, left)
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
        tag, at = _read_varint(data, at, end)
        kind = tag & 7
        start = at
        if kind == _LENGTH_DELIMITED:
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
        {field.number: field.message_type for field in of.fields if field.message_type is not None},
        frozenset(f.number for f in of.fields if f.type == FieldDescriptor.TYPE_STRING),
    )
