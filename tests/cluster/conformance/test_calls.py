"""Every call of the contract is handled; calls with unknown ids are rejected or ignored."""

import pytest

from allocator.cluster.calls import PREPARE
from allocator.cluster.input.errors import InvalidEvent
from allocator.contract import allocator_pb2 as contract
from tests.cluster.conformance.quota_side import BatchMaster, agent_info
from tests.cluster.master_side import framework_info, resources

CALLS = {field.name for field in contract.Event.DESCRIPTOR.oneofs_by_name["call"].fields}
HELD = resources("cpus:1", "r1")


def test_every_call_of_the_contract_is_handled() -> None:
    assert set(PREPARE) == CALLS


@pytest.mark.parametrize(
    "call",
    [
        contract.RemoveAgent(agent_id="s9"),
        contract.UpdateAgent(agent_id="s9", info=agent_info("s9")),
        contract.AddResourceProvider(agent_id="s9"),
        contract.ActivateAgent(agent_id="s9"),
        contract.DeactivateAgent(agent_id="s9"),
        contract.UpdateUnavailability(agent_id="s9"),
        contract.UpdateAllocation(agent_id="s9", framework_id="f1"),
        contract.UpdateAvailable(agent_id="s9"),
        contract.UpdateFramework(framework_id="f9", info=framework_info("f9", "r1")),
        contract.RemoveFramework(framework_id="f9"),
        contract.ActivateFramework(framework_id="f9"),
        contract.DeactivateFramework(framework_id="f9"),
        contract.ReviveOffers(framework_id="f9"),
        contract.SuppressOffers(framework_id="f9"),
        contract.RequestResources(framework_id="f9"),
        contract.UpdateAllocation(agent_id="s1", framework_id="f9", offered=HELD),
    ],
    ids=lambda call: type(call).__name__,
)
def test_a_call_about_an_unknown_agent_or_framework_is_rejected_and_changes_nothing(
    call: object,
) -> None:
    master = known()
    before = (master.held(), master.engine.available(), master.engine.memory())
    with pytest.raises(InvalidEvent, match=r"not known|does not hold"):
        master.send(call)
    assert (master.held(), master.engine.available(), master.engine.memory()) == before
    assert master.tick() == []


@pytest.mark.parametrize(
    "call",
    [
        contract.RecoverResources(agent_id="s9", framework_id="f1", resources=HELD),
        contract.RecoverResources(agent_id="s1", framework_id="f9", resources=HELD),
        contract.RecoverResources(agent_id="s9", framework_id="f9", resources=HELD, filters=b""),
        contract.RejectOffer(agent_id="s9", framework_id="f1", resources=HELD),
        contract.UpdateInverseOffer(agent_id="s9", framework_id="f1"),
        contract.UpdateInverseOffer(agent_id="s1", framework_id="f9"),
        contract.TransitionOfferedToAllocated(agent_id="s9", framework_id="f1", resources=HELD),
    ],
    ids=lambda call: type(call).__name__,
)
def test_a_late_call_is_ignored_and_counted_and_changes_nothing(call: object) -> None:
    master = known()
    before = (master.held(), master.engine.available())
    assert master.send(call) == []
    assert (master.held(), master.engine.available()) == before
    assert master.engine.divergence() is None
    assert master.engine.statistics.ignored == 1


def test_an_absent_quota_can_be_removed() -> None:
    assert known().send(contract.RemoveQuota(role="r9")) == []


def test_an_agent_or_framework_cannot_be_added_twice() -> None:
    with pytest.raises(InvalidEvent, match="known already"):
        known().add_agent("s1", "cpus:1")
    with pytest.raises(InvalidEvent, match="known already"):
        known().add_framework("f1", "r1")


def known() -> BatchMaster:
    master = BatchMaster()
    master.add_framework("f1", "r1")
    master.add_agent("s1", "cpus:4;mem:64")
    return master
