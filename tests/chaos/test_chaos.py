"""The schedule of chaos is reproducible, and its checkers detect violations."""

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, get_args

import grpc
import pytest

from allocator.contract import admin_pb2 as admin
from allocator.contract import allocator_pb2 as contract
from allocator.contract.admin_pb2_grpc import AdminStub
from tests.chaos.frameworks import HABITS, Constrained, Framework
from tests.chaos.recorded import Life, follow
from tests.chaos.script import Kind, drawn
from tests.chaos.watcher import STARVING, Watcher
from tests.cluster.master_side import agent_call, framework_info
from tests.mesos.cluster import PAPERS_FORM, SDRF
from tests.service.served import Stream, service


def test_a_seed_reproduces_its_schedule_in_which_all_kinds_are_equally_frequent() -> None:
    script = drawn(7, 195.0, 40, HABITS)
    assert script == drawn(7, 195.0, 40, HABITS) != drawn(8, 195.0, 40, HABITS)
    assert Counter(happening.kind for happening in script[:18]) == dict.fromkeys(get_args(Kind), 2)


def state(tasks: list[int], offered: int = 0) -> dict[str, Any]:
    """Return two agents with two cores each: tasks and an optional offer on the first."""
    full = {"cpus": 2.0, "mem": 256.0}
    return {
        "slaves": [
            {"id": f"a{n}", "hostname": f"agent-{n}", "active": True, "resources": full}
            for n in (0, 50)
        ],
        "frameworks": [
            {
                "name": "greedy",
                "used_resources": {"cpus": float(sum(tasks))},
                "tasks": [
                    {"slave_id": "a0", "state": state, "resources": {"cpus": n, "mem": 32}}
                    for n in tasks
                    for state in ("TASK_RUNNING", "TASK_FINISHED")
                ],
                "offers": [{"slave_id": "a0", "resources": {"cpus": offered, "mem": 32}}],
            }
        ],
    }


def wanting(kind: type[Framework], monkeypatch: pytest.MonkeyPatch) -> Framework:
    monkeypatch.setattr(kind, "wants", True)
    return kind("", Random(1), 1.0, lambda _habit: None)


def test_resources_allocated_twice_are_detected() -> None:
    watcher = Watcher()
    watcher.look(state([1], offered=1), [], 1.0)
    assert watcher.wrong == []
    watcher.look(state([1, 1], offered=1), [], 1.0)
    assert "3 cpus are booked of agent-0, which has 2" in watcher.wrong[0]


@pytest.mark.parametrize(
    ("kind", "guarantees", "starves"),
    [(Framework, {}, True), (Constrained, {}, False), (Framework, {"bursty": 1.0}, False)],
)
def test_a_framework_that_could_run_and_gets_no_offer_starves(
    kind: type[Framework],
    guarantees: dict[str, float],
    *,
    starves: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watcher, framework = Watcher(guarantees=guarantees), wanting(kind, monkeypatch)
    for _ in range(2):
        watcher.look(state([2]), [framework], STARVING * 0.6)
    assert bool(watcher.wrong) == starves, (
        "only agent-50 has free resources, or they are kept free for a quota"
    )


def test_an_offer_resets_the_starvation_time(monkeypatch: pytest.MonkeyPatch) -> None:
    watcher, framework = Watcher(), wanting(Framework, monkeypatch)
    for _ in range(2):
        watcher.look(state([2]), [framework], STARVING * 0.6)
        watcher.offered(framework.habit)
    assert watcher.wrong == []


def newcomer(name: str, role: str) -> contract.AddFramework:
    info = framework_info(name, role)
    return contract.AddFramework(framework_id=name, info=info, active=True)


@pytest.fixture(name="life")
def _life(tmp_path: Path) -> Life:
    """A run of a service with offers to users, and with queries about users."""
    record = tmp_path / "events.log"
    life = Life(0, record)
    with service(tmp_path, SDRF + PAPERS_FORM, arguments=[f"--record={record}"]) as real:
        stream = Stream(real.address)
        stream.open(
            agents=[agent_call("a1", "cpus:4;mem:64"), agent_call("a2", "cpus:4;mem:64")],
            frameworks=[newcomer("f1", "greedy"), newcomer("f2", "bursty")],
        )
        with grpc.insecure_channel(real.address) as channel:
            for _ in range(2):
                stream.now_ns += 10**9
                stream.tell(tick=contract.Tick())
                life.shares.append(AdminStub(channel).Shares(admin.SharesRequest()))
        stream.now_ns += 10**9
        stream.tell(tick=contract.Tick())
        stream.close()
        real.stop()
    return life


def test_valid_records_and_replies_pass_the_checks(life: Life) -> None:
    followed = follow([life])
    assert followed.wrong == []
    assert followed.entries == 4
    assert followed.offers == 2
    assert followed.compared == 2


def test_a_share_that_contradicts_the_record_is_detected(life: Life) -> None:
    life.shares[1].users[0].shares["cpus"] += 0.001
    assert "share of" in follow([life]).wrong[0]
    life.shares[1].meanwhile = 1
    assert follow([life]).wrong == [], "a reply about several instants is not compared with a twin"
