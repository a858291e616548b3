"""With a known demand an agent is allocated task by task; without a demand it is offered whole."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.engine import Engine
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness import policies
from allocator.fairness.quantities import Quantities
from tests.cluster.master_side import MasterSide, agent_call, framework_info, resources


def add(master: MasterSide, framework: str, role: str, demand: str | None) -> None:
    info = mesos.FrameworkInfo.FromString(framework_info(framework, role))
    if demand is not None:
        info.labels.labels.add(key="longshare.demand", value=demand)
    call = contract.AddFramework(framework_id=framework, info=info.SerializeToString(), active=True)
    master.send(call)


def with_settings(master: MasterSide, **changes: object) -> MasterSide:
    """Restart the master's engine with other settings."""
    master.settings = EngineSettings(policy=policies.create("drf", {}), **changes)  # type: ignore[arg-type]
    master.engine = Engine(master.settings)
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    return master


def offered(offers: list) -> dict[tuple[str, str], str]:  # type: ignore[type-arg]
    return {(offer.framework, offer.agent): offer.resources for offer in offers}


def test_users_with_known_demands_share_one_agent_in_one_cycle() -> None:
    master = MasterSide()
    add(master, "f1", "a", "cpus:1;mem:1024")
    add(master, "f2", "b", "cpus:1;mem:1024")
    assert offered(master.add_agent("s1", "cpus:4;mem:6144")) == {
        ("f1", "s1"): "cpus:2;mem:2048",
        ("f2", "s1"): "cpus:2;mem:2048",
    }


def test_each_framework_gets_one_offer_for_all_its_tasks_on_an_agent() -> None:
    master = MasterSide()
    add(master, "f1", "a", "cpus:0.5;mem:64")
    [offer] = master.add_agent("s1", "cpus:4;mem:1024")
    assert offer.resources == "cpus:4;mem:512"


def test_a_user_with_unknown_demand_gets_the_rest_when_it_is_next() -> None:
    master = MasterSide()
    add(master, "f1", "a", "cpus:1;mem:1024")
    add(master, "f2", "b", None)
    assert offered(master.add_agent("s1", "cpus:4;mem:4096")) == {
        ("f1", "s1"): "cpus:1;mem:1024",
        ("f2", "s1"): "cpus:3;mem:3072",
    }


def test_tasks_get_the_demanded_number_of_ports() -> None:
    master = MasterSide()
    add(master, "f1", "a", "cpus:1;ports:2")
    [offer] = master.add_agent("s1", "cpus:2;mem:512;ports:[10-12,20-30]")
    assert offer.resources == "cpus:2;ports:[10-12,20-20]"


def test_tasks_get_any_demanded_number_of_ports() -> None:
    master = MasterSide()
    add(master, "f1", "a", "cpus:1;ports:2002")
    [offer] = master.add_agent("s1", "cpus:2;ports:[10001-14004]")
    assert offer.resources == "cpus:2;ports:[10001-14004]"


def test_reserved_resources_come_with_the_first_task() -> None:
    master = MasterSide()
    add(master, "f1", "a", "cpus:1;mem:1024")
    add(master, "f2", "b", "cpus:1;mem:1024")
    offers = offered(master.add_agent("s1", "cpus:2;mem:2048;cpus(a):3"))
    assert offers == {
        ("f1", "s1"): "cpus(a):3;cpus:1;mem:1024",
        ("f2", "s1"): "cpus:1;mem:1024",
    }


def test_a_framework_is_not_offered_less_than_it_has_declined() -> None:
    master = MasterSide()
    add(master, "f1", "a", "cpus:1;mem:1024")
    add(master, "f2", "b", "cpus:1;mem:1024")
    [first, second] = master.add_agent("s1", "cpus:4;mem:4096")
    assert first.resources == second.resources == "cpus:2;mem:2048"
    # Resources that f1 declines go to f2. Together with f2's own resources they exceed the declined
    # resources, but f1's fair half does not.
    [next_offer] = master.recover(first, refuse_seconds=1000)
    assert (next_offer.framework, next_offer.resources) == ("f2", "cpus:2;mem:2048")
    offers = offered(master.recover(second))
    assert offers == {("f2", "s1"): "cpus:2;mem:2048"}


def test_a_demand_below_the_masters_minimum_is_not_offered_alone() -> None:
    master = MasterSide(min_allocatable=[{"cpus": 1.0}])
    add(master, "f1", "a", "cpus:0.5")
    assert master.add_agent("s1", "cpus:0.9;mem:16") == []
    [offer] = master.add_agent("s2", "cpus:1;mem:16")
    assert offer.resources == "cpus:1"


def test_scarce_resources_go_to_as_many_users_as_can_have_the_minimum() -> None:
    master = MasterSide()
    add(master, "f1", "a", "cpus:0.001")
    add(master, "f2", "b", "cpus:0.001")
    offers = offered(master.add_agent("s1", "cpus:0.015;mem:16"))
    assert offers == {("f1", "s1"): "cpus:0.015"}
    offers = offered(master.add_agent("s2", "cpus:0.035;mem:16"))
    assert offers == {("f1", "s2"): "cpus:0.01", ("f2", "s2"): "cpus:0.025"}


def test_a_framework_that_declined_resources_gets_more_at_once_or_nothing() -> None:
    master = MasterSide()
    add(master, "f1", "a", "cpus:1")
    add(master, "f2", "b", "cpus:1")
    [first, second] = master.add_agent("s1", "cpus:4;mem:4096")
    [next_offer] = master.recover(first, refuse_seconds=1000)
    back = [
        contract.RecoverResources(
            framework_id="f2", agent_id="s1", resources=resources("cpus:2", "b")
        )
    ]
    assert (first.framework, second.framework, next_offer.framework) == ("f1", "f2", "f2")
    assert offered(master.send(*back, *back)) == {("f1", "s1"): "cpus:3", ("f2", "s1"): "cpus:1"}


def test_a_declining_framework_costs_its_role_no_rank() -> None:
    master = MasterSide()
    for framework, role, cpus in (("f2", "c", 1), ("f3", "a", 3)):
        add(master, framework, role, None)
        master.add_agent(f"of {framework}", f"cpus:{cpus};mem:1")
        master.send(contract.SuppressOffers(framework_id=framework))
    add(master, "f1", "c", "cpus:1")
    [tasks] = master.add_agent("s1", "cpus:8;mem:96;cpus(other):1")
    assert (tasks.framework, tasks.resources) == ("f1", "cpus:8")
    master.recover(tasks, refuse_seconds=1000)
    # f1 has declined only a part of s1, so it is still eligible.
    revived = [contract.ReviveOffers(framework_id=framework) for framework in ("f2", "f3")]
    assert offered(master.send(*revived)) == {("f2", "s1"): "cpus:8;mem:96"}


def test_a_request_sets_the_demand() -> None:
    master = MasterSide()
    add(master, "f1", "a", None)
    wish = mesos.Request(
        resources=[mesos.Resource.FromString(data) for data in resources("cpus:1;mem:512")]
    )
    master.send(contract.RequestResources(framework_id="f1", requests=[wish.SerializeToString()]))
    [offer] = master.add_agent("s1", "cpus:1.5;mem:4096")
    assert offer.resources == "cpus:1;mem:512"


def test_the_operators_demand_wins_over_the_frameworks_demand() -> None:
    master = with_settings(
        MasterSide(), demands={"f1 of the tests": Quantities.parse("cpus:2;mem:64")}
    )
    add(master, "f1", "a", "cpus:1;mem:1024")
    [offer] = master.add_agent("s1", "cpus:5;mem:4096")
    assert offer.resources == "cpus:4;mem:128"


def test_an_invalid_demand_label_is_reported_and_costs_no_framework_an_offer() -> None:
    master = MasterSide()
    add(master, "f1", "a", "cpus=1")
    [whole] = master.add_agent("s1", "cpus:4;mem:4096")
    assert whole.resources == "cpus:4;mem:4096"
    assert master.engine.misfits() == {
        "f1": "label longshare.demand: 'cpus=1' is not of the form NAME:NUMBER without a unit, "
        "such as cpus:4;mem:64"
    }


def test_a_demand_is_learned_from_used_parts_of_offers_and_forgotten_after_a_full_decline() -> None:
    master = with_settings(MasterSide(), learn_demands=True)
    add(master, "f1", "a", None)
    [whole] = master.add_agent("s1", "cpus:4;mem:4096")
    assert whole.resources == "cpus:4;mem:4096"
    assert master.recover(whole, "cpus:3;mem:3072", refuse_seconds=1) == []
    assert master.engine.demands() == {"a": [Quantities.parse("cpus:1;mem:1024")]}
    [tasks] = master.add_agent("s2", "cpus:2.5;mem:4096")
    assert tasks.resources == "cpus:2;mem:2048"
    master.recover(tasks, refuse_seconds=1)
    assert master.engine.demands() == {}


def test_a_learned_demand_ends_with_its_framework() -> None:
    master = with_settings(MasterSide(), learn_demands=True)
    for _ in range(2):
        add(master, "f1", "a", None)
        assert not master.engine.demands()
        [whole] = master.add_agent("s1", "cpus:4;mem:4096")
        master.recover(whole, "cpus:3;mem:3072", refuse_seconds=1)
        client = Client("a", "f1")
        assert master.engine.demand(client) == Quantities.parse("cpus:1;mem:1024")
        master.send(contract.RemoveFramework(framework_id="f1"))
        assert master.engine.demand(client) is None
        master.remove_agent("s1")


def test_a_learned_demand_outlives_a_snapshot() -> None:
    master = with_settings(MasterSide(), learn_demands=True)
    add(master, "f1", "a", None)
    [whole] = master.add_agent("s1", "cpus:4;mem:4096")
    master.recover(whole, "cpus:3;mem:3072", refuse_seconds=1)
    learned = master.engine.demands()
    assert learned
    master.restore(
        contract.Snapshot(
            sequence=master.sequence,
            time_ns=master.now_ns,
            frameworks=[
                contract.AddFramework(
                    framework_id="f1", info=framework_info("f1", "a"), active=True
                )
            ],
        )
    )
    assert master.engine.demands() == learned


@given(
    users=st.integers(1, 5),
    demand=st.integers(1, 5),
    agents=st.lists(st.integers(1, 30), min_size=1, max_size=6),
)
def test_users_with_equal_demands_are_never_more_than_one_task_apart(
    users: int, demand: int, agents: list[int]
) -> None:
    master = MasterSide()
    for number in range(users):
        add(master, f"f{number}", f"role{number}", f"cpus:{demand}")
    tasks: Counter[str] = Counter({f"f{number}": 0 for number in range(users)})
    for name, cpus in enumerate(agents):
        for offer in master.add_agent(f"s{name}", f"cpus:{cpus};mem:64"):
            tasks[offer.framework] += round(float(offer.resources.removeprefix("cpus:"))) // demand
    assert tasks.total() == sum(cpus // demand for cpus in agents)
    assert max(tasks.values()) - min(tasks.values()) <= 1


def test_a_suppression_together_with_another_frameworks_changed_demand_takes_effect() -> None:
    master = MasterSide()
    add(master, "f1", "a", "cpus:1;mem:64")
    add(master, "f2", "b", "cpus:1;mem:64")
    assert len(master.add_agent("s1", "cpus:2;mem:128")) == 2
    info = mesos.FrameworkInfo.FromString(framework_info("f2", "b"))
    info.labels.labels.add(key="longshare.demand", value="cpus:2;mem:64")
    offers = master.send(
        contract.SuppressOffers(framework_id="f1"),
        contract.UpdateFramework(framework_id="f2", info=info.SerializeToString()),
        agent_call("s2", "cpus:4;mem:256"),
    )
    assert offered(offers) == {("f2", "s2"): "cpus:4;mem:128"}


def test_the_lower_bound_of_demands_follows_the_replacement_of_the_largest_agent() -> None:
    master = MasterSide()
    add(master, "f1", "a", "cpus:0.001")
    [offer] = master.add_agent("s1", "cpus:1")
    assert offer.resources == "cpus:1"
    [offer] = master.send(contract.RemoveAgent(agent_id="s1"), agent_call("s2", "cpus:8.004"))
    assert offer.resources == "cpus:8", (
        "a thousand batches of eight tasks, as smaller batches are not allocated"
    )
