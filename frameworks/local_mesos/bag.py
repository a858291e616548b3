"""Adds, subtracts and compares resources for the embedded master: scalars, ranges and sets.

The embedded master checks the allocator's decisions. This module therefore shares no code with the
allocator's resource arithmetic, so that a bug there is noticed.
"""

from collections.abc import Iterable

from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.quantities import to_milli
from frameworks.local_mesos.intervals import Intervals

Resource = mesos.Resource
_Amount = int | Intervals | frozenset[str]
"""Amount of a resource: thousandths of a scalar, numbers of a range, or items of a set."""


class ResourceBag:
    """A mutable collection of resources, such as the free resources of an agent.

    Amounts of resources with the same name, reservation and other fields are added. The field
    `allocation_info` is ignored.

    Args:
        resources: Initial content.

    Raises:
        ValueError: A resource is invalid; the message says why.
    """

    def __init__(self, resources: Iterable[Resource] = ()) -> None:
        self.amounts: dict[bytes, _Amount] = {}
        """Amount by kind, a serialised Resource message. Other modules may read it."""
        self.add(resources)

    def add(self, resources: Iterable[Resource]) -> None:
        """Add resources to the bag."""
        for kind, amount in map(_split, resources):
            if amount:
                previous = self.amounts.get(kind)
                self.amounts[kind] = amount if previous is None else _sum(previous, amount)

    def remove(self, resources: Iterable[Resource]) -> None:
        """Remove resources, all of which must be in the bag.

        Raises:
            ValueError: The bag does not contain all the resources; the bag is unchanged.
        """
        removed = ResourceBag(resources)
        if not self.contains(removed):
            raise ValueError(f"{removed} is more than there is: {self or 'nothing'}")
        for kind, amount in removed.amounts.items():
            remainder = self.amounts[kind] - amount  # type: ignore[operator]  # same kind, same type
            if remainder:
                self.amounts[kind] = remainder
            else:
                del self.amounts[kind]

    def contains(self, other: "ResourceBag") -> bool:
        """Return whether this bag contains all resources of another bag."""
        for kind, amount in other.amounts.items():
            own_amount = self.amounts.get(kind)
            if own_amount is None or not own_amount >= amount:  # type: ignore[operator]  # same kind, same type
                return False
        return True

    def overlaps(self, other: "ResourceBag") -> bool:
        """Return whether some port, or another item of a range or set, is in both bags."""
        return any(
            not isinstance(amount, int) and amount & other.amounts[kind]  # type: ignore[operator]
            for kind, amount in self.amounts.items()
            if kind in other.amounts
        )

    def __bool__(self) -> bool:
        return bool(self.amounts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResourceBag) and self.amounts == other.amounts

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __str__(self) -> str:
        return ";".join(map(text_of, self.resources()))

    def scalar(self, name: str) -> float:
        """Return the amount of a scalar resource over all reservations, in the resource's unit.

        Args:
            name: Name of the resource, such as "cpus".
        """
        return sum(r.scalar.value for r in self.resources() if r.name == name)

    def resources(self) -> list[Resource]:
        """Return the content as Resource messages, without the field `allocation_info`."""
        messages = []
        for kind, amount in self.amounts.items():
            message = Resource.FromString(kind)
            if isinstance(amount, int):
                message.scalar.value = amount / 1000
            elif isinstance(amount, Intervals):
                for begin, end in amount:
                    message.ranges.range.add(begin=begin, end=end)
            else:
                message.set.item.extend(sorted(amount))
            messages.append(message)
        return messages


def text_of(resource: Resource) -> str:
    """Format a resource for messages, as Mesos does: `cpus:4`, `mem(eng):64`, `ports:[1-9]`."""
    role = f"({resource.reservations[-1].role})" if resource.reservations else ""
    value = f"{resource.scalar.value:g}"
    if resource.type == mesos.Value.RANGES:
        value = f"[{','.join(f'{i.begin}-{i.end}' for i in resource.ranges.range)}]"
    elif resource.type == mesos.Value.SET:
        value = f"{{{','.join(resource.set.item)}}}"
    return f"{resource.name}{role}:{value}"


def _sum(a: _Amount, b: _Amount) -> _Amount:
    return a + b if isinstance(a, int) else a | b  # type: ignore[operator]  # same kind, same type


def _split(resource: Resource) -> tuple[bytes, _Amount]:
    kind = Resource()
    kind.CopyFrom(resource)
    for field in ("scalar", "ranges", "set", "allocation_info"):
        kind.ClearField(field)
    return kind.SerializeToString(deterministic=True), _amount(resource)


def _amount(resource: Resource) -> _Amount:
    """Check a resource message by the rules of Mesos's `Resources::validate`. Return its amount.

    Raises:
        ValueError: The resource has no name, or its value does not match its type.
    """
    name = resource.name
    fields = [field for field in ("scalar", "ranges", "set") if resource.HasField(field)]
    expected = {mesos.Value.SCALAR: "scalar", mesos.Value.RANGES: "ranges", mesos.Value.SET: "set"}
    if not name or fields != [expected.get(resource.type)]:
        raise ValueError(f"invalid resource {name!r}: its value does not match its type")
    try:
        if resource.type == mesos.Value.SCALAR:
            return _thousandths(resource.scalar.value)
        if resource.type == mesos.Value.RANGES:
            return Intervals((i.begin, i.end) for i in resource.ranges.range)
    except ValueError as error:
        raise ValueError(f"invalid resource {name!r}: {error}") from error
    items = frozenset(resource.set.item)
    if len(items) < len(resource.set.item):
        raise ValueError(f"invalid resource {name!r}: it names an item twice")
    return items


def _thousandths(value: float) -> int:
    amount = to_milli(value)
    if amount < 0 or (amount == 0 and value != 0):
        raise ValueError(f"{value} is negative or less than a thousandth")
    return amount
