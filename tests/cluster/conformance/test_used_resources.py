"""Offered and used resources, where the master tells them apart (since Mesos 1.10)."""

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
    told = master.engine.offered()
    assert told is not None
    return {user: amounts.to_doubles() for user, amounts in told.items()}


def test_a_master_that_does_not_tell_is_not_taken_to_have_said_that_all_is_offered() -> None:
    master = BatchMaster()
    master.add_framework("f1", "a")
    master.add_agent("s1", "cpus:4;mem:64")
    assert master.engine.offered() is None


def test_what_is_launched_runs_and_the_rest_is_still_offered_until_it_comes_back() -> None:
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


def test_what_an_agent_brings_along_runs_as_far_as_it_says() -> None:
    call = agent_call("s1", "cpus:4;mem:64", {"f1": resources("cpus:3", "a")})
    call.running.add(framework_id="f1", resources=resources("cpus:2", "a"))
    master = telling(call)
    master.add_framework("f1", "a", suppressed=["a"])
    assert offered(master) == {"a": {"cpus": 1.0}}


def test_what_a_resource_provider_brings_along_runs() -> None:
    master = telling(agent_call("s1", "cpus:4", {}))
    master.add_framework("f1", "a", suppressed=["a"])
    used = contract.Allocation(framework_id="f1", resources=resources("disk:7", "a"))
    master.send(contract.AddResourceProvider(agent_id="s1", total=resources("disk:9"), used=[used]))
    assert master.held() == {("s1", "f1", "a"): "disk:7"}
    assert offered(master) == {"a": {}}


def test_a_role_above_shows_what_those_below_are_offered() -> None:
    master = telling()
    master.add_framework("f1", "a/b")
    master.add_agent("s1", "cpus:4")
    assert offered(master) == {"a/b": {"cpus": 4.0}, "a": {"cpus": 4.0}}


def test_more_than_was_offered_never_runs() -> None:
    """Such as a launch whose agent was removed before it was heard of."""
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


def test_what_runs_already_cannot_be_begun_again() -> None:
    master = telling()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:4")
    for ignored in (0, 1):
        master.send(launched(offer, "cpus:3"))
        assert master.engine.statistics.ignored == ignored


def test_a_framework_that_is_gone_has_nothing_running() -> None:
    master = telling()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:4")
    master.send(launched(offer, "cpus:4"))
    master.send(contract.RemoveFramework(framework_id="f1"))
    [again] = master.add_framework("f1", "a") or master.tick()
    assert again.resources == "cpus:4"
    assert offered(master) == {"a": {"cpus": 4.0}}
