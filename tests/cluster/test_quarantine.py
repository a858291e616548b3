"""Invalid input of a framework affects only that framework, until a valid call replaces it."""

import math
from collections.abc import Callable

import pytest

from allocator.cluster.allocation import Allocator
from allocator.cluster.calls import PREPARE
from allocator.cluster.engine import Engine
from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.limits import Limits
from allocator.cluster.input.quarantine import Quarantine, ValidationError
from allocator.cluster.state import Cluster
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.contract import operator_pb2 as operator
from allocator.cooperative import Cooperative
from allocator.fairness.quantities import Quantities
from allocator.users.memory import Memory, RememberedUser
from allocator.users.orders import InvalidOrder
from tests.cluster.conformance.quota_side import agent_info
from tests.cluster.master_side import (
    START_NS,
    MasterSide,
    agent_call,
    framework_info,
    mirrored,
    resource,
    resources,
    text_of,
)


def told(**fields: object) -> bytes:
    """Return a FrameworkInfo of `bad` that is valid except for the given fields."""
    info = mesos.FrameworkInfo(user="u", name="bad", role="b")
    info.id.value = "bad"
    info.MergeFrom(mesos.FrameworkInfo(user="u", name="bad", **fields))  # type: ignore[arg-type]
    return info.SerializeToString()


def minimum(amount: float, role: str = "b") -> bytes:
    """Return the FrameworkInfo of a framework with a minimum that no offer may undercut."""
    info = mesos.FrameworkInfo.FromString(told())
    alternatives = info.offer_filters[role].min_allocatable_resources.quantities
    alternatives.add().quantities["cpus"].value = amount
    return info.SerializeToString()


def with_bytes(field: int, data: bytes) -> bytes:
    """Return a FrameworkInfo in which bytes replace a text of fewer than 128 bytes."""
    return told() + bytes([field << 3 | 2, len(data)]) + data


NOT_TEXT = b"\xff\xfe"
MULTI_ROLE = [mesos.FrameworkInfo.Capability(type=mesos.FrameworkInfo.Capability.MULTI_ROLE)]
UNACCEPTABLE = {
    "a minimum below nothing": (minimum(-1.0), "malformed", "cpus"),
    "a minimum beyond measure": (minimum(1e300), "malformed", "cpus"),
    "a minimum that is no number": (
        minimum(float("nan")),
        "malformed",
        "cpus: nan is not a finite",
    ),
    "a minimum for a role that is not text": (
        minimum(1.0, "ROLE").replace(b"ROLE", b"R\xffLE"),
        "text",
        "offer_filters",
    ),
    "rubbish": (b"\xff", "malformed", "not a serialised"),
    "another's id": (framework_info("f3", "a"), "contradiction", "another id, 'f3'"),
    "a role that is not text": (with_bytes(6, NOT_TEXT), "text", r"\xff\xfe"),
    "a principal that is not text": (with_bytes(8, NOT_TEXT), "text", r"\xff\xfe"),
    "an endless role": (told(role="x" * 2000), "limit", "limits.name"),
    "a role too deep": (told(role="/".join("r" * 40)), "limit", "limits.role_depth"),
    "a role like a virtual leaf": (
        told(role="a/."),
        "malformed",
        "'a/.' is not a valid name of a role",
    ),
    "too many roles": (
        told(roles=map(str, range(100_000)), capabilities=MULTI_ROLE),
        "limit",
        "limits.roles",
    ),
    "too many levels of roles": (
        told(
            roles=["/".join(f"{n}.{m}" for m in range(30)) for n in range(9)],
            capabilities=MULTI_ROLE,
        ),
        "limit",
        "are 270, more than 256 (limits.roles)",
    ),
    "too much": (told(hostname="x" * 2**20), "limit", "limits.subscription"),
}
every_unacceptable_subscription = pytest.mark.parametrize(
    ("info", "reason", "words"), UNACCEPTABLE.values(), ids=UNACCEPTABLE
)


def add_bad(info: bytes) -> contract.AddFramework:
    return contract.AddFramework(framework_id="bad", info=info, active=True)


@every_unacceptable_subscription
def test_a_framework_with_an_invalid_subscription_is_rejected_alone_with_a_reason(
    info: bytes, reason: str, words: str
) -> None:
    master = MasterSide()
    master.send(add_bad(info))
    master.add_framework("good", "a")
    offers = master.add_agent("s1", "cpus:2;mem:1024")
    assert [offer.framework for offer in offers] == ["good"]
    [kept] = master.engine.rejected_inputs()
    assert (kept.kind, kept.name, kept.flaw.reason) == ("framework", "bad", reason)
    assert words in kept.flaw.words
    assert len(kept.flaw.words) <= 301
    assert words in master.engine.misfits()["bad"]
    assert [standing.user for standing in master.engine.standings() if standing.active] == ["a"]


@every_unacceptable_subscription
def test_a_framework_rejected_for_an_update_keeps_its_commitments_and_returns_with_a_valid_one(
    info: bytes, reason: str, words: str
) -> None:
    master = MasterSide("sdrf", {"half_life": 60.0})
    master.add_framework("good", "a")
    master.add_framework("bad", "b")
    used = {"bad": resources("cpus:3;mem:768", "b")}
    master.add_agent("s1", "cpus:3;mem:768", used)
    update = contract.UpdateFramework(framework_id="bad", info=info)
    assert master.send(update) == []
    master.tick(60.0)
    owes = master.engine.pool.standing("b")
    assert owes.share == 1.0, f"{reason}: {words}"
    assert owes.commitment > 0.2
    [offer] = master.add_agent("s2", "cpus:1;mem:512")
    assert offer.framework == "good"
    master.recover(offer)
    master.send(contract.SuppressOffers(framework_id="good"))
    master.recover(offer)
    master.send(contract.UpdateFramework(framework_id="bad", info=told()))
    assert not list(master.engine.rejected_inputs())
    assert {offer.framework for offer in master.tick()} == {"bad"}


@every_unacceptable_subscription
def test_a_rejected_framework_can_be_removed_and_added_like_any_other(
    info: bytes, reason: str, words: str
) -> None:
    master = MasterSide()
    master.add_framework("good", "a")
    master.add_agent("s1", "cpus:2;mem:1024")
    known = {"framework_id": "bad"}
    master.send(
        add_bad(info),
        contract.ReviveOffers(**known),
        contract.SuppressOffers(**known, roles=["b"]),
        contract.DeactivateFramework(**known),
        contract.ActivateFramework(**known),
        contract.RequestResources(framework_id="bad"),
        contract.RemoveFramework(**known),
    )
    assert not list(master.engine.rejected_inputs()), f"{reason}: {words}"
    assert master.engine.frameworks == 1


@every_unacceptable_subscription
def test_a_snapshot_with_a_rejected_framework_restores_everything_else(
    info: bytes, reason: str, words: str
) -> None:
    master = MasterSide()
    good = contract.AddFramework(framework_id="good", info=framework_info("good", "a"), active=True)
    held = resources("cpus:1;mem:512", "/".join("r" * 1100))
    agent = agent_call("s1", "cpus:2;mem:1024", {"bad": held})
    offers = master.restore(contract.Snapshot(agents=[agent], frameworks=[add_bad(info), good]))
    assert [offer.framework for offer in offers] == ["good"], f"{reason}: {words}"
    assert master.engine.pool.held()["cpus"] == 2000, "its allocation is counted"


def test_a_framework_beyond_the_limit_of_all_roles_is_rejected_until_roles_are_free() -> None:
    master = MasterSide(limits=Limits(all_roles=5))
    master.add_framework("f1", "a/b", "a/c")
    master.add_framework("f2", "x")
    master.add_framework("late", "y", "z")
    [kept] = master.engine.rejected_inputs()
    words = "all frameworks together would have 6 roles, more than 5 (limits.all_roles)"
    assert kept == ("framework", "late", "subscription", ValidationError("limit", words))
    assert words in master.engine.misfits()["late"]
    assert set(master.engine.users()) == {"a", "a/b", "a/c", "x"}
    master.send(contract.UpdateFramework(framework_id="f2", info=framework_info("f2", "v", "w/x")))
    assert [rejected_input.name for rejected_input in master.engine.rejected_inputs()] == [
        "late",
        "f2",
    ]
    assert {offer.framework for offer in master.add_agent("s1", "cpus:2;mem:64")} == {"f1"}
    master.send(contract.RemoveFramework(framework_id="f1"))
    for late, roles in (("late", ("y", "z")), ("f2", ("v", "w/x"))):
        info = framework_info(late, *roles)
        master.send(contract.UpdateFramework(framework_id=late, info=info))
    assert not list(master.engine.rejected_inputs())
    assert {"v", "w", "w/x", "y", "z"} <= set(master.engine.users())


def test_resources_allocated_to_an_invalid_role_create_no_role_node() -> None:
    master = MasterSide()
    master.add_framework("f1", "a", "a/b", "c")
    odd = {role: resources("cpus:1", role) for role in ("a/.", "..", "c/", "/")}
    held = [data for messages in odd.values() for data in messages]
    master.send(agent_call("s1", "cpus:8;mem:1024", {"f1": held}))
    assert {"a/.", "f1"} < set(master.engine.users())
    assert master.engine.pool.held()["cpus"] == 8000, (
        "invalid roles' allocations count, and the rest is offered"
    )
    for role, messages in odd.items():
        back = contract.RejectOffer(framework_id="f1", agent_id="s1", resources=messages)
        master.send(back)
        assert role not in master.engine.users() or role == "a/."
    assert not master.engine.statistics.faults


def test_a_label_whose_key_is_not_text_is_handled_like_an_unknown_label() -> None:
    master = MasterSide()
    info = mesos.FrameworkInfo.FromString(told())
    for key in ("longshare.?", "?"):
        info.labels.labels.add(key=key, value="1")
    data = info.SerializeToString().replace(b"?", b"\xff")
    offers = [*master.send(add_bad(data)), *master.add_agent("s1", "cpus:2;mem:1024")]
    assert [offer.framework for offer in offers] == ["bad"]
    assert r"label longshare.\xff is not known" in master.engine.misfits()["bad"]
    assert not master.engine.statistics.faults


def lacking(missing: str) -> bytes:
    """Return a volume of 100 MB for role `a` that lacks a required field."""
    volume = resource("disk", "100", role="a", reserved=["a"])
    volume.disk.persistence.id = "v"
    volume.disk.volume.container_path = "data"
    volume.disk.volume.mode = mesos.Volume.RW
    holder = {"mode": volume.disk.volume, "id": volume.disk.persistence, "name": volume}[missing]
    holder.ClearField(missing)
    return volume.SerializePartialToString()


def misnamed() -> bytes:
    [data] = resources("gold:7")
    return data.replace(b"gold", b"\xffold")


UNUSABLE = {
    "rubbish": b"\xff",
    "no name": lacking("name"),
    "a name that is not text": misnamed(),
    "below nothing": resources("gold:-7")[0],
    "beyond measure": resources("gold:1e300")[0],
    "endless": resource(
        "gold", "[" + ",".join(f"{n}-{n}" for n in range(1, 160_000, 2)) + "]"
    ).SerializeToString(),
}
every_unusable_resource = pytest.mark.parametrize("unusable", UNUSABLE.values(), ids=UNUSABLE)


def allocated(data: bytes) -> bytes:
    return data + b"\x5a\x03\x0a\x01a"  # allocation_info.role


@every_unusable_resource
def test_an_unusable_resource_is_ignored_alone(unusable: bytes) -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    call = agent_call("s1", "cpus:2;mem:1024", {"f1": resources("cpus:1", "a")})
    call.total.append(unusable)
    call.used[0].resources.append(allocated(unusable))
    [offer] = master.send(call)
    assert offer.resources == "cpus:1;mem:1024"
    assert [
        (rejected_input.kind, rejected_input.name)
        for rejected_input in master.engine.rejected_inputs()
    ] == [("agent", "s1")]
    back = contract.RecoverResources(
        framework_id="f1", agent_id="s1", resources=[*offer.messages, allocated(unusable)]
    )
    [next_offer] = master.send(back)
    assert next_offer == offer
    assert master.engine.divergence() is None
    assert ("framework", "f1") in [
        rejected_input[:2] for rejected_input in master.engine.rejected_inputs()
    ]
    master.recover(next_offer)
    info = agent_info("s1")
    total = contract.ResourceList(resources=resources("cpus:2;mem:1024"))
    master.send(contract.UpdateAgent(agent_id="s1", info=info, total=total))
    assert not list(master.engine.rejected_inputs()), "both have sent a valid call"


@pytest.mark.parametrize("field", ["mode", "id"])
def test_a_volume_that_lacks_an_optional_detail_passes_through_unchanged(field: str) -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    call = agent_call("s1", "cpus:1;mem:64")
    volume = mesos.Resource.FromString(lacking(field))
    volume.ClearField("allocation_info")
    call.total.append(volume.SerializePartialToString())
    [offer] = master.send(call)
    [offered] = [data for data in offer.messages if b"disk" in data]
    assert mesos.Resource.FromString(offered) == mesos.Resource.FromString(lacking(field))
    assert not list(master.engine.rejected_inputs())


def test_impossible_operations_cost_one_snapshot_a_minute_and_no_exception() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:2;mem:1024")
    wrong = contract.UpdateAllocation(
        framework_id="f1",
        agent_id="s1",
        offered=offer.messages,
        conversions=[contract.Conversion(consumed=offer.messages[:1], converted=[b"\xff"])],
    )
    asked = 0
    for _ in range(90):
        master.wait(1.0)
        master.send(wrong)
        asked += master.engine.divergence() is not None
    assert asked == 2
    assert not master.engine.available()["s1"]


def beyond_limits(name: str, value: str, labels: int) -> bytes:
    """Return a resource, reserved by its framework with a number of labels."""
    reserved = resource(name, value, role="a", reserved=["a"])
    for number in range(labels):
        reserved.reservations[0].labels.labels.add(key=f"k{number}")
    return reserved.SerializeToString()


def test_operations_with_resources_beyond_a_limit_are_followed_as_a_snapshot_has_them() -> None:
    """This act of one framework once caused a snapshot of the whole cluster."""
    master = MasterSide(limits=Limits(entries=1000))
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:2;mem:1024;ports:[1-9]")
    reserved = [beyond_limits("cpus", "0.5", 1001), beyond_limits("ports", "[2-4]", 1001)]
    taken = resources("cpus:0.5;ports:[2-4]", "a")
    remaining = resources("cpus:1.5;mem:1024;ports:[1-1,5-9]", "a")

    def update(offered: list[bytes], *changes: tuple[bytes, bytes]) -> None:
        call = contract.UpdateAllocation(framework_id="f1", agent_id="s1", offered=offered)
        for consumed, converted in changes:
            call.conversions.add(consumed=[consumed], converted=[converted])
        master.send(call)
        assert master.engine.divergence() is None

    update(list(offer.messages), *zip(taken, reserved, strict=True))
    [rejected] = master.engine.rejected_inputs()
    assert (rejected.name, rejected.flaw.reason) == ("f1", "limit")
    total = master.engine._cluster.ledger.agents["s1"].total.scalars
    assert total == Quantities.parse("cpus:1.5;mem:1024")
    part, small = beyond_limits("cpus", "0.2", 1001), beyond_limits("cpus", "0.2", 1)
    update(remaining, (part, small))
    update([*remaining, small], (small, resources("cpus:0.2", "a")[0]))
    back = [*resources("cpus:1.7;mem:1024;ports:[1-1,5-9]", "a"), *reserved]
    returned = contract.RecoverResources(framework_id="f1", agent_id="s1", resources=back)
    assert [text_of(made.messages) for made in master.send(returned)] == [
        "cpus:1.7;mem:1024;ports:[1-1,5-9]"
    ]
    assert master.engine.divergence() is None


def test_an_operation_on_too_many_ranges_requests_a_snapshot() -> None:
    """A record may contain a part of the ranges."""
    master = MasterSide(limits=Limits(entries=1000, resource=2000))
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:2;mem:1024;ports:[1-9999]")
    ports = "[" + ",".join(f"{port}-{port}" for port in range(1, 999, 2)) + "]"
    call = contract.UpdateAllocation(framework_id="f1", agent_id="s1", offered=offer.messages)
    consumed = resource("ports", ports, role="a").SerializeToString()
    call.conversions.add(consumed=[consumed], converted=[beyond_limits("ports", ports, 1)])
    master.send(call)
    assert "cannot be followed" in (master.engine.divergence() or "")


def test_an_empty_operation_of_any_kind_is_answered_with_its_error() -> None:
    master = MasterSide()
    master.add_agent("s1", "cpus:2;mem:1024")
    for kind in mesos.Operation.Type.values():
        operation = mesos.Operation(type=kind).SerializePartialToString()
        master.sequence += 1
        event = contract.Event(sequence=master.sequence, time_ns=master.now_ns)
        event.update_available.agent_id = "s1"
        event.update_available.operations.append(operation)
        [reply] = master.engine.apply(contract.Events(events=[event])).replies
        assert reply.sequence == master.sequence
        assert master.engine.available()["s1"]["cpus"] == 2000


@pytest.mark.parametrize(
    ("info", "reason"), [(b"\xff", "malformed"), (agent_info("s2"), "contradiction")]
)
def test_an_unreadable_agent_is_not_offered_and_counts_in_the_capacity(
    info: bytes, reason: str
) -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    call = agent_call("s1", "cpus:2;mem:1024")
    call.info = info
    assert master.send(call) == []
    assert [(e.kind, e.name, e.flaw.reason) for e in master.engine.rejected_inputs()] == [
        ("agent", "s1", reason)
    ]
    assert master.engine.pool.capacity["cpus"] == 2000
    [place] = master.engine.machine_summaries()
    assert place.state == "set aside"
    better = master.send(contract.UpdateAgent(agent_id="s1", info=agent_info("s1")))
    assert [offer.agent for offer in better] == ["s1"]


def test_a_host_whose_name_is_not_text_is_shown_escaped_and_offered() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    call = agent_call("s1", "cpus:2;mem:1024")
    call.info = call.info.replace(b"s1.example", b"s\xff.example")
    assert len(master.send(call)) == 1
    assert master.engine.agent_name("s1") == r"s\xff.example"


def wish(text: str) -> bytes:
    wanted = mesos.Request()
    for data in resources(text):
        wanted.resources.append(mesos.Resource.FromString(data))
    return wanted.SerializeToString()


@pytest.mark.parametrize(
    "request_",
    [wish("cpus:-1"), wish("cpus:1e300"), b"\xff", wish(";".join(f"r{n}:1" for n in range(65)))],
)
def test_an_invalid_request_leaves_the_demand_unchanged(request_: bytes) -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    master.send(contract.RequestResources(framework_id="f1", requests=[wish("cpus:1;mem:64")]))
    before = master.engine.demands()
    master.send(contract.RequestResources(framework_id="f1", requests=[request_]))
    assert master.engine.demands() == before
    assert [rejected_input.topic for rejected_input in master.engine.rejected_inputs()] == [
        "request"
    ]
    master.send(contract.RequestResources(framework_id="f1", requests=[wish("cpus:1;mem:64")]))
    assert not list(master.engine.rejected_inputs())


def test_a_request_for_as_many_resources_as_the_limit_is_accepted() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    most = wish(";".join(f"r{n}:1" for n in range(master.settings.limits.resources)))
    master.send(contract.RequestResources(framework_id="f1", requests=[most]))
    assert not list(master.engine.rejected_inputs())


DECLINED = mesos.InverseOfferStatus(status=mesos.InverseOfferStatus.DECLINE)
DECLINED.framework_id.value = "f1"
DECLINED.timestamp.nanoseconds = START_NS


@pytest.mark.parametrize(
    ("status", "filters", "words"),
    [
        (b"\xff", b"", "InverseOfferStatus"),
        (DECLINED.SerializeToString(), b"\xff", "mesos.Filters"),
        (b"\xff", b"\xff", "InverseOfferStatus"),
        (mesos.InverseOfferStatus().SerializePartialToString(), b"", "ACCEPT or DECLINE"),
    ],
    ids=["status", "filters", "both", "neither yes nor no"],
)
def test_an_unreadable_inverse_offer_answer_stays_reported_until_a_readable_one(
    status: bytes, filters: bytes, words: str
) -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    master.add_agent("s1", "cpus:1;mem:64")

    def answer(status: bytes, filters: bytes) -> list[str]:
        master.send(
            contract.UpdateInverseOffer(
                agent_id="s1", framework_id="f1", status=status, filters=filters
            )
        )
        return [
            rejected_input.flaw.words
            for rejected_input in master.engine.rejected_inputs()
            if rejected_input.topic == "answer"
        ]

    (message,) = answer(status, filters)
    assert words in message
    assert answer(DECLINED.SerializeToString(), b"") == []


def test_recovering_nothing_creates_no_user() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    master.add_agent("s1", "cpus:2;mem:1024")
    master.send(contract.RecoverResources(framework_id="f1", agent_id="s1", filters=b""))
    assert [standing.user for standing in master.engine.standings()] == ["a"]


def test_contradictions_request_one_snapshot_a_minute_and_are_skipped_in_between() -> None:
    master = MasterSide()
    master.add_framework("good", "a")
    [offer] = master.add_agent("s1", "cpus:2;mem:1024")
    asked = 0
    for second in range(180):
        master.wait(1.0)
        try:
            master.send(contract.RemoveAgent(agent_id="nobody"))
        except InvalidEvent:
            asked += 1
            master.restore(mirrored(master, offer, sequence=master.sequence + 1))
        assert master.recover(offer) == [offer], second
        if master.engine.divergence() is not None:
            asked += 1
            master.restore(mirrored(master, offer))
    assert asked == 4, "at once, and then once a minute"
    assert master.engine.statistics.passed_over == 179
    master.send(contract.RemoveAgent(agent_id="nobody"))
    assert [rejected_input[:2] for rejected_input in master.engine.rejected_inputs()] == [
        ("agent", "nobody")
    ]
    master.tick(60.0)
    assert master.engine.divergence() is not None


def test_a_snapshot_part_that_contradicts_another_part_is_ignored_alone() -> None:
    master = MasterSide()
    once = contract.AddFramework(framework_id="good", info=framework_info("good", "a"), active=True)
    snapshot = contract.Snapshot(
        time_ns=master.now_ns,
        agents=[agent_call("s1", "cpus:2;mem:1024")] * 2,
        inactive_agents=["s9"],
        frameworks=[once, once],
        quotas=[contract.SetQuota(role="*"), contract.SetQuota(role="q", info=b"\xff")],
        weights=[contract.Weight(role="a", weight=math.nan), contract.Weight(role="b", weight=2)],
    )
    assert len(master.restore(snapshot)) == 1
    rejected = {
        (rejected_input.kind, rejected_input.name)
        for rejected_input in master.engine.rejected_inputs()
    }
    assert rejected == {
        ("agent", "s1"),
        ("agent", "s9"),
        ("framework", "good"),
        ("role", "*"),
        ("role", "q"),
        ("role", "a"),
    }


def test_a_fault_of_the_allocator_costs_one_call_and_a_snapshot_repairs_the_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master = MasterSide()
    master.add_framework("good", "a")
    [offer] = master.add_agent("s1", "cpus:2;mem:1024")

    def broken(cluster: Cluster, call: object) -> Callable[[], None]:
        def change() -> None:
            cluster.ledger.clients.users.pool.policy = None  # type: ignore[assignment]
            raise ZeroDivisionError(str(call))

        return change

    monkeypatch.setitem(PREPARE, "suppress_offers", broken)
    with pytest.raises(InvalidEvent, match=r"ZeroDivisionError in test_quarantine.py, line"):
        master.send(contract.SuppressOffers(framework_id="good"))
    assert master.engine.statistics.faults == 1
    monkeypatch.undo()
    assert master.restore(mirrored(master, offer)) == []
    assert master.recover(offer) == [offer]


def test_a_snapshot_part_that_breaks_the_allocator_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master = MasterSide()
    add = PREPARE["add_agent"]

    def fragile(cluster: Cluster, call: contract.AddAgent) -> Callable[[], Cooperative[None]]:
        change = add(cluster, call)
        assert callable(change)

        def broken() -> Cooperative[None]:
            yield from change() or ()
            if call.agent_id == "s2":
                raise ZeroDivisionError

        return broken

    monkeypatch.setitem(PREPARE, "add_agent", fragile)
    snapshot = mirrored(master)
    snapshot.agents.append(agent_call("s2", "cpus:2;mem:1024"))
    assert [offer.agent for offer in master.restore(snapshot)] == ["s1"]
    assert master.engine.statistics.faults == 1
    assert master.engine.pool.capacity["cpus"] == 2000
    [kept] = master.engine.rejected_inputs()
    assert (kept.kind, kept.name, kept.flaw.reason) == ("agent", "s2", "fault")


@pytest.mark.interpreted
def test_a_failing_cycle_loses_its_offers_and_requests_a_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master = MasterSide()
    master.add_framework("good", "a")

    def broken(*_: object) -> list[object]:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(Allocator, "run", broken)
        assert master.add_agent("s1", "cpus:2;mem:1024") == []
        assert "ZeroDivisionError" in (master.engine.divergence() or "")
        assert master.engine.statistics.faults == 1
    assert len(master.restore(mirrored(master))) == 1


EXTREMES = [1e308, 5e-324, 1e-6, 1e6]


@pytest.mark.parametrize(
    "policy", [("drf", {}), ("sdrf", {"half_life": 60.0}), ("stsf", {"delta": 0.9})]
)
@pytest.mark.parametrize("weight", EXTREMES)
def test_no_weight_of_a_master_causes_a_numeric_overflow(
    policy: tuple[str, dict[str, object]], weight: float
) -> None:
    master = MasterSide(*policy)
    for role in ("a", "b", "b/c", "d"):
        master.add_framework(f"f-{role}", role)
    weights = [contract.Weight(role=role, weight=weight) for role in ("a", "b", "b/c")]
    master.send(contract.UpdateWeights(weights=weights))
    for number in range(4):
        master.add_agent(f"s{number}", "cpus:2;mem:1024")
        master.tick(1000.0)
    for standing in master.engine.standings():
        numbers = [standing.weight, standing.entitlement, standing.priority, standing.commitment]
        assert all(0.0 <= number <= 1e16 for number in numbers)
    assert sum(s.entitlement for s in master.engine.pool.standings()) == pytest.approx(1.0)
    kept = {rejected_input.name for rejected_input in master.engine.rejected_inputs()}
    assert kept == ({"a", "b", "b/c"} if weight not in {1e-6, 1e6} else set())
    heir = Engine(master.settings, memory=master.engine.memory())
    assert heir.standings() is not None, "a restart causes no overflow"


@pytest.mark.parametrize("weight", [1e308, 5e-324, math.nan, math.inf, -1.0, 0.0])
def test_an_operators_weight_out_of_bounds_is_rejected_with_the_bounds(weight: float) -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    order = operator.Order(set_weight=operator.SetWeight(user="a", weight=weight))
    with pytest.raises(InvalidOrder, match="from 1e-06 to 1e\\+06"):
        master.engine.order(order)
    assert master.engine.pool.standing("a").weight == 1.0


@pytest.mark.parametrize("instant", [START_NS / 1e9, 1e300])
def test_stored_weights_and_commitments_out_of_bounds_are_clamped(
    instant: float,
) -> None:
    owed = RememberedUser({"cpus": 1e308}, others=1e308, weight=1e308)
    memory = Memory(instant, {"a": owed, "/".join("r" * 1100): RememberedUser({"cpus": 0.5})})
    master = MasterSide("sdrf", {"half_life": 1e12}, memory=memory)
    master.add_framework("f1", "a")
    master.add_agent("s1", "cpus:2;mem:1024")
    master.tick(1.0)
    [standing] = master.engine.standings()
    assert standing.weight == 1e6
    assert 0.999e9 < standing.commitment <= standing.inherited <= 1e9, (
        "the bound of a thousand million"
    )
    assert 0.0 < standing.priority < 1e16


def test_users_that_come_and_go_stay_within_the_limit_of_idle_users() -> None:
    master = MasterSide("sdrf", {"half_life": 60.0}, limits=Limits(idle_users=50))
    for number in range(300):
        roles = [f"r{number}-{index}" for index in range(5)]
        info = framework_info("bad", *roles)
        call = contract.UpdateFramework if number else contract.AddFramework
        master.send(call(framework_id="bad", info=info))
        master.tick()
        assert len(master.engine.standings()) <= 50 + 2 * 5


def test_rejected_calls_of_ten_thousand_senders_at_most_are_kept() -> None:
    """The senders of other errors are known frameworks and agents."""
    quarantine, flaw = Quarantine(), ValidationError("malformed", "it is")
    for number in range(10_001):
        quarantine.put("framework", f"f{number}", "call", flaw)
    assert len(quarantine) == 10_000
    assert quarantine.of("framework", "f10000") == []
    for name in ("f0", "f10000"):
        quarantine.put("framework", name, "subscription", flaw)
    topics = [[each.topic for each in quarantine.of("framework", n)] for n in ("f0", "f10000")]
    assert topics == [["call", "subscription"], ["subscription"]]
    quarantine.put("framework", "f0", "call", None)
    quarantine.forget("framework", "f1")
    for number in range(4):
        quarantine.put("role", f"r{number}", "weight", flaw)
    assert [len(quarantine.of("role", f"r{number}")) for number in range(4)] == [1, 1, 0, 0]


def test_the_senders_of_the_latest_changes_are_remembered() -> None:
    quarantine, flaw = Quarantine(), ValidationError("malformed", "it is")
    quarantine.put("framework", "f1", "answer", flaw)
    version = quarantine.version
    assert quarantine.changed_since(version) == []
    quarantine.put("framework", "f2", "answer", flaw)
    quarantine.put("framework", "f1", "answer", None)
    assert quarantine.changed_since(version) == [("framework", "f2"), ("framework", "f1")]
    for _ in range(10_000):
        quarantine.put("framework", "f3", "answer", flaw)
    assert quarantine.changed_since(version) is None
    assert quarantine.changed_since(quarantine.version - 1) == [("framework", "f3")]


def test_an_observer_gets_the_time_of_each_change_before_the_change() -> None:
    times: list[float] = []
    master = MasterSide()
    engine = Engine(master.settings, before_change=times.append)
    engine.restore(master.options, contract.Snapshot(time_ns=START_NS))
    events = contract.Events()
    events.events.add(sequence=1, time_ns=START_NS + 10**9).tick.SetInParent()
    engine.apply(events)
    assert times == [START_NS / 1e9, START_NS / 1e9 + 1.0]


def test_a_role_may_have_as_many_levels_as_the_limit_says() -> None:
    master = MasterSide(limits=Limits(role_depth=3))
    master.add_framework("f1", "a/b/c")
    master.add_framework("f2", "a/b/c/d")
    assert [(kept.name, kept.flaw.reason) for kept in master.engine.rejected_inputs()] == [
        ("f2", "limit")
    ]


def test_a_validation_errors_text_is_cut_off() -> None:
    assert len(ValidationError("malformed", "x" * 400).words) == 301
