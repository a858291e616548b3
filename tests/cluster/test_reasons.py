"""Why what is free does not go to a client: one reason for each agent, the closest one first."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.engine import Engine
from allocator.cluster.frameworks import Client
from allocator.cluster.reasons import Why
from allocator.cluster.steps import finished
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.service.show.why import in_words
from tests.cluster.master_side import (
    SECOND,
    START_NS,
    MasterSide,
    agent_call,
    framework_info,
    resource,
)


def why(engine: Engine, framework: str = "f1", role: str = "a", *, closely: bool = False) -> Why:
    found = finished(finished(engine.survey()).look(Client(role, framework), closely=closely))
    assert found is not None
    return found


def labelled(framework: str, *roles: str, **labels: str) -> contract.AddFramework:
    info = mesos.FrameworkInfo.FromString(framework_info(framework, *roles))
    for key, value in labels.items():
        info.labels.labels.add(key=f"longshare.{key}", value=value)
    return contract.AddFramework(framework_id=framework, info=info.SerializeToString(), active=True)


def cluster(*agents: str, **labels: str) -> MasterSide:
    """A framework f1 in the role a, and agents s1, s2, … with so much."""
    master = MasterSide()
    master.send(labelled("f1", "a", **labels))
    for number, total in enumerate(agents, start=1):
        master.add_agent(f"s{number}", total)
    return master


def test_a_task_that_no_agent_can_hold_fits_nowhere_and_is_named() -> None:
    master = cluster("cpus:4;mem:512", "cpus:4;mem:512", demand="cpus:100")
    told = why(master.engine)
    assert (told.reason, dict(told.agents)) == ("too_large", {"too_large": 2})
    said = "one task needs cpus:100, and no agent has more than 4"
    assert master.engine.misfits() == {"f1": said}
    master.add_agent("s9", "cpus:128;mem:512")
    assert master.engine.misfits() == {}


def test_a_task_that_fits_nowhere_only_as_a_whole_is_told_by_its_reason() -> None:
    master = cluster("cpus:8;mem:512", "cpus:1;mem:8192", demand="cpus:4;mem:4096")
    assert why(master.engine).reason == "too_large"


def test_ports_in_a_demand_are_not_taken_for_an_amount_that_nobody_has() -> None:
    master = cluster("cpus:4;mem:512;ports:[1-9]", demand="cpus:1;ports:2")
    assert master.engine.misfits() == {}
    assert master.engine.holdings()


def test_agents_that_a_constraint_forbids_are_counted_apart_from_those_that_are_full() -> None:
    master = cluster("cpus:4;mem:512", "cpus:4;mem:512", whitelist="s1.*")
    told = why(master.engine)
    assert dict(told.agents) == {"nothing_free": 1, "constraint": 1}
    assert told.reason == "nothing_free"
    master.remove_agent("s1")
    assert why(master.engine).reason == "constraint"


def test_what_it_has_refused_itself_is_told_with_the_end_of_the_first_filter() -> None:
    master = MasterSide()
    master.send(labelled("f1", "a"))
    [first] = master.add_agent("s1", "cpus:4;mem:512")
    [second] = master.add_agent("s2", "cpus:4;mem:512")
    master.recover(first, refuse_seconds=300)
    master.recover(second, refuse_seconds=60)
    told = why(master.engine)
    assert (told.reason, dict(told.agents)) == ("refused", {"refused": 2})
    assert told.until == START_NS / SECOND + 60
    assert in_words(told, START_NS / SECOND + 15) == (
        "it has itself refused what 2 agents would give it; "
        "the first of its refusals ends in 45.0 s"
    )
    master.tick(61)
    assert dict(why(master.engine).agents) == {"nothing_free": 1, "refused": 1}


def test_who_has_refused_what_will_become_free_is_told_so_while_nothing_is() -> None:
    master = MasterSide()
    master.send(labelled("f1", "a", demand="cpus:1;mem:64"))
    [offer] = master.add_agent("s1", "cpus:4;mem:512")
    master.recover(offer, refuse_seconds=300)
    master.add_agent("s2", "cpus:4;mem:512")
    assert master.add_framework("f2", "b"), "which takes the one that f1 has refused"
    for closely in (False, True):
        told = why(master.engine, closely=closely)
        assert (told.reason, dict(told.agents)) == ("nothing_free", {"nothing_free": 2})
        assert told.refusing == closely
    words = in_words(told, START_NS / SECOND)
    assert words.endswith(
        "; on 1 agent it has itself refused what one task needs, and is not offered that"
    )


def test_who_has_refused_less_than_its_task_needs_has_not_refused_that() -> None:
    master = MasterSide()
    master.send(labelled("f1", "a", demand="cpus:1;mem:64"))
    [offer] = master.add_agent("s1", "cpus:4;mem:512")
    master.recover(offer, "cpus:0.5;mem:64", refuse_seconds=300)
    assert master.add_framework("f2", "b"), "which takes what f1 has refused"
    told = why(master.engine, closely=True)
    assert (told.reason, told.refusing) == ("nothing_free", 0)


def test_what_is_free_until_the_next_run_waits_for_its_turn() -> None:
    master = MasterSide()
    master.engine = Engine(replace(master.settings, allocation="batch"))
    master.restore(contract.Snapshot(time_ns=START_NS))
    master.send(labelled("f1", "a"))
    [offer] = master.add_agent("s1", "cpus:4;mem:512") + master.tick()
    assert master.recover(offer) == []
    assert why(master.engine).reason == "turn"
    assert master.tick()
    assert why(master.engine).reason == "nothing_free"


def test_agents_that_are_not_offered_are_told_by_why_they_are_not() -> None:
    master = cluster()
    only = contract.Whitelist(hostnames=["s1.example"])
    master.send(contract.UpdateWhitelist(whitelist=only))
    master.add_agent("s1", "cpus:4;mem:512")
    master.add_agent("s2", "cpus:4;mem:512")
    assert dict(why(master.engine).agents) == {"nothing_free": 1, "not_whitelisted": 1}
    master.send(contract.DeactivateAgent(agent_id="s1"))
    told = why(master.engine)
    assert dict(told.agents) == {"deactivated": 1, "not_whitelisted": 1}
    assert told.reason == "deactivated"


def test_what_is_held_back_for_somebody_elses_guarantee_is_told_as_quota() -> None:
    master = cluster(demand="cpus:1")
    quota = mesos.QuotaInfo(role="b", guarantee=[resource("cpus", "4"), resource("mem", "512")])
    master.send(contract.SetQuota(role="b", info=quota.SerializeToString()))
    assert master.add_agent("s1", "cpus:4;mem:512") == []
    assert why(master.engine).reason == "quota"
    master.send(contract.RemoveQuota(role="b"))
    master.tick()
    assert why(master.engine).reason == "nothing_free"


def test_a_client_without_wishes_is_told_so_whatever_is_free() -> None:
    master = cluster()
    assert why(master.engine).reason == "no_agents"
    master.send(contract.SuppressOffers(framework_id="f1"))
    master.add_agent("s1", "cpus:4;mem:512")
    assert why(master.engine).reason == "suppressed"
    master.send(contract.DeactivateFramework(framework_id="f1"))
    told = why(master.engine, closely=True)
    assert (told.reason, told.idle, told.refusing) == ("inactive", True, 0)


def test_of_whom_nobody_knows_there_is_nothing_to_tell() -> None:
    survey = finished(cluster("cpus:4").engine.survey())
    for client in (Client("a", "f1"), Client("b", "f1"), Client("a", "f9")):
        found = finished(survey.look(client))
        assert (found is None) == (client != ("a", "f1"))
        assert found is None or not found.idle, "it has been offered the agent"


def test_gpus_are_not_for_a_framework_without_the_capability() -> None:
    assert why(cluster("cpus:4;gpus:1").engine).reason == "capability"


@pytest.mark.parametrize(
    ("label", "meant"),
    [("whitelits", "whitelist"), ("Demand", "demand"), ("attribute", "attributes")],
)
def test_a_label_with_a_slip_is_named_with_what_was_probably_meant(label: str, meant: str) -> None:
    master = cluster(**{label: "x"})
    said = f"label longshare.{label} is not known; did you mean longshare.{meant}?"
    assert master.engine.misfits() == {"f1": said}


def test_labels_that_resemble_nothing_are_named_without_a_guess_and_not_all_of_a_flood() -> None:
    master = cluster(**{f"{'z' * 200}{number}": "x" for number in range(1000)})
    said = master.engine.misfits()["f1"]
    assert said.count("is not known") == 8
    assert "did you mean" not in said


@given(
    totals=st.lists(st.integers(1, 8), min_size=1, max_size=6),
    demands=st.lists(st.integers(1, 10), min_size=1, max_size=4),
)
def test_each_agent_counts_once_and_nothing_that_would_do_is_left_after_a_run(
    totals: list[int], demands: list[int]
) -> None:
    master = MasterSide()
    for number, demand in enumerate(demands):
        master.send(labelled(f"f{number}", "a", demand=f"cpus:{demand}"))
    for number, total in enumerate(totals):
        master.send(agent_call(f"s{number}", f"cpus:{total};mem:512"))
    for number, demand in enumerate(demands):
        told = why(master.engine, f"f{number}")
        assert sum(told.agents.values()) == len(totals)
        assert told.agents.get("too_large", 0) == sum(total < demand for total in totals)
        assert "turn" not in told.agents


def test_a_demand_of_too_many_resources_is_none_and_the_limit_is_named() -> None:
    master = cluster(demand=";".join(f"r{number}:1" for number in range(65)))
    assert why(master.engine).task is None
    assert "limits.resources" in master.engine.misfits()["f1"]
