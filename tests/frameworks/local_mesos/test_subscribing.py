"""Schedulers subscribe, fail over, stay away, come back."""

import pytest

from allocator.contract import mesos_pb2 as mesos
from frameworks.local_mesos import scheduler_pb2 as v1
from tests.frameworks.local_mesos.peers import Cluster, Scheduler

Capability = mesos.FrameworkInfo.Capability


def _complaint(scheduler: Scheduler) -> str:
    """Return why a subscription was refused; the stream says nothing else."""
    [event] = scheduler.events
    assert event.type == v1.Event.ERROR
    assert scheduler.closed
    return event.error.message


def test_a_new_scheduler_gets_its_id_and_then_heartbeats() -> None:
    cluster = Cluster()
    cluster.master.address = ("10.1.2.3", 5055)
    scheduler = cluster.subscribe()
    subscribed, beat = scheduler.events
    assert subscribed.type == v1.Event.SUBSCRIBED
    assert subscribed.subscribed.heartbeat_interval_seconds == 15
    info = subscribed.subscribed.master_info
    assert (info.address.ip, info.port, info.version) == ("10.1.2.3", 5055, "1.8.0")
    assert info.ip.to_bytes(4, "little") == bytes([10, 1, 2, 3])
    assert beat.type == v1.Event.HEARTBEAT
    cluster.advance(45)
    assert len(scheduler.of(v1.Event.HEARTBEAT)) == 4
    cluster.master.disconnected(scheduler.framework_id, scheduler)
    assert cluster.book.kinds()[:2] == ["add_agent", "add_framework"]


def test_expected_frameworks_are_awaited_until_they_first_subscribe() -> None:
    cluster = Cluster()
    for name, uptime in (("late", 30.0), ("early", 40.0)):
        cluster.master.expect(name, uptime)
    owed = [cluster.master.answer_due]
    cluster.advance(29)
    early = cluster.subscribe(name="early")
    owed.append(cluster.master.answer_due)
    cluster.advance(1)
    owed.append(cluster.master.answer_due)
    cluster.subscribe(name="another")
    owed.append(cluster.master.answer_due)
    cluster.subscribe(name="late")
    cluster.call(early, v1.Call.TEARDOWN)
    cluster.advance(20)
    owed.append(cluster.master.answer_due)
    assert owed == [False, False, True, True, False]


def test_ids_have_the_format_of_mesos() -> None:
    cluster = Cluster(agents=2)
    scheduler = cluster.subscribe()
    offer = cluster.offer(scheduler)
    master = cluster.master.id
    assert [agent.id for agent in cluster.agents] == [f"{master}-S0", f"{master}-S1"]
    assert scheduler.framework_id == f"{master}-0000"
    assert offer.id.value == f"{master}-O0"


def test_the_allocator_gets_the_framework_info() -> None:
    cluster = Cluster()
    labels = mesos.Labels(labels=[mesos.Label(key="longshare.demand", value="cpus:1")])
    scheduler = cluster.subscribe(roles=["a", "b"], suppressed=["b"], labels=labels)
    info = cluster.book.frameworks[scheduler.framework_id]
    assert info.id.value == scheduler.framework_id
    assert info.labels == labels
    assert cluster.book.active == {scheduler.framework_id}
    assert cluster.book.suppressed[scheduler.framework_id] == {"b"}


def test_a_second_stream_ends_the_first_and_the_framework_stays_active() -> None:
    cluster = Cluster()
    first = cluster.subscribe(failover_timeout=10)
    offer = cluster.offer(first)
    before = cluster.book.sequence
    second = cluster.subscribe(first.framework_id, failover_timeout=10)
    assert first.events[-1].error.message == "Framework failed over"
    assert first.closed
    assert second.framework_id == first.framework_id
    # Filters survive the failover, because the allocator gets no notice of it.
    assert cluster.book.kinds(since=before) == ["update_framework", "recover_resources"]
    assert offer.id.value not in cluster.master.offers
    cluster.master.disconnected(first.framework_id, first)  # the old stream breaks later
    cluster.advance(100)
    assert first.framework_id in cluster.master.frameworks
    assert len(second.of(v1.Event.HEARTBEAT)) == 7


def test_a_framework_with_a_broken_stream_is_deactivated_and_its_offers_are_recovered() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe(failover_timeout=10)
    cluster.offer(scheduler)
    before = cluster.book.sequence
    cluster.master.disconnected(scheduler.framework_id, scheduler)
    assert cluster.book.kinds(since=before) == ["deactivate_framework", "recover_resources"]
    assert not cluster.book.last("recover_resources").recover_resources.HasField("filters")
    before = cluster.book.sequence
    cluster.subscribe(scheduler.framework_id, failover_timeout=10)
    assert cluster.book.kinds(since=before) == ["update_framework", "activate_framework"]


def test_a_framework_that_stays_away_for_longer_than_its_timeout_is_removed() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe(failover_timeout=10)
    cluster.run(scheduler, cluster.task(command="sleep 1000"))
    cluster.master.disconnected(scheduler.framework_id, scheduler)
    cluster.advance(9.9)
    resubscribed = cluster.subscribe(scheduler.framework_id, failover_timeout=10)
    cluster.advance(60)
    assert scheduler.framework_id in cluster.book.frameworks
    cluster.master.disconnected(scheduler.framework_id, resubscribed)
    cluster.advance(10)
    assert not cluster.book.frameworks
    assert cluster.book.free(cluster.agents[0].id) == cluster.book.totals[cluster.agents[0].id]
    assert "removed" in _complaint(cluster.subscribe(scheduler.framework_id))


def test_without_a_timeout_a_broken_stream_is_the_end() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    cluster.master.disconnected(scheduler.framework_id, scheduler)
    cluster.advance(0)
    assert not cluster.master.frameworks


def test_a_framework_of_an_earlier_master_keeps_its_id() -> None:
    cluster = Cluster()
    before = cluster.book.sequence
    scheduler = cluster.subscribe("from-before-0000")
    assert scheduler.framework_id == "from-before-0000"
    assert cluster.book.kinds(since=before) == [
        "add_framework",
        "update_framework",
        "activate_framework",
    ]
    assert not cluster.book.log[1].add_framework.active


def test_an_id_from_an_earlier_master_with_the_same_seed_is_not_assigned_again() -> None:
    cluster = Cluster()
    old = cluster.subscribe(f"{cluster.master.id}-0000")
    new = cluster.subscribe()
    assert new.framework_id != old.framework_id
    assert len(cluster.book.frameworks) == 2


def test_offers_for_a_role_are_rescinded_when_the_framework_leaves_the_role() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe(roles=["a", "b"])
    cluster.offer(scheduler)
    cluster.subscribe(scheduler.framework_id, roles=["b"])
    assert not cluster.master.offers
    assert cluster.book.subscribed(scheduler.framework_id) == {"b"}


def test_immutable_fields_are_kept_when_a_framework_resubscribes_with_changes() -> None:
    cluster = Cluster()
    first = cluster.subscribe(failover_timeout=5, principal="p", checkpoint=True)
    cluster.subscribe(first.framework_id, failover_timeout=7, principal="q", hostname="h")
    info = cluster.framework(first).info
    assert (info.principal, info.checkpoint) == ("p", True)
    assert (info.failover_timeout, info.hostname) == (7, "h")


@pytest.mark.parametrize(
    "role",
    ["", "/a", "a/", "a//b", "a/./b", "..", "a/*", "-a", "a/-b", "a b", "a\tb", "a\x7f"],
)
def test_a_role_that_mesos_refuses_is_refused(role: str) -> None:
    cluster = Cluster()
    assert "role" in _complaint(cluster.subscribe(role=role))
    assert "role" in _complaint(cluster.subscribe(roles=["fine", role]))
    assert not cluster.book.frameworks


@pytest.mark.parametrize("role", ["*", "a", "a/b/c", "a.b", "a-b", "ä", "a*", "..."])
def test_a_role_that_mesos_takes_is_taken(role: str) -> None:
    cluster = Cluster()
    assert cluster.subscribe(role=role).framework_id
    assert cluster.subscribe(roles=["fine", role]).framework_id


def test_a_framework_that_contradicts_itself_is_refused() -> None:
    cluster = Cluster()
    refused = [
        cluster.subscribe(capabilities=[Capability.MULTI_ROLE], role="a"),
        cluster.subscribe(roles=["a", "a"]),
        cluster.subscribe(roles=["a"], suppressed=["b"]),
        cluster.subscribe(suppressed=["b"]),
        cluster.subscribe("../etc"),
        cluster.subscribe(failover_timeout=1e30),
        cluster.subscribe(failover_timeout=float("nan")),
        cluster.subscribe(failover_timeout=float("inf")),
    ]
    for scheduler in refused:
        assert _complaint(scheduler)
    call = v1.Call(type=v1.Call.SUBSCRIBE)
    call.subscribe.framework_info.CopyFrom(mesos.FrameworkInfo(user="u", name="n", roles=["a"]))
    scheduler = Scheduler()
    assert cluster.master.subscribe(call, scheduler) is None
    assert "MULTI_ROLE" in _complaint(scheduler)
    assert cluster.book.kinds() == ["add_agent"]


def test_a_framework_without_a_role_is_accepted() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe(roles=[])
    assert cluster.book.subscribed(scheduler.framework_id) == set()
