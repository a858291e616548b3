"""Each limit admits exactly its value, and rejects the next larger value."""

import re
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest

from allocator.cluster.agents.failover_recovery import FailoverRecovery
from allocator.cluster.engine import Engine
from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.limits import Limits
from allocator.cluster.settings import EngineSettings
from allocator.cluster.state import ClusterStatistics, Recovery
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.contract import operator_pb2 as operator
from allocator.cooperative import run_to_completion
from allocator.fairness import policies
from allocator.fairness.quantities import Quantities
from allocator.formatting import shortened
from allocator.service.config import LimitsSection
from allocator.users.orders import InvalidOrder
from allocator.users.settings import DeclaredUser
from tests.cluster.master_side import (
    SECOND,
    START_NS,
    MasterSide,
    agent_call,
    framework_info,
    resources,
)


def subscribed(info: mesos.FrameworkInfo) -> contract.AddFramework:
    return contract.AddFramework(
        framework_id=info.id.value, info=info.SerializeToString(), active=True
    )


def framework(*roles: str) -> mesos.FrameworkInfo:
    return mesos.FrameworkInfo.FromString(framework_info("f2", *(roles or ("b",))))


def labelled(key: str, value: str) -> contract.AddFramework:
    info = framework()
    info.labels.labels.add(key=f"longshare.{key}", value=value)
    return subscribed(info)


def named(size: int) -> contract.AddFramework:
    info = framework()
    info.name = "n" * size
    return subscribed(info)


def acting_for(size: int) -> contract.AddFramework:
    info = framework()
    info.principal = "ä" * (size // 2) + "p" * (size % 2)
    return subscribed(info)


def long_info(size: int) -> contract.AddFramework:
    info = framework()
    info.hostname = "h" * (size - len(info.SerializeToString()) - 3)
    assert info.ByteSize() == size
    return subscribed(info)


def long_host(size: int) -> contract.AddAgent:
    call = agent_call("s1", "cpus:1;mem:64")
    info = mesos.SlaveInfo.FromString(call.info)
    rest = len(info.SerializeToString()) - len(info.hostname) - 1
    info.hostname = "h" * (size - rest - 2)
    call.info = info.SerializeToString()
    assert len(call.info) == size
    return call


def long_request(size: int) -> contract.RequestResources:
    request = mesos.Request()
    request.slave_id.value = "s" * (size - 6)
    assert request.ByteSize() == size
    return contract.RequestResources(framework_id="f1", requests=[request.SerializeToString()])


def requested(number: int) -> contract.RequestResources:
    request = mesos.Request()
    for data in resources(many(number)):
        request.resources.add().MergeFromString(data)
    return contract.RequestResources(framework_id="f1", requests=[request.SerializeToString()])


def many(number: int) -> str:
    return ";".join(f"r{index}:1" for index in range(number))


def minima(alternatives: int, names: int) -> contract.AddFramework:
    info = framework()
    minimum = info.offer_filters["b"].min_allocatable_resources
    for _ in range(alternatives):
        quantities = minimum.quantities.add().quantities
        for name in range(names):
            quantities[f"r{name}"].value = 1.0
    return subscribed(info)


def different_minima(number: int) -> contract.AddFramework:
    info = framework()
    minimum = info.offer_filters["b"].min_allocatable_resources
    for amount in range(number):
        minimum.quantities.add().quantities["cpus"].value = 1.0 + amount
    return subscribed(info)


def excluding(number: int) -> contract.AddFramework:
    call = subscribed(framework())
    call.excluded.add(role="b", agent_ids=map(str, range(number)))
    return call


def large_resource(size: int) -> contract.AddAgent:
    call = agent_call("s1", "cpus:1")
    resource = mesos.Resource(name="", type=mesos.Value.SET)
    resource.set.item.append("x")
    resource.name = "n" * (size - resource.ByteSize() - 1)
    call.total.append(resource.SerializeToString())
    assert len(call.total[-1]) == size
    return call


def long_kind(size: int) -> contract.AddAgent:
    call = agent_call("s1", "cpus:1")
    disk = mesos.Resource(name="disk", type=mesos.Value.SCALAR)
    disk.disk.persistence.id = "p" * (size - len("disk"))
    disk.scalar.value = 1.0
    call.total.append(disk.SerializeToString())
    return call


def with_entries(labels: int, capabilities: int) -> mesos.FrameworkInfo:
    info = framework()
    for _ in range(labels):
        info.labels.labels.add(key="k")
    for _ in range(capabilities - len(info.capabilities)):
        info.capabilities.add(type=mesos.FrameworkInfo.Capability.MULTI_ROLE)
    return info


def reserved(labels: int) -> contract.AddAgent:
    call = agent_call("s1", "mem(r):1")
    resource = mesos.Resource.FromString(call.total[0])
    for _ in range(labels):
        resource.reservations[0].labels.labels.add(key="k")
    call.total[0] = resource.SerializeToString()
    return call


def levels(number: int) -> str:
    return "/".join("l" * number)


EDGES: dict[str, tuple[str, int, Callable[[int], object]]] = {
    "what a framework says": ("subscription", 3000, long_info),
    "what an agent says": ("subscription", 3000, long_host),
    "a request": ("subscription", 3000, long_request),
    "a role's name": ("name", 100, lambda size: subscribed(framework("r" * size))),
    "a framework's name": ("name", 100, named),
    "a principal": ("name", 100, acting_for),
    "levels": ("role_depth", 4, lambda number: subscribed(framework(levels(number)))),
    "roles": ("roles", 4, lambda number: subscribed(framework(*map(str, range(number))))),
    "roles above": ("roles", 4, lambda number: subscribed(framework(levels(number)))),
    "all roles": ("all_roles", 4, lambda n: subscribed(framework(*map(str, range(n - 1))))),
    "a label": ("label", 64, lambda size: labelled("blacklist", "h" * size)),
    "a demand's label": ("label", 64, lambda size: labelled("demand", "cpus:1".ljust(size))),
    "globs": ("patterns", 3, lambda n: labelled("blacklist", " ".join("h*" for _ in range(n)))),
    "networks": ("patterns", 3, lambda n: labelled("blacklist", ",".join(["10.0.0.0/24"] * n))),
    "attributes": ("attributes", 3, lambda n: labelled("attributes", ";".join(["a:b"] * n))),
    "a demand": ("resources", 8, lambda number: labelled("demand", many(number))),
    "what is requested": ("resources", 8, requested),
    "a minimum": ("resources", 8, lambda number: minima(1, number)),
    "alternatives": ("resources", 8, lambda number: minima(number, 1)),
    "different minimums": ("minimums", 8, different_minima),
    "exclusions": ("exclusions", 8, excluding),
    "all exclusions": ("all_exclusions", 8, excluding),
    "a resource": ("resource", 1024, large_resource),
    "a resource's kind": ("resource_kind", 1024, long_kind),
    "labels": ("entries", 600, lambda number: subscribed(with_entries(number, 0))),
    "capabilities": ("entries", 600, lambda number: subscribed(with_entries(0, number))),
    "labels of a reservation": ("entries", 600, lambda number: reserved(number - 1)),
}
LONGEST_LEAP_NS = 7200 * SECOND
PATIENCE_NS = 60 * SECOND
DECIDING = {
    *("smallest_demand", "unanswered", "all_unanswered", "answered_after"),
    *("idle_users", "filters", "all_filters"),
}
"""Limits of derived state, not of input."""
TOGETHER = {"frameworks", "requested"}
"""Limits of several messages or lists together, tested in `test_role_places`, `test_long_lists`."""


@pytest.mark.parametrize("what", EDGES)
def test_input_of_exactly_a_limits_size_is_accepted_and_larger_input_is_rejected(what: str) -> None:
    limit, most, build_message = EDGES[what]
    for excess in (0, 1):
        master = MasterSide(limits=replace(Limits(), **{limit: most}))
        master.add_framework("f1", "a")
        master.add_agent("s0", "cpus:1;mem:64")
        master.send(build_message(most + excess))
        complaints = [
            rejected_input.flaw.words for rejected_input in master.engine.rejected_inputs()
        ]
        complaints += [wrong for wrong in master.engine.misfits().values() if "limits." in wrong]
        assert bool(complaints) == bool(excess), complaints
        assert all(f"limits.{limit}" in words for words in complaints)


def test_the_tested_limits_are_all_limits() -> None:
    known = {limit for limit, _, _ in EDGES.values()} | DECIDING | TOGETHER
    assert known == {field.name for field in fields(Limits)}


@pytest.mark.parametrize("update", [False, True])
def test_the_last_of_the_roles_that_all_frameworks_share_can_be_used(update: bool) -> None:  # noqa: FBT001
    master = MasterSide(limits=Limits(all_roles=3))
    master.add_framework("f1", "a")
    if update:
        master.add_framework("f2", "b")
    call = contract.UpdateFramework if update else contract.AddFramework
    master.send(call(framework_id="f2", info=framework("b", "c").SerializeToString()))
    assert not list(master.engine.rejected_inputs())
    master.send(contract.UpdateFramework(framework_id="f1", info=framework_info("f1", "d")))
    assert not list(master.engine.rejected_inputs()), "replacing a role needs no further role"
    master.add_framework("f3", "e")
    assert [rejected_input.name for rejected_input in master.engine.rejected_inputs()] == ["f3"]


@pytest.mark.parametrize("role", ["r" * 100, levels(4)])
def test_an_allocation_in_a_role_beyond_limits_belongs_to_its_framework(
    role: str,
) -> None:
    limits = Limits(name=100, role_depth=4)
    for suffix, user in (("", role), ("/l" if "/" in role else "r", "f1")):
        master = MasterSide(limits=limits)
        master.add_framework("f1", "a")
        master.add_agent("s1", "cpus:1", {"f1": resources("cpus:1", role + suffix)})
        assert master.engine.user(role + suffix, "f1") == user


@pytest.mark.parametrize(("most", "known"), [(2, 2), (3, 3), (4, 3)])
def test_as_many_idle_users_as_the_limit_says_stay_known(most: int, known: int) -> None:
    master = MasterSide(limits=Limits(idle_users=most))
    for name in ("a", "b", "c"):
        master.add_framework(f"of-{name}", name)
        master.send(contract.RemoveFramework(framework_id=f"of-{name}"))
        master.wait(1.0)
    master.tick()
    assert master.engine.users() == ["a", "b", "c"][3 - known :], (
        "the users that have been idle longest are forgotten first"
    )


def forgetting_after(seconds: float, limits: Limits | None = None) -> MasterSide:
    master = MasterSide(limits=limits)
    master.settings = replace(master.settings, forget_after=seconds)
    master.engine = Engine(master.settings)
    master.restore(contract.Snapshot(time_ns=START_NS))
    return master


def test_all_expired_users_are_forgotten_at_once_though_more_users_are_idle_than_the_limit() -> (
    None
):
    master = forgetting_after(100.0, Limits(idle_users=2))
    for name in ("a", "b", "c"):
        master.add_framework(f"of-{name}", name)
    for name in ("a", "b"):
        master.send(contract.RemoveFramework(framework_id=f"of-{name}"))
    master.wait(50.0)
    master.send(contract.RemoveFramework(framework_id="of-c"))
    master.wait(60.0)
    master.tick()
    assert master.engine.users() == ["c"]


def test_an_idle_user_is_forgotten_at_its_time_and_not_a_nanosecond_before() -> None:
    master = forgetting_after(100.0)
    master.add_framework("f1", "a")
    master.send(contract.RemoveFramework(framework_id="f1"))
    master.now_ns += 100 * SECOND - 1_000
    master.send(contract.Tick())
    assert master.engine.users() == ["a"]
    master.now_ns += 1_000
    master.send(contract.Tick())
    assert master.engine.users() == []


def test_an_events_time_may_leap_as_far_as_the_bound_and_a_snapshots_time_farther() -> None:
    master = MasterSide()
    master.now_ns += LONGEST_LEAP_NS
    master.send(contract.Tick())
    master.now_ns += LONGEST_LEAP_NS + 1
    with pytest.raises(InvalidEvent, match="is 7200 s later than"):
        master.send(contract.Tick())
    master.restore(contract.Snapshot(time_ns=master.now_ns, sequence=master.sequence))
    assert master.engine.now == master.now_ns / SECOND


def test_a_snapshot_before_1970_is_rejected() -> None:
    master = MasterSide()
    master.engine = Engine(master.settings)
    with pytest.raises(InvalidEvent, match="before 1970"):
        master.restore(contract.Snapshot(time_ns=-1))
    master.restore(contract.Snapshot(time_ns=0))
    assert master.engine.now == 0.0


def test_a_contradiction_requests_a_snapshot_once_a_minute() -> None:
    master = MasterSide()
    wrong = contract.RemoveAgent(agent_id="nobody")
    for later in (0, PATIENCE_NS, PATIENCE_NS):
        master.tick(later / SECOND)
        with pytest.raises(InvalidEvent):
            master.send(wrong)
    master.now_ns += PATIENCE_NS - 1
    master.send(contract.Tick())
    master.send(wrong)
    assert master.engine.statistics.passed_over == 1
    master.restore(contract.Snapshot(time_ns=master.now_ns, sequence=master.sequence))
    master.send(wrong)
    assert master.engine.statistics.passed_over == 2, "a snapshot does not shorten the minute"
    assert master.engine.divergence() is None
    master.now_ns += 1
    master.send(contract.Tick())
    assert master.engine.divergence() is not None, (
        "the skipped contradiction is reported with the next event"
    )


def test_a_new_engines_statistics_are_zero() -> None:
    counted = asdict(Engine(EngineSettings(policies.create("drf", {}))).statistics)
    assert not any(counted.pop("holds").values())
    assert not any(counted.values())
    assert asdict(ClusterStatistics()) == {**counted, "holds": asdict(ClusterStatistics().holds)}


def test_default_settings_are_those_of_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "configuration.md").read_text()
    written = {
        name: float(value)
        for name, value in re.findall(r"^\| `(\w+)` \|[^|]*\| `([\d.]+)` \|", text, re.MULTILINE)
    }
    documented = asdict(LimitsSection().limits())
    assert documented["requested"] == documented["entries"], "both are one setting"
    assert {name: written[name] for name in LimitsSection.model_fields} == {
        name: documented[name] for name in LimitsSection.model_fields
    }
    assert all(value in (0, documented[name]) for name, value in asdict(Limits()).items())
    settings = EngineSettings(policies.create("drf", {}))
    assert settings.forget_after == written["forget_after"]
    assert settings.longest_hold == written["longest_hold"]
    assert (settings.seed, settings.whole_from) == (0, 0)
    assert not settings.learn_demands
    assert DeclaredUser("a") == DeclaredUser("a", weight=1.0, commitment=0.0)
    assert Recovery() == Recovery(0.8, 600 * SECOND), "the defaults of Mesos"


def test_failover_recovery_ends_at_its_instant_and_not_a_nanosecond_before() -> None:
    failover = FailoverRecovery(needed=2, expected=4, until_ns=100)
    assert failover.holds_back_offers(1, 99)
    assert not failover.holds_back_offers(2, 99)
    assert not failover.holds_back_offers(1, 100)
    assert not failover.is_complete(3, 99)
    assert failover.is_complete(4, 99)
    assert failover.is_complete(3, 100)


def test_missing_agents_are_assumed_to_have_the_mean_capacity_of_the_present_agents() -> None:
    failover, known = FailoverRecovery(2, 4, 100), Quantities.parse("cpus:6")
    assert failover.share_capacity(known, 1) == Quantities.parse("cpus:24")
    assert failover.share_capacity(known, 3) == Quantities.parse("cpus:8")
    assert failover.share_capacity(known, 4) == known
    assert failover.share_capacity(Quantities(), 0) == Quantities()
    before = replace(failover, before=Quantities.parse("cpus:7;mem:1"))
    assert before.share_capacity(known, 3) == Quantities.parse("cpus:7;mem:1")


def test_a_task_as_large_as_the_largest_agent_is_no_misfit() -> None:
    for cores, expected in (("4", {}), ("4.001", {"f2"})):
        master = MasterSide()
        master.add_agent("s1", "cpus:4;mem:64")
        master.send(labelled("demand", f"cpus:{cores}"))
        assert set(master.engine.misfits()) == set(expected)


def test_tasks_below_the_smallest_demand_are_counted_in_batches() -> None:
    master = MasterSide(limits=Limits(smallest_demand=0.5))
    for demand, number in (
        ("cpus:2", 1),
        ("cpus:1.999", 2),
        ("cpus:1", 2),
        ("cpus:0.9", 3),
        ("", 1),
    ):
        master.add_agent("s1", "cpus:4;mem:64")
        master.send(labelled("demand", demand))
        [fit] = run_to_completion(master.engine.task_fits("b"))
        assert (demand, fit.at_a_time) == (demand, number)
        master.remove_agent("s1")
        master.send(contract.RemoveFramework(framework_id="f2"))


def test_the_smallest_and_the_largest_weight_are_accepted() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    for weight, rejections in ((1e-6, 0), (1e6, 0), (9e-7, 1), (1.1e6, 1)):
        weights = [contract.Weight(role="a", weight=weight)]
        master.send(contract.UpdateWeights(weights=weights))
        assert len(list(master.engine.rejected_inputs())) == rejections


def test_a_reported_text_is_cut_off_after_300_characters() -> None:
    assert shortened("w" * 300) == "w" * 300
    assert shortened("w" * 301) == "w" * 300 + "…"


@pytest.mark.parametrize(("number", "told"), [(8, 8), (9, 8)])
def test_at_most_eight_unknown_labels_are_named(number: int, told: int) -> None:
    info = framework()
    for index in range(number):
        info.labels.labels.add(key=f"longshare.x{index}")
    master = MasterSide()
    master.send(subscribed(info))
    assert master.engine.misfits()["f2"].count("is not known") == told


@pytest.mark.parametrize(
    ("seconds", "allowed"), [(0.5, True), (366 * 86400.0, True), (366 * 86400.0 + 1, False)]
)
def test_a_boost_lasts_a_leap_year_at_most(seconds: float, allowed: bool) -> None:  # noqa: FBT001
    master = MasterSide()
    master.add_framework("f1", "a")
    weight_order = operator.SetWeight(user="a", weight=2.0, seconds=seconds)
    if allowed:
        master.engine.order(operator.Order(set_weight=weight_order))
    else:
        with pytest.raises(InvalidOrder, match="at most 366 days"):
            master.engine.order(operator.Order(set_weight=weight_order))
    assert master.engine.weights.by("a") == ("boost" if allowed else "")
