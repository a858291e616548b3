"""Accumulated use of karma and the dynamic policies outlives snapshots and restarts."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.engine import Engine
from allocator.contract import allocator_pb2 as contract
from allocator.contract import operator_pb2 as operator
from allocator.cooperative import run_to_completion
from allocator.service.record.event_log import EventLog, LoggedEngine, read
from allocator.service.record.replay import replay
from allocator.service.store import codec
from allocator.service.store.rows import StoreRows, decode_memory
from allocator.users.memory import Memory
from tests.cluster.master_side import MasterSide, agent_call, framework_info, resources
from tests.examples import examples

CPUS = 16
POLICIES = ["karma", "dynamic-drf", "dynamic-mmf"]
ROLES = ["a", "b", "c", "d/x", "d/y"]
"""Roles whose frameworks come and go."""


class Cluster:
    """Master with one agent, and its CPUs by role."""

    def __init__(
        self, policy: str, parameters: dict[str, object] | None = None, **changes: object
    ) -> None:
        self.master = MasterSide(policy, parameters)
        changes = {"keeps_accumulated_use": True, **changes}
        self.master.settings = replace(self.master.settings, **changes)  # type: ignore[arg-type]
        self.begin(Engine(self.master.settings))
        self.held: dict[str, int] = {}
        self.present: set[str] = set()
        self.join("d")

    def begin(self, engine: Engine) -> None:
        self.master.engine, self.master.sequence = engine, 0
        self.master.restore(contract.Snapshot(time_ns=self.master.now_ns))

    def join(self, role: str) -> None:
        if role not in self.present:
            self.present.add(role)
            self.master.add_framework(f"f-{role}", role, active=False)

    def leave(self, role: str) -> None:
        if role in self.present:
            self.hold(role, 0)
            self.present.discard(role)
            self.master.send(contract.RemoveFramework(framework_id=f"f-{role}"))

    def hold(self, role: str, cpus: int) -> None:
        """Let a role hold CPUs, as many as are free at most."""
        self.join(role)
        elsewhere = sum(self.held.values()) - self.held.get(role, 0)
        self.held[role] = min(cpus, CPUS - elsewhere)
        if self.master.engine.agents:
            self.master.remove_agent("s")
        self.master.send(self.agent())

    def agent(self) -> contract.AddAgent:
        used = {f"f-{role}": resources(f"cpus:{n}", role) for role, n in self.held.items() if n}
        return agent_call("s", f"cpus:{CPUS};mem:1024", used)

    def snapshot(self, *newcomers: str) -> contract.Snapshot:
        master = self.master
        snapshot = contract.Snapshot(time_ns=master.now_ns, sequence=master.sequence)
        for role in (*sorted(self.present), *newcomers):
            info = framework_info(f"f-{role}", role)
            snapshot.frameworks.add(framework_id=f"f-{role}", info=info, active=False)
        snapshot.agents.append(self.agent())
        return snapshot

    def resync(self) -> None:
        self.master.restore(self.snapshot())

    def restart(self, kept: Memory) -> None:
        self.master.engine = Engine(self.master.settings, memory=kept)
        self.master.restore(self.snapshot())

    def priorities(self) -> dict[str, float]:
        """Return the users in order, with their priorities."""
        return {row.user: row.priority for row in self.master.engine.standings()}


def by_text(engine: Engine) -> Memory:
    return codec.decode(codec.encode(engine.memory()))


def by_rows(engine: Engine) -> Memory:
    rows = StoreRows()
    run_to_completion(rows.take(engine.changes()))
    return decode_memory(rows.head(), rows.all())


SUCCESSIONS: dict[str, Callable[[Cluster], None]] = {
    "resync": Cluster.resync,
    "restart from text": lambda cluster: cluster.restart(by_text(cluster.master.engine)),
    "restart from rows": lambda cluster: cluster.restart(by_rows(cluster.master.engine)),
    "two restarts": lambda cluster: cluster.restart(
        by_rows(Engine(cluster.master.settings, memory=by_rows(cluster.master.engine)))
    ),
}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["hold", "hold", "leave", "weigh"]),
        st.sampled_from(ROLES),
        st.integers(0, CPUS),
        st.integers(0, 1000),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("succession", SUCCESSIONS)
@pytest.mark.parametrize("policy", POLICIES)
@given(steps=STEPS)
@examples(25)
def test_a_successor_ranks_users_in_the_same_order(
    policy: str, succession: str, steps: list[tuple[str, str, int, int]]
) -> None:
    cluster = Cluster(policy)
    for action, role, number, seconds in steps:
        match action:
            case "hold":
                cluster.hold(role, number)
            case "leave":
                cluster.leave(role)
            case "weigh" if role in cluster.master.engine.users():
                order = operator.SetWeight(user=role, weight=1.0 + number)
                cluster.master.engine.order(operator.Order(set_weight=order))
        cluster.master.tick(float(seconds))
    before = cluster.priorities()
    SUCCESSIONS[succession](cluster)
    assert cluster.priorities() == pytest.approx(before)
    assert list(cluster.priorities()) == list(before)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("succession", ["resync", "restart"])
def test_resources_held_before_and_after_count_as_held_in_between(
    policy: str, succession: str
) -> None:
    cluster = Cluster(policy, {"alpha": 0.0})
    cluster.hold("a", 4)
    cluster.hold("b", 8)
    cluster.master.tick(100.0)
    kept = by_rows(cluster.master.engine)
    cluster.hold("b", 2)
    cluster.master.wait(100.0)
    if succession == "resync":
        cluster.resync()
    else:
        cluster.restart(kept)
    after = cluster.priorities()
    assert after["a"] == pytest.approx(200.0 * 4 / CPUS)
    assert after["b"] == pytest.approx(100.0 * 8 / CPUS + 100.0 * 2 / CPUS)


@pytest.mark.parametrize(("policy", "begins"), [("karma", 25.0 / 3.0), ("dynamic-drf", 0.0)])
def test_a_user_that_a_snapshot_brings_begins_as_a_new_user(policy: str, begins: float) -> None:
    cluster = Cluster(policy, {"alpha": 0.0})
    cluster.hold("a", 4)
    cluster.join("b")
    cluster.master.tick(100.0)
    cluster.master.restore(cluster.snapshot("c"))
    assert cluster.priorities()["c"] == pytest.approx(begins)


def test_the_virtual_leaf_of_a_role_that_is_absent_keeps_its_accumulated_use() -> None:
    cluster = Cluster("dynamic-drf")
    cluster.hold("d", 4)
    cluster.join("d/x")
    cluster.hold("d", 8)
    cluster.master.tick(100.0)
    before = cluster.priorities()["d/."]
    assert before > 0.0
    cluster.leave("d")
    for _ in range(2):
        cluster.resync()
        cluster.master.tick(1.0)
    assert "d/." not in cluster.priorities()
    cluster.restart(by_rows(cluster.master.engine))
    cluster.join("d")
    assert cluster.master.engine.path("d/.")[-1].pool.accumulated_use("d/.") == before


@pytest.mark.parametrize("policy", POLICIES)
def test_a_user_does_not_get_rid_of_its_accumulated_use_by_staying_away(policy: str) -> None:
    cluster = Cluster(policy, forget_after=1000.0)
    for role in ROLES:
        cluster.join(role)
    cluster.hold("a", 8)
    cluster.master.tick(100.0)
    for role in ("a", "b"):
        cluster.leave(role)
    before = cluster.priorities()["a"]
    for _ in range(5):
        cluster.master.tick(500.0)
    assert "b" not in cluster.priorities(), "a user without use is forgotten"
    cluster.join("a")
    assert cluster.priorities()["a"] == pytest.approx(before)


def test_accumulated_use_is_not_stored_under_other_policies() -> None:
    cluster = Cluster("sdrf", {"half_life": 60.0})
    cluster.hold("a", 8)
    cluster.master.tick(100.0)
    assert not any(any(user.accumulated) for user in by_rows(cluster.master.engine).users.values())


@pytest.mark.parametrize("keeps", [True, False])
def test_an_event_log_replays_with_its_own_rule(tmp_path: Path, *, keeps: bool) -> None:
    cluster, path = Cluster("karma", keeps_accumulated_use=keeps), tmp_path / "events.log"
    cluster.present.clear()
    with closing(EventLog(path)) as event_log:
        cluster.begin(LoggedEngine(cluster.master.settings, event_log))
        cluster.join("b")
        cluster.hold("a", 8)
        cluster.master.tick(100.0)
        cluster.hold("a", 0)
        for _ in range(2):
            cluster.resync()
            cluster.master.tick(1.0)
    priorities = cluster.priorities()
    assert (priorities["a"] > priorities["b"]) is keeps, "the former rule begins at zero"
    assert (b'"keeps_accumulated_use": true' in next(read(path)).header.settings) is keeps
    replayed = replay(path)
    assert (replayed.difference, replayed.left_out) == (None, 0)
