"""Lists that a framework, an agent or an operator fills are bounded before they are read.

The cost is counted in calls of functions, so that no clock decides. Without bounds, each case takes
hundreds of thousands of calls.
"""

import difflib
from collections.abc import Sequence
from dataclasses import replace
from unittest import mock

import pytest

from allocator.cluster.agents.agent import parse_agent_info
from allocator.cluster.agents.placement_constraints import Host, Hosts
from allocator.cluster.frameworks.subscription import (
    Subscription,
    read_request,
    read_subscription,
)
from allocator.cluster.input.limits import Limits
from allocator.cluster.input.resource_parser import ResourceParser
from allocator.cluster.input.text import excerpt
from allocator.cluster.resources import parse_total, ranges
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.cooperative import run_to_completion
from allocator.service.config import LimitsSection
from tests.cluster.master_side import START_NS, MasterSide, framework_info, resource
from tests.counted import counted

pytestmark = pytest.mark.usefixtures("empty_caches")

LIMITS = LimitsSection().limits()
MOST_CALLS = 60_000
"""Maximum number of calls for the parsing of one message: some milliseconds."""
ENTRIES = LIMITS.entries


def framework(**fields: object) -> mesos.FrameworkInfo:
    return mesos.FrameworkInfo(user="u", name="n", role="r", **fields)  # type: ignore[arg-type]


def labelled(*keys: str | bytes, value: str = "") -> bytes:
    """Return a serialised FrameworkInfo with labels, whose keys need not be UTF-8."""
    info = framework(labels=mesos.Labels())
    for key in keys:
        label = info.labels.labels.add()
        if isinstance(key, str):
            label.key = key
        else:
            label.MergeFromString(b"\x0a" + bytes([len(key)]) + key)
        if value:
            label.value = value
    return info.SerializePartialToString()


def with_label(key: str, value: str) -> bytes:
    return labelled(f"longshare.{key}", value=value)


def with_capabilities(number: int) -> bytes:
    info = framework()
    for _ in range(number):
        info.capabilities.add(type=mesos.FrameworkInfo.Capability.MULTI_ROLE)
    return info.SerializeToString()


def with_minima(roles: int, alternatives: int, names: int) -> bytes:
    info = framework()
    for role in range(roles):
        quantities = info.offer_filters[f"r{role}"].min_allocatable_resources.quantities
        for _ in range(alternatives):
            minimum = quantities.add()
            for name in range(names):
                minimum.quantities[f"x{name}"].value = 1.0
    return info.SerializeToString()


def with_text(field: str, text: bytes) -> bytes:
    """Return a serialised FrameworkInfo with bytes in a text field."""
    number, length = mesos.FrameworkInfo.DESCRIPTOR.fields_by_name[field].number, len(text)
    varint = bytes([length & 127 | 128, length >> 7 & 127 | 128, length >> 14])
    return framework().SerializeToString() + bytes([number << 3 | 2]) + varint + text


def subscribed(data: bytes) -> Subscription:
    return read_subscription("f", data, LIMITS)


BEYOND: dict[str, tuple[bytes, str]] = {
    "labels": (labelled(*["a"] * 100_000), "has 100000 labels, more than 1000 (limits.entries)"),
    "labels that are not UTF-8": (labelled(*[b"\xff"] * 100_000), "limits.entries"),
    "capabilities": (with_capabilities(100_000), "has 100000 capabilities, more than 1000"),
    "offer filters": (with_minima(20_000, 0, 0), "has 20000 offer filters, more than 1000"),
    "alternatives": (with_minima(1, 100_000, 0), "more than 64 (limits.resources)"),
    "resources of one minimum": (with_minima(1, 1, 40_000), "more than 64 (limits.resources)"),
    "resources of all minima": (with_minima(150, 16, 16), "more than 4000 quantities"),
    "a name": (with_text("name", b"\xff" * 900_000), "its name has 900000 bytes, more than 1024"),
    "a principal": (with_text("principal", b"\xff" * 900_000), "its principal is not UTF-8"),
}


@pytest.mark.parametrize(("data", "words"), BEYOND.values(), ids=BEYOND)
def test_a_list_beyond_the_limit_is_rejected_without_reading_it(data: bytes, words: str) -> None:
    rejected = subscribed(data)
    assert rejected.flaw is not None
    assert words in rejected.flaw.words
    assert len(rejected.name) + len(rejected.principal) < 10_000
    assert counted(lambda: subscribed(data)) < MOST_CALLS


@pytest.mark.parametrize(
    "data",
    [
        labelled(*["a"] * ENTRIES),
        labelled(*[b"\xff"] * ENTRIES),
        with_capabilities(ENTRIES),
        with_minima(ENTRIES, 1, 4),
        with_minima(1, 64, 62),
    ],
    ids=["labels", "labels that are not UTF-8", "capabilities", "offer filters", "alternatives"],
)
def test_lists_at_the_limit_are_accepted(data: bytes) -> None:
    assert subscribed(data).flaw is None
    assert counted(lambda: subscribed(data)) < MOST_CALLS


def test_without_the_limit_longer_lists_are_read_as_in_former_event_logs() -> None:
    data = labelled(*["a"] * 2000, "longshare.demand", value="cpus:1")
    subscription = read_subscription("f", data, Limits())
    assert subscription.flaw is None
    assert subscription.demand is not None
    assert dict(subscription.demand.items()) == {"cpus": 1000}


LONG_VALUES: dict[str, tuple[str, str, str]] = {
    "demand": ("demand", ";".join(f"r{n}:1" for n in range(6000)), "more than 64 resources"),
    "globs": ("whitelist", ",".join(f"*{n}" for n in range(9000)), "more than 256 wildcards"),
    "few wildcards": ("whitelist", ",".join(f"*{n}" for n in range(200)), "more than 32 globs"),
    "wildcards": ("blacklist", ",".join(["*a" * 100] * 3), "more than 256 wildcards"),
    "ranges": ("blacklist", ",".join(["10.0.0.1-10.0.0.9"] * 3600), "more than 32 globs"),
    "networks": ("whitelist", ",".join(["fd00::/16"] * 6500), "more than 32 globs"),
    "attributes": ("attributes", ";".join(f"k{n}:v" for n in range(8000)), "more than 32 attr"),
}


@pytest.mark.parametrize(("key", "value", "words"), LONG_VALUES.values(), ids=LONG_VALUES)
def test_items_of_a_label_are_counted_before_they_are_parsed(
    key: str, value: str, words: str
) -> None:
    data = with_label(key, value)
    subscription = subscribed(data)
    assert subscription.flaw is None
    assert words in f"{subscription.unreadable} {subscription.constraint.unreadable}"
    assert counted(lambda: subscribed(data)) < MOST_CALLS


def test_numbers_that_are_no_addresses_are_names_of_hosts() -> None:
    """Python's parser of addresses takes microseconds for each, and raises exceptions."""
    text = " ".join(f"{number}.1.1.999" for number in range(4000))
    hosts = Hosts.parse(text, LIMITS.patterns)
    assert len(hosts.items) == 4000
    assert not hosts._patterns
    assert counted(lambda: Hosts.parse(text, LIMITS.patterns)) < 15 * 4000


def test_all_globs_of_a_list_are_one_pattern() -> None:
    """An agent then costs one call for each list, not one for each glob."""
    hosts = Hosts.parse(" ".join(f"node-*-{number}" for number in range(32)), LIMITS.patterns)
    host = Host("x", (), ())
    assert len(hosts.items) == 32
    assert host not in hosts
    assert counted(lambda: host in hosts) < 10


def with_reservation_labels(number: int) -> mesos.Resource:
    message = resource("cpus", "1", reserved=["r"])
    labels = message.reservations[0].labels.labels
    for n in range(number):
        labels.add(key=f"{n % 10}")
    return message


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (with_reservation_labels(50_000), "50001 reservations and labels, more than 1000"),
        (with_reservation_labels(100_000), "bytes, more than 262144 (limits.resource)"),
        (resource("cpus", "1", reserved=["a"] * 20_000), "20000 reservations and labels"),
        (resource("x", f"{{{','.join(map(str, range(50_000)))}}}"), "bytes, more than 262144"),
    ],
    ids=["labels", "bytes", "reservations", "items"],
)
def test_a_request_beyond_a_limit_is_rejected_without_reading_it(
    wanted: mesos.Resource, words: str
) -> None:
    data = mesos.Request(resources=[wanted]).SerializeToString()
    demand, flaw = read_request(data, LIMITS, otherwise=None)
    assert demand is None
    assert flaw is not None
    assert flaw.reason == "limit"
    assert words in flaw.words
    assert counted(lambda: read_request(data, LIMITS, otherwise=None)) < MOST_CALLS


@pytest.mark.parametrize("value", ["[{}]", "{{{}}}"])
def test_ranges_and_items_of_a_request_are_limited_in_all_its_resources_together(
    value: str,
) -> None:
    def reason(values: int) -> str:
        """Return why a request is rejected that divides a number of values among 20 resources."""
        texts = [
            ",".join(f"{number}-{number}" if value == "[{}]" else f"{number}" for number in numbers)
            for numbers in (range(2 * first, 2 * values, 40) for first in range(20))
        ]
        wanted = [resource("x", value.format(text)) for text in texts]
        request = mesos.Request(resources=wanted).SerializeToString()
        _, flaw = read_request(request, LIMITS, otherwise=None)
        return "" if flaw is None else flaw.words

    assert not reason(ENTRIES)
    assert "1001 ranges and items, more than 1000 (limits.entries)" in reason(ENTRIES + 1)


def test_amounts_of_one_kind_are_joined_once_however_many_resources_have_them() -> None:
    messages = [
        resource("ports", f"[{2 * number}-{2 * number}]").SerializeToString()
        for number in range(100)
    ]
    with mock.patch.object(ranges, "union", wraps=ranges.union) as union:
        bag = parse_total(messages)
    assert bag.quantities["ports"] == 100_000
    assert union.call_count == 1


def test_a_resource_with_too_many_labels_is_left_out_alone() -> None:
    messages = [
        with_reservation_labels(ENTRIES).SerializeToString(),
        with_reservation_labels(ENTRIES - 1).SerializeToString(),
        resource("mem", "1").SerializeToString(),
    ]
    parser = ResourceParser(replace(LIMITS, resource_kind=0))
    assert sorted(kind.name for kind in parser.total(messages)) == ["cpus", "mem"]
    assert parser.flaw is not None
    assert "has 1001 reservations and labels, more than 1000" in parser.flaw.words
    long = [with_reservation_labels(40_000).SerializeToString()]
    assert counted(lambda: ResourceParser(LIMITS).total(long)) < MOST_CALLS


def test_labels_of_reservations_are_equal_in_any_order() -> None:
    message = with_reservation_labels(10)
    reverse = mesos.Resource.FromString(message.SerializeToString())
    reverse.reservations[0].labels.labels.reverse()
    first, second = message.SerializeToString(), reverse.SerializeToString()
    assert first != second
    assert ResourceParser(LIMITS).total([first]) == ResourceParser(LIMITS).total([second])


def agent_info(**fields: object) -> bytes:
    fields = {"hostname": "h"} | fields
    return mesos.SlaveInfo(**fields).SerializePartialToString()  # type: ignore[arg-type]


def attribute(number: int = 0) -> mesos.Attribute:
    made = mesos.Attribute(name="a", type=mesos.Value.SET)
    made.set.item.extend(str(n) for n in range(number))
    return made


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (agent_info(attributes=[attribute()] * 100_000), "has 100000 attributes with items"),
        (agent_info(attributes=[attribute(ENTRIES)]), "has 1001 attributes with items"),
        (agent_info(hostname="h" * 2000), "host name has more than 1024 bytes"),
    ],
    ids=["attributes", "items", "host name"],
)
def test_an_agent_with_too_long_a_list_is_not_offered(data: bytes, words: str) -> None:
    info, flaw = parse_agent_info("a", data, LIMITS)
    assert flaw is not None
    assert words in flaw.words
    assert not info.attributes
    assert counted(lambda: parse_agent_info("a", data, LIMITS)) < MOST_CALLS
    assert parse_agent_info("a", data, Limits())[1] is None


def test_an_agent_may_have_attributes_up_to_the_limit() -> None:
    data = agent_info(attributes=[attribute(ENTRIES - 1)])
    assert parse_agent_info("a", data, LIMITS)[1] is None


def test_a_framework_beyond_the_limit_gets_no_offers_and_costs_others_none() -> None:
    master = MasterSide(limits=LIMITS)
    master.send(
        contract.AddFramework(framework_id="f", info=BEYOND["labels"][0], active=True),
        contract.AddFramework(framework_id="g", info=framework_info("g", "g"), active=True),
    )
    assert {offer.framework for offer in master.add_agent("a1", "cpus:4;mem:4096")} == {"g"}
    [rejected] = master.engine.rejected_inputs()
    assert (rejected.name, rejected.topic, rejected.flaw.reason) == ("f", "subscription", "limit")


def test_a_framework_keeps_its_roles_after_an_update_beyond_the_limit() -> None:
    master = MasterSide(limits=LIMITS)
    master.add_framework("f", "r")
    master.send(contract.UpdateFramework(framework_id="f", info=BEYOND["labels"][0]))
    assert [rejected.name for rejected in master.engine.rejected_inputs()] == ["f"]
    master.send(contract.UpdateFramework(framework_id="f", info=framework_info("f", "r")))
    assert not list(master.engine.rejected_inputs())
    assert [offer.role for offer in master.add_agent("a1", "cpus:4;mem:4096")] == ["r"]


def test_an_operation_beyond_the_limit_is_answered_with_the_limit() -> None:
    master = MasterSide(limits=LIMITS)
    master.add_agent("a1", "cpus:4;mem:4096")
    operation = mesos.Operation(type=mesos.Operation.RESERVE)
    operation.reserve.resources.append(with_reservation_labels(100_000))
    call = contract.UpdateAvailable(agent_id="a1", operations=[operation.SerializeToString()])
    event = contract.Event(sequence=master.sequence + 1, time_ns=START_NS, update_available=call)
    answered: list[contract.Decisions] = []
    events = contract.Events(events=[event])
    assert counted(lambda: answered.append(master.engine.apply(events))) < MOST_CALLS
    [reply] = answered[0].replies
    assert "bytes, more than 262144 (limits.resource)" in reply.error


def test_revived_roles_cost_their_number_and_not_that_times_the_frameworks_roles() -> None:
    def cost(roles: int) -> int:
        master = MasterSide(limits=LIMITS)
        names = [f"r{n}" for n in range(200)]
        call = contract.AddFramework(framework_id="f", info=framework_info("f", *names))
        master.send(call)
        revive = contract.ReviveOffers(framework_id="f", roles=["r0"] * roles)
        return counted(lambda: master.send(revive))

    assert cost(20_000) < cost(1) + 1000


@pytest.mark.parametrize("value", ["é" * 1000, b"\xff" * 1000, "short", b"a\xffb"])
def test_an_excerpt_is_the_beginning_of_a_text(value: str | bytes) -> None:
    whole = value if isinstance(value, str) else value.decode("utf-8", "backslashreplace")
    assert whole.startswith(excerpt(value))
    assert len(excerpt(value)) <= 1200
    assert excerpt(value, 2) == excerpt(value[:2])


def misfit_calls(roles: int, info: mesos.FrameworkInfo) -> tuple[int, str]:
    """Return the calls that a look at misfits costs, as at each tick, and the reason."""
    master = MasterSide(limits=LIMITS)
    master.add_agent("a1", "cpus:4;mem:4096;disk:9")
    named = mesos.FrameworkInfo.FromString(framework_info("f", *(f"r{n}" for n in range(roles))))
    info.MergeFrom(named)
    master.send(contract.AddFramework(framework_id="f", info=info.SerializeToString()))
    master.engine.misfits()
    cost = counted(master.engine.misfits)
    return cost, master.engine.misfits()["f"]


def test_a_tick_costs_the_same_however_long_a_list_is_that_no_agent_meets() -> None:
    def cost(names: int) -> int:
        info = mesos.FrameworkInfo()
        value = ",".join(f"nowhere-{number}" for number in range(names))
        info.labels.labels.add(key="longshare.whitelist", value=value)
        calls, reason = misfit_calls(1, info)
        assert reason.startswith("no agent meets its constraint: whitelist nowhere-0, ")
        assert len(reason) < 400
        return calls

    assert cost(4000) <= cost(100)


def test_unknown_resources_of_a_demand_are_described_once_for_all_roles() -> None:
    def cost(roles: int) -> int:
        demand = ";".join(f"unknown-{n}:1" for n in range(60))
        info = mesos.FrameworkInfo()
        info.labels.labels.add(key="longshare.demand", value=demand)
        calls, reason = misfit_calls(roles, info)
        assert reason.startswith("the cluster has no unknown-0; ")
        return calls

    assert cost(250) < cost(1) + 20 * 250
    assert cost(1) < 300


def test_unknown_resources_of_minima_are_described_for_a_few_roles() -> None:
    info = mesos.FrameworkInfo()
    for role in range(250):
        quantities = info.offer_filters[f"r{role}"].min_allocatable_resources.quantities
        for name in range(8):
            quantities.add().quantities[f"unknown-{name}"].value = 1.0
    calls, reason = misfit_calls(1, info)
    assert reason.count("its offer_filters for the role") == 8
    assert calls < 5 * 8 * 250


def test_a_correction_is_found_anew_when_the_cluster_gets_other_resources() -> None:
    master = MasterSide(limits=LIMITS)
    master.add_agent("a1", "cpus:4;mem:4096")
    data = with_label("demand", "gpuss:1")
    master.send(contract.AddFramework(framework_id="f", info=data, active=True))
    assert "did you mean gpus?" not in master.engine.misfits()["f"]
    master.add_agent("a2", "cpus:4;mem:4096;gpus:1")
    assert "did you mean gpus?" in master.engine.misfits()["f"]


def test_few_corrections_are_computed_for_a_framework_and_none_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each framework names 8 unknown resources in its demand, and 8 in each of 8 offer filters."""
    computed, plain = 0, difflib.get_close_matches

    def compute(word: str, possibilities: Sequence[str], n: int) -> list[str]:
        nonlocal computed
        computed += 1
        return plain(word, possibilities, n)

    monkeypatch.setattr(difflib, "get_close_matches", compute)
    master, frameworks = MasterSide(limits=LIMITS), 40
    master.add_agent("a1", "cpus:4;mem:4096")
    for n in range(frameworks):
        roles = [f"r{n}-{k}" for k in range(8)]
        info = mesos.FrameworkInfo.FromString(framework_info(f"f{n}", *roles))
        demand = ";".join(f"cpus{n}x{k}:1" for k in range(8))
        info.labels.labels.add(key="longshare.demand", value=demand)
        for role in roles:
            quantities = info.offer_filters[role].min_allocatable_resources.quantities.add()
            for k in range(8):
                quantities.quantities[f"{role}-cpus{k}"].value = 1.0
        data = info.SerializeToString()
        master.send(contract.AddFramework(framework_id=f"f{n}", info=data, active=True))
    computed = 0
    assert master.engine.number_of_misfits() == frameworks
    assert not computed, "a number needs no corrections"
    misfits = master.engine.misfits()
    assert "cluster has no cpus0x0" in misfits["f0"]
    assert len(misfits) == frameworks
    assert computed <= 8 * frameworks
    computed = 0
    assert master.engine.misfits() == misfits
    assert len(run_to_completion(master.engine.task_fits("r0-0"))) == 1
    assert not computed, "each framework keeps its descriptions"
    master.send(contract.UpdateFramework(framework_id="f0", info=framework_info("f0", "r0-0")))
    assert "f0" not in master.engine.misfits()


def test_the_reason_of_a_framework_is_short_however_long_its_labels_and_roles_are() -> None:
    master = MasterSide(limits=LIMITS)
    master.add_agent("a1", "cpus:4;mem:4096")
    roles = [f"{'r' * 1000}{n}" for n in range(200)]
    info = mesos.FrameworkInfo.FromString(framework_info("f", *roles))
    value = ";".join(f"rack:{'x' * 2000}{n}" for n in range(32))
    info.labels.labels.add(key="longshare.attributes", value=value)
    excluded = [contract.ExcludedAgents(role=role, agent_ids=["a1"]) for role in roles]
    data = info.SerializeToString()
    call = contract.AddFramework(framework_id="f", info=data, active=True, excluded=excluded)
    master.send(call)
    reason = master.engine.misfits()["f"]
    assert "no agent meets its constraint: attributes rack:xxx" in reason
    assert reason.count("exclude every agent") == 8
    assert len(reason) < 4000


def test_only_the_beginning_of_a_very_long_resource_name_is_kept() -> None:
    name = "n" * 100_000
    master = MasterSide(limits=LIMITS)
    info = mesos.FrameworkInfo.FromString(framework_info("f", "a"))
    minimum = info.offer_filters["a"].min_allocatable_resources.quantities.add()
    minimum.quantities[name].value = 1.0
    call = contract.AddFramework(framework_id="f", info=info.SerializeToString(), active=True)
    request = mesos.Request(resources=[resource(name, "1")])
    master.send(
        call,
        contract.RequestResources(framework_id="f", requests=[request.SerializeToString()]),
    )
    framework = master.engine._cluster.ledger.frameworks["f"]
    assert framework.demand is not None
    names = [*framework.demand.keys(), *(n for q in framework.min_allocatable["a"] for n in q)]
    assert [len(name) for name in names] == [LIMITS.name] * 2
    assert master.add_agent("s", "cpus:4;mem:64") == []
