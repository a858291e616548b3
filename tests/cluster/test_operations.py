"""Results of operations on resources, and errors of impossible operations."""

from collections.abc import Callable

import pytest

from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.limits import Limits
from allocator.cluster.offers.operations import OperationError, convert, parse_operation
from allocator.cluster.resources import Resources, parse_total
from allocator.cluster.resources.amounts import Amount
from allocator.cluster.resources.kinds import Kind
from allocator.contract import mesos_pb2 as mesos
from tests.cluster.conformance.quota_side import disk
from tests.cluster.master_side import resource, resources

Operation = mesos.Operation


def made_of(operation: mesos.Operation, *before: bytes) -> Resources:
    return convert(parse_operation(operation.SerializeToString(), Limits()), parse_total(before))


def volume(size: float, **options: object) -> bytes:
    return disk(size, reserved=["r"], volume="v", **options)  # type: ignore[arg-type]


def parsed(data: bytes) -> mesos.Resource:
    return mesos.Resource.FromString(data)


def grown(size: float, addition: float) -> mesos.Operation:
    operation = mesos.Operation(type=Operation.GROW_VOLUME)
    operation.grow_volume.volume.CopyFrom(parsed(volume(size)))
    operation.grow_volume.addition.CopyFrom(parsed(disk(addition, reserved=["r"])))
    return operation


def shrunk(size: float, reduction: float) -> mesos.Operation:
    operation = mesos.Operation(type=Operation.SHRINK_VOLUME)
    operation.shrink_volume.volume.CopyFrom(parsed(volume(size)))
    operation.shrink_volume.subtract.value = reduction
    return operation


def test_a_volume_grows_by_the_added_disk_and_keeps_its_other_fields() -> None:
    after = made_of(grown(50, 20), volume(50), disk(30, reserved=["r"]), *resources("cpus:1"))
    assert after == parse_total([volume(70), disk(10, reserved=["r"]), *resources("cpus:1")])


def test_the_disk_that_is_taken_off_a_volume_is_a_plain_disk_again() -> None:
    after = made_of(shrunk(50, 20), volume(50), *resources("cpus:1"))
    assert after == parse_total([volume(30), disk(20, reserved=["r"]), *resources("cpus:1")])
    [whole] = parse_operation(shrunk(50, 50).SerializeToString(), Limits())
    assert whole.converted == parse_total([disk(50, reserved=["r"])])
    with pytest.raises(OperationError, match=r"cannot shrink a volume of 50.0 by 51.0"):
        parse_operation(shrunk(50, 51).SerializeToString(), Limits())


def test_a_reservation_is_added_and_removed_as_the_last_refinement() -> None:
    reserve = mesos.Operation(type=Operation.RESERVE)
    inner = resource("cpus", "1", reserved=["r", "r/s"])
    reserve.reserve.resources.append(inner)
    before, after = resources("cpus(r):1"), [inner.SerializeToString()]
    assert made_of(reserve, *before) == parse_total(after)
    unreserve = mesos.Operation(type=Operation.UNRESERVE)
    unreserve.unreserve.resources.append(inner)
    assert made_of(unreserve, *after) == parse_total(before)
    moved = mesos.Operation(type=Operation.RESERVE)
    moved.reserve.source.append(inner)
    moved.reserve.resources.append(resource("cpus", "1", reserved=["t"]))
    assert made_of(moved, *after) == parse_total(resources("cpus(t):1"))


@pytest.mark.parametrize("mount", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_disks_become_volumes_and_volumes_become_disks(mount: bool, shared: bool) -> None:  # noqa: FBT001
    plain = disk(50, reserved=["r"], mount=mount)
    made = volume(50, mount=mount, shared=shared)
    create = mesos.Operation(type=Operation.CREATE)
    create.create.volumes.append(parsed(made))
    assert made_of(create, plain) == parse_total([made])
    destroy = mesos.Operation(type=Operation.DESTROY)
    destroy.destroy.volumes.append(parsed(made))
    [back] = made_of(destroy, made).messages("r")
    freed = parsed(back)
    freed.ClearField("allocation_info")
    assert freed == parsed(plain), "the disk carries no trace of a volume"
    if shared:
        with pytest.raises(OperationError, match="further copies"):
            made_of(destroy, made, made)


def provided(operation: mesos.Operation) -> mesos.Operation:
    of = operation.grow_volume if operation.HasField("grow_volume") else operation.shrink_volume
    of.volume.provider_id.value = "p"
    return operation


def with_(
    kind: mesos.Operation.Type.ValueType, give: Callable[[mesos.Operation], object]
) -> mesos.Operation:
    operation = mesos.Operation(type=kind)
    give(operation)
    return operation


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (mesos.Operation(type=Operation.LAUNCH), "LAUNCH is not an operation on resources"),
        (
            with_(Operation.RESERVE, lambda o: o.reserve.resources.append(resource("cpus", "1"))),
            "'cpus' is not reserved",
        ),
        (
            with_(
                Operation.UNRESERVE, lambda o: o.unreserve.resources.append(resource("cpus", "1"))
            ),
            "'cpus' is not reserved",
        ),
        (
            with_(Operation.CREATE, lambda o: o.create.volumes.append(parsed(disk(1)))),
            "'disk' is not a persistent volume",
        ),
        (
            with_(Operation.DESTROY, lambda o: o.destroy.volumes.append(parsed(disk(1)))),
            "'disk' is not a persistent volume",
        ),
        (provided(grown(1, 1)), "GROW_VOLUME is not supported on a resource provider's volume"),
        (provided(shrunk(2, 1)), "SHRINK_VOLUME is not supported on a resource provider's volume"),
    ],
)
def test_an_impossible_operation_is_rejected_with_a_reason(
    operation: mesos.Operation, words: str
) -> None:
    with pytest.raises(OperationError, match=words):
        parse_operation(operation.SerializePartialToString(), Limits())


def test_an_unknown_operation_and_an_absent_resource_give_different_errors() -> None:
    with pytest.raises(InvalidEvent, match=r"not a serialised mesos\.Offer\.Operation"):
        parse_operation(b"\xff", Limits())
    with pytest.raises(OperationError, match="does not contain"):
        made_of(grown(50, 20), volume(50), disk(19, reserved=["r"]))


@pytest.mark.interpreted
def test_a_list_of_conversions_copies_the_resources_once(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    construct = Resources.__init__

    def counting(bag: Resources, amounts: dict[Kind, Amount] | None = None) -> None:
        copied.append(len(amounts or ()))
        construct(bag, amounts)

    steps, total = [], parse_total(resources("disk:1000"))
    for number in range(100):
        reserve = mesos.Operation(type=Operation.RESERVE)
        reserve.reserve.resources.append(resource("disk", "1", reserved=[f"r{number}"]))
        steps += parse_operation(reserve.SerializeToString(), Limits())
    monkeypatch.setattr(Resources, "__init__", counting)
    assert len(convert(steps, total)) == 101
    assert sum(copied) <= 101
