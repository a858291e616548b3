"""Offered and used resources, if the master reports both separately (since Mesos 1.10)."""

from allocator.contract import allocator_pb2 as contract
from tests.cluster.conformance.quota_side import BatchMaster
from tests.cluster.master_side import START_NS, Offered, agent_call, resources


def telling(*agents: contract.AddAgent) -> BatchMaster:
    master = BatchMaster()
    master.options.tells_running = True
    master.restore(contract.Snapshot(time_ns=START_NS, agents=agents))
    return master


def launched(offer: Offered, text: str) -> contract.TransitionOfferedToAllocated:
    return contract.TransitionOfferedToAllocated(
        framework_id=offer.framework, agent_id=offer.agent, resources=resources(text, offer.role)
    )


def ended(offer: Offered, text: str, *, running: bool) -> contract.RecoverResources:
    return contract.RecoverResources(
        framework_id=offer.framework,
        agent_id=offer.agent,
        resources=resources(text, offer.role),
        is_allocated=running,
    )


def offered(master: BatchMaster) -> dict[str, dict[str, float]]:
    offered = master.engine.offered()
    assert offered is not None
    return {user: amounts.to_doubles() for user, amounts in offered.items()}


def test_a_master_that_reports_no_used_resources_is_not_assumed_to_have_offered_everything() -> (
    None
):
    master = BatchMaster()
    master.add_framework("f1", "a")
    master.add_agent("s1", "cpus:4;mem:64")
    assert master.engine.offered() is None


def test_launched_resources_are_used_and_the_rest_is_offered_until_it_is_recovered() -> None:
    master = telling()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:4;mem:64")
    assert offered(master) == {"a": {"cpus": 4.0, "mem": 64.0}}
    master.send(launched(offer, "cpus:1;mem:16"))
    assert offered(master) == {"a": {"cpus": 3.0, "mem": 48.0}}
    master.send(ended(offer, "cpus:3;mem:48", running=False))
    assert offered(master) == {"a": {}}
    master.send(ended(offer, "cpus:1;mem:16", running=True))
    assert offered(master) == {"a": {}}
    assert master.held() == {}


def test_used_resources_of_a_new_agent_are_those_that_it_reports() -> None:
    call = agent_call("s1", "cpus:4;mem:64", {"f1": resources("cpus:3", "a")})
    call.running.add(framework_id="f1", resources=resources("cpus:2", "a"))
    master = telling(call)
    master.add_framework("f1", "a", suppressed=["a"])
    assert offered(master) == {"a": {"cpus": 1.0}}


def test_used_resources_of_a_new_resource_provider_count_as_used() -> None:
    master = telling(agent_call("s1", "cpus:4", {}))
    master.add_framework("f1", "a", suppressed=["a"])
    used = contract.Allocation(framework_id="f1", resources=resources("disk:7", "a"))
    master.send(contract.AddResourceProvider(agent_id="s1", total=resources("disk:9"), used=[used]))
    assert master.held() == {("s1", "f1", "a"): "disk:7"}
    assert offered(master) == {"a": {}}


def test_a_parent_role_shows_the_offered_resources_of_its_sub_roles() -> None:
    master = telling()
    master.add_framework("f1", "a/b")
    master.add_agent("s1", "cpus:4")
    assert offered(master) == {"a/b": {"cpus": 4.0}, "a": {"cpus": 4.0}}


def test_used_resources_never_exceed_the_offered_resources() -> None:
    """Example: a launch on an agent whose removal the engine has seen first."""
    master = telling()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:4")
    master.send(launched(offer, "cpus:9"))
    assert offered(master) == {"a": {}}
    assert master.engine.statistics.ignored == 1
    master.remove_agent("s1")
    master.send(launched(offer, "cpus:1"))
    assert offered(master) == {"a": {}}
    assert master.engine.statistics.ignored == 2


def test_resources_that_are_used_already_cannot_be_launched_again() -> None:
    master = telling()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:4")
    for ignored in (0, 1):
        master.send(launched(offer, "cpus:3"))
        assert master.engine.statistics.ignored == ignored


def test_a_removed_framework_has_no_used_resources() -> None:
    master = telling()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:4")
    master.send(launched(offer, "cpus:4"))
    master.send(contract.RemoveFramework(framework_id="f1"))
    [next_offer] = master.add_framework("f1", "a") or master.tick()
    assert next_offer.resources == "cpus:4"
    assert offered(master) == {"a": {"cpus": 4.0}}
