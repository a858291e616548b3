"""Rows 7-13: offer filters, suppress, revive, and the activity of frameworks."""

import pytest

from allocator.contract import allocator_pb2 as contract
from tests.cluster.conformance.quota_side import BatchMaster, agent_info, freed, told
from tests.cluster.master_side import Offered

EACH = "cpus:2;mem:1024"


def offered() -> tuple[BatchMaster, Offered]:
    master = BatchMaster()
    master.add_framework("f1", "r1", "r2")
    [offer] = master.add_agent("s1", EACH)
    return master, offer


def test_declined_resources_are_offered_again_when_the_filter_has_expired() -> None:
    master, offer = offered()
    master.recover(offer, refuse_seconds=2)
    assert master.engine.filters_by_role()[offer.role] == 1
    other_role = ({"r1", "r2"} - {offer.role}).pop()
    [elsewhere] = master.tick()  # The other role of the framework has declined nothing.
    assert elsewhere.role == other_role
    master.recover(elsewhere, refuse_seconds=100)
    assert [o.role for o in master.tick()] == [offer.role]
    assert offer.role not in master.engine.filters_by_role()


@pytest.mark.parametrize("seconds", [0.1, 1.0])
def test_a_filter_up_to_the_allocation_interval_lasts_for_exactly_the_next_batch(
    seconds: float,
) -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1")
    [offer] = master.add_agent("s1", EACH)
    master.recover(offer, refuse_seconds=seconds)
    assert master.tick() == []
    assert told(master.tick()) == {("f1", "s1", EACH)}


def test_revive_drops_filters_and_causes_offers_at_once() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1")
    [offer] = master.add_agent("s1", EACH)
    master.recover(offer, refuse_seconds=1000)
    assert master.tick() == []
    assert told(master.send(contract.ReviveOffers(framework_id="f1"))) == {("f1", "s1", EACH)}


def test_a_suppressed_framework_gets_no_offers_until_revive_and_both_calls_can_repeat() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1")
    [offer] = master.add_agent("s1", EACH)
    for _ in range(2):
        master.send(contract.SuppressOffers(framework_id="f1"))
    master.send(freed(offer))
    assert master.tick() == []
    assert len(master.send(contract.ReviveOffers(framework_id="f1"))) == 1
    assert master.send(contract.ReviveOffers(framework_id="f1")) == []


def test_suppress_and_revive_apply_to_the_named_roles_only() -> None:
    master, offer = offered()
    first, second = offer.role, ({"r1", "r2"} - {offer.role}).pop()
    master.recover(offer, refuse_seconds=1000)
    master.send(contract.SuppressOffers(framework_id="f1", roles=[second]))
    assert master.tick() == []
    # Reviving the second role keeps the first role's filter, which excludes only the first role.
    [revived] = master.send(contract.ReviveOffers(framework_id="f1", roles=[second]))
    assert revived.role == second
    master.recover(revived, refuse_seconds=1000)
    assert master.tick() == []
    [back] = master.send(contract.ReviveOffers(framework_id="f1", roles=[first]))
    assert back.role == first


def test_an_inactive_suppressed_framework_needs_activation_and_revive() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1")
    [offer] = master.add_agent("s1", EACH)
    master.send(contract.SuppressOffers(framework_id="f1"))
    master.send(contract.DeactivateFramework(framework_id="f1"))
    master.send(freed(offer))
    assert master.tick() == []
    assert master.send(contract.ActivateFramework(framework_id="f1")) == []
    assert len(master.send(contract.ReviveOffers(framework_id="f1"))) == 1


def test_an_agent_with_changed_attributes_is_offered_again_at_once() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1")
    [offer] = master.add_agent("s1", EACH)
    master.recover(offer, refuse_seconds=1000)
    same = contract.UpdateAgent(agent_id="s1", info=agent_info("s1"))
    assert master.send(same) == []
    assert master.tick() == []
    moved = contract.UpdateAgent(agent_id="s1", info=agent_info("s1", rack="2"))
    assert told(master.send(moved)) == {("f1", "s1", EACH)}
