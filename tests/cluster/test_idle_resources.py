"""Idle resources and idle names give a user no advantage under any policy."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from allocator.cluster.engine import Engine
from allocator.contract import allocator_pb2 as contract
from allocator.fairness.quantities import Quantities
from allocator.service.record.event_log import EventLog, LoggedEngine, read
from allocator.service.record.replay import replay
from allocator.users.pools import LOOK
from tests.cluster.master_side import (
    MasterSide,
    Offered,
    agent_call,
    framework_info,
    resources,
)

HONEST = ("a", "b", "c", "d", "e")
DEMANDS = {
    **{f"f-{role} of the tests": Quantities.parse("cpus:1") for role in HONEST},
    "f-evil of the tests": Quantities.parse("cpus:1;disk:5"),
}
"""Resources of a task, by name of the framework."""
RULES = ("compares_by_resource", "newcomers_by_use")
GUARANTEES: dict[str, dict[str, object]] = {
    "karma": {"alpha": 0.5},
    "dynamic-drf": {"alpha": 0.5},
    "dynamic-mmf": {"alpha": 0.5},
    "yarn-fair": {"resource": "cpus", "minimum": 0.5},
}


def new_master(
    policy: str,
    parameters: dict[str, object],
    log: EventLog | None = None,
    *,
    present: bool,
) -> MasterSide:
    """Return the side of a master whose users count by their use, with the present or former rules.

    Args:
        policy: The policy.
        parameters: Its parameters.
        log: The event log to write; None: none.
        present: Whether the present rules hold.
    """
    master = MasterSide(policy, parameters)
    master.settings = replace(
        master.settings,
        counts_for=4.0,
        keeps_accumulated_use=True,
        demands=DEMANDS if policy == "stsf" else {},
        compares_by_resource=present,
        newcomers_by_use=present,
    )
    master.options.tells_running = True
    master.engine = Engine(master.settings) if log is None else LoggedEngine(master.settings, log)
    master.restore(contract.Snapshot(time_ns=master.now_ns))
    return master


def run(master: MasterSide, agent: str, total: str, held: dict[str, str]) -> list[Offered]:
    """Add an agent on which tasks run; return the offers of what is free."""
    used = {f"f-{role}": resources(text, role) for role, text in held.items()}
    call = agent_call(agent, total, used)
    call.running.extend(call.used)
    return master.send(call)


def offered_after_the_disk_trick(master: MasterSide) -> list[str]:
    """Let `evil` hold most CPUs, and the disk; return the users with offers of new CPUs."""
    held = dict.fromkeys(HONEST, "cpus:100") | {"evil": "cpus:250;disk:400"}
    for role in held:
        master.add_framework(f"f-{role}", role, active=role in {"a", "evil"})
    run(master, "s1", "cpus:750;disk:900", held)
    for _ in range(3):
        master.tick(LOOK)
    standing = master.engine.standing("evil")
    assert standing is not None
    assert standing.entitlement == 1.0, "nobody else uses disk"
    return [offer.role for offer in run(master, "s2", "cpus:50", {})]


@pytest.mark.parametrize("policy", GUARANTEES)
@pytest.mark.parametrize("present", [True, False], ids=["present rule", "former event logs"])
def test_disk_that_nobody_else_uses_brings_no_cpus(policy: str, *, present: bool) -> None:
    master = new_master(policy, GUARANTEES[policy], present=present)
    assert offered_after_the_disk_trick(master) == ["a" if present else "evil"]


@pytest.mark.parametrize("present", [True, False], ids=["present rule", "former event logs"])
def test_disk_that_nobody_else_uses_saves_no_commitments_under_stsf(*, present: bool) -> None:
    master = new_master("stsf", {"half_life": 600.0}, present=present)
    for role in (*HONEST, "evil"):
        master.add_framework(f"f-{role}", role, active=False)
    held = dict.fromkeys(HONEST, "cpus:100") | {"evil": "cpus:250;disk:1250"}
    run(master, "s1", "cpus:1000;disk:4000", held)
    for _ in range(200):
        master.tick(LOOK)
    standing = master.engine.standing("evil")
    assert standing is not None
    # 800 tasks fit, and the user runs 250. A sixth of the CPUs would be 1,000 / 6 tasks.
    over_use = (250 - 1000 / 6) / 800 if present else 0.0
    assert standing.overuse["tasks"] == pytest.approx(over_use)
    assert (standing.commitments["tasks"] > 0.04) is present


def with_idle_names(master: MasterSide, names: int) -> float:
    """Return a new user's accumulated use as a fraction of a busy user's, besides idle names."""
    for number in range(0, names, 250):
        roles = [f"n{name}" for name in range(number, number + 250)]
        master.send(
            contract.AddFramework(
                framework_id=f"names{number}",
                info=framework_info(f"names{number}", *roles),
                active=False,
            )
        )
    for role in "ab":
        master.add_framework(f"f-{role}", role, active=False)
    run(master, "s1", "cpus:1000", dict.fromkeys("ab", "cpus:500"))
    for _ in range(40):
        master.tick(LOOK)
    master.add_framework("f-new", "new", active=False)
    return new_users_lead(master, "new")


def new_users_lead(master: MasterSide, user: str) -> float:
    """Return how much accumulated use a new user has, as a fraction of a busy user's."""
    new, busy = (master.engine.path(name)[-1].pool for name in (user, "a"))
    return new.accumulated_use(user) / busy.accumulated_use("a")


@pytest.mark.parametrize("names", [0, 250, 500])
def test_idle_names_give_a_new_user_no_credits(names: int) -> None:
    master = new_master("karma", {}, present=True)
    assert with_idle_names(master, names) == pytest.approx(1.0)
    snapshot = contract.Snapshot(time_ns=master.now_ns, sequence=master.sequence)
    for role in ("a", "b", "newer"):
        snapshot.frameworks.add(
            framework_id=f"f-{role}", info=framework_info(f"f-{role}", role), active=False
        )
    used = {f"f-{role}": resources("cpus:500", role) for role in "ab"}
    call = agent_call("s1", "cpus:1000", used)
    call.running.extend(call.used)
    snapshot.agents.append(call)
    for memory in (None, master.engine.memory()):
        if memory is not None:
            master.engine = Engine(master.settings, memory=memory)
        master.restore(snapshot)
        assert new_users_lead(master, "newer") == pytest.approx(1.0)


def test_under_former_event_logs_idle_names_give_a_new_user_credits() -> None:
    master = new_master("karma", {}, present=False)
    assert with_idle_names(master, 250) < 0.01


@pytest.mark.parametrize("policy", GUARANTEES)
@pytest.mark.parametrize("present", [True, False], ids=["present rule", "former event logs"])
def test_an_event_log_replays_with_its_own_rule(
    policy: str, tmp_path: Path, *, present: bool
) -> None:
    path = tmp_path / "events.log"
    with closing(EventLog(path)) as log:
        master = new_master(policy, GUARANTEES[policy], log=log, present=present)
        assert offered_after_the_disk_trick(master) == ["a" if present else "evil"]
        master.add_framework("f-new", "new", active=False)
        master.tick(LOOK)
    header = next(read(path)).header.settings
    for rule in RULES:
        assert (f'"{rule}": true'.encode() in header) is present
    replayed = replay(path)
    assert (replayed.difference, replayed.left_out) == (None, 0)
