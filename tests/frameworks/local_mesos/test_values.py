"""Numbers and times of the embedded master: intervals, bags, the clock, JSON and RecordIO."""

import base64
import json
from itertools import pairwise
from random import Random

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from allocator.contract import mesos_pb2 as mesos
from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos import wire
from frameworks.local_mesos.bag import ResourceBag
from frameworks.local_mesos.clock import Clock
from frameworks.local_mesos.intervals import Intervals
from frameworks.local_mesos.notation import downgraded, parse_attributes, parse_flag, upgraded

numbers = st.frozensets(st.integers(0, 30))


def _intervals(members: frozenset[int]) -> Intervals:
    return Intervals((n, n) for n in members)


def _members(intervals: Intervals) -> frozenset[int]:
    return frozenset(n for begin, end in intervals for n in range(begin, end + 1))


@given(numbers, numbers)
def test_intervals_are_the_sets_of_their_numbers(a: frozenset[int], b: frozenset[int]) -> None:
    first, right = _intervals(a), _intervals(b)
    assert _members(first) == a
    assert first | right == _intervals(a | b)
    assert first & right == _intervals(a & b)
    assert first - right == _intervals(a - b)
    assert (first >= right) == (a >= b)
    assert bool(first) == bool(a)
    assert all(end + 1 < begin for (_, end), (begin, _) in pairwise(first))


def test_intervals_that_overlap_or_run_backwards_are_refused() -> None:
    for pairs in ([(1, 3), (3, 4)], [(2, 1)], [(1, 9), (4, 5)]):
        with pytest.raises(ValueError, match="-"):
            Intervals(pairs)


@st.composite
def bags(draw: st.DrawFn) -> list[mesos.Resource]:
    """Resources of a few kinds, each at most once."""
    role = st.sampled_from(["", "(eng)"])
    entries = {
        f"cpus{draw(role)}:{draw(st.integers(0, 4000)) / 1000}",
        f"mem:{draw(st.integers(0, 64))}",
    }
    ports = draw(numbers)
    if ports:
        entries.add(f"ports{draw(role)}:[{','.join(f'{n}-{n}' for n in ports)}]")
    disks = draw(st.sets(st.sampled_from("abc")))
    if disks:
        entries.add(f"disks:{{{','.join(disks)}}}")
    return parse_flag(";".join(entries))


@given(bags(), bags())
def test_resources_removed_from_a_bag_were_in_the_bag_and_can_be_added_back(
    a: list[mesos.Resource], b: list[mesos.Resource]
) -> None:
    bag = ResourceBag(a)
    bag.add(ResourceBag(r for r in b if r.type == mesos.Value.SCALAR).resources())
    before = ResourceBag(bag.resources())
    assert before == bag
    wanted = ResourceBag(b)
    if bag.contains(wanted):
        bag.remove(b)
        assert not bag.overlaps(wanted)
        bag.add(b)
    else:
        with pytest.raises(ValueError, match="more than there is"):
            bag.remove(b)
    assert bag == before


def test_thousandths_are_what_scalars_are_counted_in() -> None:
    bag = ResourceBag()
    for _ in range(10):
        bag.add(parse_flag("cpus:0.1"))
    assert bag == ResourceBag(parse_flag("cpus:1"))


@given(bags())
def test_the_former_format_of_a_reservation_is_equivalent(resources: list[mesos.Resource]) -> None:
    assert [upgraded(downgraded(resource)) for resource in resources] == resources


def test_resources_are_read_from_json_in_the_present_and_the_former_format() -> None:
    text = json.dumps(
        [
            {"name": "cpus", "type": "SCALAR", "scalar": {"value": 4}, "role": "eng"},
            {"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": 1, "end": 9}]}},
        ]
    )
    assert ResourceBag(parse_flag(text)) == ResourceBag(parse_flag("cpus(eng):4;ports:[1-9]"))
    with pytest.raises(ValueError, match="JSON"):
        parse_flag('[{"name": "cpus", "sort": "SCALAR"}]')


@given(st.lists(st.integers(0, 100)), st.lists(st.integers(0, 60)), st.integers())
def test_timers_fire_in_order_at_their_own_times_at_any_speed(
    delays: list[int], steps: list[int], seed: int
) -> None:
    clock = Clock(1000)
    seen: list[tuple[int, int]] = []
    timers = []
    for serial, delay in enumerate(delays):

        def fire(serial: int = serial) -> None:
            seen.append((clock.now_ns - 1000, serial))

        timers.append(clock.after(delay / 1e9, fire))
    cancelled = {serial for serial in range(len(delays)) if Random(seed + serial).random() < 0.2}
    for serial in cancelled:
        timers[serial].cancel()
    for step in steps:
        clock.advance(step)
    due = [
        (delay, serial)
        for serial, delay in enumerate(delays)
        if delay <= sum(steps) and serial not in cancelled
    ]
    assert clock.now_ns == 1000 + sum(steps)
    assert seen == (sorted(due) if steps else [])


def test_a_timer_may_start_another_that_is_due_in_the_same_step() -> None:
    clock = Clock(0)
    beats: list[int] = []

    def beat() -> None:
        beats.append(clock.now_ns)
        clock.after(1e-9, beat)

    clock.after(1e-9, beat)
    clock.advance(5)
    assert beats == [1, 2, 3, 4, 5]


def _call() -> v1.Call:
    call = v1.Call(type=v1.Call.ACKNOWLEDGE)
    call.framework_id.value = "f"
    call.acknowledge.uuid = bytes(range(16))
    call.acknowledge.task_id.value = "t ü"
    call.acknowledge.agent_id.value = "S0"
    return call


def test_json_has_the_format_of_mesos() -> None:
    offer = v1.Offer(hostname="h", resources=parse_flag("cpus:0.5;ports:[1-18446744073709551615]"))
    assert wire.to_dict(offer) == {
        "hostname": "h",
        "resources": [
            {"name": "cpus", "type": "SCALAR", "scalar": {"value": 0.5}},
            {
                "name": "ports",
                "type": "RANGES",
                "ranges": {"range": [{"begin": 1, "end": 18446744073709551615}]},
            },
        ],
    }
    fields = wire.to_dict(_call())
    assert fields["type"] == "ACKNOWLEDGE"
    assert fields["acknowledge"]["uuid"] == base64.b64encode(bytes(range(16))).decode()


def test_maps_are_written_as_objects() -> None:
    info = mesos.FrameworkInfo(user="u", name="n")
    amounts = info.offer_filters["r"].min_allocatable_resources.quantities.add()
    amounts.quantities["cpus"].value = 2
    assert wire.to_dict(info)["offer_filters"] == {
        "r": {"min_allocatable_resources": {"quantities": [{"quantities": {"cpus": {"value": 2}}}]}}
    }


@pytest.mark.parametrize("content_type", [wire.JSON, wire.PROTOBUF])
def test_written_values_are_read_back_unchanged(content_type: str) -> None:
    call = _call()
    assert wire.decode(wire.encode(call, content_type), content_type, v1.Call) == call


def test_unknown_fields_are_ignored() -> None:
    body = b'{"type": "REVIVE", "framework_id": {"value": "f", "colour": 3}, "later": {}}'
    assert wire.decode(body, wire.JSON, v1.Call).framework_id.value == "f"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b"3",
        b"\xff",
        b"[" * 100_000,
        b'{"type": {}}',
        b'{"framework_id": {}}',
        b'{"framework_id": {"value": 3}}',
        b'{"accept": {"filters": {"refuse_seconds": "soon"}}}',
        b'{"framework_id": {"value": "\\ud800"}}',
        b'{"acknowledge": {"uuid": "no base64!"}}',
        b'{"accept": {"operations": {}}}',
    ],
)
def test_a_body_that_is_not_a_call_is_reported_as_malformed(body: bytes) -> None:
    with pytest.raises(wire.Malformed, match=r"Failed to"):
        wire.decode(body, wire.JSON, v1.Call)


def test_a_message_that_is_no_protobuf_or_lacks_a_required_field_is_malformed() -> None:
    for body in (b"\xff", v1.Call(kill=v1.Call.Kill()).SerializePartialToString()):
        with pytest.raises(wire.Malformed, match=r"Call"):
            wire.decode(body, wire.PROTOBUF, v1.Call)


def test_a_record_is_its_length_a_line_break_and_itself() -> None:
    assert wire.record(b"{}") == b"2\n{}"


def test_the_writer_agrees_with_protobuf_except_for_whole_numbers() -> None:
    event = v1.Event(type=v1.Event.SUBSCRIBED)
    event.subscribed.framework_id.value = "f"
    event.subscribed.heartbeat_interval_seconds = 15
    event.subscribed.master_info.id = "m"
    event.subscribed.master_info.ip = 1
    assert wire.to_dict(event) == json_format.MessageToDict(event, preserving_proto_field_name=True)


def test_attributes_are_read_as_by_an_agent_of_mesos() -> None:
    read = parse_attributes("rack:7; zone:us-west:1;slots:[1-3,9-9];gpus:{b,a}")
    assert [(a.name, mesos.Value.Type.Name(a.type)) for a in read] == [
        ("rack", "SCALAR"),
        ("zone", "TEXT"),
        ("slots", "RANGES"),
        ("gpus", "SET"),
    ]
    rack, zone, slots, gpus = read
    assert (rack.scalar.value, zone.text.value) == (7.0, "us-west:1")
    assert [(r.begin, r.end) for r in slots.ranges.range] == [(1, 3), (9, 9)]
    assert list(gpus.set.item) == ["b", "a"]
    with pytest.raises(ValueError, match="'rack': not of the form"):
        parse_attributes("zone:a;rack")
