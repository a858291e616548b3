"""Rows 23-27, 35-37 and 39: conversions of resources, and changes of an agent's total."""

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.cluster.conformance.quota_side import (
    SHARED,
    BatchMaster,
    add_agent,
    agent_info,
    allocated,
    converted,
    disk,
    freed,
    reserve,
    told,
    unallocated,
    unavailability,
)
from tests.cluster.master_side import resources


def test_a_volume_that_a_framework_creates_is_offered_again_as_a_volume() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1")
    [offer] = master.add_agent("s1", "cpus:4;mem:64;disk(r1):200")
    volume = disk(50, reserved=["r1"], volume="v1", role="r1")
    plain = resources("disk(r1):50", "r1")
    assert master.send(converted(offer, (plain, [volume]))) == []
    remaining = [*resources("cpus:4;mem:64;disk(r1):150", "r1"), volume]
    back = contract.RecoverResources(framework_id="f1", agent_id="s1", resources=remaining)
    assert master.send(back) == []
    [next_offer] = master.tick()
    assert unallocated(next_offer.messages) == unallocated(remaining)


def test_a_conversion_into_nothing_reduces_allocation_and_total() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1")
    [offer] = master.add_agent("s1", "cpus:4;mem:64;disk:100")
    master.send(converted(offer, (resources("disk:100", "r1"), [])))
    assert master.held() == {("s1", "f1", "r1"): "cpus:4;mem:64"}
    assert master.engine.pool.capacity.to_doubles() == {"cpus": 4.0, "mem": 64.0}
    master.send(freed(offer, "cpus:4;mem:64"))
    assert told(master.tick()) == {("f1", "s1", "cpus:4;mem:64")}


def test_an_operator_reserves_free_resources() -> None:
    master = BatchMaster()
    master.add_agent("s1", "cpus:4;mem:64")
    operation = contract.UpdateAvailable(
        agent_id="s1", operations=[reserve(resources("cpus(r1):3"))]
    )
    assert master.send(operation) == []
    assert master.reply.error == ""
    master.add_framework("f2", "r2")
    assert master.held() == {("s1", "f2", "r2"): "cpus:1;mem:64"}
    [offer] = master.add_framework("f1", "r1")
    assert offer.resources == "cpus(r1):3"


def offered_once_destroyed(volume: bytes) -> set[bytes]:
    """Let an operator destroy an agent's volume; return the resources of the next offer."""
    master = BatchMaster()
    master.send(add_agent("s1", [*resources("cpus:4;mem:64"), volume]))
    operation = mesos.Operation(type=mesos.Operation.DESTROY)
    operation.destroy.volumes.add().MergeFromString(volume)
    master.send(contract.UpdateAvailable(agent_id="s1", operations=[operation.SerializeToString()]))
    assert master.reply.error == ""
    [offer] = master.add_framework("f1", "r1")
    return unallocated(offer.messages)


def test_a_disk_after_destruction_of_its_volume_is_offered_like_a_disk_without_volume_history() -> (
    None
):
    volume = disk(50, mount=True, reserved=["r1"], volume="v1")
    assert disk(50, mount=True, reserved=["r1"]) in offered_once_destroyed(volume)


def test_resources_that_an_operator_unreserves_are_offered_in_the_next_batch() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1")
    assert master.add_agent("s1", "cpus(r2):4;mem(r2):64") == []
    operation = mesos.Operation(type=mesos.Operation.UNRESERVE)
    for data in resources("cpus(r2):4;mem(r2):64"):
        operation.unreserve.resources.add().MergeFromString(data)
    master.send(contract.UpdateAvailable(agent_id="s1", operations=[operation.SerializeToString()]))
    assert [offer.resources for offer in master.tick()] == ["cpus:4;mem:64"]


def test_an_operator_cannot_reserve_offered_resources() -> None:
    master = BatchMaster()
    master.add_framework("f2", "r2")
    assert len(master.add_agent("s1", "cpus:4;mem:64")) == 1
    before = master.engine.pool.capacity
    operation = contract.UpdateAvailable(
        agent_id="s1", operations=[reserve(resources("cpus(r1):3"))]
    )
    master.send(operation)
    assert "does not contain" in master.reply.error
    assert master.engine.pool.capacity == before


def total_of(text: str) -> contract.UpdateAgent:
    total = contract.ResourceList(resources=resources(text))
    return contract.UpdateAgent(agent_id="s1", info=agent_info("s1"), total=total)


def test_an_agent_that_grows_is_offered_at_once_and_may_shrink_below_its_allocation() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1")
    [offer] = master.add_agent("s1", "cpus:100;mem:1024")
    [next_offer] = master.send(total_of("cpus:200;mem:2048"))
    assert next_offer.resources == "cpus:100;mem:1024"
    assert master.send(total_of("cpus:150;mem:1536")) == []
    assert master.tick() == []
    for held in (offer, next_offer):
        master.send(freed(held))
    assert told(master.tick()) == {("f1", "s1", "cpus:150;mem:1536")}


def test_a_resource_providers_resources_count_in_total_and_for_inactive_frameworks() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1", active=False)
    master.add_agent("s1", "cpus:10;mem:64", {"f1": resources("cpus:4", "r1")})
    master.add_framework("f2", "r2", active=False)
    provider = contract.AddResourceProvider(
        agent_id="s1",
        total=resources("disk:100"),
        used=[contract.Allocation(framework_id="f2", resources=resources("disk:60", "r2"))],
    )
    assert master.send(provider) == []
    standings = {standing.user: standing.share for standing in master.engine.standings()}
    assert standings == {"r1": 0.4, "r2": 0.6}
    offers = master.send(contract.ActivateFramework(framework_id="f1"))
    assert told(offers) == {("f1", "s1", "cpus:6;disk:40;mem:64")}


def test_a_resource_providers_resources_are_offered_in_the_next_batch() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1")
    master.add_agent("s1", "cpus:1;mem:64")
    provider = contract.AddResourceProvider(agent_id="s1", total=resources("disk:5;mem:64"))
    assert master.send(provider) == []
    assert told(master.tick()) == {("f1", "s1", "disk:5;mem:64")}


def test_unused_resources_of_a_provider_without_a_total_are_offered() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1")
    [offer] = master.add_agent("s1", "cpus:4;mem:64", {"f1": resources("cpus:1", "r1")})
    master.send(freed(offer))
    provider = contract.AddResourceProvider(
        agent_id="s1",
        used=[contract.Allocation(framework_id="f1", resources=resources("cpus:2", "r1"))],
    )
    assert master.send(provider) == []
    assert told(master.tick()) == {("f1", "s1", "cpus:1;mem:64")}


def test_a_framework_with_an_allocation_on_an_agent_with_a_schedule_gets_an_inverse_offer() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1")
    master.add_framework("f2", "r2")
    master.add_agent("s1", "cpus:4;mem:64")
    master.add_agent("s2", "cpus:4;mem:64")
    start = master.now_ns + 60 * 10**9
    master.send(contract.UpdateUnavailability(agent_id="s1", unavailability=unavailability(start)))
    [[asked, agent]] = master.inverse_offers
    assert agent == "s1"
    assert asked in {framework for agent, framework, _role in master.held() if agent == "s1"}
    [offers] = master.decisions.inverse_offers
    told_start = mesos.Unavailability.FromString(offers.inverse_offers[0].unavailability).start
    assert told_start.nanoseconds == start
    master.tick()
    assert master.inverse_offers == []  # The inverse offer has been made already.


def test_accounting_stays_balanced_when_a_shared_volume_is_created_used_and_destroyed() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1", capabilities=[SHARED])
    [offer] = master.add_agent("s1", "cpus:100;mem:1024;disk(r1):200")
    volume = disk(50, reserved=["r1"], volume="v1", shared=True, role="r1")
    plain = resources("disk(r1):50", "r1")
    master.send(converted(offer, (plain, [volume])))
    assert master.held() == {("s1", "f1", "r1"): "cpus:100;mem:1024;disk:200"}
    remaining = [*resources("cpus:100;mem:1024;disk(r1):150", "r1"), volume]
    recovery = contract.RecoverResources(framework_id="f1", agent_id="s1", resources=remaining)
    master.send(recovery)
    [second] = master.tick()
    assert unallocated(second.messages) == unallocated(remaining)
    # Tasks use two more copies; then all copies but one are recovered, and that copy is destroyed.
    master.send(converted(second, ([], [volume, volume])))
    assert master.held() == {("s1", "f1", "r1"): "cpus:100;mem:1024;disk:200"}
    copies = contract.RecoverResources(framework_id="f1", agent_id="s1", resources=[volume, volume])
    master.send(copies)
    destroyed = contract.UpdateAllocation(
        framework_id="f1",
        agent_id="s1",
        offered=allocated(remaining, "r1"),
        conversions=[contract.Conversion(consumed=[volume], converted=plain)],
    )
    master.send(destroyed)
    master.send(freed(second, "cpus:100;mem:1024;disk(r1):200"))
    assert told(master.tick()) == {("f1", "s1", "cpus:100;disk(r1):200;mem:1024")}
    assert master.engine.statistics.clamped == 0


def test_a_shared_volume_that_a_framework_creates_is_offered_to_its_role_in_the_next_batch() -> (
    None
):
    master = BatchMaster(min_allocatable=[])
    master.add_framework("f1", "r1", capabilities=[SHARED])
    [offer] = master.add_agent("s1", "cpus:1;disk(r1):50")
    volume = disk(50, reserved=["r1"], volume="v1", shared=True, role="r1")
    master.add_framework("f2", "r1", capabilities=[SHARED])
    master.tick()
    master.send(converted(offer, (resources("disk(r1):50", "r1"), [volume])))
    [next_offer] = master.tick()
    assert (next_offer.framework, next_offer.messages) == ("f2", (volume,))


def test_a_shared_volume_that_an_operator_destroys_leaves_a_plain_disk() -> None:
    offered = offered_once_destroyed(disk(50, reserved=["r1"], volume="v1", shared=True))
    assert disk(50, reserved=["r1"]) in offered, "the disk carries no trace of a volume"
