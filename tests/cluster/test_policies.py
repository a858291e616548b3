"""Every policy in the engine: its input about tasks and agents, and the resulting order."""

from collections import Counter

import pytest

from allocator.cluster.frameworks.framework import Client
from allocator.cluster.settings import EngineSettings
from allocator.cluster.users import Users, UserTask
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness import policies
from allocator.fairness.quantities import Quantities
from tests.cluster.conformance.quota_side import agent_info
from tests.cluster.master_side import MasterSide, Offered, resources
from tests.cluster.one_by_one import order
from tests.cluster.test_task_offers import add

PARAMETERS: dict[str, dict[str, object]] = {
    "sdrf": {"half_life": 60.0},
    "stsf": {"half_life": 60.0},
}


def cpus(offers: list[Offered]) -> Counter[str]:
    given: Counter[str] = Counter()
    for offer in offers:
        given[offer.framework] += int(offer.resources.split(";")[0].removeprefix("cpus:"))
    return given


def task_shares(master: MasterSide) -> dict[str, float | None]:
    return {s.user: s.task_share for s in master.engine.standings()}


@pytest.mark.parametrize("policy", policies.names())
def test_under_every_policy_but_fifo_equal_users_share_an_agent_equally(policy: str) -> None:
    master = MasterSide(policy, PARAMETERS.get(policy))
    for role in "ab":
        add(master, f"f-{role}", role, "cpus:1;mem:1024")
    expected = {"f-a": 4} if policy == "fifo" else {"f-a": 2, "f-b": 2}
    assert cpus(master.add_agent("s1", "cpus:4;mem:4096")) == expected


@pytest.mark.parametrize("policy", policies.names())
def test_under_every_policy_the_same_log_gives_the_same_decisions(policy: str) -> None:
    master = MasterSide(policy, PARAMETERS.get(policy))
    for role in "abc":
        add(master, f"f-{role}", role, "cpus:1;mem:1024")
    for number in range(3):
        for offer in master.add_agent(f"s{number}", "cpus:4;mem:4096"):
            master.recover(offer)
        master.tick(20.0)
    assert master.replayed() == [decisions for _events, decisions in master.log]


def test_task_shares_follow_agents_that_come_and_go() -> None:
    master = MasterSide("tsf")
    add(master, "f1", "a", "cpus:1;mem:512")
    master.add_agent("s1", "cpus:2;mem:1024")
    assert task_shares(master) == {"a": 1.0}
    master.send(contract.SuppressOffers(framework_id="f1"))
    master.add_agent("s2", "cpus:2.5;mem:9999")
    assert task_shares(master) == {"a": 0.5}
    master.remove_agent("s2")
    assert task_shares(master) == {"a": 1.0}


def test_task_shares_follow_changed_resources_of_an_agent() -> None:
    master = MasterSide("tsf")
    add(master, "f1", "a", "cpus:1;mem:512")
    master.add_agent("s1", "cpus:2;mem:1024")
    master.send(contract.SuppressOffers(framework_id="f1"))
    total = contract.ResourceList(resources=resources("cpus:4;mem:2048"))
    master.send(contract.UpdateAgent(agent_id="s1", info=agent_info("s1"), total=total))
    assert task_shares(master) == {"a": 0.5}


def test_a_request_sets_the_demand_and_gives_the_user_a_task_share() -> None:
    master = MasterSide("tsf")
    add(master, "f1", "a", None)
    master.add_agent("s1", "cpus:4;mem:4096")
    assert task_shares(master) == {"a": None}
    wanted = [mesos.Resource.FromString(data) for data in resources("cpus:2;mem:1024")]
    request = mesos.Request(resources=wanted).SerializeToString()
    master.send(contract.RequestResources(framework_id="f1", requests=[request]))
    assert task_shares(master) == {
        "a": 2.0
    }  # its memory suffices for four tasks, and two tasks fit


def test_a_user_whose_framework_was_removed_has_no_task_share() -> None:
    master = MasterSide("tsf")
    add(master, "f1", "a", "cpus:1;mem:512")
    master.add_agent("s1", "cpus:2;mem:1024")
    master.send(contract.RemoveFramework(framework_id="f1"))
    assert task_shares(master) == {"a": None}


def new_users(policy: str) -> Users:
    users = Users(EngineSettings(policies.create(policy, {})), 0.0, ())
    for agent in ("s1", "s2"):
        users.put_machine(agent, Quantities.parse("cpus:4"))
    users.set_capacity(Quantities.parse("cpus:8"))
    return users


def join(users: Users, role: str, task: UserTask) -> Client:
    client = Client(role, f"framework of {role}")
    user = users.get(role)
    users.add(user, client)
    users.set_wanting(user, client, wanting=True)
    users.set_task(user, client, task)
    users.allocate(user, client, Quantities.parse("cpus:2"))
    return client


ONE_CPU = Quantities.parse("cpus:1")


@pytest.mark.parametrize(("policy", "priority"), [("tsf", 2 / 8), ("cdrf", 2 / 4)])
def test_constraints_shrink_the_monopoly_of_cdrf_and_not_that_of_tsf(
    policy: str, priority: float
) -> None:
    users = new_users(policy)
    join(users, "a", UserTask(ONE_CPU, lambda agent: agent == "s1"))
    [standing] = users.standings()
    assert standing.priority == priority
    users.put_machine("s3", Quantities.parse("cpus:8"))
    [standing] = users.standings()
    assert standing.priority == (2 / 16 if policy == "tsf" else priority)


def test_a_user_may_use_the_agents_of_any_of_its_frameworks() -> None:
    users = new_users("cdrf")
    join(users, "a", UserTask(ONE_CPU, lambda agent: agent == "s1"))
    assert users.standings()[0].priority == 2 / 4
    second = Client("a", "another")
    users.add(users.get("a"), second)
    users.set_task(users.get("a"), second, UserTask(ONE_CPU, lambda agent: agent == "s2"))
    assert users.standings()[0].priority == 2 / 8
    users.remove(users.get("a"), second)
    assert users.standings()[0].priority == 2 / 4


def test_a_roles_demand_is_the_largest_of_its_sub_roles_demands() -> None:
    users = new_users("tsf")
    join(users, "a", UserTask(ONE_CPU))
    join(users, "a/b", UserTask(Quantities.parse("cpus:2")))
    shares = {s.user: s.task_share for s in users.standings()}
    assert shares == {"a": 4 / 8, "a/.": 2 / 8, "a/b": 2 / 8}


def test_under_per_machine_drf_users_without_an_allocation_on_an_agent_come_first_there() -> None:
    users = new_users("per-machine-drf")
    clients = {role: join(users, role, UserTask()) for role in ("a/b", "a/c", "d")}
    users.allocate(users.get("d"), clients["d"], Quantities.parse("cpus:4"))
    agent = Quantities.parse("cpus:4")
    assert [client.role for client in order(users, agent, {})] == ["a/b", "a/c", "d"]
    held = {clients["d"]: Quantities.parse("cpus:1"), clients["a/b"]: Quantities.parse("cpus:2")}
    assert [client.role for client in order(users, agent, held)] == ["d", "a/c", "a/b"]
