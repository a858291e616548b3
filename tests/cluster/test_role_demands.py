"""Demands of the frameworks of a role, if the policy counts tasks."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from allocator.cluster.engine import Engine
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.settings import EngineSettings
from allocator.cluster.users import Users, UserTask
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness import policies
from allocator.fairness.machines import Machines
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.fairness.standing import Standing
from tests.cluster.master_side import START_NS, MasterSide, agent_call, resources
from tests.cluster.test_placements import info
from tests.cluster.test_policies import PARAMETERS, join
from tests.cluster.test_task_offers import add
from tests.counted import counted

HONEST = ("ops/good", "r1", "r2", "r3", "r4")
COUNTS_TASKS = ("tsf", "stsf", "cdrf")
HALF_LIFE = 100.0
ONE, NINE = Quantities.parse("cpus:1"), Quantities.parse("cpus:9")


def master_of(policy: str, *, must_agree: bool = True) -> MasterSide:
    master = MasterSide(policy, PARAMETERS.get(policy))
    master.settings = replace(master.settings, exact_ties=False, demands_must_agree=must_agree)
    master.engine = Engine(master.settings)
    master.restore(contract.Snapshot(time_ns=START_NS))
    return master


def request(framework: str, demand: str) -> contract.RequestResources:
    wanted = [mesos.Resource.FromString(data) for data in resources(demand)]
    data = mesos.Request(resources=wanted).SerializeToString()
    return contract.RequestResources(framework_id=framework, requests=[data])


def held_by_roles(
    policy: str, role: str = "", demand: str | None = None, *, must_agree: bool = True
) -> Counter[str]:
    """Return the CPUs of five honest roles. A further framework runs nothing."""
    master = master_of(policy, must_agree=must_agree)
    for name in HONEST:
        add(master, name.replace("/", "."), name, "cpus:1")
        master.send(contract.SuppressOffers(framework_id=name.replace("/", ".")))
    if role:
        add(master, "evil", role, None)
        master.send(contract.SuppressOffers(framework_id="evil"))
        if demand is not None:
            master.send(request("evil", demand))
    for number in range(10):
        gpu = "" if number else ";gpus:1"
        master.send(agent_call(f"s{number}", f"cpus:16{gpu}"))
    revived = [contract.ReviveOffers(framework_id=name.replace("/", ".")) for name in HONEST]
    cpus: Counter[str] = Counter()
    for offer in master.send(*revived):
        cpus[offer.role] += round(float(offer.resources.partition("cpus:")[2].split(";")[0]))
    return cpus


@pytest.mark.parametrize("demand", [None, "cpus:9", "gpus:1", "cpus:0.001;gpus:1"])
@pytest.mark.parametrize("role", ["ops/good", "ops/evil"])
@pytest.mark.parametrize("policy", COUNTS_TASKS)
def test_a_demand_takes_no_offers_from_other_frameworks_of_the_role(
    policy: str, role: str, demand: str | None
) -> None:
    alone = held_by_roles(policy)
    assert set(alone.values()) == {28, 29}, "CPUs of an agent with a GPU are not offered"
    assert held_by_roles(policy, role, demand) == alone


def test_the_former_rule_for_replays_lets_the_demand_take_the_offers() -> None:
    assert held_by_roles("tsf", "ops/good", "gpus:1", must_agree=False)["ops/good"] == 1


@pytest.mark.parametrize("policy", COUNTS_TASKS)
def test_frameworks_with_equal_demands_are_measured_by_their_tasks(policy: str) -> None:
    users = agreeing(policy)
    join(users, "a", UserTask(NINE))
    second = Client("a", "second")
    users.add(users.get("a"), second)
    users.set_task(users.get("a"), second, UserTask(NINE))
    assert users.standings()[0].task_share == 2 / 9 / 2


def agreeing(policy: str) -> Users:
    settings = EngineSettings(
        policies.create(policy, PARAMETERS.get(policy, {})), demands_must_agree=True
    )
    users = Users(settings, 0.0, ())
    for agent in ("s1", "s2"):
        users.put_machine(agent, Quantities.parse("cpus:16"))
    users.set_capacity(Quantities.parse("cpus:32"))
    return users


@pytest.mark.parametrize("policy", COUNTS_TASKS)
def test_other_frameworks_demands_concern_neither_sub_roles_nor_other_roles(policy: str) -> None:
    users = agreeing(policy)
    join(users, "a/b", UserTask(NINE))
    join(users, "d", UserTask(NINE))
    join(users, "a/c", UserTask(ONE))
    shares = {standing.user: standing.task_share for standing in users.standings()}
    assert shares == {"a": None, "a/b": 2 / 9 / 2, "a/c": 2 / 32, "d": 2 / 9 / 2}
    users.release(users.get("a/c"), Client("a/c", "framework of a/c"), Quantities.parse("cpus:2"))
    users.remove(users.get("a/c"), Client("a/c", "framework of a/c"))
    assert {s.user: s.task_share for s in users.standings()}["a"] == 2 / 9 / 2


def pool_of(policy: str, *, keeps: bool) -> Pool[str]:
    machines: Machines[str] = Machines()
    for number in range(8):
        machines.put(f"s{number}", Quantities.parse("cpus:16;mem:32" if number else "cpus:64"))
    capacity = Quantities.parse("cpus:176;mem:224")
    pool: Pool[str] = Pool(
        policies.create(policy, {"half_life": HALF_LIFE}),
        capacity=capacity,
        machines=machines,
        keeps_share_commitments=keeps,
    )
    for user in "abc":
        pool.add(user)
        pool.set_active(user, True)
    return pool


DEMANDS = [None, *map(Quantities.parse, ("cpus:1", "cpus:9", "cpus:64", "cpus:2", "cpus:99"))]


@pytest.mark.parametrize("seed", range(8))
def test_commitments_of_a_changed_demand_are_those_of_dominant_shares(seed: int) -> None:
    """Both pools have the same history of allocations; demands matter to STSF alone.

    Without a known demand, priorities are equal. Directly after a change from one demand to the
    next, a user has the commitment of SDRF. Later, gaps on machines can only increase it.
    """
    chance = random.Random(seed)
    stsf, sdrf = pool_of("stsf", keeps=True), pool_of("sdrf", keeps=False)
    demands: dict[str, Quantities | None] = dict.fromkeys("abc")
    for _ in range(150):
        user, now = chance.choice("abc"), stsf.now + chance.choice((0.0, 1.0, 30.0, 300.0))
        stsf.advance(now)
        sdrf.advance(now)
        changed = chance.random() < 0.4
        if changed:
            former, demands[user] = demands[user], chance.choice(DEMANDS)
            changed = None not in (former, demands[user]) and former != demands[user]
            stsf.set_demand(user, demands[user])
        else:
            amount = Quantities({"cpus": 1000 * chance.randint(0, 60)})
            for pool in (stsf, sdrf):
                pool.hold(user, amount, 0)
        for name in "abc":
            ours, theirs = stsf.standing(name), sdrf.standing(name)
            if ours.task_share is None:
                assert ours.priority == pytest.approx(theirs.priority, abs=1e-12)
            assert ours.commitment >= theirs.commitment - 1e-12
        if changed and stsf.standing(user).task_share is not None:
            ours, theirs = stsf.standing(user), sdrf.standing(user)
            assert ours.commitment == pytest.approx(theirs.commitment, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_constant_demands_keep_the_priorities_of_the_former_rule(seed: int) -> None:
    chance = random.Random(seed)
    present, former = pool_of("stsf", keeps=True), pool_of("stsf", keeps=False)
    for pool in (present, former):
        for user, demand in {"a": "cpus:1", "b": "cpus:9;mem:1", "c": "cpus:64"}.items():
            pool.set_demand(user, Quantities.parse(demand))
    for _ in range(100):
        user, seconds = chance.choice("abc"), chance.choice((0.0, 1.0, 30.0, 300.0))
        held = Quantities({"cpus": 1000 * chance.randint(0, 60), "mem": chance.randint(0, 9999)})
        gone = chance.random() < 0.1 and f"s{chance.randint(0, 7)}"
        for pool in (present, former):
            pool.advance(pool.now + seconds)
            pool.hold(user, held, 0)
            if gone:
                pool.machines_changed()
                pool.machines.put(gone, Quantities.parse("cpus:70;mem:9"))
        assert list(present) == list(former)
        for name in "abc":
            assert present.standing(name).priority == former.standing(name).priority
            assert present.standing(name).commitment == former.standing(name).commitment


def test_a_changed_demand_is_a_change_that_the_store_must_save() -> None:
    pool = pool_of("stsf", keeps=True)
    assert pool.standing("a").share == 0.0
    pool.take_diverted()
    pool.set_demand("a", ONE)
    assert pool.take_diverted() == {"a"}


def standing_of_a(users: Users) -> Standing[str]:
    standing = users.standing("a")
    assert standing is not None
    return standing


def test_a_demand_that_an_attacker_leaves_behind_raises_no_commitment_of_the_role() -> None:
    """Alone in its role, the attacker's framework runs one task, which fits on one agent only."""
    users = agreeing("stsf")
    users.put_machine("big", Quantities.parse("cpus:32"))
    users.set_capacity(Quantities.parse("cpus:64"))
    join(users, "b", UserTask(ONE))
    evil = join(users, "a", UserTask(Quantities.parse("cpus:32")))
    users.allocate(users.get("a"), evil, Quantities.parse("cpus:30"))
    users.advance(10_000.0)
    assert standing_of_a(users).commitment == pytest.approx(1.0 - 1 / 2)
    users.release(users.get("a"), evil, Quantities.parse("cpus:32"))
    honest = Client("a", "honest")
    users.add(users.get("a"), honest)
    users.set_task(users.get("a"), honest, UserTask(ONE))
    assert standing_of_a(users).priority == 0.0
    users.set_task(users.get("a"), evil, UserTask(ONE))
    assert standing_of_a(users).priority == 0.0


@pytest.mark.parametrize("policy", COUNTS_TASKS)
def test_a_request_costs_the_same_with_any_number_of_frameworks_in_its_role(policy: str) -> None:
    def work(count: int) -> int:
        master = master_of(policy)
        master.send(agent_call("s", "cpus:16"))
        for number in range(count + 1):
            call = contract.AddFramework(framework_id=f"f{number}", active=False)
            call.info = info(f"f{number}", f"a/{number}", {"demand": f"cpus:{1 + number % 16}"})
            master.send(call)
        return counted(lambda: master.send(request("f0", "cpus:2"), request("f0", "cpus:3")))

    few, many = work(20), work(220)
    assert many - few < 20, "no call for each of the other frameworks"
