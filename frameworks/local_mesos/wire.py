"""Encodes messages as Mesos does: JSON or protobuf, with RecordIO framing for streams.

In RecordIO, each record follows its length in bytes.

Mesos writes 64-bit integers as JSON numbers, but the protobuf library writes strings. This module
therefore has its own JSON writer; for parsing, the library suffices.
"""

import base64
import json
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

JSON = "application/json"
PROTOBUF = "application/x-protobuf"

M = TypeVar("M", bound=Message)


class Malformed(ValueError):  # noqa: N818 - the name describes the body
    """Raised if a request body is not a valid message; the text gives the reason."""


def to_dict(message: Message) -> dict[str, Any]:
    """Convert a message to JSON types. Fields that are not set are left out."""
    return {
        field.name: _entries(field, value) if field.is_repeated else _value(field, value)
        for field, value in message.ListFields()
    }


def _entries(field: FieldDescriptor, values: Any) -> Any:  # noqa: ANN401 - a protobuf container
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        kind = field.message_type.fields_by_name["value"]
        return {str(key): _value(kind, value) for key, value in values.items()}
    return [_value(field, value) for value in values]


def _value(field: FieldDescriptor, value: Any) -> Any:  # noqa: ANN401 - a protobuf value
    if field.message_type is not None:
        return to_dict(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    if field.type == FieldDescriptor.TYPE_BYTES:
        return base64.b64encode(value).decode("ascii")
    return value


def encode(message: Message, content_type: str) -> bytes:
    """Serialise a message in the given content type, `JSON` or `PROTOBUF`."""
    if content_type == PROTOBUF:
        return message.SerializeToString()
    return json.dumps(to_dict(message), separators=(",", ":")).encode()


def decode(body: bytes, content_type: str, message_type: type[M]) -> M:
    """Parse the body of a request.

    Args:
        body: The bytes of the body.
        content_type: `JSON` or `PROTOBUF`.
        message_type: Type of the message.

    Raises:
        Malformed: The body cannot be parsed, or lacks a required field.
    """
    name = message_type.DESCRIPTOR.name
    if content_type == PROTOBUF:
        try:
            message = message_type.FromString(body)
        except DecodeError as error:
            raise Malformed(f"Failed to parse body into {name} protobuf") from error
        _require_text(message)
    else:
        try:
            parsed = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Malformed(f"Failed to parse body into JSON: {error}") from error
        if not isinstance(parsed, dict):
            raise Malformed(f"Failed to convert JSON into {name} protobuf: expecting an object")
        try:
            message = json_format.ParseDict(parsed, message_type(), ignore_unknown_fields=True)
        except (json_format.ParseError, AttributeError, TypeError, ValueError) as error:
            raise Malformed(f"Failed to convert JSON into {name} protobuf: {error}") from error
    if not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors())  # type: ignore[attr-defined]  # not in the stubs
        raise Malformed(f"Failed to read {name} protobuf: {missing} is required and missing")
    return message


def _require_text(message: Message) -> None:
    """Raise an error for text that is not UTF-8, which the protobuf library would accept.

    A real master forwards invalid text. Here, the text would break the JSON streams of other
    schedulers.
    """
    for field, value in message.ListFields():
        try:
            entries = _elements(field, value)
        except UnicodeDecodeError as error:  # protobuf's error for a map key
            raise Malformed(f"{field.full_name} has a key that is not UTF-8") from error
        for entry in entries:
            if field.type == FieldDescriptor.TYPE_STRING and isinstance(entry, bytes):
                raise Malformed(f"{field.full_name} is not UTF-8")
            if isinstance(entry, Message):
                _require_text(entry)


def _elements(field: FieldDescriptor, value: Any) -> list[Any]:  # noqa: ANN401 - a field's value
    if not field.is_repeated:
        return [value]
    if not hasattr(value, "items"):
        return list(value)
    if any(isinstance(key, bytes) for key in value):
        raise Malformed(f"{field.full_name} has a key that is not UTF-8")
    return list(value.values())


def record(data: bytes) -> bytes:
    """Frame bytes as one record of a RecordIO stream."""
    return b"%d\n%b" % (len(data), data)
