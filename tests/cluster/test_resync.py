"""Offer filters over a resync: a snapshot and the skipped events decide which filters remain."""

import re

import pytest

from allocator.cluster.input.errors import InvalidEvent
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.cluster.conformance.quota_side import agent_info
from tests.cluster.master_side import MasterSide, Offered, framework_info, mirrored


def declined_for_an_hour() -> tuple[MasterSide, Offered]:
    master = MasterSide()
    master.add_framework("good", "a")
    [offer] = master.add_agent("s1", "cpus:2;mem:1024")
    assert master.recover(offer, refuse_seconds=3600) == []
    return master, offer


def test_a_resync_keeps_the_offer_filters_of_unaffected_clients() -> None:
    master, _offer = declined_for_an_hour()
    with pytest.raises(InvalidEvent):
        master.send(contract.RemoveAgent(agent_id="nobody"))
    assert master.restore(mirrored(master, sequence=master.sequence + 1)) == []
    assert master.engine.filters == 1
    assert master.tick() == []
    assert len(master.tick(3600)) == 1


@pytest.mark.parametrize(
    "meanwhile",
    [
        contract.ReviveOffers(framework_id="good"),
        contract.ReviveOffers(framework_id="good", roles=["a"]),
        contract.DeactivateFramework(framework_id="good"),
        contract.UpdateFramework(framework_id="good", info=framework_info("good", "a")),
        contract.UpdateAgent(agent_id="s1", info=agent_info("s1")),
    ],
    ids=lambda call: type(call).__name__,
)
def test_a_skipped_call_that_ends_an_offer_filter_ends_it_at_the_resync(meanwhile: object) -> None:
    master, _offer = declined_for_an_hour()
    with pytest.raises(InvalidEvent):
        master.send(contract.RemoveAgent(agent_id="nobody"))
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(meanwhile).__name__).lower()
    event = contract.Event(sequence=master.sequence + 2, time_ns=master.now_ns)
    getattr(event, name).CopyFrom(meanwhile)
    master.engine.note_skipped_events([event])
    assert len(master.restore(mirrored(master, sequence=master.sequence + 2))) == 1


def test_a_skipped_revive_of_another_role_ends_no_offer_filter() -> None:
    master, _offer = declined_for_an_hour()
    with pytest.raises(InvalidEvent):
        master.send(contract.RemoveAgent(agent_id="nobody"))
    event = contract.Event(sequence=master.sequence + 2, time_ns=master.now_ns)
    event.revive_offers.CopyFrom(contract.ReviveOffers(framework_id="good", roles=["b"]))
    master.engine.note_skipped_events([event])
    assert master.restore(mirrored(master, sequence=master.sequence + 2)) == []


def test_offer_filters_end_if_events_before_the_snapshot_are_unknown() -> None:
    master, _offer = declined_for_an_hour()
    with pytest.raises(InvalidEvent):
        master.send(contract.RemoveAgent(agent_id="nobody"))
    assert len(master.restore(mirrored(master, sequence=master.sequence + 2))) == 1


def test_a_skipped_decline_creates_its_offer_filter_at_the_resync() -> None:
    master = MasterSide()
    master.add_framework("good", "a")
    [offer] = master.add_agent("s1", "cpus:2;mem:1024")
    with pytest.raises(InvalidEvent):
        master.send(contract.RemoveAgent(agent_id="nobody"))
    event = contract.Event(sequence=master.sequence + 2, time_ns=master.now_ns)
    event.recover_resources.framework_id = "good"
    event.recover_resources.agent_id = "s1"
    event.recover_resources.resources.extend(offer.messages)
    event.recover_resources.filters = mesos.Filters(refuse_seconds=3600).SerializeToString()
    master.engine.note_skipped_events([event])
    assert master.restore(mirrored(master, sequence=master.sequence + 2)) == []
    assert len(master.tick(3600)) == 1
