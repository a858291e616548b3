"""Request bodies of the embedded master: invalid UTF-8 is refused with the field's name."""

from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos import wire

MARK = "MARKED"


def texts(descriptor: Descriptor, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Go through the paths of all text fields of a message, keys of maps included."""
    for field in descriptor.fields:
        path = (*above, field.name)
        if field.type == FieldDescriptor.TYPE_STRING:
            yield path
        elif field.message_type is not None and path.count(field.name) <= 2:
            yield from texts(field.message_type, path)


def marked(path: tuple[str, ...]) -> v1.Call:
    """Return a call in which the text at a path alone is set."""
    call = message = v1.Call()
    put(message, path)
    return call


def put(message: Message, path: tuple[str, ...]) -> None:
    name, below = path[0], path[1:]
    field = message.DESCRIPTOR.fields_by_name[name]
    kind = field.message_type
    if kind is None:
        if field.is_repeated:
            getattr(message, name).append(MARK)
        else:
            setattr(message, name, MARK)
    elif kind.GetOptions().map_entry:
        entries, value = getattr(message, name), kind.fields_by_name["value"]
        key = MARK if below == ("key",) else "key"
        if value.message_type is None:
            entries[key] = 1.0
        elif below[0] == "value":
            put(entries[key], below[1:])
        else:
            entries[key].SetInParent()
    else:
        put(getattr(message, name).add() if field.is_repeated else getattr(message, name), below)


PATHS = list(texts(v1.Call.DESCRIPTOR))


def test_there_are_texts_in_maps_and_keys_of_maps() -> None:
    filters = ("subscribe", "framework_info", "offer_filters")
    assert (*filters, "key") in PATHS
    assert (*filters, "value", "min_allocatable_resources", "quantities", "quantities", "key") in (
        PATHS
    )
    assert len(PATHS) > 100


@pytest.mark.parametrize("start", range(0, len(PATHS), 100))
def test_invalid_utf8_is_malformed_in_every_field(start: int) -> None:
    for path in PATHS[start : start + 100]:
        body = marked(path).SerializePartialToString().replace(MARK.encode(), b"M\xffRKED")
        with pytest.raises(wire.Malformed, match="not UTF-8"):
            wire.decode(body, wire.PROTOBUF, v1.Call)
