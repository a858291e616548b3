"""Agents register and leave, and the allocator can restart at any time."""

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from frameworks.local_mesos import scheduler_pb2 as v1
from tests.frameworks.local_mesos.peers import START_NS, Book, Cluster


def test_an_agent_introduces_itself_with_all_that_a_recent_mesos_agent_can() -> None:
    cluster = Cluster(resources="cpus:4;mem(eng):64;ports:[1-9]")
    call = cluster.book.last("add_agent").add_agent
    info = mesos.SlaveInfo.FromString(call.info)
    assert (info.id.value, info.hostname, info.port) == (cluster.agents[0].id, "agent-0", 5051)
    assert set(call.capabilities) == {1, 2, 3, 4, 5, 6}
    assert sorted(call.total) == sorted(
        r.SerializeToString(deterministic=True) for r in info.resources
    )


def test_a_lost_agent_ends_its_tasks_executors_and_offers_and_frameworks_are_notified() -> None:
    cluster = Cluster(agents=2)
    holder, waiter = cluster.subscribe(), cluster.subscribe()
    cluster.run(holder, cluster.task("t1"), cluster.task("t2", executor="e"))
    cluster.accept(holder, [cluster.offer(holder, agent=1)], cluster.task("far", agent=1))
    offer = cluster.offer(waiter)
    before = cluster.book.sequence
    cluster.master.remove_agent(cluster.agents[0].id)
    assert cluster.book.kinds(since=before)[0] == "remove_agent"
    lost = [u for u in holder.updates if u.state == v1.TASK_LOST]
    assert [u.task_id.value for u in lost] == ["t1", "t2"]
    assert {u.reason for u in lost} == {v1.TaskStatus.REASON_AGENT_REMOVED}
    assert [e.rescind.offer_id for e in waiter.of(v1.Event.RESCIND)] == [offer.id]
    for scheduler in (holder, waiter):
        [event] = scheduler.of(v1.Event.FAILURE)
        assert event.failure.agent_id.value == cluster.agents[0].id
        assert not event.failure.HasField("executor_id")
    assert list(cluster.framework(holder).tasks) == ["far"]
    assert not cluster.framework(holder).executors
    cluster.advance(3600)
    assert not [u for u in holder.updates if u.task_id.value == "t1"][2:]


def test_a_snapshot_contains_the_effects_of_all_earlier_calls() -> None:
    cluster = Cluster(agents=3, resources="cpus:4;mem(eng):6144;ports:[1-9]")
    busy = cluster.subscribe(roles=["eng"])
    away = cluster.subscribe(role="eng", failover_timeout=100)
    quiet = cluster.subscribe(roles=["a", "b"])
    cluster.call(quiet, v1.Call.SUPPRESS, suppress=v1.Call.Roles(roles=["a"]))
    cluster.run(busy, cluster.task("t1", resources="cpus:1;ports:[3-4]"))
    cluster.accept(
        away,
        [cluster.offer(away, agent=1)],
        cluster.task("t2", resources="mem(eng):64", agent=1, executor="e"),
    )
    cluster.offer(busy, "cpus:1;mem(eng):32", agent=1)
    cluster.master.disconnected(away.framework_id, away)
    cluster.master.disconnect_agent(cluster.agents[2].id)
    restored = Book()
    restored.restore(contract.Snapshot.FromString(cluster.master.snapshot().SerializeToString()))
    assert restored.summary() == cluster.book.summary()


def test_ticks_come_once_per_interval_of_the_master_s_time() -> None:
    cluster = Cluster()
    cluster.advance(2.5)
    cluster.advance(0.5)
    assert [tick - START_NS for tick in cluster.book.ticks] == [10**9, 2 * 10**9, 3 * 10**9]
