"""Resource arithmetic for the embedded master's books: scalars, ranges, sets, reservations.

This is the other side of the contract and checks what the allocator says, so it shares no
code with the allocator's own.
"""

from collections.abc import Iterable

from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.quantities import to_milli
from frameworks.local_mesos.intervals import Intervals

Resource = mesos.Resource
_Amount = int | Intervals | frozenset[str]
"""Thousandths of a scalar, or which ones of what can be told apart."""


class Bag:
    """Resources by kind; mutable. A kind is a Resource without amount and allocation.

    Raises:
        ValueError: a resource does not say what it should; the message says what.
    """

    def __init__(self, resources: Iterable[Resource] = ()) -> None:
        self.amounts: dict[bytes, _Amount] = {}
        """By kind; for others to read."""
        self.add(resources)

    def add(self, resources: Iterable[Resource]) -> None:
        """Put resources in."""
        for kind, amount in map(_split, resources):
            if amount:
                present = self.amounts.get(kind)
                self.amounts[kind] = amount if present is None else _sum(present, amount)

    def remove(self, resources: Iterable[Resource]) -> None:
        """Take resources out.

        Raises:
            ValueError: there are not that many; nothing has changed.
        """
        wanted = Bag(resources)
        if not self.contains(wanted):
            raise ValueError(f"{wanted} is more than there is: {self or 'nothing'}")
        for kind, amount in wanted.amounts.items():
            rest = self.amounts[kind] - amount  # type: ignore[operator]  # same kind, same type
            if rest:
                self.amounts[kind] = rest
            else:
                del self.amounts[kind]

    def contains(self, other: "Bag") -> bool:
        """Whether all of another bag is in here."""
        for kind, amount in other.amounts.items():
            present = self.amounts.get(kind)
            if present is None or not present >= amount:  # type: ignore[operator]  # likewise
                return False
        return True

    def overlaps(self, other: "Bag") -> bool:
        """Whether some port, or other thing there is only one of, is in both."""
        return any(
            not isinstance(amount, int) and amount & other.amounts[kind]  # type: ignore[operator]
            for kind, amount in self.amounts.items()
            if kind in other.amounts
        )

    def __bool__(self) -> bool:
        return bool(self.amounts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bag) and self.amounts == other.amounts

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __str__(self) -> str:
        return ";".join(map(text_of, self.resources()))

    def scalar(self, name: str) -> float:
        """Return how much there is of a scalar, reserved or not, in units."""
        return sum(r.scalar.value for r in self.resources() if r.name == name)

    def resources(self) -> list[Resource]:
        """Return messages, without allocation."""
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
    """Write a resource as Mesos does: `cpus:4`, `mem(eng):64`, `ports:[1-9]`, `disks:{a,b}`."""
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
    """Read how much a resource is, as strictly as `Resources::validate` in Mesos.

    Raises:
        ValueError: it has no name, or not the value that its type asks for.
    """
    name = resource.name
    said = [field for field in ("scalar", "ranges", "set") if resource.HasField(field)]
    expected = {mesos.Value.SCALAR: "scalar", mesos.Value.RANGES: "ranges", mesos.Value.SET: "set"}
    if not name or said != [expected.get(resource.type)]:
        raise ValueError(f"invalid resource {name!r}: its value is not of its type")
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
