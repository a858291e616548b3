"""Offer operations (RESERVE, CREATE, GROW_VOLUME, inverses) as conversions of resources.

See Mesos semantics, §4.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from google.protobuf.message import DecodeError, EncodeError

from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.limits import Limits
from allocator.cluster.input.text import text_of
from allocator.cluster.resources import Resources, parse_total, shortened
from allocator.cluster.resources.amounts import Amount
from allocator.cluster.resources.bag import add, subtract
from allocator.cluster.resources.kinds import Kind
from allocator.contract import mesos_pb2 as mesos
from allocator.cooperative import Cooperative, run_to_completion

CONVERSIONS_PER_STEP = 200
"""Number of conversions that are read in one cooperative step."""
_KINDS_A_STEP = 500
"""Number of kinds whose amounts are changed in one cooperative step, if the amounts are short."""
_SHORT = 64
"""Intervals or items of a set that take less work than the overhead of one kind."""


class OperationError(ValueError):
    """An operation cannot be applied to the resources; nothing has changed."""


@dataclass(frozen=True, slots=True)
class ResourceConversion:
    """One step of an offer operation: resources that are consumed, and their replacement."""

    consumed: Resources
    converted: Resources
    gone: Resources | None = None
    """Resources that must be absent afterwards: further copies of a destroyed volume."""

    def apply_in_steps(self, amounts: dict[Kind, Amount], present: Resources) -> Cooperative[None]:
        """Replace the consumed part of resources; O(kinds of that part and its replacement).

        Generator for cooperative steps, because a conversion may have thousands of kinds.

        Args:
            amounts: Amounts by kind, which change. After an error they are unusable.
            present: A bag that is made of these amounts, and changes with them.

        Raises:
            OperationError: The resources do not contain the consumed resources, or still contain
                the destroyed volume afterwards.
        """
        consumed = _parts(self.consumed)
        for number, part in enumerate(consumed):
            if number:
                yield
            if part not in present:
                raise OperationError(f"{present!r} does not contain {self.consumed!r}")
        for number, part in enumerate(consumed):
            if number:
                yield
            subtract(amounts, part)
        for number, part in enumerate(_parts(self.converted)):
            if number:
                yield
            add(amounts, part)
        if self.gone is not None and self.gone in present:
            raise OperationError(f"further copies of {self.gone!r} are there")

    def weight(self, amounts: dict[Kind, Amount]) -> int:
        """Return the work that the conversion takes, as a number of kinds with short amounts.

        Args:
            amounts: Amounts by kind that the conversion changes.
        """
        weight = 0
        for bag in (self.consumed, self.converted):
            for kind, amount in bag.items():
                weight += 1
                present = amounts.get(kind, 0)
                if not isinstance(amount, int):
                    weight += len(amount) // _SHORT
                if not isinstance(present, int):
                    weight += len(present) // _SHORT
        return weight


def _parts(resources: Resources) -> list[Resources]:
    """Return resources in parts of as many kinds as a cooperative step takes."""
    if len(resources) <= _KINDS_A_STEP:
        return [resources]
    entries, starts = list(resources.items()), range(0, len(resources), _KINDS_A_STEP)
    return [Resources(dict(entries[start : start + _KINDS_A_STEP])) for start in starts]


_Bag: TypeAlias = Callable[..., Resources]
"""Function that returns the resources of any number of messages."""


def parse_operation(data: bytes, limits: Limits) -> list[ResourceConversion]:
    """Parse a serialised Offer.Operation into the conversions that it consists of.

    Args:
        data: The operation.
        limits: Resources of kinds beyond these limits are shortened, as in all other calls.

    Raises:
        InvalidEvent: The message is malformed.
        OperationError: The operation does not convert resources, or its resources are unsuitable
            for it.
    """
    try:
        operation = mesos.Operation.FromString(data)
    except DecodeError as error:
        raise InvalidEvent(f"not a serialised mesos.Offer.Operation: {error}") from error
    kind = mesos.Operation.Type.Name(operation.type)
    steps = _STEPS.get(operation.type)
    if steps is None:
        raise OperationError(f"{kind} is not an operation on resources that are free")
    try:
        return steps(operation, partial(_bag, limits))
    except EncodeError as error:
        raise OperationError(f"{kind}: {error}") from error


def _reserve(operation: mesos.Operation, bag: _Bag) -> list[ResourceConversion]:
    reserve = operation.reserve
    if reserve.source:  # since Mesos 1.10: changes an existing reservation
        return [ResourceConversion(bag(*reserve.source), bag(*reserve.resources))]
    return [
        ResourceConversion(bag(_without_reservation(resource)), bag(resource))
        for resource in operation.reserve.resources
    ]


def _unreserve(operation: mesos.Operation, bag: _Bag) -> list[ResourceConversion]:
    return [
        ResourceConversion(bag(resource), bag(_without_reservation(resource)))
        for resource in operation.unreserve.resources
    ]


def _create(operation: mesos.Operation, bag: _Bag) -> list[ResourceConversion]:
    return [
        ResourceConversion(bag(_without_volume(volume)), bag(volume))
        for volume in operation.create.volumes
    ]


def _destroy(operation: mesos.Operation, bag: _Bag) -> list[ResourceConversion]:
    return [
        ResourceConversion(bag(volume), bag(_without_volume(volume)), gone=bag(volume))
        for volume in operation.destroy.volumes
    ]


def _grow(operation: mesos.Operation, bag: _Bag) -> list[ResourceConversion]:
    volume, addition = operation.grow_volume.volume, operation.grow_volume.addition
    _refuse_provider(volume, "GROW_VOLUME")
    grown = _copy(volume)
    grown.scalar.value += addition.scalar.value
    return [ResourceConversion(bag(volume, addition), bag(grown))]


def _shrink(operation: mesos.Operation, bag: _Bag) -> list[ResourceConversion]:
    volume, subtract = operation.shrink_volume.volume, operation.shrink_volume.subtract
    _refuse_provider(volume, "SHRINK_VOLUME")
    shrunk = _copy(volume)
    shrunk.scalar.value -= subtract.value
    freed = _without_volume(volume)
    freed.scalar.value = subtract.value
    if shrunk.scalar.value < 0:
        raise OperationError(f"cannot shrink a volume of {volume.scalar.value} by {subtract.value}")
    return [ResourceConversion(bag(volume), bag(shrunk, freed))]


_STEPS: dict[int, Callable[[mesos.Operation, _Bag], list[ResourceConversion]]] = {
    mesos.Operation.RESERVE: _reserve,
    mesos.Operation.UNRESERVE: _unreserve,
    mesos.Operation.CREATE: _create,
    mesos.Operation.DESTROY: _destroy,
    mesos.Operation.GROW_VOLUME: _grow,
    mesos.Operation.SHRINK_VOLUME: _shrink,
}
"""operation type → function that returns the operation's conversions"""


def _bag(limits: Limits, *resources: mesos.Resource) -> Resources:
    messages = (resource.SerializePartialToString() for resource in resources)
    if not limits.resource_kind:
        return parse_total(messages)
    return parse_total(shortened(data, limits.resource_kind) for data in messages)


def _copy(resource: mesos.Resource) -> mesos.Resource:
    return mesos.Resource.FromString(resource.SerializePartialToString())


def _without_reservation(resource: mesos.Resource) -> mesos.Resource:
    if not resource.reservations:
        raise OperationError(f"resource {text_of(resource, 'name')!r} is not reserved")
    copy = _copy(resource)
    del copy.reservations[-1]
    return copy


def _without_volume(volume: mesos.Resource) -> mesos.Resource:
    if not volume.disk.HasField("persistence"):
        raise OperationError(f"resource {text_of(volume, 'name')!r} is not a persistent volume")
    copy = _copy(volume)
    copy.ClearField("shared")
    copy.disk.ClearField("persistence")
    copy.disk.ClearField("volume")
    if not copy.disk.HasField("source"):
        copy.ClearField("disk")
    return copy


def _refuse_provider(volume: mesos.Resource, operation: str) -> None:
    if volume.HasField("provider_id"):
        raise OperationError(f"{operation} is not supported on a resource provider's volume")


def convert(steps: Iterable[ResourceConversion], resources: Resources) -> Resources:
    """Return the resources after all conversions have been applied, in order.

    Costs O(kinds of the resources and of all conversions).

    Raises:
        OperationError: A conversion does not apply.
    """
    return run_to_completion(convert_in_steps(steps, resources))


def convert_in_steps(
    steps: Iterable[ResourceConversion], resources: Resources
) -> Cooperative[Resources]:
    """Generator form of `convert`."""
    amounts = dict(resources.items())
    present, work = Resources(amounts), 0
    for step in steps:
        work += step.weight(amounts)
        if work > _KINDS_A_STEP:
            work = 0
            yield
        yield from step.apply_in_steps(amounts, present)
    return present
