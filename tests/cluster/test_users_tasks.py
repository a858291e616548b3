"""Tasks of users, sub-users and machines compared with plain sums."""

import random
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from allocator.cluster.frameworks.framework import Client
from allocator.cluster.settings import EngineSettings
from allocator.cluster.users import Users, UserTask
from allocator.contract import allocator_pb2 as contract
from allocator.fairness import policies
from allocator.fairness.quantities import Quantities
from tests.cluster.master_side import MasterSide, agent_call
from tests.cluster.test_placements import info
from tests.cluster.test_users import join, new_users
from tests.counted import counted

CDRF = EngineSettings(policies.create("cdrf", {}), forget_after=0.0)
"""A policy that depends on the machines that users may use."""
ROLES = ("a", "a/b", "a/b/c", "e")
SIZES = [Quantities.parse(f"cpus:{cpus};mem:{mem}") for cpus, mem in ((4, 40), (9, 20), (2, 99))]
DEMANDS = [None, Quantities.parse("cpus:1;mem:3"), Quantities.parse("cpus:2"), SIZES[0]]
ONE = {"demand": "cpus:1", "whitelist": "s*"}
"""Labels of a framework with small tasks that may run anywhere."""
PLACES: list[frozenset[str] | None] = [None, frozenset("123"), frozenset("3"), frozenset("4")]


class Plainly:
    """The tasks of each client, and the machines."""

    def __init__(self, *, must_agree: bool) -> None:
        self.must_agree = must_agree
        self.tasks: dict[Client, tuple[Quantities | None, frozenset[str] | None]] = {}
        self.machines: dict[str, Quantities] = {}
        self.held: dict[Client, Quantities] = {}

    def of(self, name: str) -> list[Client]:
        if name.endswith("/."):
            return [client for client in self.held if client.role == name[:-2]]
        return [c for c in self.held if c.role == name or c.role.startswith(name + "/")]

    def slowdown(self, name: str) -> dict[str, float] | None:
        """Return the fraction of running tasks to the tasks of the user alone; None if unknown."""
        tasks = [self.tasks[client] for client in self.of(name) if client in self.tasks]
        if self.must_agree and any(demand != tasks[0][0] for demand, _ in tasks):
            return None
        demands = [demand for demand, _ in tasks if demand is not None]
        names = {name for demand in demands for name in demand}
        greediest = {name: max(demand[name] for demand in demands) for name in names}
        alone = sum(
            min((size[name] // amount for name, amount in greediest.items()), default=0)
            for machine, size in self.machines.items()
            if any(may_use is None or machine in may_use for _, may_use in tasks)
        )
        if not alone:
            return None
        held = sum((self.held[client] for client in self.of(name)), start=Quantities())
        return {"tasks": max(held[name] / (amount * alone) for name, amount in greediest.items())}


def task(demand: Quantities | None, places: frozenset[str] | None) -> UserTask:
    return UserTask(demand, None if places is None else places.__contains__)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("must_agree", [False, True])
def test_a_user_is_measured_by_the_tasks_of_its_subtree_on_the_present_machines(
    seed: int,
    must_agree: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    chance, plainly = random.Random(seed), Plainly(must_agree=must_agree)
    users = new_users(replace(CDRF, demands_must_agree=must_agree))
    for _ in range(200):
        client = Client(chance.choice(ROLES), f"f{chance.randint(1, 2)}")
        machine = chance.choice("1234")
        happens = chance.choice("tttjlhm")
        if happens == "m" and machine in plainly.machines:
            users.discard_machine(machine)
            del plainly.machines[machine]
        elif happens == "m":
            plainly.machines[machine] = chance.choice(SIZES)
            users.put_machine(machine, plainly.machines[machine])
        elif client not in plainly.held:
            users.add(users.get(client.role), client)
            plainly.held[client] = Quantities()
        elif happens == "t":
            description = chance.choice(DEMANDS), chance.choice(PLACES)
            new = plainly.tasks.get(client) != description
            assert users.set_task(users.get(client.role), client, task(*description)) == new
            plainly.tasks[client] = description
        elif happens == "h":
            users.allocate(users.get(client.role), client, Quantities.parse("cpus:1;mem:2"))
            plainly.held[client] += Quantities.parse("cpus:1;mem:2")
        elif happens == "l":
            users.release(users.get(client.role), client, plainly.held.pop(client))
            users.remove(users.get(client.role), client)
            plainly.tasks.pop(client, None)
            users.forget_idle()
        for standing in users.standings():
            expected = plainly.slowdown(standing.user)
            assert standing.measured == (standing.shares if expected is None else expected)


def asking(users: Users) -> dict[str, list[str]]:
    """Add a client in each role; return lists that collect the questions about machines."""
    machines: dict[str, list[str]] = {role: [] for role in ROLES}

    def noting(role: str, machine: str) -> bool:
        machines[role].append(machine)
        return False

    for role in ROLES:
        client = join(users, role)
        users.set_task(users.get(role), client, UserTask(DEMANDS[1], partial(noting, role)))
    return machines


@pytest.mark.parametrize("gone", ["", "a", "a/b/c"])
def test_each_client_is_asked_once_about_a_machine_and_a_removed_client_is_not(
    gone: str,
) -> None:
    users = new_users(CDRF)
    machines = asking(users)
    if gone:
        users.remove(users.get(gone), Client(gone, f"framework of {gone}"))
        users.forget_idle()
    users.put_machine("new", SIZES[0])
    for role, about in machines.items():
        assert about == ([] if role == gone else ["new"])


@pytest.mark.parametrize("prefix", ["", "a/", "a/b/"])
@pytest.mark.parametrize("policy", ["tsf", "cdrf", "stsf"])
def test_a_changed_demand_costs_in_proportion_to_the_frameworks_roles(
    policy: str, prefix: str
) -> None:
    """The cost does not depend on the number of agents, nor on a common ancestor of the roles."""

    def work(roles: int) -> int:
        master = MasterSide(policy, {"half_life": 60.0} if policy == "stsf" else {})
        master.send(*(agent_call(f"s{n}", "cpus:4;mem:64") for n in range(20)))
        names = [f"{prefix}{n}" for n in range(roles)]
        master.send(
            contract.AddFramework(
                framework_id="f", info=info("f", names, {**ONE, "whitelist": "s1*"}), active=True
            )
        )
        update = info("f", names, {"demand": "cpus:2", "whitelist": "s*"})
        return counted(lambda: master.send(contract.UpdateFramework(framework_id="f", info=update)))

    few, many, doubled = (work(roles) for roles in (30, 60, 120))
    assert doubled - many < 2.5 * (many - few)


def test_a_further_framework_of_a_role_asks_once_about_each_machine() -> None:
    """Frameworks with different constraints in a role cost no more than their own questions."""
    users = new_users(CDRF)
    for number in range(50):
        users.put_machine(f"s{number}", SIZES[0])
    asked = Counter[str]()

    def admits(framework: str, machine: str) -> bool:
        asked[framework] += 1
        return machine == "s7"

    for number in range(20):
        name = f"f{number}"
        users.add(users.get("a/b"), client := Client("a/b", name))
        users.set_task(users.get("a/b"), client, UserTask(DEMANDS[1], partial(admits, name)))
        users.update_entitlements()
    assert set(asked.values()) == {50}


@pytest.mark.parametrize("change", ["update", "remove"])
def test_a_change_of_a_framework_costs_the_same_with_any_number_of_frameworks_in_its_role(
    change: str,
) -> None:
    def work(count: int) -> int:
        master = MasterSide("cdrf")
        for number in range(count + 1):
            framework = contract.AddFramework(framework_id=f"f{number}", active=False)
            framework.info = info(f"f{number}", f"a/{number}", ONE)
            master.send(framework)
        update = contract.UpdateFramework(framework_id="f0")
        update.info = info("f0", "a/0", {**ONE, "demand": "cpus:2"})
        remove = contract.RemoveFramework(framework_id="f0")
        return counted(lambda: master.send(update if change == "update" else remove))

    few, many = work(20), work(220)
    assert many - few < 200, "no call for each of the other frameworks"


def test_without_a_policy_that_needs_machines_no_questions_about_machines_are_asked() -> None:
    users = new_users(replace(CDRF, policy=policies.create("drf", {})))
    machines = asking(users)
    users.put_machine("new", SIZES[0])
    assert not any(machines.values())
