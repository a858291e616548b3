"""Users dilute the entitlement of other users by no more than their use."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.engine import Engine
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.input.limits import Limits
from allocator.cluster.settings import UserKey
from allocator.contract import allocator_pb2 as contract
from allocator.contract import operator_pb2 as operator
from allocator.fairness import policies
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.service.store import codec
from allocator.users.orders import InvalidOrder
from allocator.users.pools import LOOK
from allocator.users.settings import DeclaredUser, UserSettings
from allocator.users.tree import UserTree
from allocator.users.user import User as UserNode
from tests.cluster.conformance.quota_side import SHARED, allocated, disk
from tests.cluster.master_side import MasterSide, agent_call, framework_info, resources

HALF_LIFE = 3600.0
NAMES = 250
STEP = 30.0
HOURS = 8
TIMES = 4.0


def made(
    counts_for: float | None = TIMES, *, declared: bool = True, reported: bool = True
) -> MasterSide:
    """Return a cluster in which a and b hold 44 and 55 %; c uses nothing.

    `reported`: whether the master reports used resources.
    """
    users = (DeclaredUser("c"),) if declared else ()
    master = MasterSide("sdrf", {"half_life": HALF_LIFE}, users=users)
    master.settings = replace(master.settings, counts_for=counts_for)
    master.options.tells_running = reported
    master.engine = Engine(master.settings)
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    for user in "ab":
        master.add_framework(f"f-{user}", user, active=False)
    held = {"f-a": resources("cpus:440", "a"), "f-b": resources("cpus:550", "b")}
    master.send(running("s1", "cpus:1000;mem:1000", held))
    master.tick(LOOK)
    master.tick(LOOK)
    return master


def running(agent: str, total: str, used: dict[str, list[bytes]]) -> contract.AddAgent:
    """Return an agent whose allocated resources are all used by tasks."""
    call = agent_call(agent, total, used)
    call.running.extend(call.used)
    return call


def holding(total: str, cpus: dict[str, int], **rules: object) -> MasterSide:
    """Return a cluster of undeclared users that count by their use, on one agent.

    Args:
        total: Resources of the agent.
        cpus: CPUs that tasks of each user use.
        rules: Settings of the engine.
    """
    master = MasterSide("sdrf", {"half_life": HALF_LIFE})
    master.settings = replace(master.settings, counts_for=TIMES, **rules)  # type: ignore[arg-type]
    master.options.tells_running = True
    master.engine = Engine(master.settings)
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    for user in cpus:
        master.add_framework(f"f-{user}", user, active=False)
    held = {f"f-{user}": resources(f"cpus:{amount}", user) for user, amount in cpus.items()}
    master.send(running("s1", total, held))
    return master


def entitled(master: MasterSide, user: str) -> float:
    standing = master.engine.standing(user)
    assert standing is not None
    return standing.entitlement


def priority_of(master: MasterSide, user: str) -> float:
    standing = master.engine.standing(user)
    assert standing is not None
    return standing.priority


def owed(master: MasterSide, user: str) -> float:
    standing = master.engine.standing(user)
    assert standing is not None
    return standing.commitment


def add_names(master: MasterSide, *, active: bool = True) -> list[str]:
    """Let a few frameworks register many roles."""
    frameworks = []
    for begin in range(0, NAMES, 250):
        name = f"names-{master.sequence}-{begin}"
        roles = [f"n{number}" for number in range(begin, begin + 250)]
        master.send(
            contract.AddFramework(
                framework_id=name,
                info=framework_info(name, *roles),
                active=active,
                suppressed_roles=[] if active else roles,
            )
        )
        frameworks.append(name)
    return frameworks


def remove(master: MasterSide, frameworks: list[str]) -> None:
    for name in frameworks:
        master.send(contract.RemoveFramework(framework_id=name))


def run_tasks(master: MasterSide, frameworks: list[str], demand: str) -> None:
    """Give each role an allocation on its own kind of agent, used by tasks."""
    used = {
        name: [
            entry
            for number in range(250 * index, 250 * index + 250)
            for entry in resources(demand, f"n{number}")
        ]
        for index, name in enumerate(frameworks)
    }
    master.send(running("s2", "cpus:10;mem:10", used))


def steps(master: MasterSide) -> Iterator[float]:
    for number in range(round(HOURS * 3600 / STEP)):
        yield number * STEP
        for offer in master.tick(STEP):
            master.recover(offer)  # Without a filter, the agent is offered to the next role.


def test_in_the_form_of_the_papers_removed_users_dilute_entitlements() -> None:
    master = made(None)
    remove(master, add_names(master))
    master.tick()
    assert entitled(master, "a") == pytest.approx(1 / (NAMES + 3))


def test_users_that_leave_within_a_minute_dilute_nothing() -> None:
    master = made()
    frameworks = add_names(master)
    for now in steps(master):
        if now == 60.0:
            remove(master, frameworks)
        assert entitled(master, "a") == pytest.approx(1 / 3, rel=0.05)
    assert owed(master, "a") == pytest.approx(0.44 - 1 / 3, abs=0.002)
    assert owed(master, "b") == pytest.approx(0.55 - 1 / 3, abs=0.002)


@pytest.mark.parametrize("active", [True, False])
def test_users_that_stay_and_use_nothing_dilute_nothing(*, active: bool) -> None:
    master = made()
    add_names(master, active=active)
    for _ in steps(master):
        assert entitled(master, "a") == pytest.approx(1 / 3, rel=0.06)
    assert owed(master, "a") == pytest.approx(0.44 - 1 / 3, abs=0.02)


def test_users_that_come_and_go_dilute_nothing() -> None:
    master, frameworks = made(), list[str]()
    for now in steps(master):
        if now % 600.0 == 0.0:
            frameworks = add_names(master)
        elif now % 600.0 == 300.0:
            remove(master, frameworks)
    assert entitled(master, "a") == pytest.approx(1 / 3, rel=0.05)
    assert owed(master, "b") == pytest.approx(0.55 - 1 / 3, abs=0.01)


def test_users_with_a_tiny_task_each_count_by_their_use() -> None:
    master = made()
    frameworks = add_names(master, active=False)
    run_tasks(master, frameworks, "cpus:0.04")
    used = NAMES * 0.04 / 1010
    for _ in steps(master):
        pass
    bound = (1 - TIMES * used) / 3
    assert bound - 1e-3 <= entitled(master, "a") < 1 / 3
    remove(master, frameworks)
    master.send(contract.RemoveAgent(agent_id="s2"))
    for _ in range(120):
        master.tick(60.0)
    assert entitled(master, "a") == pytest.approx(1 / 3, rel=0.02)


@pytest.mark.parametrize("below", ["", "x/"])
@pytest.mark.parametrize("number", [200, 250, 500])
def test_names_that_hold_a_rare_resource_dilute_the_entitlement_to_no_other(
    number: int, below: str
) -> None:
    master = holding("cpus:1000;mem:1000", {below + "a": 440, below + "b": 550})
    used: dict[str, list[bytes]] = {}
    for begin in range(0, number, 200):
        roles = [f"{below}n{name}" for name in range(begin, min(begin + 200, number))]
        name = f"names-{begin}"
        info = framework_info(name, *roles)
        master.send(contract.AddFramework(framework_id=name, info=info, active=False))
        used[name] = [e for role in roles for e in resources("cpus:0.001;fpga:0.001", role)]
    master.send(running("s2", "cpus:10;mem:10;fpga:1", used))
    for _ in range(120):
        master.tick(STEP)
    bound = (1 - TIMES * number * 0.001 / 1010) / 2
    assert bound - 1e-9 <= entitled(master, below + "a") <= 0.5
    assert owed(master, below + "a") == 0.0
    assert owed(master, below + "b") == pytest.approx((550 / 1010 - 0.5) / 2, abs=0.002)
    assert owed(master, f"{below}n0") <= 0.001


def test_roles_that_take_turns_dilute_no_more_than_roles_that_stay() -> None:
    use, turn = 0.13, 600.0
    master = holding("cpus:870;mem:870", {"a": 435, "b": 435})
    master.send(
        contract.AddFramework(
            framework_id="turns",
            info=framework_info("turns", *[f"n{number}" for number in range(NAMES)]),
            active=False,
        )
    )
    for number in range(24):
        begin = number % 10 * 25
        used = [
            entry
            for name in range(begin, begin + 25)
            for entry in resources(f"cpus:{1000 * use / 25}", f"n{name}")
        ]
        if number:
            master.remove_agent("s2")
        master.send(running("s2", "cpus:130;mem:130", {"turns": used}))
        for _ in range(round(turn / STEP)):
            master.tick(STEP)
            assert entitled(master, "a") >= (1 - TIMES * use) / 2 - 1e-9


def test_a_user_that_is_forgotten_while_it_counts_dilutes_no_longer() -> None:
    cpus = {"a": 330, "b": 330, "d": 330}
    master = holding("cpus:1000;mem:1000", cpus, forget_after=1800.0)
    for _ in range(8):
        master.tick(3600.0)
    master.send(contract.RemoveFramework(framework_id="f-d"))
    while "d" in master.engine.users():
        assert entitled(master, "a") < 0.495, "user d counts as long as it is known"
        master.tick(60.0)
    master.tick(LOOK)
    assert entitled(master, "a") == pytest.approx(1 / 2)


def test_sub_roles_dilute_no_role_outside_their_parent() -> None:
    master = made()
    master.add_framework("d", "d", *(f"d/{number}" for number in range(200)), active=False)
    for _ in range(20):
        master.tick(30.0)
    assert entitled(master, "a") == pytest.approx(1 / 3)


def test_a_new_user_counts_whole_while_it_uses_half_of_its_entitlement() -> None:
    master = made(declared=False)
    master.add_framework("f-d", "d", active=False)
    master.send(running("s2", "cpus:600;mem:600", {"f-d": resources("cpus:270", "d")}))
    master.tick(30.0)
    assert entitled(master, "a") == pytest.approx(1 / 2), "not used since the last sample"
    master.tick(30.0)
    assert entitled(master, "a") == pytest.approx(1 / 3)


@pytest.mark.parametrize("reported", [True, False])
def test_users_whose_tasks_run_only_around_the_samples_dilute_nothing(*, reported: bool) -> None:
    master = made(reported=reported)
    name = add_names(master, active=False)[0]
    used = {name: [e for n in range(40) for e in resources("cpus:10", f"n{n}")]}
    for _ in range(200):
        master.wait(LOOK - 0.2)
        master.send(running("s2", "cpus:400;mem:400", used))
        master.tick(0.1)
        assert entitled(master, "a") == pytest.approx(1 / 3)
        master.wait(0.1)
        master.send(contract.RemoveAgent(agent_id="s2"))


@pytest.mark.parametrize("reported", [True, False])
def test_a_task_that_ends_between_two_samples_does_not_count(*, reported: bool) -> None:
    master = made(declared=False, reported=reported)
    master.add_framework("f-d", "d", active=False)
    held = resources("cpus:95", "d")
    master.send(running("s2", "cpus:100;mem:100", {"f-d": held}))
    master.tick(LOOK)
    for _ in range(3):
        assert entitled(master, "a") == pytest.approx(1 / 2)
        recovered = contract.RecoverResources(
            framework_id="f-d", agent_id="s2", resources=held, is_allocated=True
        )
        master.send(recovered)
        master.send(contract.RemoveAgent(agent_id="s2"))
        master.wait(LOOK / 2)
        master.send(running("s2", "cpus:100;mem:100", {"f-d": held}))
        master.tick(LOOK / 2)


def test_an_operators_weight_makes_a_user_count_whole() -> None:
    master = made(declared=False)
    assert entitled(master, "a") == pytest.approx(1 / 2)
    master.add_framework("f-d", "d", active=False)
    master.tick(30.0)
    assert entitled(master, "a") == pytest.approx(1 / 2)
    order = operator.Order(set_weight=operator.SetWeight(user="d", weight=2.0))
    master.engine.order(order)
    assert entitled(master, "a") == pytest.approx(1 / 4)
    order.set_weight.ClearField("weight")
    master.engine.order(order)
    assert entitled(master, "a") == pytest.approx(1 / 2)
    weight = contract.Weight(role="d", weight=2.0)
    master.send(contract.UpdateWeights(weights=[weight]))
    assert entitled(master, "a") == pytest.approx(1 / 4)


def test_a_role_counts_whole_if_an_operator_has_named_a_role_below_it() -> None:
    master = made(declared=False)
    master.add_framework("f-d", "d/e", active=False)
    order = operator.Order(set_weight=operator.SetWeight(user="d/e", weight=1.0))
    master.engine.order(order)
    assert entitled(master, "a") == pytest.approx(1 / 3)
    order.set_weight.ClearField("weight")
    master.engine.order(order)
    assert entitled(master, "a") == pytest.approx(1 / 2)


def test_a_users_mean_use_outlives_a_snapshot() -> None:
    master = made(declared=False)
    master.add_framework("f-d", "d", active=False)
    master.send(running("s2", "cpus:600", {"f-d": resources("cpus:500", "d")}))
    for _ in range(120):
        master.tick(60.0)
    master.remove_agent("s2")
    master.tick(30.0)
    before = entitled(master, "a")
    assert before == pytest.approx(1 / 3)
    snapshot = contract.Snapshot(time_ns=master.now_ns, sequence=master.sequence)
    for user in "abd":
        name = f"f-{user}"
        info = framework_info(name, user)
        snapshot.frameworks.add(framework_id=name, info=info, active=False)
    held = {"f-a": resources("cpus:440", "a"), "f-b": resources("cpus:550", "b")}
    snapshot.agents.append(running("s1", "cpus:1000;mem:1000", held))
    master.restore(snapshot)
    assert entitled(master, "a") == before


IDLE = 40
"""Largest number of idle users."""


def with_absent(mean: float, policy: str = "sdrf", *, accumulated: bool = True) -> MasterSide:
    """Return a cluster that user d has left after a mean use of some of its resources."""
    parameters = {"half_life": HALF_LIFE} if policy == "sdrf" else {}
    master = MasterSide(policy, parameters, limits=Limits(idle_users=IDLE))
    master.settings = replace(master.settings, counts_for=TIMES, keeps_accumulated_use=accumulated)
    master.options.tells_running = True
    master.engine = Engine(master.settings)
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    for user in "ad":
        master.add_framework(f"f-{user}", user, active=False)
    held = {"f-a": resources("cpus:440", "a"), "f-d": resources(f"cpus:{1000 * mean}", "d")}
    master.send(running("s1", "cpus:1000;mem:1000", held))
    for _ in range(600):
        master.tick(60.0)
    master.send(contract.RemoveFramework(framework_id="f-d"))
    master.tick(LOOK)
    return master


def come_and_go(master: MasterSide, demand: str = "") -> None:
    """Add and remove more users than may be idle; each may use resources for a while."""
    for number in range(5):
        name = f"names-{number}"
        roles = [f"n{number}-{place}" for place in range(IDLE)]
        info = framework_info(name, *roles)
        master.send(contract.AddFramework(framework_id=name, info=info, active=False))
        if demand:
            used = [entry for role in roles for entry in resources(demand, role)]
            master.send(running(f"for-{name}", "cpus:10", {name: used}))
            for _ in range(10):
                master.tick(60.0)
            master.remove_agent(f"for-{name}")
        remove(master, [name])
        master.tick(LOOK)


@pytest.mark.parametrize("each", ["", "cpus:0.05"])
def test_new_users_never_evict_an_idle_user_with_a_larger_mean_use(each: str) -> None:
    master = with_absent(0.6)
    assert entitled(master, "a") == pytest.approx(1 / 2, rel=0.02)
    come_and_go(master, each)
    assert len(master.engine.users()) <= IDLE + 1, "the limit of idle users still applies"
    assert "d" in master.engine.users()
    assert entitled(master, "a") == pytest.approx(1 / 2, rel=0.05)


@pytest.mark.parametrize("each", ["", "cpus:0.05"])
@pytest.mark.parametrize(
    ("policy", "use"), [("karma", 0.1), ("karma", 0.55), ("dynamic-drf", 0.1), ("dynamic-mmf", 0.4)]
)
def test_new_users_evict_no_idle_user_with_credits_or_accumulated_use(
    policy: str, use: float, each: str
) -> None:
    master = with_absent(use, policy)
    before = priority_of(master, "d")
    come_and_go(master, each)
    assert len(master.engine.users()) <= IDLE + 1, "the limit of idle users still applies"
    assert priority_of(master, "d") == pytest.approx(before)


def test_former_event_logs_forget_the_longest_idle_user_of_policies_that_accumulate_use() -> None:
    master = with_absent(0.1, "karma", accumulated=False)
    come_and_go(master)
    assert "d" not in master.engine.users()


def test_of_users_without_use_the_users_that_have_been_idle_longest_are_forgotten_first() -> None:
    master = with_absent(0.4)
    come_and_go(master)
    assert {name.partition("-")[0] for name in master.engine.users()} == {"a", "d", "n4"}


def test_a_snapshot_keeps_a_removed_user_with_a_mean_use() -> None:
    master = with_absent(0.4)
    before = entitled(master, "a")
    snapshot = contract.Snapshot(time_ns=master.now_ns, sequence=master.sequence)
    snapshot.frameworks.add(framework_id="f-a", info=framework_info("f-a", "a"), active=False)
    held = {"f-a": resources("cpus:440", "a")}
    snapshot.agents.append(running("s1", "cpus:1000;mem:1000", held))
    master.restore(snapshot)
    assert "d" in master.engine.users()
    assert entitled(master, "a") == before


VOLUME = disk(10, reserved=["x"], volume="v", shared=True)


def volume_agent(names: dict[str, str]) -> contract.AddAgent:
    """Return an agent on which the tasks of these frameworks, by role, use a shared volume."""
    used = {name: allocated([VOLUME], role) for name, role in names.items()}
    call = agent_call("s2", "cpus:10;mem:10;disk:90", used)
    call.total.append(VOLUME)
    call.running.extend(call.used)
    return call


def sharing(key: UserKey, holders: int, *, tells: bool = True, ticks: int = 10) -> MasterSide:
    """Return a cluster in which a and b hold 44 and 55 %, and all other users a shared volume."""
    master = MasterSide("sdrf", {"half_life": HALF_LIFE}, user_key=key)
    master.settings = replace(master.settings, counts_for=TIMES, shared_volumes_once=True)
    master.options.tells_running = tells
    master.engine = Engine(master.settings)
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    names = {f"f{number}": f"x/n{number}" if key == "role" else "x" for number in range(holders)}
    for name, role in {"f-a": "x/a", "f-b": "x/b", **names}.items():
        info = framework_info(name, role, principal=f"p-{name}", capabilities=[SHARED])
        master.send(contract.AddFramework(framework_id=name, info=info, active=False))
    held = {"f-a": resources("disk:440", "x/a"), "f-b": resources("disk:450", "x/b")}
    master.send(running("s1", "cpus:1000;mem:1000;disk:900", held))
    master.send(volume_agent(names))
    for _ in range(ticks):
        master.tick(30.0)
    return master


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize(
    ("key", "user"), [("role", "x/a"), ("principal", "p-f-a"), ("framework_id", "f-a")]
)
def test_users_of_a_shared_volume_count_for_it_once_together(
    key: UserKey, user: str, *, tells: bool
) -> None:
    for holders in (1, 2, 100):
        master = sharing(key, holders, tells=tells)
        assert entitled(master, user) == pytest.approx((1 - TIMES * 0.01 / 2) / 2), holders


@pytest.mark.parametrize("tells", [True, False])
def test_users_of_a_shared_volume_only_around_the_samples_dilute_nothing(*, tells: bool) -> None:
    master = sharing("role", 40, tells=tells, ticks=0)
    names = {f"f{number}": f"x/n{number}" for number in range(40)}
    master.send(contract.RemoveAgent(agent_id="s2"))
    for _ in range(20):
        master.tick(30.0)
    for _ in range(50):
        master.wait(LOOK - 0.2)
        master.send(volume_agent(names))
        master.tick(0.1)
        master.wait(0.1)
        assert entitled(master, "x/a") == pytest.approx(1 / 2)
        master.send(contract.RemoveAgent(agent_id="s2"))


TREE = ["x", "x/m", "x/m/o", "x/n", "x/n/o", "y"]
VOLUMES = [disk(size, reserved=["x"], volume=f"v{size}", shared=True) for size in (0.005, 10, 20)]
holdings = st.lists(
    st.tuples(st.sampled_from(TREE), st.sets(st.integers(0, 2)), st.integers(0, 30)),
    max_size=10,
)


@given(holdings, st.booleans())
def test_users_of_a_pool_never_use_more_together_than_the_cluster_uses(
    drawn: list[tuple[str, set[int], int]],
    tells: bool,  # noqa: FBT001 - drawn
) -> None:
    master = MasterSide("sdrf", {"half_life": HALF_LIFE})
    master.settings = replace(master.settings, counts_for=TIMES, shared_volumes_once=True)
    master.options.tells_running = tells
    master.engine = Engine(master.settings)
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    used = {}
    for number, (role, volumes, plain) in enumerate(drawn):
        name = f"f{number}"
        info = framework_info(name, role, capabilities=[SHARED])
        master.send(contract.AddFramework(framework_id=name, info=info, active=False))
        held = [VOLUMES[index] for index in volumes if role != "y"]
        used[name] = allocated([*held, *([disk(plain)] if plain else [])], role)
    master.add_framework("f-h", "h", active=False)
    call = agent_call("s1", "disk:969.995", used)
    call.total.extend(VOLUMES)
    call.running.extend(call.used)
    master.send(call)
    for _ in range(3):
        master.tick(30.0)
    volumes = {index for role, held, _ in drawn if role != "y" for index in held}
    sizes = (0.005, 10.0, 20.0)
    once = (sum(sizes[index] for index in volumes) + sum(plain for *_, plain in drawn)) / 1000
    for pool in master.engine._cluster.ledger.clients.users.pools():
        accounts = pool.accounts().values()
        for shares in ([a.in_use for a in accounts], [a.mean_use for a in accounts]):
            assert sum(share.get("disk", 0.0) for share in shares) <= once * (1 + 1e-9)
    assert entitled(master, "h") >= 1 - TIMES * once - 1e-9


def calls_of_a_look(names: int) -> int:
    """Return the number of function calls of one look at a cluster with a number of users."""
    master, count = made(), 0
    info = framework_info("names", *(f"n{number}" for number in range(names)))
    master.send(contract.AddFramework(framework_id="names", info=info, active=False))
    for _ in range(5):
        master.tick(LOOK)

    def note(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event == "call"

    former = sys.getprofile()
    sys.setprofile(note)
    try:
        master.tick(LOOK)
    finally:
        sys.setprofile(former)
    return count


def entitlements_after(seed: int, changes: int = 150) -> list[dict[str, object]]:
    """Return all users' entitlements and use after each change of a random history."""
    lot, clients = Random(seed), dict[Client, UserNode[Client]]()
    policy = policies.create(lot.choice(["sdrf", "stsf"]), {"half_life": 60.0})
    users = UserTree[Client](UserSettings(policy, tree=True, exact_ties=False, counts_for=TIMES), 0)
    users.set_capacity(Quantities.parse("cpus:100;mem:100"))
    names, after = ["a", "b", "c", "a/x", "a/y", "b/x/y", "b/x/z"], list[dict[str, object]]()
    for number in range(changes):
        name, client = lot.choice(names), lot.choice([*clients, Client("", f"{number}")])
        amount = Quantities({lot.choice(["cpus", "mem"]): lot.randrange(1, 30_000)})
        match lot.randrange(11):
            case 0 | 1 | 2 if client not in clients:
                clients[client] = users.get(name)
                users.add(clients[client], client)
                users.allocate(clients[client], client, amount)
            case 3 if client in clients:
                user = clients.pop(client)
                users.release(user, client, user.clients.held(client))
                users.remove(user, client)
            case 4:
                users.set_weights({name: lot.choice([1.0, 2.0, 5.0])})
            case 5 if name in users:
                users.order_weight(name, lot.choice([None, 3.0]))
            case 6 if name in users:
                users.order_weight(name, 7.0, lot.choice([5.0, 20.0]))
            case 7:
                users.set_capacity(Quantities.parse(lot.choice(["cpus:80", "cpus:100;mem:90"])))
            case 8:
                users.advance(users.now + lot.choice([1.0, 30.0, 100_000.0]))
                users.forget_idle()
            case 9 if name in users:
                users.set_commitments(name, {}, 0.1)
            case _:
                users.advance(users.now + LOOK)
                users.look(None)
        users.update_entitlements()
        entitled = {
            f"{pool.users()} {user}": (pool.entitlement(user), pool.entitlements(user))
            for pool in users.pools()
            for user in pool.users()
        }
        counted = {f"{pool.users()}": dict(pool.counted) for pool in users.pools()}
        after.append({**entitled, **counted})
    return after


@pytest.mark.interpreted
@pytest.mark.parametrize("seed", range(12))
def test_pools_have_the_same_entitlements_whether_or_not_they_are_counted_again(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = entitlements_after(seed)
    monkeypatch.setattr(Pool, "must_count", True)
    assert entitlements_after(seed) == after


def test_a_look_calls_no_functions_for_users_without_use() -> None:
    assert calls_of_a_look(200) == pytest.approx(calls_of_a_look(20), abs=20)


WEIGHTS = [contract.Weight(role=role, weight=2.0) for role in "ab"]


def with_idle_weighted_role(*, keeps: bool) -> MasterSide:
    """Return a cluster that a fills; b has a weight of the master, but no framework any more."""
    master = holding(
        "cpus:1000;mem:1000",
        {"a": 1000, "b": 0},
        forgets_subtrees=True,
        keeps_weighted_users=keeps,
        limits=Limits(idle_users=100),
    )
    master.send(contract.UpdateWeights(weights=WEIGHTS))
    master.send(contract.RemoveFramework(framework_id="f-b"))
    master.tick(LOOK)
    master.tick(LOOK)
    assert entitled(master, "a") == 0.5
    return master


@pytest.mark.parametrize("keeps", [True, False], ids=["present rule", "former event logs"])
def test_invented_roles_do_not_make_the_service_forget_a_role_with_a_weight_of_the_master(
    *, keeps: bool
) -> None:
    master = with_idle_weighted_role(keeps=keeps)
    master.add_framework("evil", *(f"x{number}" for number in range(200)), active=False)
    master.send(contract.RemoveFramework(framework_id="evil"))
    master.tick(LOOK)
    master.tick(LOOK)
    assert len(master.engine.standings()) <= 102
    assert entitled(master, "a") == (0.5 if keeps else 1.0)


@pytest.mark.parametrize("restart", [False, True], ids=["snapshot", "restart"])
@pytest.mark.parametrize("keeps", [True, False], ids=["present rule", "former event logs"])
def test_a_role_with_a_weight_of_the_master_outlives_a_snapshot_and_a_restart(
    *, keeps: bool, restart: bool
) -> None:
    master = with_idle_weighted_role(keeps=keeps)
    if restart:
        memory = master.engine.memory()
        users = {name: user for name, user in memory.users.items() if name != "b"}
        memory = codec.decode(codec.encode(replace(memory, users=users)))
        master.engine = Engine(master.settings, memory=memory)
    info = framework_info("f-a", "a")
    master.restore(
        contract.Snapshot(
            sequence=master.sequence,
            time_ns=master.now_ns,
            weights=WEIGHTS,
            agents=[running("s1", "cpus:1000;mem:1000", {"f-a": resources("cpus:1000", "a")})],
            frameworks=[contract.AddFramework(framework_id="f-a", info=info)],
        )
    )
    master.tick(LOOK)
    assert entitled(master, "a") == (0.5 if keeps else 1.0)
    master.add_framework("evil", *(f"x{number}" for number in range(200)), active=False)
    master.send(contract.RemoveFramework(framework_id="evil"))
    master.tick(LOOK)
    master.tick(LOOK)
    assert entitled(master, "a") == (0.5 if keeps else 1.0)


@pytest.mark.parametrize("role", ["ops", "ops/x"])
@pytest.mark.parametrize("weighted", ["ops", "ops/x"])
@pytest.mark.parametrize("first", [True, False], ids=["weight first", "framework first"])
def test_a_framework_of_one_second_changes_nothing_for_other_roles_whatever_the_weights(
    role: str, weighted: str, *, first: bool
) -> None:
    weights = contract.UpdateWeights(weights=[contract.Weight(role=weighted, weight=5.0)])
    entitlements = []
    for tenant in (True, False):
        master = holding("cpus:1000;mem:1000", {"a": 600}, keeps_weighted_users=True)
        if first:
            master.send(weights)
        if tenant:
            master.add_framework("evil", role, active=False)
            master.tick(1.0)
            master.send(contract.RemoveFramework(framework_id="evil"))
        master.send(weights)
        master.tick(LOOK)
        master.tick(LOOK)
        entitlements.append(entitled(master, "a"))
    total = 6.0 if weighted == "ops" else 2.0
    assert entitlements == pytest.approx([1.0 / total] * 2)


def test_in_former_event_logs_a_role_with_a_weight_counts_once_a_framework_has_had_it() -> None:
    master = holding("cpus:1000;mem:1000", {"a": 600})
    master.send(
        contract.UpdateWeights(weights=[contract.Weight(role=role, weight=5.0) for role in "bc"])
    )
    master.tick(LOOK)
    assert entitled(master, "a") == 1.0
    master.add_framework("evil", "b", active=False)
    master.send(contract.RemoveFramework(framework_id="evil"))
    master.tick(LOOK)
    assert entitled(master, "a") == pytest.approx(1.0 / 6.0)


def test_a_role_with_a_weight_of_the_master_is_known_until_the_weight_is_one() -> None:
    master = with_idle_weighted_role(keeps=True)
    for _ in range(13):
        master.tick(7200.0)
    assert entitled(master, "a") == 0.5
    with pytest.raises(InvalidOrder, match="set it to 1"):
        master.engine.order(operator.Order(forget_users=operator.ForgetUsers(users=["b"])))
    master.send(contract.UpdateWeights(weights=[contract.Weight(role="b", weight=1.0)]))
    master.tick(LOOK)
    assert entitled(master, "a") == 1.0
    for _ in range(13):
        master.tick(7200.0)
    assert master.engine.standing("b") is None


@pytest.mark.parametrize("unnames", [True, False], ids=["present rule", "former event logs"])
def test_forgetting_a_role_with_a_weight_of_an_operator_leaves_no_role_above_it_named(
    *, unnames: bool
) -> None:
    master = holding("cpus:1000", {"a": 500, "b/x/y": 0}, forgetting_unnames_parents=unnames)
    order = operator.SetWeight(user="b/x/y", weight=3.0)
    master.engine.order(operator.Order(set_weight=order))
    master.tick(LOOK)
    master.tick(LOOK)
    assert entitled(master, "a") == 0.5
    master.send(contract.RemoveFramework(framework_id="f-b/x/y"))
    forget = operator.ForgetUsers(users=["b/x/y"])
    master.engine.order(operator.Order(forget_users=forget))
    master.tick(LOOK)
    master.tick(LOOK)
    assert entitled(master, "a") == (1.0 if unnames else 0.5)


@pytest.mark.parametrize("keeps", [True, False], ids=["present rule", "former event logs"])
def test_the_mean_use_of_a_roles_own_frameworks_outlives_a_snapshot_without_them(
    *, keeps: bool
) -> None:
    master = holding("cpus:1000", {"r": 400, "r/x": 400}, leaf_keeps_use=keeps)
    for _ in range(100):
        master.tick(60.0)
    before = master.engine.standing("r/x")
    assert before is not None
    info = framework_info("f-r/x", "r/x")
    master.restore(
        contract.Snapshot(
            sequence=master.sequence,
            time_ns=master.now_ns,
            agents=[running("s1", "cpus:1000", {"f-r/x": resources("cpus:400", "r/x")})],
            frameworks=[contract.AddFramework(framework_id="f-r/x", info=info)],
        )
    )
    after = master.engine.standing("r/x")
    assert after is not None
    unchanged = after.entitlement == pytest.approx(before.entitlement, rel=0.1)
    assert unchanged is keeps
    assert (master.engine.standing("r/.") is not None) is keeps


def test_roles_with_weights_that_no_framework_can_have_or_beyond_the_limit_are_unknown() -> None:
    limits = Limits(idle_users=3, role_depth=2)
    master = holding("cpus:1000", {"a": 1000}, keeps_weighted_users=True, limits=limits)
    impossible = ("/x", "x/", "a/.", "x//y", "x/y/z")
    allowed = ("b", "c/d", "e", "f", "g/h")
    master.send(
        contract.UpdateWeights(
            weights=[contract.Weight(role=role, weight=2.0) for role in (*impossible, *allowed)]
        )
    )
    master.tick(LOOK)
    master.tick(LOOK)
    names = {standing.user for standing in master.engine.standings()}
    assert names == {"a", "b", "c", "c/d", "e"}
    before = entitled(master, "a")
    master.add_framework("evil", "f", active=False)
    master.send(contract.RemoveFramework(framework_id="evil"))
    master.tick(LOOK)
    assert entitled(master, "a") == before
