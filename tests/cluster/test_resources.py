"""Properties of Mesos resources, and their addition and subtraction (§2)."""

import functools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.resources import (
    NOTHING,
    InvalidResource,
    Kind,
    Resources,
    amounts,
    parse_allocated,
    parse_total,
    parse_used,
    ranges,
)
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.quantities import Quantities
from bench import counts
from tests.cluster.master_side import resource, resources, text_of

integers = st.sets(st.integers(0, 40))
far = st.sampled_from([0, 3, 1000, 2**16, 2**20 - 50, 2**20, 2**40, 2**64 - 5000])


@st.composite
def fragmented(draw: st.DrawFn) -> set[int]:
    """Return integers in up to three groups; each has many short intervals at equal distances."""
    chosen = set[int]()
    for _ in range(draw(st.integers(0, 3))):
        start, distance = draw(far), draw(st.sampled_from([1, 2, 3, 8, 40, 600, 9000]))
        number, length = draw(st.integers(1, 60)), draw(st.integers(1, 3))
        for n in range(number):
            chosen |= {min(start + n * distance + k, 2**64 - 1) for k in range(length)}
        chosen -= draw(st.sets(st.integers(start, start + 200), max_size=5))
    return chosen


def intervals(members: set[int]) -> ranges.Ranges:
    return ranges.coalesced((n, n) for n in members)


def members(value: ranges.Ranges) -> set[int]:
    return {n for begin, end in ranges.intervals(value) for n in range(begin, end + 1)}


@given(integers | fragmented(), integers | fragmented(), st.integers(-1, 200))
def test_ranges_behave_like_sets_of_numbers(a: set[int], b: set[int], number: int) -> None:
    assert members(intervals(a)) == a
    entries = ranges.intervals(intervals(a))
    assert entries == tuple(sorted(entries))
    assert len(entries) == len({n for n in a if n - 1 not in a}), "adjacent ranges are merged"
    for left, right in (a, b), (a | b, b), (a, a & b), (a, set(sorted(b)[:1])):
        x, y = intervals(left), intervals(right)
        assert ranges.union(x, y) == ranges.union(y, x) == intervals(left | right)
        assert hash(ranges.union(x, y)) == hash(intervals(left | right))
        assert ranges.difference(x, y) == intervals(left - right)
        assert ranges.contains(x, y) == (right <= left)
        assert ranges.union(x, y, x, intervals({5})) == intervals(left | right | {5})
    assert ranges.first(intervals(a), number) == intervals(set(sorted(a)[: max(number, 0)]))
    assert ranges.size(intervals(a)) == len(a)


def lines_of(work: Callable[[], object]) -> int:
    """Return how many lines of `ranges` the work executes, warm."""
    work()
    return counts.lines_of(work)


@pytest.mark.parametrize("distance", [2, 600], ids=["dense", "sparse"])
def test_an_operation_with_one_of_many_ranges_does_not_walk_them_all(distance: int) -> None:
    def lines(number: int) -> int:
        many = intervals({1025 + n * distance for n in range(number)})
        one = intervals({1025 + number // 2 * distance})
        rest = ranges.difference(many, one)
        return (
            lines_of(lambda: ranges.difference(many, one))
            + lines_of(lambda: ranges.union(rest, one))
            + lines_of(lambda: ranges.contains(many, one))
        )

    assert lines(15_000) < lines(100) + 100


def test_two_sets_of_many_ports_are_compared_and_joined_without_walking_them() -> None:
    even, fourth = (intervals(set(range(1026, 32000, step))) for step in (2, 4))
    rest = ranges.difference(even, fourth)

    def work() -> None:
        assert ranges.contains(even, fourth)
        assert not ranges.contains(fourth, even)
        assert ranges.union(fourth, rest) == even
        assert ranges.difference(even, fourth) == rest

    assert lines_of(work) < 200


@pytest.mark.parametrize("bad", ["[5-1]", "[1-5,5-9]"])
def test_ranges_with_an_end_before_the_begin_or_with_overlap_are_rejected(bad: str) -> None:
    with pytest.raises(InvalidResource, match=r"ends before|overlap"):
        parse_total(resources(f"ports:{bad}"))


bags = st.builds(
    lambda cpus, mem, ports, reserved: parse_total(
        resources(
            f"cpus:{cpus / 1000};mem:{mem}"
            + (f";ports:[{','.join(f'{p}-{p}' for p in sorted(ports))}]" if ports else "")
            + (f";cpus(eng):{reserved}" if reserved else "")
        )
    ),
    st.integers(0, 9000),
    st.integers(0, 4096),
    st.sets(st.integers(1, 30)),
    st.integers(0, 4),
)


@given(bags, bags)
def test_addition_and_subtraction_are_inverse(a: Resources, b: Resources) -> None:
    without_ports = b.where(lambda kind: kind.name != "ports")
    total = a + without_ports
    assert total - without_ports == a
    assert a in total
    assert without_ports in total
    assert a + NOTHING == a
    assert a - a == NOTHING


def test_ranges_of_far_numbers_are_compared_with_near_ones() -> None:
    wide, part = (
        parse_total(resources(f"ports:[{p}]")) for p in ("1-1,7-7,99999-99999", "1-1,7-7")
    )
    assert part in wide
    assert wide not in part
    assert wide in parse_total(resources("ports:[1-7,99999-99999]"))


@given(bags, bags)
def test_a_contained_bag_leaves_nothing_of_its_resources_after_subtraction(
    a: Resources, b: Resources
) -> None:
    assert (b in a) == (not b - a)


@given(bags)
def test_quantities_count_scalars_ports_and_items(bag: Resources) -> None:
    ports = [amount for amount in bag.values() if isinstance(amount, tuple)]
    assert bag.quantities["ports"] == 1000 * sum(len(members(amount)) for amount in ports)
    assert bag.scalars["ports"] == 0
    assert bag.scalars["cpus"] == bag.quantities["cpus"]


@given(bags)
def test_reading_and_writing_resources_are_inverse(bag: Resources) -> None:
    role, parsed = parse_allocated(bag.messages("some/role"))
    assert parsed == bag
    assert role == ("some/role" if bag else "")


@pytest.mark.parametrize(
    ("value", "expected"), [(1.5011, 1.501), (1.5015, 1.502), (1.0005, 1.001), (0.0004, None)]
)
def test_scalars_have_thousandths_rounded_half_away_from_zero(
    value: float, expected: float | None
) -> None:
    bag = parse_total([resource("cpus", str(value)).SerializeToString()])
    written = [mesos.Resource.FromString(m).scalar.value for m in bag.messages("a")]
    assert written == ([] if expected is None else [expected])


def test_reservations_are_part_of_a_resources_kind() -> None:
    bag = parse_total(resources("cpus:1;cpus(eng):2;cpus(eng,eng/web):4"))
    assert len(bag) == 3
    assert bag.scalars["cpus"] == 7000
    offerable = {
        role: bag.where(functools.partial(Kind.offerable_to, role=role))
        for role in ("eng/web", "eng", "other")
    }
    assert {role: b.scalars["cpus"] for role, b in offerable.items()} == {
        "eng/web": 7000,
        "eng": 3000,
        "other": 1000,
    }


def reserved(*labels: tuple[str, str | None], unknown: bytes = b"") -> bytes:
    """Return a serialised resource with a labelled reservation; None is an unset value."""
    message = resource("cpus", "1", reserved=["eng"])
    for key, value in labels:
        message.reservations[0].labels.labels.add(key=key, value=value)
    if unknown:
        message.reservations[0].MergeFromString(unknown)
    return message.SerializeToString()


_UNKNOWN_FIELD = b"\xc0\x3e\x01"
"""The field number 1000, which no message of Mesos has, with the value 1."""


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (reserved(("k", "")), reserved(("k", None))),
        (
            reserved(("a", None), ("a", None), ("b", None)),
            reserved(("b", ""), ("a", None), ("b", None)),
        ),
        (reserved(), reserved(unknown=_UNKNOWN_FIELD)),
        (reserved(), reserved() + _UNKNOWN_FIELD),
    ],
    ids=["empty value", "repeated labels", "unknown field of a reservation", "unknown field"],
)
def test_resources_that_mesos_adds_up_are_one_kind(left: bytes, right: bytes) -> None:
    for messages in [left, right], [right, left]:
        bag = parse_total(messages)
        assert len(bag) == 1
        assert bag.scalars["cpus"] == 2000
        assert not bag - parse_total([left]) - parse_total([right])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (reserved(("k", "v")), reserved(("k", None))),
        (reserved(("a", None)), reserved(("a", None), ("a", None))),
        (reserved(("a", None), ("b", None)), reserved(("a", None), ("c", None))),
    ],
    ids=["value", "number", "key"],
)
def test_resources_that_mesos_tells_apart_are_two_kinds(left: bytes, right: bytes) -> None:
    assert len(parse_total([left, right])) == 2


def test_the_order_of_labels_does_not_matter_but_labels_do() -> None:
    def labelled(*keys: str) -> bytes:
        message = resource("cpus", "1", reserved=["eng"])
        for key in keys:
            message.reservations[0].labels.labels.add(key=key)
        return message.SerializeToString()

    assert len(parse_total([labelled("x", "y"), labelled("y", "x")])) == 1
    assert len(parse_total([labelled("x"), labelled("y")])) == 2


def disk(
    megabytes: float,
    *,
    volume: str | None = None,
    mount: str | None = None,
    shared: bool = False,
) -> mesos.Resource:
    message = resource("disk", str(megabytes), reserved=["eng"])
    if volume:
        message.disk.persistence.id = volume
    if mount:
        message.disk.source.type = mesos.Resource.DiskInfo.Source.MOUNT
        message.disk.source.mount.root = mount
    if shared:
        message.shared.SetInParent()
    return message


def test_the_principal_and_the_mount_point_of_a_volume_do_not_matter() -> None:
    ours, theirs = disk(100, volume="v1"), disk(100, volume="v1")
    theirs.disk.persistence.principal = "operator"
    theirs.disk.volume.container_path = "data"
    theirs.disk.volume.mode = mesos.Volume.RW
    assert parse_total([ours.SerializeToString()]) == parse_total([theirs.SerializeToString()])


def test_items_and_ports_are_taken_whole() -> None:
    bag = parse_total(resources("cpus:4;licences:{a,b,c};ports:[1-9]"))
    taken = bag.take_demand(Quantities.parse("licences:2;ports:3"))
    assert taken is not None
    assert text_of(taken.messages("eng")) == "licences:{a,b};ports:[1-3]"


def test_revocable_resources_are_separated_from_the_rest() -> None:
    spare = resource("cpus", "2")
    spare.revocable.SetInParent()
    bag = parse_total([*resources("cpus:4;mem:64"), spare.SerializeToString()])
    assert bag.revocable == parse_total([spare.SerializeToString()])
    assert not parse_total(resources("cpus:4")).revocable


def test_a_bag_contains_the_kinds_it_has_an_amount_of() -> None:
    bag = parse_total(resources("cpus:4;mem:64"))
    cpus, mem = (kind for kind, _ in bag.items())
    assert cpus in bag
    assert mem not in parse_total(resources("cpus:4"))


def test_two_equal_mount_disks_stay_two() -> None:
    data = disk(100, mount="/mnt").SerializeToString()
    bag = parse_total([data, data])
    assert bag.scalars["disk"] == 200_000
    assert len(bag.messages("eng")) == 2
    assert text_of((bag - parse_total([data])).messages("eng")) == "disk(eng):100"


def test_a_mount_disk_is_indivisible() -> None:
    whole = parse_total([disk(100, mount="/mnt").SerializeToString()])
    part = parse_total([disk(50, mount="/mnt").SerializeToString()])
    assert part not in whole
    assert whole - part == whole


def test_a_shared_volume_counts_once_however_often_it_is_allocated_and_stays_available() -> None:
    volume = disk(64, volume="v", shared=True)
    total = parse_total([volume.SerializeToString(), *resources("cpus:2")])
    volume.allocation_info.role = "eng"
    held = parse_used([volume.SerializeToString()] * 3)["eng"]
    assert held.scalars["disk"] == 64_000
    assert len(held.messages("eng")) == 3
    assert (total - held).with_shared_of(total) == total


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda r: setattr(r, "name", ""), "without a name"),
        (lambda r: r.ClearField("scalar"), "must carry 'scalar'"),
        (lambda r: r.ranges.range.add(begin=1, end=2), "and no other value"),
        (lambda r: setattr(r, "role", "*"), "deprecated"),
        (lambda r: r.reservation.SetInParent(), "deprecated"),
        (lambda r: r.shared.SetInParent(), "only a persistent volume"),
        (lambda r: r.disk.SetInParent(), "only 'disk' may"),
        (lambda r: setattr(r, "type", mesos.Value.TEXT), "TEXT"),
        (lambda r: setattr(r.scalar, "value", -1), "negative"),
        (lambda r: setattr(r.scalar, "value", float("nan")), "cpus"),
        (lambda r: setattr(r.scalar, "value", float("inf")), "cpus"),
        (lambda r: r.reservations.add(role="*", type=1), "reserved to the role '\\*'"),
        (lambda r: r.reservations.add(type=1), "reserved to the role ''"),
    ],
)
def test_a_resource_that_mesos_would_drop_or_abort_on_is_rejected(
    spoil: object, complaint: str
) -> None:
    message = resource("cpus", "1")
    spoil(message)  # type: ignore[operator]
    with pytest.raises(InvalidResource, match=complaint):
        parse_total([message.SerializePartialToString()])


def test_a_refinement_must_refine_the_former_reservation() -> None:
    with pytest.raises(InvalidResource, match="does not refine"):
        parse_total(resources("cpus(eng,ops):1"))


thousandths = st.integers(0, 5000)
parts = st.builds(
    lambda cpus, reserved, mem, disks: parse_total(
        [
            *resources(f"cpus:{cpus / 1000};cpus(eng):{reserved / 1000};mem:{mem / 1000}"),
            *(disk(size, mount="/mnt").SerializeToString() for size in disks),
        ]
    ),
    *(thousandths, thousandths, thousandths),
    st.lists(st.sampled_from([0, 1, 2]), max_size=3),
)


@given(parts, st.dictionaries(st.sampled_from(["cpus", "mem", "disk"]), thousandths))
def test_a_limit_keeps_its_amount_of_divisible_and_at_most_its_amount_of_indivisible_resources(
    bag: Resources, limit: dict[str, int]
) -> None:
    kept = bag.limited_to(Quantities(limit))
    assert kept in bag
    for name in ("cpus", "mem"):
        assert kept.scalars[name] == min(bag.scalars[name], limit.get(name, 0))
    assert kept.scalars["disk"] <= limit.get("disk", 0)
    for kind, amount in bag.items():
        if kind.whole is not None and kept.get(kind, 0) != amount:
            assert kept.scalars["disk"] + kind.whole > limit.get("disk", 0), (
                "another whole disk would exceed the limit"
            )


@given(parts, st.dictionaries(st.sampled_from(["cpus", "mem", "gpus"]), thousandths))
def test_a_demand_takes_exactly_its_amounts_or_nothing(
    bag: Resources, demand: dict[str, int]
) -> None:
    wanted = Quantities(demand)
    taken = bag.take_demand(wanted)
    enough = all(bag.scalars[name] >= amount for name, amount in demand.items())
    assert (taken is not None) == enough
    if taken is not None:
        assert taken in bag
        assert taken.scalars == wanted
        assert taken.all_divisible == all(kind.plain for kind in taken)


def test_fractions_of_a_port_take_no_more_ports_than_demanded() -> None:
    bag = parse_total(resources("ports:[1-2,5-6]"))
    for wanted, text in ((1, "[1-1]"), (2, "[1-2]"), (3, "[1-2,5-5]"), (4, "[1-2,5-6]")):
        taken = bag.take_demand(Quantities.parse(f"ports:{wanted}"))
        assert taken is not None
        assert text_of(taken.messages("a")) == f"ports:{text}"
        assert taken.quantities == Quantities.parse(f"ports:{wanted}")
    assert bag.take_demand(Quantities.parse("ports:5")) is None


def test_a_disk_of_size_zero_is_no_resource() -> None:
    assert parse_total([disk(0, mount="/mnt").SerializeToString()]) == NOTHING


def test_amounts_of_one_kind_have_one_type() -> None:
    unlike: list[amounts.Amount] = [1, ((1, 2),), frozenset("a")]
    for first in unlike:
        for second in unlike:
            if first is not second:
                assert not amounts.covers(first, second)
                for together in (amounts.plus, amounts.minus):
                    with pytest.raises(TypeError):
                        together(first, second)


def test_items_can_be_added_subtracted_and_counted() -> None:
    a, b = parse_total(resources("disks:{a,b}")), parse_total(resources("disks:{b,c}"))
    assert text_of((a + b).messages("r")) == "disks:{a,b,c}"
    assert text_of((a - b).messages("r")) == "disks:{a}"
    assert (a in a + b, a in b) == (True, False)
    assert a.quantities == Quantities.parse("disks:2")
    assert a.divisible == {"disks": 2000}


SOURCE = mesos.Resource.DiskInfo.Source
WHOLE = [
    ("a path", SOURCE.PATH, "", False),
    ("a mount", SOURCE.MOUNT, "", True),
    ("a block device", SOURCE.BLOCK, "", True),
    ("a raw disk", SOURCE.RAW, "", False),
    ("a raw disk of its own", SOURCE.RAW, "id", True),
]


@pytest.mark.parametrize(("_what", "kind", "identity", "whole"), WHOLE)
def test_mount_block_and_identified_raw_disks_are_indivisible(
    _what: str,
    kind: int,
    identity: str,
    whole: bool,  # noqa: FBT001
) -> None:
    message = disk(100)
    message.disk.source.type = kind  # type: ignore[assignment]
    if identity:
        message.disk.source.id = identity
    bag = parse_total([message.SerializeToString()] * 2)
    assert bag.has_whole == whole
    assert bag.scalars["disk"] == 200_000
    half = bag.limited_to(Quantities.parse("disk:150")).scalars["disk"]
    assert half == (100_000 if whole else 150_000)
    assert len(bag.messages("eng")) == (2 if whole else 1)


def test_a_volume_whose_amount_is_ranges_is_divisible() -> None:
    volume = mesos.Resource(name="disk", type=mesos.Value.RANGES)
    volume.ranges.range.add(begin=1, end=5)
    volume.disk.persistence.id = "v"
    (amount,) = parse_total([volume.SerializePartialToString()] * 2).values()
    assert amount == ((1, 5),)


def test_only_the_first_reservation_may_be_the_agents_own() -> None:
    inner = resource("cpus", "1", reserved=["eng", "eng/web"])
    inner.reservations[0].type = mesos.Resource.ReservationInfo.STATIC
    [kind] = parse_total([inner.SerializeToString()])
    assert kind.refined
    assert kind.reservation == "eng/web"
    inner.reservations[1].type = mesos.Resource.ReservationInfo.STATIC
    with pytest.raises(InvalidResource, match="only the first reservation may be static"):
        parse_total([inner.SerializeToString()])


def test_a_volumes_creator_does_not_matter() -> None:
    ours, theirs = disk(77, volume="w1"), disk(77, volume="w1")
    theirs.disk.persistence.principal = "somebody"
    [first], [second] = (parse_total([message.SerializeToString()]) for message in (ours, theirs))
    assert first == second


def test_a_bag_is_split_by_reservation_revocability_and_divisibility() -> None:
    spare = resource("cpus", "2")
    spare.revocable.SetInParent()
    plain = parse_total(resources("cpus:4;ports:[1-3];disks:{a,b}"))
    mixed = parse_total([*resources("cpus:4;mem(eng):64"), spare.SerializeToString()])
    assert (plain.ordinary, mixed.ordinary) == (True, False)
    assert mixed.plain == parse_total(resources("cpus:4"))
    assert dict(mixed.reserved) == {"eng": Quantities.parse("mem:64")}
    assert dict(plain.reserved) == {}
    assert plain.counted == {"ports", "disks"}
    assert plain.divisible == {"cpus": 4000, "ports": 3000, "disks": 2000}
    assert (plain.all_divisible, mixed.all_divisible) == (True, False)
    assert plain.quantities == Quantities.parse("cpus:4;ports:3;disks:2")
    assert plain.copies == Quantities.parse("cpus:4")


def test_copies_of_a_shared_volume_are_counted_as_copies() -> None:
    volume = disk(64, volume="v", shared=True)
    volume.allocation_info.role = "eng"
    held = parse_used([volume.SerializeToString()] * 3)["eng"]
    assert held.copies == Quantities.parse("disk:192")
    assert held.has_shared
    assert not held.ordinary
