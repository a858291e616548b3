"""Rows 14-19, 22, 28-34 and 38: eligibility of agents and resources for a framework."""

import pytest

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.cluster.conformance.quota_side import (
    REVOCABLE,
    SHARED,
    BatchMaster,
    add_agent,
    agent_info,
    disk,
    freed,
    revocable,
    told,
    unallocated,
)
from tests.cluster.master_side import ALL_AGENT_CAPABILITIES, Offered, framework_info, resources

REFINEMENT = mesos.FrameworkInfo.Capability.RESERVATION_REFINEMENT


def amount(offers: list[Offered], name: str) -> float:
    return sum(
        message.scalar.value
        for offer in offers
        for data in offer.messages
        if (message := mesos.Resource.FromString(data)).name == name
    )


def test_recovered_resources_reserved_or_not_are_offered_in_the_next_batch() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1")
    [offer] = master.add_agent("s1", "cpus:1;mem:512;cpus(r1):1;mem(r1):512")
    for part in ("cpus(r1):1;mem(r1):512", "cpus:1;mem:512"):
        assert master.recover(offer, part) == []
        assert told(master.tick()) == {("f1", "s1", part)}


def test_reservations_go_to_their_role_and_the_rest_of_the_agent_to_other_roles() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1", capabilities=[REFINEMENT])
    master.add_framework("f2", "r2", capabilities=[REFINEMENT])
    held = {"f2": resources("cpus:2;mem:2048", "r2")}
    offers = master.add_agent("s1", "cpus(r2):1;mem(r2):1024;cpus:3;mem:3072", held)
    assert told(offers) == {
        ("f1", "s1", "cpus:1;mem:1024"),
        ("f2", "s1", "cpus(r2):1;mem(r2):1024"),
    }
    assert master.add_agent("s2", "cpus(r3):1;mem(r3):1024") == []
    assert master.tick() == []


def test_reservations_of_ancestors_are_offered_to_descendants_and_not_the_reverse() -> None:
    master = BatchMaster()
    master.add_framework("f1", "a/b/c")
    reserved = "cpus(a):1;cpus(a/b):1;mem(a/b/c):64"
    assert told(master.add_agent("s1", reserved)) == {
        ("f1", "s1", "cpus(a):1;cpus(a/b):1;mem(a/b/c):64")
    }
    assert master.add_agent("s2", "cpus(a/b/c/d):1;mem(a/d):64") == []


@pytest.mark.parametrize(
    ("total", "enough"),
    [
        ("cpus:0.009;mem:31", False),
        ("cpus:0.01", True),
        ("mem:32", True),
        ("cpus:0.005;cpus(r1):0.005", True),
        ("mem(r1):16;mem:16", True),
        ("disk:1000;ports:[1-100]", False),
    ],
)
def test_an_offer_reaches_at_least_one_of_the_minima(total: str, *, enough: bool) -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1")
    assert len(master.add_agent("s1", total)) == enough


def with_minimum(*alternatives: dict[str, float]) -> bytes:
    info = mesos.FrameworkInfo.FromString(framework_info("f1", "r1"))
    minimum = info.offer_filters["r1"].min_allocatable_resources
    minimum.SetInParent()
    for alternative in alternatives:
        quantities = minimum.quantities.add().quantities
        for name, value in alternative.items():
            quantities[name].value = value
    return info.SerializeToString()


def test_a_frameworks_own_minimum_overrides_the_masters_minimum_and_can_be_changed() -> None:
    master = BatchMaster()
    call = contract.AddFramework(framework_id="f1", info=with_minimum({"cpus": 2.0}), active=True)
    master.send(call)
    assert master.add_agent("s1", "cpus:1;mem:1024") == []
    update = contract.UpdateFramework(framework_id="f1", info=with_minimum({"cpus": 0.5, "mem": 1}))
    assert master.send(update) == []
    assert told(master.tick()) == {("f1", "s1", "cpus:1;mem:1024")}


def test_an_empty_minimum_is_no_minimum() -> None:
    master = BatchMaster()
    call = contract.AddFramework(framework_id="f1", info=with_minimum(), active=True)
    master.send(call)
    assert len(master.add_agent("s1", "cpus:0.001")) == 1


def test_only_agents_on_the_whitelist_are_offered_and_a_change_counts_from_the_next_batch() -> None:
    master = BatchMaster()
    listed = contract.Whitelist(hostnames=["s1.example"])
    master.send(contract.UpdateWhitelist(whitelist=listed))
    master.add_framework("f1", "r1")
    assert len(master.add_agent("s1", "cpus:1;mem:64")) == 1
    assert master.add_agent("s2", "cpus:1;mem:64") == []
    assert master.tick() == []
    assert master.send(contract.UpdateWhitelist()) == []
    assert told(master.tick()) == {("f1", "s2", "cpus:1;mem:64")}
    empty_whitelist = contract.UpdateWhitelist(whitelist=contract.Whitelist())
    master.send(empty_whitelist)
    assert master.add_agent("s3", "cpus:1;mem:64") == []


def test_oversubscribed_resources_are_offered_at_once_to_frameworks_that_accept_them() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1", capabilities=[REVOCABLE])
    [whole] = master.add_agent("s1", "cpus:100;mem:100")

    def oversubscribed(text: str) -> contract.UpdateAgent:
        total = [*resources("cpus:100;mem:100"), *revocable(text)]
        return contract.UpdateAgent(
            agent_id="s1", info=agent_info("s1"), total=contract.ResourceList(resources=total)
        )

    [next_offer] = master.send(oversubscribed("cpus:10"))
    assert next_offer.resources == "cpus:10"
    assert mesos.Resource.FromString(next_offer.messages[0]).HasField("revocable")
    [rest] = master.send(oversubscribed("cpus:12"))
    assert rest.resources == "cpus:2"
    assert master.send(oversubscribed("cpus:8")) == []
    assert master.tick() == []
    # Recovered regular and oversubscribed resources are offered together.
    both = contract.RecoverResources(
        framework_id="f1", agent_id="s1", resources=[*whole.messages, *next_offer.messages]
    )
    assert master.send(oversubscribed("cpus:12")) == []
    assert master.send(both) == []
    [later_offer] = master.tick()
    assert amount([later_offer], "cpus") == 110.0


def test_oversubscribed_resources_are_not_offered_to_frameworks_without_that_capability() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1")
    total = [*resources("cpus:4;mem:64"), *revocable("cpus:9")]
    [offer] = master.send(add_agent("s1", total))
    assert offer.resources == "cpus:4;mem:64"
    assert master.tick() == []


def test_an_agent_that_gains_the_multi_role_capability_is_offered_at_once() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1")
    assert master.add_agent("s1", "cpus:1;mem:64", capabilities=[]) == []
    assert master.tick() == []
    knows = contract.CapabilityList(capabilities=ALL_AGENT_CAPABILITIES)
    update = contract.UpdateAgent(agent_id="s1", info=agent_info("s1"), capabilities=knows)
    assert told(master.send(update)) == {("f1", "s1", "cpus:1;mem:64")}


def test_a_framework_without_eligible_agents_does_not_end_the_cycle_for_other_frameworks() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1")
    master.add_framework("f2", "r1/x", capabilities=[REFINEMENT])
    held = {"f2": resources("cpus:10;mem:1024", "r1/x")}
    master.add_agent("s1", "cpus:10;mem:1024", held)
    [offer] = master.add_agent("s2", "cpus(r1,r1/x):1;mem(r1,r1/x):64")
    assert offer.framework == "f2"


def test_agents_with_reserved_ports_only_can_be_added_and_removed() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1")
    for name in ("s1", "s2"):
        master.add_agent(name, "cpus:1;mem:64;ports(r1):[31000-32000]")
    for name in ("s1", "s2"):
        master.remove_agent(name)
    assert master.engine.pool.capacity.to_doubles() == {}
    assert master.held() == {}


def shared_volume() -> bytes:
    return disk(128, reserved=["r1"], volume="v1", shared=True)


def test_a_shared_volume_needs_a_framework_with_that_capability() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1")
    [offer] = master.send(add_agent("s1", [*resources("cpus:2;mem:64"), shared_volume()]))
    assert offer.resources == "cpus:2;mem:64"
    master.send(freed(offer))
    info = framework_info("f1", "r1", capabilities=[SHARED])
    master.send(contract.UpdateFramework(framework_id="f1", info=info))
    [offer] = master.tick()
    assert amount([offer], "disk") == 128


def test_a_shared_volume_in_use_is_offered_again_with_other_free_resources() -> None:
    master = BatchMaster()
    master.add_framework("f1", "r1", capabilities=[SHARED])
    [offer] = master.send(add_agent("s1", [*resources("cpus:2;mem:64"), shared_volume()]))
    assert amount([offer], "disk") == 128
    master.add_framework("f2", "r1", capabilities=[SHARED])
    assert master.tick() == []  # a volume alone is below the minimum
    assert master.recover(offer, "cpus:1") == []
    [second] = master.tick()
    assert second.framework == "f2"
    assert amount([second], "cpus") == 1
    assert amount([second], "disk") == 128


def test_each_shared_volume_of_an_agent_is_offered_once_in_a_cycle() -> None:
    master = BatchMaster(min_allocatable=[])
    for name, role in (("f1", "r1"), ("f2", "r2"), ("f3", "r2"), ("f4", "r1")):
        master.add_framework(name, role, capabilities=[SHARED])
    volumes = [disk(64, reserved=[r], volume=f"of-{r}", shared=True) for r in ("r1", "r2")]
    offers = master.send(add_agent("s1", volumes))
    assert [(offer.framework, offer.role) for offer in offers] == [("f1", "r1"), ("f2", "r2")]
    assert {data for offer in offers for data in unallocated(offer.messages)} == set(volumes)


def test_offers_of_ports_alone_do_not_lower_a_frameworks_rank() -> None:
    master = BatchMaster(min_allocatable=[])
    master.add_framework("f1", "r1")
    master.add_framework("f2", "r2")
    for number in range(3):
        assert told(master.add_agent(f"s{number}", "ports:[1-9]")) == {
            ("f1", f"s{number}", "ports:[1-9]")
        }
    [offer] = master.add_agent("s3", "cpus:1")
    assert offer.framework == "f1"
    [offer] = master.add_agent("s4", "ports:[1-9]")
    assert offer.framework == "f2", "the framework with the smaller share"


def test_agents_of_other_regions_are_offered_only_to_region_aware_frameworks() -> None:
    aware = mesos.FrameworkInfo.Capability.REGION_AWARE
    master = BatchMaster()
    home = domain("home")
    master.options.domain = home.SerializeToString()
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    master.add_framework("f1", "r1")
    far = mesos.SlaveInfo(hostname="h", domain=domain("away"))
    near = mesos.SlaveInfo(hostname="h", domain=home)
    for name, info in (("s1", far), ("s2", near)):
        call = add_agent(name, resources("cpus:1;mem:64"))
        call.info = info.SerializeToString()
        assert len(master.send(call)) == (name == "s2")
    offers = master.add_framework("f2", "r2", capabilities=[aware])
    assert told(offers) == {("f2", "s1", "cpus:1;mem:64")}


def domain(region: str) -> mesos.DomainInfo:
    made = mesos.DomainInfo()
    made.fault_domain.region.name = region
    made.fault_domain.zone.name = "z"
    return made
