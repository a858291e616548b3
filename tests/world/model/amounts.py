"""Amounts of resources in the world's own arithmetic: whole thousandths by name."""

import re
from collections.abc import Iterable
from typing import TypeAlias

from allocator.contract import mesos_pb2 as mesos

Amounts: TypeAlias = dict[str, int]
"""`cpus`, or `cpus(role)` where reserved, or `disk(role)#id` for a volume → thousandths; nothing is
written as nothing."""


def amounts(text: str) -> Amounts:
    """Read `cpus:4;mem(a):64`."""
    amounts: Amounts = {}
    for entry in filter(None, text.split(";")):
        name, _, value = entry.rpartition(":")
        amounts[name] = amounts.get(name, 0) + round(float(value) * 1000)
    return amounts


def plus(left: Amounts, right: Amounts) -> Amounts:
    """Add."""
    return total((left, right))


def minus(left: Amounts, right: Amounts) -> Amounts:
    """Subtract amounts; results are at least zero."""
    return _clean({name: max(milli - right.get(name, 0), 0) for name, milli in left.items()})


def times(factor: int, quantities: Amounts) -> Amounts:
    """Multiply."""
    return _clean({name: factor * milli for name, milli in quantities.items()})


def fits(small: Amounts, large: Amounts) -> bool:
    """Return whether the second amounts contain the first."""
    return all(milli <= large.get(name, 0) for name, milli in small.items())


def total(many: Iterable[Amounts]) -> Amounts:
    """Add up."""
    sums: Amounts = {}
    for quantities in many:
        for name, milli in quantities.items():
            sums[name] = sums.get(name, 0) + milli
    return _clean(sums)


def copies(quantities: Amounts, within: Amounts) -> int:
    """Return how often an amount is contained in another."""
    return min(
        (within.get(name, 0) // milli for name, milli in quantities.items() if milli), default=0
    )


def reserved_for(name: str) -> str | None:
    """Return the role that a resource name is reserved for; None for unreserved resources."""
    match = re.fullmatch(r"[^(]*\((.*)\)(?:#.*)?", name)
    return match[1] if match else None


def plain(quantities: Amounts) -> Amounts:
    """Return the unreserved amounts."""
    return {name: milli for name, milli in quantities.items() if "(" not in name}


def scalars(quantities: Amounts) -> Amounts:
    """Add up reserved resources, volumes and unreserved resources by name."""
    counted: Amounts = {}
    for name, milli in quantities.items():
        base = name.partition("(")[0]
        counted[base] = counted.get(base, 0) + milli
    return counted


def operation(kind: str, quantities: Amounts) -> bytes:
    """Write an operator's RESERVE, UNRESERVE, CREATE or DESTROY."""
    message = mesos.Operation(type=mesos.Operation.Type.Value(kind))
    into = {
        "RESERVE": message.reserve.resources,
        "UNRESERVE": message.unreserve.resources,
        "CREATE": message.create.volumes,
        "DESTROY": message.destroy.volumes,
    }[kind]
    into.extend(mesos.Resource.FromString(data) for data in written(quantities))
    return message.SerializeToString(deterministic=True)


def written(quantities: Amounts, role: str | None = None) -> list[bytes]:
    """Serialise amounts as resources, allocated to a role if a role is given."""
    return [_resource(name, milli, role) for name, milli in sorted(quantities.items())]


def read(messages: Iterable[bytes]) -> tuple[Amounts, set[str]]:
    """Parse serialised resources; return also the roles of their allocation."""
    parts = []
    roles = set()
    for data in messages:
        message = mesos.Resource.FromString(data)
        name = message.name
        for reservation in message.reservations:
            name += f"({reservation.role})"
        if message.disk.HasField("persistence"):
            name += f"#{message.disk.persistence.id}"
        parts.append({name: round(message.scalar.value * 1000)})
        roles.add(message.allocation_info.role)
    return total(parts), roles


def _resource(name: str, milli: int, role: str | None) -> bytes:
    match = re.fullmatch(r"([^(]*)(?:\((.*)\))?(?:#(.*))?", name)
    assert match
    message = mesos.Resource(name=match[1], type=mesos.Value.SCALAR)
    message.scalar.value = milli / 1000
    if match[2] is not None:
        message.reservations.add(type=mesos.Resource.ReservationInfo.DYNAMIC, role=match[2])
    if match[3] is not None:
        message.disk.persistence.id = match[3]
        message.disk.volume.container_path, message.disk.volume.mode = "data", mesos.Volume.RW
    if role is not None:
        message.allocation_info.role = role
    return message.SerializeToString(deterministic=True)


def _clean(quantities: Amounts) -> Amounts:
    return {name: milli for name, milli in sorted(quantities.items()) if milli}
