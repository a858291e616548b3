"""Status updates arrive in order, one at a time, until acknowledged, even across broken streams."""

from itertools import pairwise

import pytest

from allocator.contract import mesos_pb2 as mesos
from frameworks.local_mesos import scheduler_pb2 as v1
from tests.frameworks.local_mesos.peers import Cluster, Scheduler


def _sent(scheduler: Scheduler) -> list[bytes]:
    return [status.uuid for status in scheduler.updates]


def test_an_update_names_its_source() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    cluster.run(scheduler, cluster.task("t"))
    [status] = scheduler.updates
    assert (status.task_id.value, status.agent_id.value) == ("t", cluster.agents[0].id)
    assert status.executor_id.value == "t"  # Mesos's own executor is called after its task
    assert status.source == v1.TaskStatus.SOURCE_EXECUTOR
    assert len(status.uuid) == 16
    assert status.timestamp == pytest.approx(cluster.clock.now)
    assert status.container_status.network_infos[0].ip_addresses[0].ip_address == "127.0.0.1"


def test_an_update_is_sent_again_after_10_s_then_after_twice_that_up_to_10_minutes() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    cluster.run(scheduler, cluster.task(command="sleep 1000000"))
    instants = [cluster.clock.now]
    while len(instants) < 10:
        cluster.advance(1)
        instants += [cluster.clock.now] * (len(scheduler.updates) - len(instants))
    waits = [after - before for before, after in pairwise(instants)]
    assert waits == [10, 20, 40, 80, 160, 320, 600, 600, 600]
    assert len(set(_sent(scheduler))) == 1


def test_the_next_update_follows_the_acknowledgement_of_its_predecessor() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    cluster.run(scheduler, cluster.task(command="sleep 1"))
    cluster.advance(5)
    assert scheduler.states == ["STARTING"]
    cluster.acknowledge(scheduler)
    assert scheduler.states == ["STARTING", "RUNNING"]
    cluster.acknowledge(scheduler)
    assert scheduler.states == ["STARTING", "RUNNING", "FINISHED"]
    cluster.acknowledge(scheduler)
    assert not cluster.framework(scheduler).tasks
    cluster.advance(3600)
    assert len(scheduler.updates) == 3


def test_acknowledgements_of_unknown_or_old_updates_are_ignored() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    cluster.run(scheduler, cluster.task())
    first = scheduler.updates[0]
    wrong = v1.TaskStatus()
    wrong.CopyFrom(first)
    wrong.uuid = bytes(16)
    cluster.acknowledge(scheduler, wrong)
    assert scheduler.states == ["STARTING"]
    cluster.acknowledge(scheduler, first)
    cluster.acknowledge(scheduler, first)
    assert scheduler.states == ["STARTING", "RUNNING"]
    elsewhere = v1.TaskStatus()
    elsewhere.CopyFrom(scheduler.updates[1])
    elsewhere.agent_id.value = "S99"
    cluster.acknowledge(scheduler, elsewhere)
    cluster.advance(10)
    assert scheduler.states == ["STARTING", "RUNNING", "RUNNING"]


def test_updates_wait_for_a_disconnected_scheduler_and_arrive_after_its_return() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe(failover_timeout=100)
    cluster.run(scheduler, cluster.task(command="sleep 30"))
    cluster.master.disconnected(scheduler.framework_id, scheduler)
    cluster.advance(60)
    assert scheduler.states == ["STARTING"]
    resubscribed = cluster.subscribe(scheduler.framework_id, failover_timeout=100)
    assert _sent(resubscribed) == _sent(scheduler)
    for _ in range(3):
        cluster.acknowledge(resubscribed)
    assert resubscribed.states == ["STARTING", "RUNNING", "FINISHED"]


def test_resources_come_back_even_while_the_scheduler_is_away() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe(failover_timeout=1000)
    cluster.run(scheduler, cluster.task(command="sleep 30"))
    cluster.acknowledge(scheduler)
    cluster.acknowledge(scheduler)
    cluster.master.disconnected(scheduler.framework_id, scheduler)
    cluster.advance(30)
    agent = cluster.agents[0].id
    assert cluster.book.free(agent) == cluster.book.totals[agent]


def test_a_disconnected_agent_neither_sends_nor_receives_messages() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    cluster.run(scheduler, cluster.task(command="sleep 30"))
    cluster.master.disconnect_agent(cluster.agents[0].id)
    cluster.acknowledge(scheduler)
    cluster.advance(60)
    assert scheduler.states == ["STARTING"]
    assert cluster.book.held[cluster.agents[0].id, scheduler.framework_id]["cpus", (), None] == 1000
    cluster.master.reconnect_agent(cluster.agents[0].id)
    assert scheduler.states == ["STARTING", "STARTING"]
    assert cluster.book.held[cluster.agents[0].id, scheduler.framework_id]["cpus", (), None] == 0
    for _ in range(3):
        cluster.acknowledge(scheduler)
    assert scheduler.states[2:] == ["RUNNING", "FINISHED"]


def test_a_kill_waits_for_a_disconnected_agent() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    cluster.run(scheduler, cluster.task(command="sleep 300"))
    for _ in range(2):
        cluster.acknowledge(scheduler)
    cluster.master.disconnect_agent(cluster.agents[0].id)
    cluster.call(scheduler, v1.Call.KILL, kill=v1.Call.Kill(task_id=v1.TaskID(value="t")))
    assert scheduler.states == ["STARTING", "RUNNING"]
    cluster.master.reconnect_agent(cluster.agents[0].id)
    assert scheduler.states == ["STARTING", "RUNNING", "KILLED"]


def test_killing_is_announced_to_frameworks_that_know_that_state() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe(capabilities=[mesos.FrameworkInfo.Capability.TASK_KILLING_STATE])
    cluster.run(scheduler, cluster.task())
    for _ in range(2):
        cluster.acknowledge(scheduler)
    cluster.call(scheduler, v1.Call.KILL, kill=v1.Call.Kill(task_id=v1.TaskID(value="t")))
    cluster.acknowledge(scheduler)
    assert scheduler.states == ["STARTING", "RUNNING", "KILLING", "KILLED"]


def test_reconciliation_repeats_the_latest_state_sent_to_the_scheduler() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    cluster.run(scheduler, cluster.task("t1"), cluster.task("t2"))
    cluster.acknowledge(scheduler, scheduler.updates[0])
    before = len(scheduler.updates)
    cluster.call(scheduler, v1.Call.RECONCILE, reconcile=v1.Call.Reconcile())
    answers = scheduler.updates[before:]
    assert [(u.task_id.value, u.state) for u in answers] == [
        ("t1", v1.TASK_RUNNING),
        ("t2", v1.TASK_STARTING),
    ]
    assert {u.reason for u in answers} == {v1.TaskStatus.REASON_RECONCILIATION}
    assert {u.source for u in answers} == {v1.TaskStatus.SOURCE_MASTER}
    assert not any(u.HasField("uuid") for u in answers)
    asked = v1.Call.Reconcile()
    asked.tasks.add(task_id=v1.TaskID(value="t2"))
    cluster.call(scheduler, v1.Call.RECONCILE, reconcile=asked)
    assert scheduler.updates[-1].state == v1.TASK_STARTING
