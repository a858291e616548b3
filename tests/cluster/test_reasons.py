"""The reason why a client gets no offers: one reason for each agent, the closest one first."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.engine import Engine
from allocator.cluster.engine.wording import reasons_text
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.reasons import Explanation
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.cooperative import run_to_completion
from allocator.users.settings import DeclaredUser
from tests.cluster.master_side import (
    ALL_AGENT_CAPABILITIES,
    SECOND,
    START_NS,
    MasterSide,
    agent_call,
    framework_info,
    resource,
    resources,
)


def why(
    engine: Engine, framework: str = "f1", role: str = "a", *, closely: bool = False
) -> Explanation:
    explanation = run_to_completion(
        run_to_completion(engine.survey()).explain(Client(role, framework), closely=closely)
    )
    assert explanation is not None
    return explanation


def labelled(framework: str, *roles: str, **labels: str) -> contract.AddFramework:
    info = mesos.FrameworkInfo.FromString(framework_info(framework, *roles))
    for key, value in labels.items():
        info.labels.labels.add(key=f"longshare.{key}", value=value)
    return contract.AddFramework(framework_id=framework, info=info.SerializeToString(), active=True)


def cluster(*agents: str, **labels: str) -> MasterSide:
    """Return a cluster with framework f1 in role a, and with agents s1, s2, …"""
    master = MasterSide()
    master.send(labelled("f1", "a", **labels))
    for number, total in enumerate(agents, start=1):
        master.add_agent(f"s{number}", total)
    return master


def test_a_task_that_no_agent_can_hold_fits_nowhere_and_is_named() -> None:
    master = cluster("cpus:4;mem:512", "cpus:4;mem:512", demand="cpus:100")
    explanation = why(master.engine)
    assert (explanation.reason, dict(explanation.agents)) == ("too_large", {"too_large": 2})
    message = "one task needs cpus:100, and no agent has more than 4"
    assert master.engine.misfits() == {"f1": message}
    master.add_agent("s9", "cpus:128;mem:512")
    assert master.engine.misfits() == {}


def test_a_task_that_fits_nowhere_only_as_a_whole_is_reported_by_its_reason() -> None:
    master = cluster("cpus:8;mem:512", "cpus:1;mem:8192", demand="cpus:4;mem:4096")
    assert why(master.engine).reason == "too_large"


def test_ports_in_a_demand_are_not_reported_as_a_missing_amount() -> None:
    master = cluster("cpus:4;mem:512;ports:[1-9]", demand="cpus:1;ports:2")
    assert master.engine.misfits() == {}
    assert master.engine.allocations()


def test_agents_excluded_by_a_constraint_are_counted_separately_from_full_agents() -> None:
    master = cluster("cpus:4;mem:512", "cpus:4;mem:512", whitelist="s1.*")
    explanation = why(master.engine)
    assert dict(explanation.agents) == {"nothing_free": 1, "constraint": 1}
    assert explanation.reason == "nothing_free"
    master.remove_agent("s1")
    assert why(master.engine).reason == "constraint"


def test_declined_resources_are_reported_with_the_end_of_the_first_filter() -> None:
    master = MasterSide()
    master.send(labelled("f1", "a"))
    [first] = master.add_agent("s1", "cpus:4;mem:512")
    [second] = master.add_agent("s2", "cpus:4;mem:512")
    master.recover(first, refuse_seconds=300)
    master.recover(second, refuse_seconds=60)
    explanation = why(master.engine)
    assert (explanation.reason, dict(explanation.agents)) == ("refused", {"refused": 2})
    assert explanation.until == START_NS / SECOND + 60
    assert reasons_text(explanation, START_NS / SECOND + 15) == (
        "it has declined the resources of 2 agents that could serve it; "
        "its first offer filter ends in 45.0 s (REVIVE, or a restart of its scheduler, ends all of "
        "its filters); "
        "it states no demand (longshare.demand), so offers may be too small for its tasks"
    )
    master.tick(61)
    assert dict(why(master.engine).agents) == {"nothing_free": 1, "refused": 1}


def test_a_filter_on_resources_that_are_not_free_is_reported_additionally() -> None:
    master = MasterSide()
    master.send(labelled("f1", "a", demand="cpus:1;mem:64"))
    [offer] = master.add_agent("s1", "cpus:4;mem:512")
    master.recover(offer, refuse_seconds=300)
    master.add_agent("s2", "cpus:4;mem:512")
    assert master.add_framework("f2", "b"), "f2 is offered the agent that f1 has declined"
    for closely in (False, True):
        explanation = why(master.engine, closely=closely)
        assert (explanation.reason, dict(explanation.agents)) == (
            "nothing_free",
            {"nothing_free": 2},
        )
        assert explanation.declined_agents == closely
    words = reasons_text(explanation, START_NS / SECOND)
    assert (
        "; its offer filters would keep 1 agent from it even if a task's resources were free; "
        "its first offer filter ends in 5.0 min (REVIVE, " in words
    )


@pytest.mark.parametrize("demand", ["", "cpus:1;mem:64"])
def test_filters_on_most_agents_are_the_reason_although_the_agents_are_full(demand: str) -> None:
    """explain advised to stop tasks, but the client would decline the freed resources."""
    master = MasterSide()
    master.send(labelled("f1", "a", **({"demand": demand} if demand else {})))
    offers = [
        offer for number in range(3) for offer in master.add_agent(f"s{number}", "cpus:4;mem:512")
    ]
    for offer in offers[:2]:
        master.recover(offer, refuse_seconds=3600)
    assert master.add_framework("f2", "b"), "f2 holds the declined resources"
    for closely in (False, True):
        explanation = why(master.engine, closely=closely)
        assert (explanation.reason, dict(explanation.agents)) == (
            "refused",
            {"refused": 2, "nothing_free": 1},
        )
        assert explanation.until == START_NS / SECOND + 3600
        assert explanation.declined_agents == 0, "they count as declined already"
    master.send(contract.ReviveOffers(framework_id="f1"))
    assert why(master.engine).reason == "nothing_free"


def test_a_decline_of_a_whole_offer_is_the_reason_although_only_memory_is_free() -> None:
    master = MasterSide()
    master.send(labelled("f1", "a"))
    [offer] = master.add_agent("s1", "cpus:4;mem:512")
    master.recover(offer, refuse_seconds=3600)
    master.send(labelled("f2", "b", demand="cpus:4;mem:64"))
    explanation = why(master.engine, closely=True)
    assert dict(explanation.agents) == {"refused": 1}
    assert explanation.until == START_NS / SECOND + 3600
    assert run_to_completion(master.engine.unservable_users(declining=True)) == {"a"}


def test_a_filter_on_less_than_a_task_is_not_reported() -> None:
    master = MasterSide()
    master.send(labelled("f1", "a", demand="cpus:1;mem:64"))
    [offer] = master.add_agent("s1", "cpus:4;mem:512")
    master.recover(offer, "cpus:0.5;mem:64", refuse_seconds=300)
    assert master.add_framework("f2", "b"), "f2 is offered the resources that f1 has declined"
    explanation = why(master.engine, closely=True)
    assert (explanation.reason, explanation.declined_agents) == ("nothing_free", 0)


def test_resources_that_are_free_until_the_next_cycle_are_reported_as_a_turn() -> None:
    master = MasterSide()
    master.engine = Engine(replace(master.settings, allocation="batch"))
    master.restore(contract.Snapshot(time_ns=START_NS))
    master.send(labelled("f1", "a"))
    [offer] = master.add_agent("s1", "cpus:4;mem:512") + master.tick()
    assert master.recover(offer) == []
    assert why(master.engine).reason == "turn"
    assert master.tick()
    assert why(master.engine).reason == "nothing_free"


def test_agents_that_are_not_offered_are_reported_by_their_state() -> None:
    master = cluster()
    only = contract.Whitelist(hostnames=["s1.example"])
    master.send(contract.UpdateWhitelist(whitelist=only))
    master.add_agent("s1", "cpus:4;mem:512")
    master.add_agent("s2", "cpus:4;mem:512")
    assert dict(why(master.engine).agents) == {"nothing_free": 1, "not_whitelisted": 1}
    master.send(contract.DeactivateAgent(agent_id="s1"))
    explanation = why(master.engine)
    assert dict(explanation.agents) == {"deactivated": 1, "not_whitelisted": 1}
    assert explanation.reason == "deactivated"


def test_headroom_for_another_roles_guarantee_is_reported_as_quota() -> None:
    master = cluster(demand="cpus:1")
    quota = mesos.QuotaInfo(role="b", guarantee=[resource("cpus", "4"), resource("mem", "512")])
    master.send(contract.SetQuota(role="b", info=quota.SerializeToString()))
    assert master.add_agent("s1", "cpus:4;mem:512") == []
    explanation = why(master.engine)
    assert explanation.reason == "quota"
    assert reasons_text(explanation, 0.0).endswith("back: other roles have unmet guarantees")
    master.send(contract.RemoveQuota(role="b"))
    master.tick()
    assert why(master.engine).reason == "nothing_free"


def test_a_client_is_reported_as_suppressed_or_inactive_whatever_is_free() -> None:
    master = cluster()
    assert why(master.engine).reason == "no_agents"
    master.send(contract.SuppressOffers(framework_id="f1"))
    master.add_agent("s1", "cpus:4;mem:512")
    assert why(master.engine).reason == "suppressed"
    master.send(contract.DeactivateFramework(framework_id="f1"))
    explanation = why(master.engine, closely=True)
    assert (explanation.reason, explanation.idle, explanation.declined_agents) == (
        "inactive",
        True,
        0,
    )


def test_an_unknown_client_has_no_reason() -> None:
    survey = run_to_completion(cluster("cpus:4").engine.survey())
    for client in (Client("a", "f1"), Client("b", "f1"), Client("a", "f9")):
        explanation = run_to_completion(survey.explain(client))
        assert (explanation is None) == (client != ("a", "f1"))
        assert explanation is None or not explanation.idle, "the client has been offered the agent"


def test_gpus_are_not_offered_to_a_framework_without_the_capability() -> None:
    assert why(cluster("cpus:4;gpus:1").engine).reason == "gpu_resources"


def test_the_lacking_capability_comes_before_agents_without_the_resource() -> None:
    master = cluster("cpus:4", "cpus:4;gpus:1", "cpus:4", demand="cpus:1;gpus:1")
    explanation = why(master.engine)
    assert explanation.reason == "gpu_resources"
    assert dict(explanation.agents) == {"gpu_resources": 1, "no_such_resource": 2}


@pytest.mark.parametrize(
    ("label", "meant"),
    [("whitelits", "whitelist"), ("Demand", "demand"), ("attribute", "attributes")],
)
def test_a_misspelt_label_is_named_with_the_probable_label(label: str, meant: str) -> None:
    master = cluster(**{label: "x"})
    message = f"label longshare.{label} is not known; did you mean longshare.{meant}?"
    assert master.engine.misfits() == {"f1": message}


def test_unknown_labels_without_a_similar_label_are_named_up_to_a_number() -> None:
    master = cluster(**{f"{'z' * 200}{number}": "x" for number in range(1000)})
    message = master.engine.misfits()["f1"]
    assert message.count("is not known") == 8
    assert "did you mean" not in message


@given(
    totals=st.lists(st.integers(1, 8), min_size=1, max_size=6),
    demands=st.lists(st.integers(1, 10), min_size=1, max_size=4),
)
def test_each_agent_counts_once_and_no_usable_agent_remains_after_a_cycle(
    totals: list[int], demands: list[int]
) -> None:
    master = MasterSide()
    for number, demand in enumerate(demands):
        master.send(labelled(f"f{number}", "a", demand=f"cpus:{demand}"))
    for number, total in enumerate(totals):
        master.send(agent_call(f"s{number}", f"cpus:{total};mem:512"))
    for number, demand in enumerate(demands):
        explanation = why(master.engine, f"f{number}")
        assert sum(explanation.agents.values()) == len(totals)
        assert explanation.agents.get("too_large", 0) == sum(total < demand for total in totals)
        assert "turn" not in explanation.agents


def test_a_demand_of_too_many_resources_is_ignored_and_the_limit_is_named() -> None:
    master = cluster(demand=";".join(f"r{number}:1" for number in range(65)))
    assert why(master.engine).task is None
    assert "limits.resources" in master.engine.misfits()["f1"]


def of_agent(
    total: str,
    *roles: str,
    capabilities: tuple[int, ...] = (),
    agent_capabilities: tuple[int, ...] = ALL_AGENT_CAPABILITIES,
    demand: str = "cpus:1;mem:512",
    **marks: bool,
) -> Explanation:
    """Return the reason for an agent with revocable or shared resources."""
    master = MasterSide()
    info = mesos.FrameworkInfo.FromString(framework_info("f1", *roles, capabilities=capabilities))
    info.labels.labels.add(key="longshare.demand", value=demand)
    call = contract.AddFramework(framework_id="f1", info=info.SerializeToString(), active=True)
    agent = agent_call("s1", total, None, agent_capabilities)
    messages = [mesos.Resource.FromString(data) for data in agent.total]
    for message in messages:
        if marks.get("revocable"):
            message.revocable.SetInParent()
    del agent.total[:]
    agent.total.extend(message.SerializeToString() for message in messages)
    assert master.send(call, agent) == []
    return why(master.engine, role=roles[0])


MULTI = mesos.FrameworkInfo.Capability.MULTI_ROLE


def test_agents_reserved_for_another_role_are_reported_with_that_role() -> None:
    explanation = of_agent("cpus(prod):8;mem(prod):4096", "a")
    assert (explanation.reason, set(explanation.reserved_for)) == ("reserved", {"prod"})
    words = reasons_text(explanation, 0.0)
    assert words == (
        "1 agent could serve it, but is reserved for other roles; "
        "the reservations are for role prod"
    )
    partly = of_agent("cpus:0.5;cpus(prod):8;mem:4096", "a")
    assert partly.reason == "reserved", "the unreserved rest is smaller than a task"
    assert of_agent("cpus(prod):8;mem(prod):4096", "a", demand="cpus:9").reason == "too_large"


def test_a_missing_capability_is_reported_by_its_name() -> None:
    gpus = of_agent("cpus:8;mem:4096;gpus:1", "a")
    assert (gpus.reason, "GPU_RESOURCES" in reasons_text(gpus, 0.0)) == ("gpu_resources", True)
    revocable = of_agent("cpus:8;mem:4096", "a", revocable=True)
    assert revocable.reason == "revocable_resources"
    assert "REVOCABLE_RESOURCES" in reasons_text(revocable, 0.0)
    refined = of_agent("cpus(a,a/b):8;mem(a,a/b):4096", "a/b")
    assert refined.reason == "reservation_refinement"
    several = of_agent("cpus:8;mem:4096", "a", capabilities=(MULTI,), agent_capabilities=())
    assert (several.reason, "MULTI_ROLE" in reasons_text(several, 0.0)) == ("multi_role", True)
    only = (mesos.SlaveInfo.Capability.MULTI_ROLE,)
    nested = of_agent("cpus:8;mem:4096", "a/b", agent_capabilities=only)
    assert (nested.reason, "HIERARCHICAL_ROLE" in reasons_text(nested, 0.0)) == (
        "hierarchical_role",
        True,
    )


def test_another_region_is_reported_by_the_name_of_its_capability() -> None:
    master = cluster(demand="cpus:1")
    agent = agent_call("s1", "cpus:8;mem:4096")
    info = mesos.SlaveInfo.FromString(agent.info)
    info.domain.fault_domain.region.name = "far"
    info.domain.fault_domain.zone.name = "one"
    agent.info = info.SerializeToString()
    assert master.send(agent) == []
    explanation = why(master.engine)
    assert (explanation.reason, "REGION_AWARE" in reasons_text(explanation, 0.0)) == (
        "region_aware",
        True,
    )


@pytest.mark.parametrize(
    ("demand", "said"),
    [
        ("cpu:1;mem:512", "the cluster has no cpu; did you mean cpus?"),
        ("CPUS:1", "the cluster has no CPUS; did you mean cpus?"),
        ("cpus:1;memory:512", "the cluster has no memory; did you mean mem?"),
        ("cpus:1;port:1", "the cluster has no port; did you mean ports?"),
        ("cpus:1;fpga:1", "the cluster has no fpga"),
        ("cpus:1;gpus:1", "the cluster has no gpus"),
    ],
)
def test_a_demanded_resource_that_no_agent_has_is_named_with_the_probable_resource(
    demand: str, said: str
) -> None:
    master = cluster("cpus:4;mem:2048;ports:[1-9]", demand=demand)
    assert master.engine.misfits() == {"f1": said}
    explanation = why(master.engine)
    name = said.removeprefix("the cluster has no ").partition(";")[0]
    assert (explanation.reason, set(explanation.missing_resources)) == ("no_such_resource", {name})
    assert reasons_text(explanation, 0.0) == (
        f"1 agent has none of a resource that its task needs: {name}"
    )


def test_a_minimum_of_a_resource_that_no_agent_has_is_named_too() -> None:
    master = MasterSide()
    info = mesos.FrameworkInfo.FromString(framework_info("f1", "a"))
    least = info.offer_filters["a"].min_allocatable_resources.quantities.add()
    least.quantities["cpu"].value = 1.0
    call = contract.AddFramework(framework_id="f1", info=info.SerializeToString(), active=True)
    master.send(call, agent_call("s1", "cpus:4;mem:512"))
    message = "its offer_filters for the role 'a': the cluster has no cpu; did you mean cpus?"
    assert master.engine.misfits() == {"f1": message}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("longshare_demand", "cpus:1", "longshare_demand is not known; did you mean longshare.de"),
        (" longshare.demand", "cpus:1", "not known; did you mean longshare.demand?"),
        ("LONGSHARE-WHITELIST", "s1", "not known; did you mean longshare.whitelist?"),
        (
            "longshre.demand",
            "cpus:1",
            "label longshre.demand is not known; did you mean longshare.d",
        ),
        ("Longshaer.demand", "cpus:1", "not known; did you mean longshare.demand?"),
        ("logshare.whitelits", "s1", "not known; did you mean longshare.whitelist?"),
        ("lonshre.pqx", "x", "not known; did you mean a label with the prefix longshare.?"),
        ("lognhsare.demand", "cpus:1", ""),
        ("longhair.demand", "cpus:1", ""),
        ("longshre-team", "x", ""),
        ("longshare.demand", "cpus:0", "longshare.demand: a task must need more than 0 of some"),
        ("longshare.demand", "mem:0.0001", "a task must need more than 0 of some resource"),
        ("longshare.blacklist", "[s1", "longshare.blacklist: '[s1' has a bracket without its end"),
        ("longshare-team", "x", ""),
        ("longshare.demand", " ", ""),
    ],
)
def test_a_label_that_has_no_effect_because_of_a_slip_is_named(
    key: str, value: str, said: str
) -> None:
    master = MasterSide()
    info = mesos.FrameworkInfo.FromString(framework_info("f1", "a"))
    info.labels.labels.add(key=key, value=value)
    data = info.SerializeToString()
    master.send(contract.AddFramework(framework_id="f1", info=data, active=True))
    [offer] = master.add_agent("s1", "cpus:4;mem:512")
    assert offer.resources == "cpus:4;mem:512"
    slips = master.engine.unreadable_labels()
    assert said in slips["f1"] if said else slips == {}


def test_a_setting_that_names_an_unknown_resource_is_named() -> None:
    master = MasterSide("htcondor", {"resource": "cpu"})
    assert master.engine.unknown_in_settings() == {}, "no agent is known yet"
    master.add_agent("s1", "cpus:4;mem:512")
    said = "the cluster has no cpu; did you mean cpus?"
    assert master.engine.unknown_in_settings() == {"policy": said}
    declared = MasterSide(users=(DeclaredUser("a", 1.0, {"cpu": 0.5, "mem": 0.5}),))
    declared.add_agent("s1", "cpus:4;mem:512")
    assert declared.engine.unknown_in_settings() == {"users.declared": said}


def test_a_framework_with_a_misspelt_label_fits_though_the_label_is_named() -> None:
    master = cluster("cpus:4;mem:512", whitelits="s1")
    [fit] = run_to_completion(master.engine.task_fits("a"))
    assert (fit.misfit, "did you mean longshare.whitelist?" in fit.slip) == ("", True)
    assert list(master.engine.unreadable_labels()) == list(master.engine.misfits()) == ["f1"]
    nowhere = cluster("cpus:4;mem:512", whitelits="s1", whitelist="s9")
    assert nowhere.engine.unreadable_labels() == {}
    assert "no agent meets" in nowhere.engine.misfits()["f1"]


def test_frameworks_of_former_starts_come_behind_active_ones_in_an_explanation() -> None:
    """Dead frameworks came first, and could push the live one beyond the number that is shown.

    Their problems are not reported with those of a later start, which may have corrected them.
    """
    master = cluster("cpus:4;mem:512", demand="cpu:1")
    master.send(contract.DeactivateFramework(framework_id="f1"))
    fits = run_to_completion(master.engine.task_fits("a"))
    assert [fit.misfit for fit in fits] == ["the cluster has no cpu; did you mean cpus?"]
    master.send(labelled("f2", "a"))
    fits = run_to_completion(master.engine.task_fits("a"))
    assert [fit.framework for fit in fits] == ["f2"]
    assert [client.framework for client in master.engine.clients("a")] == ["f2", "f1"]


def test_resources_that_a_demand_does_not_name_are_reported_as_not_offered() -> None:
    master = cluster("cpus:4;mem:512;ports:[1-9]", demand="cpus:1")
    [fit] = run_to_completion(master.engine.task_fits("a"))
    assert fit.unnamed == ("mem", "ports")
    [whole] = run_to_completion(cluster("cpus:4;mem:512;ports:[1-9]").engine.task_fits("a"))
    assert whole.unnamed == (), "a client without demand is offered whole agents"


def test_a_demand_for_a_part_of_a_gpu_is_reported() -> None:
    [fit] = run_to_completion(
        cluster("cpus:4;gpus:2", demand="cpus:1;gpus:0.5").engine.task_fits("a")
    )
    assert fit.part_of_gpu == 0.5
    for demand in ("cpus:1;gpus:2", "cpus:0.5"):
        [whole] = run_to_completion(cluster("cpus:4;gpus:2", demand=demand).engine.task_fits("a"))
        assert whole.part_of_gpu == 0


def test_the_rest_of_an_accepted_offer_is_not_reported_as_declined() -> None:
    master = MasterSide()
    master.send(labelled("f1", "a"))
    [first] = master.add_agent("s1", "cpus:4;mem:512")
    [second] = master.add_agent("s2", "cpus:4;mem:512")
    rest = contract.RecoverResources(
        framework_id="f1",
        agent_id="s1",
        resources=resources("cpus:3;mem:512", "a"),
        filters=mesos.Filters(refuse_seconds=300).SerializeToString(),
    )
    master.send(contract.Pause(), rest, contract.Resume())
    assert first.agent == "s1"
    explanation = why(master.engine)
    assert dict(explanation.agents) == {"left_over": 1, "nothing_free": 1}
    assert "the master refused its launches" in reasons_text(explanation, START_NS / SECOND)
    master.recover(second, refuse_seconds=60)
    assert dict(why(master.engine).agents) == {"refused": 1, "left_over": 1}


def test_a_client_of_unknown_demand_that_declines_memory_alone_waits_for_cpus() -> None:
    master = MasterSide()
    master.send(labelled("f1", "a"))
    [offer] = master.add_agent("s1", "cpus:4;mem:512")
    survey = run_to_completion(master.engine.survey())
    assert not run_to_completion(survey.passed_over(declining=True))
    rest = contract.RecoverResources(
        framework_id="f1",
        agent_id=offer.agent,
        resources=resources("mem:256", "a"),
        filters=mesos.Filters(refuse_seconds=300).SerializeToString(),
    )
    master.send(contract.Pause(), rest, contract.Resume())
    explanation = why(master.engine, closely=True)
    assert dict(explanation.agents) == {"nothing_free": 1}
    assert explanation.lacking_resources == {"cpus"}
    assert explanation.until is None, "the end of the filter would bring no CPU"
    survey = run_to_completion(master.engine.survey())
    assert not run_to_completion(survey.passed_over(declining=True)), "it would take CPUs"


def test_smaller_tasks_that_may_take_the_free_resources_are_reported() -> None:
    master = cluster("cpus:4;mem:512", demand="cpus:4")
    assert not why(master.engine, closely=True).others_are_smaller
    master.send(labelled("f2", "b", demand="cpus:1"))
    assert why(master.engine, closely=True).others_are_smaller
    assert not why(master.engine, "f2", "b", closely=True).others_are_smaller
    master.send(contract.SuppressOffers(framework_id="f2"))
    assert not why(master.engine, closely=True).others_are_smaller
    master.send(labelled("f3", "c", demand="cpus:4;mem:32"))
    assert not why(master.engine, "f3", "c", closely=True).others_are_smaller, (
        "f1 needs no memory, but as many CPUs"
    )


def test_a_reached_limit_of_the_role_is_reported_with_its_amounts() -> None:
    master = cluster(demand="cpus:2")
    quota = mesos.QuotaInfo(role="a", guarantee=[resource("cpus", "4")])
    master.send(contract.SetQuota(role="a", info=quota.SerializeToString()))
    master.add_agent("s1", "cpus:8;mem:512")
    explanation = why(master.engine)
    assert explanation.reason == "quota"
    assert reasons_text(explanation, 0.0).endswith("its role has reached its limit: cpus 4 of 4")


def passed_over(engine: Engine) -> frozenset[str]:
    return run_to_completion(engine.unservable_users())


def test_a_user_is_passed_over_while_no_agent_could_serve_it() -> None:
    master = cluster(demand="cpus:32")
    assert passed_over(master.engine) == frozenset(), "without agents no user is passed over"
    master.add_agent("s1", "cpus:8;mem:512")
    master.send(labelled("f2", "b/c", demand="cpus:1"), labelled("f3", "b/d", demand="cpus:9"))
    assert passed_over(master.engine) == {"a", "b/d"}, (
        "b is not passed over because b/c is below it"
    )
    for user in ("a", "b", "b/c", "b/d"):
        could = user not in passed_over(master.engine)
        assert master.engine.could_be_served(user) == could
    master.add_agent("s2", "cpus:32;mem:512")
    assert passed_over(master.engine) == frozenset()
    master.send(contract.SuppressOffers(framework_id="f1"))
    master.remove_agent("s2")
    assert passed_over(master.engine) == {"b/d"}, "a has suppressed offers"


def test_a_user_that_declines_every_agent_is_reported_separately_from_an_unservable_user() -> None:
    def declining() -> frozenset[str]:
        return run_to_completion(master.engine.unservable_users(declining=True))

    master = cluster(demand="cpus:1")
    [offer] = master.add_agent("s1", "cpus:4;mem:512")
    assert declining() == frozenset()
    master.recover(offer, refuse_seconds=60)
    assert declining() == {"a"}
    assert passed_over(master.engine) == frozenset()
    master.tick(30)
    master.add_agent("s2", "cpus:4;mem:512")
    assert declining() == frozenset()
    master.remove_agent("s2")
    assert declining() == {"a"}
    master.tick(31)
    assert declining() == frozenset()


def test_a_user_at_the_limit_of_its_role_is_passed_over() -> None:
    master = cluster(demand="cpus:2")
    limits = contract.Quantities(amounts={"cpus": 3.0})
    master.send(contract.UpdateQuota(role="a", limits=limits))
    master.add_agent("s1", "cpus:8;mem:512")
    assert passed_over(master.engine) == {"a"}, "its role holds 2 of 3"
    master.send(contract.UpdateQuota(role="a", limits=contract.Quantities(amounts={"cpus": 4.0})))
    assert passed_over(master.engine) == frozenset()


@pytest.mark.parametrize("demand", [{}, {"demand": "cpus:2;mem:64"}])
def test_a_role_at_its_limit_is_passed_over_on_agents_with_ports(demand: dict[str, str]) -> None:
    """Ports have no limit, and almost every agent has ports."""
    master = cluster(**demand)
    limits = contract.Quantities(amounts={"cpus": 2.0, "mem": 64.0})
    master.send(contract.UpdateQuota(role="a", limits=limits))
    master.add_agent("s1", "cpus:8;mem:1024;ports:[31000-32000]")
    explanation = why(master.engine)
    assert explanation.reason == "quota"
    assert explanation.reached_limits == {"cpus": (2000, 2000), "mem": (64000, 64000)}
    assert passed_over(master.engine) == {"a"}


def test_a_client_whose_task_fits_nowhere_is_served_if_its_role_has_an_unmet_guarantee() -> None:
    """The first stage of a cycle allocates guarantees without regard to demands."""
    master = cluster(demand="cpus:32")
    master.add_agent("s1", "cpus:4;mem:512")
    assert passed_over(master.engine) == {"a"}
    guarantee = contract.Quantities(amounts={"cpus": 2.0})
    master.send(contract.UpdateQuota(role="a", guarantees=guarantee))
    assert passed_over(master.engine) == frozenset()
    assert why(master.engine).reason == "turn"
    assert [offer.role for offer in master.tick()] == ["a"]
