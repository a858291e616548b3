"""Offer constraints of Mesos 1.11: exclusions of agents, as the master's side computes them."""

import pytest

from allocator.cluster.input.limits import Limits
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.cluster.conformance.quota_side import BatchMaster, agent_info, set_quota, told
from tests.cluster.master_side import START_NS, MasterSide, agent_call, framework_info

AGENT = "cpus:1;mem:512"


def excluding(call: contract.AddAgent, *pairs: tuple[str, str]) -> contract.AddAgent:
    """Add exclusions to an agent: pairs of a framework and a role without offers of that agent."""
    call.excluded.CopyFrom(exclusions(*pairs))
    return call


def exclusions(*pairs: tuple[str, str]) -> contract.ExclusionList:
    return contract.ExclusionList(
        exclusions=[contract.Exclusion(framework_id=name, role=role) for name, role in pairs]
    )


def framework(name: str, role: str, *agents: str) -> contract.AddFramework:
    """Return the call for a framework that excludes some agents."""
    return contract.AddFramework(
        framework_id=name,
        info=framework_info(name, role),
        active=True,
        excluded=[contract.ExcludedAgents(role=role, agent_ids=agents)],
    )


@pytest.fixture
def master() -> BatchMaster:
    made = BatchMaster()
    made.add_agent("s1", AGENT)
    made.add_agent("s2", AGENT)
    return made


def test_a_framework_gets_no_offers_of_agents_that_its_constraints_exclude(
    master: BatchMaster,
) -> None:
    assert told(master.send(framework("f1", "a", "s1"))) == {("f1", "s2", AGENT)}
    assert told(master.add_framework("f2", "b")) == {("f2", "s1", AGENT)}


def test_constraints_hold_for_one_role_of_a_framework(master: BatchMaster) -> None:
    call = framework("f1", "a", "s1")
    call.info = framework_info("f1", "a", "b")
    roles = {(offer.agent, offer.role) for offer in master.send(call)}
    assert ("s1", "b") in roles
    assert ("s1", "a") not in roles


def test_constraints_exclude_an_agent_that_is_added_later() -> None:
    master = BatchMaster()
    master.add_framework("f1", "a")
    call = excluding(agent_call("s1", AGENT, {}), ("f1", "a"))
    assert master.send(call) == []
    assert told(master.add_agent("s2", AGENT)) == {("f1", "s2", AGENT)}


def test_changed_exclusions_of_an_agent_take_effect(master: BatchMaster) -> None:
    [_, _] = offers = master.add_framework("f1", "a")
    attributes = agent_info("s1", rack="r1")
    changed = contract.UpdateAgent(agent_id="s1", info=attributes, excluded=exclusions(("f1", "a")))
    master.send(changed)
    for offer in offers:
        master.recover(offer)
    assert told(master.tick()) == {("f1", "s2", AGENT)}
    passing = contract.UpdateAgent(agent_id="s1", info=attributes, excluded=exclusions())
    assert told(master.send(passing)) == {("f1", "s1", AGENT)}


def test_an_update_without_exclusions_keeps_the_former_exclusions(master: BatchMaster) -> None:
    master.send(framework("f1", "a", "s1", "s2"))
    master.send(contract.UpdateAgent(agent_id="s1", info=agent_info("s1", rack="r1")))
    assert master.tick() == []


def test_a_framework_that_changes_its_constraints_gets_offers_by_the_new_constraints(
    master: BatchMaster,
) -> None:
    master.send(framework("f1", "a", "s1", "s2"))
    relaxed = contract.UpdateFramework(framework_id="f1", info=framework_info("f1", "a"))
    master.send(relaxed)
    assert {offer.agent for offer in master.tick()} == {"s1", "s2"}


def test_constraints_apply_to_quota_guarantees_too(master: BatchMaster) -> None:
    master.send(set_quota("a", "cpus:2"))
    assert told(master.send(framework("f1", "a", "s1"))) == {("f1", "s2", AGENT)}


def test_exclusions_end_when_their_agent_or_framework_is_removed(master: BatchMaster) -> None:
    master.send(framework("f1", "a", "s1", "s2"))
    master.send(contract.RemoveFramework(framework_id="f1"))
    assert {offer.agent for offer in master.add_framework("f1", "a")} == {"s1", "s2"}
    second_master = BatchMaster()
    second_master.send(excluding(agent_call("s1", AGENT, {}), ("f1", "a")))
    second_master.remove_agent("s1")
    second_master.add_agent("s1", AGENT)
    assert {offer.agent for offer in second_master.add_framework("f1", "a")} == {"s1"}


def test_a_snapshot_contains_the_exclusions_of_its_agents() -> None:
    master = BatchMaster()
    snapshot = contract.Snapshot(
        time_ns=START_NS,
        agents=[excluding(agent_call("s1", AGENT, {}), ("f1", "a")), agent_call("s2", AGENT, {})],
        frameworks=[
            contract.AddFramework(framework_id="f1", info=framework_info("f1", "a"), active=True)
        ],
    )
    assert told(master.restore(snapshot)) == {("f1", "s2", AGENT)}


def test_a_framework_that_excludes_every_agent_is_reported(master: BatchMaster) -> None:
    master.send(framework("f1", "a", "s1"))
    assert master.engine.misfits() == {}
    master.remove_agent("s2")
    assert master.engine.misfits() == {
        "f1": "its offer constraints for the role 'a' exclude every agent"
    }


def test_under_tsf_monopolies_count_only_agents_that_are_not_excluded() -> None:
    """A framework that can use half of the cluster has half of the monopoly, like with labels."""
    master = MasterSide("tsf")
    for agent in ("s1", "s2"):
        master.send(agent_call(agent, "cpus:4;mem:4096", {}))
    call = framework("f1", "a", "s1")
    call.info = labelled("f1", "a")
    master.send(call)
    before = master.engine.pool.standing("a").task_share
    assert before == 4 / 8, "4 tasks run of 8 that fit without constraints"
    free = contract.UpdateFramework(framework_id="f1", info=labelled("f1", "a"))
    master.send(free)
    master.tick()
    assert master.engine.pool.standing("a").task_share == 1.0


def labelled(name: str, role: str) -> bytes:
    info = mesos.FrameworkInfo.FromString(framework_info(name, role))
    info.labels.labels.add(key="longshare.demand", value="cpus:1;mem:64")
    return info.SerializeToString()


LIMITS = Limits(exclusions=3)


def test_a_framework_beyond_the_limit_gets_no_offers_until_its_constraints_are_within_it() -> None:
    master = BatchMaster(limits=LIMITS)
    for agent in ("s1", "s2", "s3", "s4"):
        master.add_agent(agent, AGENT)
    assert master.send(framework("f1", "a", "s1", "s2", "s3", "s4")) == []
    [rejected] = master.engine.rejected_inputs()
    assert (rejected.name, rejected.topic, rejected.flaw.reason) == ("f1", "subscription", "limit")
    assert {offer.framework for offer in master.add_framework("f2", "b")} == {"f2"}
    update = contract.UpdateFramework(
        framework_id="f1",
        info=framework_info("f1", "a"),
        excluded=[contract.ExcludedAgents(role="a", agent_ids=["s1"])],
    )
    master.send(update)
    assert not [*master.engine.rejected_inputs()]
    assert told(master.add_agent("s5", AGENT)) == {("f1", "s5", AGENT)}


def test_agents_that_bring_a_framework_beyond_the_limit_end_its_offers() -> None:
    master = BatchMaster(limits=LIMITS)
    master.add_framework("f1", "a")
    for agent in ("s1", "s2", "s3", "s4"):
        assert master.send(excluding(agent_call(agent, AGENT, {}), ("f1", "a"))) == []
    assert [rejected_input.name for rejected_input in master.engine.rejected_inputs()] == ["f1"]
    assert master.add_agent("s5", AGENT) == [], "the exclusions of new agents are no longer known"


@pytest.mark.parametrize("by_agent", [True, False])
def test_an_unlisted_framework_gets_no_offers_whichever_call_says_so(*, by_agent: bool) -> None:
    master = BatchMaster()
    call, agent = framework("f1", "a"), agent_call("s1", AGENT, {})
    if by_agent:
        agent.excluded.unlisted.append("f1")
    else:
        call.excluded_unlisted = True
    snapshot = contract.Snapshot(time_ns=START_NS, agents=[agent], frameworks=[call])
    assert master.restore(snapshot) == []
    assert [rejected_input.name for rejected_input in master.engine.rejected_inputs()] == ["f1"]
    relaxed = contract.UpdateFramework(framework_id="f1", info=framework_info("f1", "a"))
    master.send(relaxed)
    assert told(master.tick()) == {("f1", "s1", AGENT)}
    relaxed.excluded_unlisted = True
    master.send(relaxed)
    assert [rejected_input.name for rejected_input in master.engine.rejected_inputs()] == ["f1"]


def test_what_an_unlisted_framework_holds_stays_its_own() -> None:
    master = BatchMaster(limits=LIMITS)
    master.add_agent("s1", AGENT)
    master.add_framework("f1", "a")
    before = master.engine.pool.standing("a").allocation
    for agent in ("s2", "s3", "s4", "s5"):
        master.send(excluding(agent_call(agent, AGENT, {}), ("f1", "a")))
    assert master.engine.pool.standing("a").allocation == before
