"""Parses resources and attributes as operators write them, and converts resource formats."""

import json
import re

from google.protobuf import json_format

from allocator.contract import mesos_pb2 as mesos
from frameworks.local_mesos.bag import Resource, ResourceBag


def parse_flag(text: str) -> list[Resource]:
    """Parse the value of `--resources`: Mesos's text syntax, or a JSON array of resources.

    >>> [text_of(r) for r in parse_flag("cpus:4;mem(eng):64;ports:[1-9];disks:{b,a}")]
    ['cpus:4', 'mem(eng):64', 'ports:[1-9]', 'disks:{a,b}']

    Raises:
        ValueError: The text has another form; the message names the invalid part.
    """
    if text.lstrip().startswith("["):
        return ResourceBag(_parse_json(text)).resources()
    bag = ResourceBag()
    for entry in filter(None, map(str.strip, text.split(";"))):
        try:
            bag.add([_parse_entry(entry)])
        except ValueError as error:
            raise ValueError(f"{entry!r}: {error}") from error
    return bag.resources()


def _parse_entry(entry: str) -> Resource:
    match = re.fullmatch(r"(\w+)\s*(?:\(([^()\s]+)\))?\s*:\s*(\S.*)", entry)
    if match is None:
        raise ValueError("not of the form NAME:VALUE or NAME(ROLE):VALUE, such as cpus:4")
    name, role, value = match.groups()
    resource = Resource(name=name, type=mesos.Value.SCALAR)
    if role not in {None, "*"}:
        resource.reservations.add(type=Resource.ReservationInfo.STATIC, role=role)
    if value.startswith("[") and value.endswith("]"):
        resource.type = mesos.Value.RANGES
        for interval in value[1:-1].split(","):
            bounds = re.fullmatch(r"\s*(\d+)-(\d+)\s*", interval)
            if bounds is None:
                raise ValueError(f"{interval!r} is not a range BEGIN-END, such as 31000-32000")
            resource.ranges.range.add(begin=int(bounds[1]), end=int(bounds[2]))
    elif value.startswith("{") and value.endswith("}"):
        resource.type = mesos.Value.SET
        resource.set.item.extend(filter(None, map(str.strip, value[1:-1].split(","))))
    else:
        try:
            resource.scalar.value = float(value)
        except ValueError:
            raise ValueError(
                f"{value!r} is not a number; write one without a unit, such as cpus:4 or mem:4096"
            ) from None
    return resource


def parse_attributes(text: str) -> list[mesos.Attribute]:
    """Parse the value of `--attributes`, such as `rack:1;disk:ssd;slots:[1-9]`.

    A value that is not a number, a range or a set becomes text.

    Raises:
        ValueError: The text has another form; the message names the invalid part.
    """
    attributes = []
    for entry in filter(None, map(str.strip, text.split(";"))):
        name, colon, value = (part.strip() for part in entry.partition(":"))
        if not name or not colon or not value:
            raise ValueError(f"{entry!r}: not of the form NAME:VALUE, such as rack:1")
        attribute = mesos.Attribute(name=name)
        try:
            parsed = _parse_entry(f"value:{value}")
        except ValueError:
            attribute.type = mesos.Value.TEXT
            attribute.text.value = value
        else:
            attribute.type = parsed.type
            for kind in ("scalar", "ranges", "set"):
                if parsed.HasField(kind):
                    getattr(attribute, kind).CopyFrom(getattr(parsed, kind))
        attributes.append(attribute)
    return attributes


def _parse_json(text: str) -> list[Resource]:
    try:
        return [
            upgraded(json_format.ParseDict(entry, Resource(type=mesos.Value.SCALAR)))
            for entry in json.loads(text)
        ]
    except json_format.ParseError as error:
        raise ValueError(f"not a JSON array of Mesos resources: {error}") from error


def upgraded(resource: Resource) -> Resource:
    """Convert a resource in the old format (field `role`) to the format of Mesos 1.4 and later."""
    if not (resource.HasField("role") or resource.HasField("reservation")):
        return resource
    converted = Resource()
    converted.CopyFrom(resource)
    converted.ClearField("role")
    converted.ClearField("reservation")
    if resource.role != "*":
        reservation = converted.reservations.add()
        reservation.CopyFrom(resource.reservation)
        reservation.type = (
            Resource.ReservationInfo.DYNAMIC
            if resource.HasField("reservation")
            else Resource.ReservationInfo.STATIC
        )
        reservation.role = resource.role
    return converted


def downgraded(resource: Resource) -> Resource:
    """Convert a resource to the old format, for schedulers without reservation refinement."""
    converted = Resource()
    converted.CopyFrom(resource)
    converted.role = resource.reservations[0].role if resource.reservations else "*"
    if resource.reservations:
        reservation = resource.reservations[0]
        if reservation.type == Resource.ReservationInfo.DYNAMIC:
            converted.reservation.CopyFrom(reservation)
            converted.reservation.ClearField("type")
            converted.reservation.ClearField("role")
        converted.ClearField("reservations")
    return converted
