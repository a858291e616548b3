"""Names that use nothing, or little, dilute the entitlement of others by no more than that."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from allocator.cluster.engine import Engine
from allocator.cluster.settings import DeclaredUser
from allocator.cluster.users.levels import LOOK
from allocator.contract import allocator_pb2 as contract
from allocator.contract import operator_pb2 as operator
from tests.cluster.master_side import MasterSide, agent_call, framework_info, resources

HALF_LIFE = 3600.0
NAMES = 250
STEP = 30.0
HOURS = 12
TIMES = 4.0


def made(counts_for: float | None = TIMES, *, declared: bool = True) -> MasterSide:
    """Return a cluster of which a and b hold 44 and 55 %; c uses nothing."""
    users = (DeclaredUser("c"),) if declared else ()
    master = MasterSide("sdrf", {"half_life": HALF_LIFE}, users=users)
    master.settings = replace(master.settings, counts_for=counts_for)
    master.options.tells_running = True
    master.engine = Engine(master.settings)
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    for user in "ab":
        master.add_framework(f"f-{user}", user, active=False)
    held = {"f-a": resources("cpus:440", "a"), "f-b": resources("cpus:550", "b")}
    master.send(running("s1", "cpus:1000;mem:1000", held))
    master.tick(LOOK)
    return master


def running(agent: str, total: str, used: dict[str, list[bytes]]) -> contract.AddAgent:
    """Return an agent on which tasks use all that is allocated."""
    call = agent_call(agent, total, used)
    call.running.extend(call.used)
    return call


def entitled(master: MasterSide, user: str) -> float:
    standing = master.engine.standing(user)
    assert standing is not None
    return standing.entitlement


def owed(master: MasterSide, user: str) -> float:
    standing = master.engine.standing(user)
    assert standing is not None
    return standing.commitment


def add_names(master: MasterSide, *, active: bool = True) -> list[str]:
    """Have many roles registered by a few frameworks."""
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


def run_tasks(master: MasterSide, frameworks: list[str], each: str) -> None:
    """Have each name hold something on an agent of its own kind, and so really use it."""
    used = {
        name: [
            entry
            for number in range(250 * index, 250 * index + 250)
            for entry in resources(each, f"n{number}")
        ]
        for index, name in enumerate(frameworks)
    }
    master.send(running("s2", "cpus:10;mem:10", used))


def steps(master: MasterSide) -> Iterator[float]:
    for number in range(round(HOURS * 3600 / STEP)):
        yield number * STEP
        for offer in master.tick(STEP):
            master.recover(offer)  # without a filter, so that it is offered to the next name


def test_the_papers_form_is_what_names_that_are_gone_harm() -> None:
    master = made(None)
    remove(master, add_names(master))
    master.tick()
    assert entitled(master, "a") == pytest.approx(1 / (NAMES + 3))


def test_names_that_are_gone_within_a_minute_dilute_nothing() -> None:
    master = made()
    frameworks = add_names(master)
    for now in steps(master):
        if now == 60.0:
            remove(master, frameworks)
        assert entitled(master, "a") == pytest.approx(1 / 3, rel=0.05)
    assert owed(master, "a") == pytest.approx(0.44 - 1 / 3, abs=0.002)
    assert owed(master, "b") == pytest.approx(0.55 - 1 / 3, abs=0.002)


@pytest.mark.parametrize("active", [True, False])
def test_names_that_stay_and_use_nothing_dilute_nothing(*, active: bool) -> None:
    master = made()
    add_names(master, active=active)
    for _ in steps(master):
        assert entitled(master, "a") == pytest.approx(1 / 3, rel=0.06)
    assert owed(master, "a") == pytest.approx(0.44 - 1 / 3, abs=0.02)


def test_names_that_come_and_go_dilute_nothing() -> None:
    master, frameworks = made(), list[str]()
    for now in steps(master):
        if now % 600.0 == 0.0:
            frameworks = add_names(master)
        elif now % 600.0 == 300.0:
            remove(master, frameworks)
    assert entitled(master, "a") == pytest.approx(1 / 3, rel=0.05)
    assert owed(master, "b") == pytest.approx(0.55 - 1 / 3, abs=0.01)


def test_names_with_a_tiny_task_each_count_for_what_they_use() -> None:
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


def test_sub_roles_dilute_nobody_beside_their_own_role() -> None:
    master = made()
    master.add_framework("d", "d", *(f"d/{number}" for number in range(200)), active=False)
    for _ in range(20):
        master.tick(30.0)
    assert entitled(master, "a") == pytest.approx(1 / 3)


def test_a_user_counts_whole_while_it_uses_a_quarter_of_what_it_is_entitled_to() -> None:
    master = made(declared=False)
    master.add_framework("f-d", "d", active=False)
    master.send(running("s2", "cpus:100;mem:100", {"f-d": resources("cpus:95", "d")}))
    master.tick(30.0)
    assert entitled(master, "a") == pytest.approx(1 / 3)


def test_a_weight_that_an_operator_gives_makes_a_user_count_whole() -> None:
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


def test_what_a_user_has_held_on_average_outlives_a_snapshot() -> None:
    master = made(declared=False)
    master.add_framework("f-d", "d", active=False)
    master.send(running("s2", "cpus:600", {"f-d": resources("cpus:500", "d")}))
    for _ in range(60):
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
