"""Rejected input stays listed until a valid call replaces it, and affects no other input."""

from collections.abc import Callable

import pytest

from allocator.cluster.calls import PREPARE
from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.limits import Limits
from allocator.cluster.input.quarantine import Quarantine, ValidationError
from allocator.cluster.resources import parse_allocated
from allocator.cluster.state import Cluster
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.cluster.conformance.quota_side import agent_info
from tests.cluster.master_side import MasterSide, agent_call, framework_info, resource, resources

FLAW = ValidationError("malformed", "it is")


def test_a_valid_call_replaces_rejected_input_of_its_own_topic_only() -> None:
    quarantine = Quarantine()
    quarantine.put("framework", "f1", "request", FLAW)
    quarantine.put("framework", "f1", "answer", FLAW)
    quarantine.put("framework", "f1", "request", None)
    assert [entry.topic for entry in quarantine] == ["answer"]
    quarantine.put("framework", "f1", "answer", None)
    assert not quarantine
    assert len(quarantine) == 0


def beyond(role: str | None) -> bytes:
    """Return a resource larger than the limit."""
    [data] = resources("n" * 2000 + ":1", role)
    return data


Said = Callable[[list[bytes]], object]
OF_A_FRAMEWORK: dict[str, Said] = {
    "recover": lambda added: contract.RecoverResources(
        framework_id="f1", agent_id="s1", resources=[*resources("cpus:1", "a"), *added]
    ),
    "reject": lambda added: contract.RejectOffer(
        framework_id="f1", agent_id="s1", resources=[*resources("cpus:1", "a"), *added]
    ),
    "transition": lambda added: contract.TransitionOfferedToAllocated(
        framework_id="f1", agent_id="s1", resources=[*resources("cpus:1", "a"), *added]
    ),
    "update": lambda added: contract.UpdateAllocation(
        framework_id="f1", agent_id="s1", offered=[*resources("cpus:1", "a"), *added]
    ),
}


def small() -> MasterSide:
    master = MasterSide(limits=Limits(resource=1024))
    master.add_framework("f1", "a")
    master.add_agent("s1", "cpus:8;mem:1024")
    assert not list(master.engine.rejected_inputs())
    return master


@pytest.mark.parametrize("bad", OF_A_FRAMEWORK)
@pytest.mark.parametrize("good", OF_A_FRAMEWORK)
def test_an_unusable_resource_stays_reported_until_any_call_has_usable_resources(
    bad: str, good: str
) -> None:
    master = small()
    master.send(OF_A_FRAMEWORK[bad]([beyond("a")]))
    [kept] = master.engine.rejected_inputs()
    assert (kept.kind, kept.name, kept.topic) == ("framework", "f1", "resources")
    assert "(limits.resource)" in kept.flaw.words
    master.send(OF_A_FRAMEWORK[good]([]))
    assert not list(master.engine.rejected_inputs())


def test_a_resource_that_was_parsed_under_other_limits_is_still_rejected() -> None:
    parse_allocated([*resources("cpus:1", "a"), beyond("a")])
    master = small()
    master.send(OF_A_FRAMEWORK["recover"]([beyond("a")]))
    [kept] = master.engine.rejected_inputs()
    assert "(limits.resource)" in kept.flaw.words


def test_the_size_limit_applies_to_each_resource_not_to_their_sum() -> None:
    master = small()
    several = [of_bytes(number) for number in (1024, 1023, 1024)]
    master.send(contract.AddResourceProvider(agent_id="s1", total=several))
    assert not list(master.engine.rejected_inputs())
    master.send(contract.AddResourceProvider(agent_id="s1", total=[*several, of_bytes(1025)]))
    [kept] = master.engine.rejected_inputs()
    assert "a resource has 1025 bytes, more than 1024" in kept.flaw.words


def of_bytes(number: int) -> bytes:
    """Return a resource with the given length in its serialised form."""
    message = resource("gpus", "1")
    message.name = (number - len(message.SerializeToString()) + 4 - 1) * "g"
    assert len(message.SerializeToString()) == number
    return message.SerializeToString()


def test_an_agents_unusable_resource_stays_reported_until_the_agent_reports_its_total() -> None:
    master = small()
    master.send(contract.AddResourceProvider(agent_id="s1", total=[beyond(None)]))
    [kept] = master.engine.rejected_inputs()
    assert (kept.kind, kept.name, kept.topic) == ("agent", "s1", "resources")
    master.send(contract.AddResourceProvider(agent_id="s1", total=resources("disk:1")))
    assert list(master.engine.rejected_inputs()), "the unusable resource has not been replaced"
    total = contract.ResourceList(resources=resources("cpus:8"))
    master.send(contract.UpdateAgent(agent_id="s1", info=agent_info("s1"), total=total))
    assert not list(master.engine.rejected_inputs())
    total.resources.append(beyond(None))
    master.send(contract.UpdateAgent(agent_id="s1", info=agent_info("s1"), total=total))
    assert [rejected_input.topic for rejected_input in master.engine.rejected_inputs()] == [
        "resources"
    ]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (agent_call("s2", "", None), "resource 'cpus' has an allocation_info.role"),
        (
            agent_call("s2", "cpus:1", {"f1": resources("cpus:1")}),
            "resource 'cpus' has no allocation_info.role",
        ),
    ],
)
def test_total_resources_must_be_unallocated_and_used_resources_allocated(
    call: contract.AddAgent, words: str
) -> None:
    master = small()
    if not call.total:
        call.total.extend(resources("cpus:1", "a"))
    master.send(call)
    assert [rejected_input.flaw.words for rejected_input in master.engine.rejected_inputs()] == [
        words
    ]


@pytest.mark.parametrize("status", [b"", b"\x08\x01", None])
def test_an_inverse_offer_answer_must_be_complete_and_accept_or_decline(
    status: bytes | None,
) -> None:
    master = small()
    answer = mesos.InverseOfferStatus(status=mesos.InverseOfferStatus.UNKNOWN)
    answer.framework_id.value, answer.timestamp.nanoseconds = "f1", 1
    data = answer.SerializeToString() if status is None else status
    master.send(contract.UpdateInverseOffer(agent_id="s1", framework_id="f1", status=data))
    assert [rejected_input.topic for rejected_input in master.engine.rejected_inputs()] == [
        "answer"
    ]
    answer.status = mesos.InverseOfferStatus.ACCEPT
    call = contract.UpdateInverseOffer(agent_id="s1", framework_id="f1")
    call.status = answer.SerializeToString()
    master.send(call)
    assert not list(master.engine.rejected_inputs())


def test_an_unreadable_schedule_or_name_stays_reported_until_a_readable_one() -> None:
    master = small()
    call = agent_call("s2", "cpus:1;mem:64")
    call.unavailability = b"\xff"
    master.send(call)
    assert [rejected_input.topic for rejected_input in master.engine.rejected_inputs()] == [
        "maintenance"
    ]
    master.send(contract.UpdateUnavailability(agent_id="s2"))
    for info, wrong in ((b"\xff", ["subscription"]), (agent_info("s2"), [])):
        master.send(contract.UpdateAgent(agent_id="s2", info=info))
        assert [rejected_input.topic for rejected_input in master.engine.rejected_inputs()] == wrong


def test_an_unreadable_agent_is_offered_after_a_readable_update() -> None:
    master = MasterSide()
    call = agent_call("s1", "cpus:1;mem:64")
    call.info = b"\xff"
    master.send(call)
    assert master.add_framework("f1", "a") == []
    assert master.send(contract.UpdateAgent(agent_id="s1", info=b"")) == []
    assert [offer.agent for offer in master.tick()] == ["s1"]


def test_a_resubscription_replaces_a_rejected_request() -> None:
    master = small()
    master.send(contract.RequestResources(framework_id="f1", requests=[b"\xff"]))
    assert [rejected_input.topic for rejected_input in master.engine.rejected_inputs()] == [
        "request"
    ]
    master.send(contract.UpdateFramework(framework_id="f1", info=framework_info("f1", "a")))
    assert not list(master.engine.rejected_inputs())


def test_rejected_input_of_removed_agents_and_frameworks_is_forgotten() -> None:
    master = small()
    master.send(OF_A_FRAMEWORK["recover"]([beyond("a")]))
    master.send(contract.AddResourceProvider(agent_id="s1", total=[beyond(None)]))
    master.send(contract.RemoveAgent(agent_id="s1"))
    assert [rejected_input.kind for rejected_input in master.engine.rejected_inputs()] == [
        "framework"
    ]
    master.send(contract.RemoveFramework(framework_id="f1"))
    assert not list(master.engine.rejected_inputs())


def test_a_skipped_call_stays_reported_until_the_same_call_succeeds() -> None:
    master = small()
    wrong = contract.ActivateAgent(agent_id="s9")
    with pytest.raises(InvalidEvent):
        master.send(wrong)
    master.send(wrong)
    assert [
        (rejected_input.name, rejected_input.topic)
        for rejected_input in master.engine.rejected_inputs()
    ] == [("s9", "call")]
    master.send(contract.ActivateAgent(agent_id="s1"))
    assert list(master.engine.rejected_inputs()), "another framework's call does not count"
    master.add_agent("s9", "cpus:1")
    assert not list(master.engine.rejected_inputs())


def test_an_operator_gets_an_error_if_a_call_is_skipped() -> None:
    master = small()
    with pytest.raises(InvalidEvent):
        master.send(contract.ActivateAgent(agent_id="s9"))
    events = contract.Events()
    for call in ("update_available", "activate_agent"):
        event = events.events.add(sequence=master.sequence + 1, time_ns=master.now_ns)
        getattr(event, call).agent_id = "s9"
        master.sequence += 1
    [reply] = master.engine.apply(events).replies
    assert (reply.sequence, reply.error) == (
        master.sequence - 1,
        "event 3 (update_available): agent 's9' is not known",
    )


@pytest.mark.parametrize("number", [10, 11])
def test_a_bounded_number_of_snapshot_parts_may_break_the_allocator(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fragile(_cluster: Cluster, _call: contract.AddAgent) -> Callable[[], None]:
        def broken() -> None:
            raise ZeroDivisionError

        return broken

    monkeypatch.setitem(PREPARE, "add_agent", fragile)
    master = MasterSide()
    agents = [agent_call(f"s{index}", "cpus:1") for index in range(number)]
    snapshot = contract.Snapshot(time_ns=master.now_ns, agents=agents)
    if number > 10:
        with pytest.raises(InvalidEvent, match="ZeroDivisionError"):
            master.restore(snapshot)
    else:
        master.restore(snapshot)
        assert len(list(master.engine.rejected_inputs())) == number
