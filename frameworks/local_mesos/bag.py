"""Resource arithmetic for the embedded master's books: scalars, ranges, sets, reservations.

This is the other side of the contract and checks what the allocator says, so it shares no
code with the allocator's own.
"""

import re
from collections.abc import ItemsView, Iterable
from typing import Any

from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.quantities import to_milli

Resource = mesos.Resource
_Amount = int | frozenset[Any]


class Bag:
    """Resources by kind; mutable. A kind is a Resource without amount and allocation."""

    def __init__(self, resources: Iterable[Resource] = ()) -> None:
        self._amounts: dict[bytes, _Amount] = {}
        self.add(resources)

    def add(self, resources: Iterable[Resource]) -> None:
        """Put resources in."""
        for kind, amount in map(_split, resources):
            present = self._amounts.get(kind)
            if isinstance(present, int) and isinstance(amount, int):
                self._amounts[kind] = present + amount
            elif isinstance(present, frozenset) and isinstance(amount, frozenset):
                self._amounts[kind] = present | amount
            elif amount:
                self._amounts[kind] = amount

    def remove(self, resources: Iterable[Resource]) -> None:
        """Take resources out.

        Raises:
            ValueError: there are not that many; nothing has changed.
        """
        wanted = Bag(resources)
        if not self.contains(wanted):
            raise ValueError(f"{wanted} is not contained in {self}")
        for kind, amount in wanted.amounts():
            present = self._amounts[kind]
            rest = present - amount  # type: ignore[operator]  # same kind, same type
            if rest:
                self._amounts[kind] = rest
            else:
                del self._amounts[kind]

    def contains(self, other: "Bag") -> bool:
        """Whether all of another bag is in here."""
        for kind, amount in other.amounts():
            present = self._amounts.get(kind)
            if present is None or not present >= amount:  # type: ignore[operator]
                return False
        return True

    def amounts(self) -> ItemsView[bytes, _Amount]:
        """Return kinds with their amounts: thousandths, numbers or items."""
        return self._amounts.items()

    def __bool__(self) -> bool:
        return bool(self._amounts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bag) and self._amounts == other._amounts

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __str__(self) -> str:
        return "; ".join(
            f"{r.name}{f'({r.reservations[-1].role})' if r.reservations else ''}"
            f":{r.scalar.value or [(i.begin, i.end) for i in r.ranges.range] or list(r.set.item)}"
            for r in self.resources()
        )

    def scalar(self, name: str) -> float:
        """Return how much there is of a scalar, reserved or not, in units."""
        return sum(r.scalar.value for r in self.resources() if r.name == name)

    def resources(self, role: str | None = None) -> list[Resource]:
        """Return messages, allocated to a role if one is given."""
        messages = []
        for kind, amount in self._amounts.items():
            message = Resource.FromString(kind)
            if isinstance(amount, int):
                message.scalar.value = amount / 1000
            elif message.type == mesos.Value.RANGES:
                for begin, end in _intervals(sorted(amount)):
                    message.ranges.range.add(begin=begin, end=end)
            else:
                message.set.item.extend(sorted(amount))
            if role is not None:
                message.allocation_info.role = role
            messages.append(message)
        return messages


def _split(resource: Resource) -> tuple[bytes, _Amount]:
    kind = Resource()
    kind.CopyFrom(resource)
    for field in ("scalar", "ranges", "set", "allocation_info"):
        kind.ClearField(field)
    amount: _Amount
    if resource.type == mesos.Value.SCALAR:
        amount = to_milli(resource.scalar.value)
        if amount < 0:
            raise ValueError(f"{resource.name} is negative: {resource.scalar.value}")
    elif resource.type == mesos.Value.RANGES:
        amount = frozenset(n for i in resource.ranges.range for n in range(i.begin, i.end + 1))
    else:
        amount = frozenset(resource.set.item)
    return kind.SerializeToString(deterministic=True), amount


def _intervals(numbers: Iterable[int]) -> list[tuple[int, int]]:
    intervals: list[tuple[int, int]] = []
    for n in numbers:
        if intervals and n == intervals[-1][1] + 1:
            intervals[-1] = (intervals[-1][0], n)
        else:
            intervals.append((n, n))
    return intervals


def parse_flag(text: str) -> list[Resource]:
    """Read an agent's `--resources`: `cpus:4;mem(eng):6144;ports:[31000-32000];disks:{a,b}`.

    Raises:
        ValueError: the text does not have that form; the message shows where.
    """
    bag = Bag()
    for entry in filter(None, map(str.strip, text.split(";"))):
        match = re.fullmatch(r"(\w+)(?:\(([\w/.*-]+)\))?\s*:\s*(.+)", entry)
        if match is None:
            raise ValueError(f"{entry!r} is not of the form NAME:VALUE or NAME(ROLE):VALUE")
        name, role, value = match.groups()
        resource = Resource(name=name, type=mesos.Value.SCALAR)
        try:
            if value.startswith("["):
                resource.type = mesos.Value.RANGES
                for interval in value.strip("[]").split(","):
                    begin, end = map(int, interval.split("-"))
                    resource.ranges.range.add(begin=begin, end=end)
            elif value.startswith("{"):
                resource.type = mesos.Value.SET
                resource.set.item.extend(filter(None, map(str.strip, value.strip("{}").split(","))))
            else:
                resource.scalar.value = float(value)
            if role not in {None, "*"}:
                resource.reservations.add(type=Resource.ReservationInfo.STATIC, role=role)
            bag.add([resource])
        except ValueError as error:
            raise ValueError(f"{entry!r}: {error}") from error
    return bag.resources()


def upgraded(resource: Resource) -> Resource:
    """Turn a resource of an old scheduler, with a `role` field, into today's form."""
    if not (resource.HasField("role") or resource.HasField("reservation")):
        return resource
    new = Resource()
    new.CopyFrom(resource)
    new.ClearField("role")
    new.ClearField("reservation")
    if resource.role != "*":
        added = new.reservations.add()
        added.CopyFrom(resource.reservation)
        added.type = (
            Resource.ReservationInfo.DYNAMIC
            if resource.HasField("reservation")
            else Resource.ReservationInfo.STATIC
        )
        added.role = resource.role
    return new


def downgraded(resource: Resource) -> Resource:
    """Turn a resource into the form of schedulers that know no refined reservations."""
    old = Resource()
    old.CopyFrom(resource)
    old.role = resource.reservations[0].role if resource.reservations else "*"
    if resource.reservations:
        reservation = resource.reservations[0]
        if reservation.type == Resource.ReservationInfo.DYNAMIC:
            old.reservation.CopyFrom(reservation)
            old.reservation.ClearField("type")
            old.reservation.ClearField("role")
        old.ClearField("reservations")
    return old
