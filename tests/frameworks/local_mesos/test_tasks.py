"""Tasks are validated, launched, run and killed, with their resources at each stage."""

import pytest

from allocator.contract import mesos_pb2 as mesos
from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos.notation import parse_flag
from tests.frameworks.local_mesos.peers import Cluster, Scheduler

Capability = mesos.FrameworkInfo.Capability
CPUS = ("cpus", (), None)


def _cpus(cluster: Cluster, scheduler: Scheduler) -> float:
    """CPUs of a framework on the first agent, in the allocator's view."""
    return cluster.book.held[cluster.agents[0].id, scheduler.framework_id][CPUS] / 1000


def test_a_sleeping_task_starts_runs_and_finishes_after_that_time() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    cluster.run(scheduler, cluster.task(command="sleep 20"))
    cluster.acknowledge(scheduler)
    cluster.acknowledge(scheduler)
    cluster.advance(19.9)
    assert {*scheduler.states} == {"STARTING", "RUNNING"}
    cluster.advance(0.1)
    assert scheduler.states[-1] == "FINISHED"
    assert scheduler.updates[-1].timestamp == pytest.approx(cluster.clock.now)


@pytest.mark.parametrize("command", ["./work", "sleep 20 && date", "sleepy 20", "sleep", ""])
def test_any_other_command_takes_the_master_s_default_time(command: str) -> None:
    cluster = Cluster(task_seconds=3)
    scheduler = cluster.subscribe()
    cluster.run(scheduler, cluster.task(command=command))
    cluster.acknowledge(scheduler)
    cluster.acknowledge(scheduler)
    cluster.advance(2.9)
    assert scheduler.states[-1] == "RUNNING"
    cluster.advance(0.1)
    assert scheduler.states[-1] == "FINISHED"


def test_resources_are_recovered_without_a_filter_at_the_master_s_update_of_the_end() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    cluster.run(scheduler, cluster.task(command="sleep 5"))
    cluster.acknowledge(scheduler)
    cluster.acknowledge(scheduler)
    assert _cpus(cluster, scheduler) == 1
    cluster.advance(5)
    assert _cpus(cluster, scheduler) == 0  # before the scheduler's acknowledgement
    assert not cluster.book.last("recover_resources").recover_resources.HasField("filters")


def test_the_end_of_a_task_reaches_the_master_with_the_next_forwarded_update() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    cluster.run(scheduler, cluster.task(command="sleep 3"))
    cluster.advance(9.9)
    assert _cpus(cluster, scheduler) == 1  # STARTING still waits for its acknowledgement
    cluster.advance(0.1)  # the repeated update contains the latest state
    assert scheduler.states == ["STARTING", "STARTING"]
    assert _cpus(cluster, scheduler) == 0


def _with(cluster: Cluster, **changes: object) -> v1.TaskInfo:
    task = cluster.task()
    task.MergeFrom(v1.TaskInfo(**changes))  # type: ignore[arg-type]
    return task


def _bad_tasks(cluster: Cluster) -> dict[str, tuple[v1.TaskInfo, str]]:
    no_command, no_resources = cluster.task(), cluster.task()
    no_command.ClearField("command")
    no_resources.ClearField("resources")
    both = cluster.task(executor="e")
    both.command.value = "sleep 1"
    elsewhere = _with(cluster, agent_id=v1.AgentID(value="S99"))
    default = cluster.task(executor="e")
    default.executor.type = v1.ExecutorInfo.DEFAULT
    commandless = cluster.task(executor="e")
    commandless.executor.ClearField("command")
    foreign = cluster.task(executor="e")
    foreign.executor.framework_id.value = "another"
    ports = cluster.task(executor="e", resources="ports:[1-2]", executor_resources="ports:[2-3]")
    backwards, negative, valueless = cluster.task(), cluster.task(), cluster.task()
    backwards.resources.append(
        mesos.Resource(
            name="ports",
            type=mesos.Value.RANGES,
            ranges=mesos.Value.Ranges(range=[mesos.Value.Range(begin=9, end=1)]),
        )
    )
    negative.resources[0].scalar.value = -1
    valueless.resources[0].ClearField("scalar")
    return {
        "no id": (cluster.task(""), "id"),
        "a path as id": (cluster.task("../t"), "id"),
        "a control character in the id": (cluster.task("a\nb"), "id"),
        "an endless id": (cluster.task("t" * 256), "id"),
        "another agent": (elsewhere, "agent"),
        "neither command nor executor": (no_command, "executor"),
        "command and executor": (both, "executor"),
        "no resources": (no_resources, "no resources"),
        "more than offered": (cluster.task(resources="cpus:4.001;mem:1"), "more"),
        "more with its executor": (cluster.task(resources="cpus:4", executor="e"), "more"),
        "half a GPU": (cluster.task(resources="cpus:1;gpus:0.5"), "integer"),
        "reserved resources": (cluster.task(resources="cpus(eng):1"), "more"),
        "a default executor": (default, "CUSTOM"),
        "an executor without command": (commandless, "command"),
        "an executor of another framework": (foreign, "framework"),
        "ports shared with its executor": (ports, "overlap"),
        "ports backwards": (backwards, "invalid"),
        "negative CPUs": (negative, "invalid"),
        "CPUs without a value": (valueless, "invalid"),
        "an executor without id": (cluster.task(executor=""), "id"),
    }


@pytest.mark.parametrize("mistake", _bad_tasks(Cluster()))
def test_an_invalid_task_is_an_error_and_its_neighbours_are_launched(mistake: str) -> None:
    cluster = Cluster(resources="cpus:4;mem:6144;gpus:1;ports:[1-9]")
    scheduler = cluster.subscribe()
    bad, complaint = _bad_tasks(cluster)[mistake]
    cluster.run(scheduler, bad, cluster.task("good"))
    error, *rest = scheduler.updates
    assert (error.task_id, error.state) == (bad.task_id, v1.TASK_ERROR)
    assert error.reason == v1.TaskStatus.REASON_TASK_INVALID
    assert error.source == v1.TaskStatus.SOURCE_MASTER
    assert not error.HasField("uuid")
    assert complaint in error.message
    assert [status.task_id.value for status in rest] == ["good"]
    assert _cpus(cluster, scheduler) == 1
    assert cluster.book.free(cluster.agents[0].id)[CPUS] == 3000


def test_a_range_of_any_length_is_weighed_not_counted_out() -> None:
    cluster = Cluster(resources="cpus:4;mem:6144;ports:[1-9]")
    scheduler = cluster.subscribe()
    greedy = cluster.task("greedy", resources="cpus:1;ports:[0-18446744073709551615]")
    cluster.run(scheduler, greedy, cluster.task("modest", resources="cpus:1;ports:[2-3,7-9]"))
    assert [(u.task_id.value, u.state) for u in scheduler.updates] == [
        ("greedy", v1.TASK_ERROR),
        ("modest", v1.TASK_STARTING),
    ]


def test_a_task_s_id_is_taken_until_its_end_is_acknowledged() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    cluster.run(scheduler, cluster.task("t", command="sleep 1"))
    for _ in range(2):
        cluster.acknowledge(scheduler)
    cluster.advance(1)
    terminal = scheduler.updates[-1]
    cluster.run(scheduler, cluster.task("t"))
    assert scheduler.states[-1] == "ERROR"
    assert "duplicate" in scheduler.updates[-1].message
    cluster.acknowledge(scheduler, terminal)
    cluster.run(scheduler, cluster.task("t"))
    assert scheduler.states[-1] == "STARTING"


def test_two_tasks_with_the_same_id_in_an_accept_are_a_task_and_an_error() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    cluster.run(scheduler, cluster.task("t"), cluster.task("t"))
    assert scheduler.states == ["STARTING", "ERROR"]


def test_old_schedulers_may_name_reserved_resources_by_role() -> None:
    cluster = Cluster(resources="cpus(eng):2;mem:1024")
    scheduler = cluster.subscribe(role="eng")
    task = cluster.task(resources="cpus:2;mem:64")
    task.resources[0].role = "eng"
    task.resources[1].role = "*"
    cluster.run(scheduler, task)
    assert scheduler.states == ["STARTING"]
    held = cluster.book.held[cluster.agents[0].id, scheduler.framework_id]
    assert held["cpus", ("eng",), None] == 2000


def test_a_custom_executor_uses_resources_once_and_until_its_shutdown() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    first = cluster.task("t1", executor="e", executor_resources="cpus:0.5;mem:32")
    second = cluster.task("t2", executor="e", executor_resources="cpus:0.5;mem:32")
    cluster.run(scheduler, first, second)
    assert _cpus(cluster, scheduler) == 2.5
    assert scheduler.states == ["RUNNING", "RUNNING"]
    assert {u.executor_id.value for u in scheduler.updates} == {"e"}
    for status in list(scheduler.updates):
        cluster.acknowledge(scheduler, status)
    cluster.advance(20)
    assert scheduler.states[-2:] == ["FINISHED", "FINISHED"]
    assert _cpus(cluster, scheduler) == 0.5
    offer = cluster.offer(scheduler)
    assert [e.value for e in offer.executor_ids] == ["e"]
    shutdown = v1.Call.Shutdown(
        executor_id=v1.ExecutorID(value="e"), agent_id=v1.AgentID(value=cluster.agents[0].id)
    )
    cluster.call(scheduler, v1.Call.DECLINE, decline=v1.Call.Decline(offer_ids=[offer.id]))
    cluster.call(scheduler, v1.Call.SHUTDOWN, shutdown=shutdown)
    assert _cpus(cluster, scheduler) == 0
    [failure] = scheduler.of(v1.Event.FAILURE)
    assert failure.failure.executor_id.value == "e"


def test_an_executor_id_cannot_name_two_executors() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    first = cluster.task("t1", executor="e")
    second = cluster.task("t2", executor="e", executor_resources="cpus:0.2;mem:32")
    cluster.run(scheduler, first, second)
    assert scheduler.states == ["RUNNING", "ERROR"]
    assert "executor" in scheduler.updates[-1].message.lower()


def test_shutting_an_executor_down_fails_its_tasks() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    cluster.run(scheduler, cluster.task("t1", executor="e"), cluster.task("t2"))
    for status in list(scheduler.updates):
        cluster.acknowledge(scheduler, status)
    shutdown = v1.Call.Shutdown(
        executor_id=v1.ExecutorID(value="e"), agent_id=v1.AgentID(value=cluster.agents[0].id)
    )
    cluster.call(scheduler, v1.Call.SHUTDOWN, shutdown=shutdown)
    failed = scheduler.updates[-1]
    assert (failed.task_id.value, failed.state) == ("t1", v1.TASK_FAILED)
    assert failed.reason == v1.TaskStatus.REASON_EXECUTOR_TERMINATED
    assert _cpus(cluster, scheduler) == 1
    cluster.call(scheduler, v1.Call.SHUTDOWN, shutdown=shutdown)  # ignored: the executor is unknown


def _kill(cluster: Cluster, scheduler: Scheduler, task: str, agent: str | None = None) -> None:
    kill = v1.Call.Kill(task_id=v1.TaskID(value=task))
    if agent is not None:
        kill.agent_id.value = agent
    cluster.call(scheduler, v1.Call.KILL, kill=kill)


def test_a_killed_task_ends_and_its_resources_are_recovered() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    cluster.run(scheduler, cluster.task())
    cluster.acknowledge(scheduler)
    cluster.acknowledge(scheduler)
    _kill(cluster, scheduler, "t")
    assert scheduler.states[-1] == "KILLED"
    assert _cpus(cluster, scheduler) == 0
    seen = len(scheduler.updates)
    _kill(cluster, scheduler, "t")  # a repeated kill has no effect
    cluster.acknowledge(scheduler)
    cluster.advance(3600)
    assert len(scheduler.updates) == seen


def test_killing_a_task_with_the_wrong_agent_does_nothing() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    cluster.run(scheduler, cluster.task())
    _kill(cluster, scheduler, "t", agent="S99")
    assert scheduler.states == ["STARTING"]
    assert cluster.framework(scheduler).tasks["t"].end is not None


@pytest.mark.parametrize(
    ("capabilities", "on_agent", "elsewhere"),
    [((), "LOST", "LOST"), ((Capability.PARTITION_AWARE,), "GONE", "UNKNOWN")],
)
def test_kill_and_reconcile_of_an_unknown_task_report_task_lost(
    capabilities: tuple[Capability.Type.ValueType, ...], on_agent: str, elsewhere: str
) -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe(capabilities=capabilities)
    known = cluster.agents[0].id
    _kill(cluster, scheduler, "nobody", agent=known)
    _kill(cluster, scheduler, "nobody")
    reconcile = v1.Call.Reconcile()
    reconcile.tasks.add(task_id=v1.TaskID(value="nobody"), agent_id=v1.AgentID(value=known))
    reconcile.tasks.add(task_id=v1.TaskID(value="nobody"), agent_id=v1.AgentID(value="S99"))
    cluster.call(scheduler, v1.Call.RECONCILE, reconcile=reconcile)
    assert scheduler.states == [on_agent, elsewhere, on_agent, elsewhere]
    assert {u.reason for u in scheduler.updates} == {v1.TaskStatus.REASON_RECONCILIATION}


def test_operations_other_than_launch_are_refused_with_a_reason() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    offer = cluster.offer(scheduler)
    accept = v1.Call.Accept(offer_ids=[offer.id])
    group = accept.operations.add(type=v1.Offer.Operation.LAUNCH_GROUP)
    group.launch_group.executor.executor_id.value = "e"
    group.launch_group.task_group.tasks.append(cluster.task("grouped"))
    accept.operations.add(type=v1.Offer.Operation.RESERVE, id=v1.OperationID(value="op-1"))
    accept.operations.add(type=v1.Offer.Operation.CREATE)
    launch = accept.operations.add(type=v1.Offer.Operation.LAUNCH)
    launch.launch.task_infos.append(cluster.task("single"))
    cluster.call(scheduler, v1.Call.ACCEPT, accept=accept)
    assert [(u.task_id.value, u.state) for u in scheduler.updates] == [
        ("grouped", v1.TASK_ERROR),
        ("single", v1.TASK_STARTING),
    ]
    assert "LAUNCH_GROUP" in scheduler.updates[0].message
    [event] = scheduler.of(v1.Event.UPDATE_OPERATION_STATUS)
    status = event.update_operation_status.status
    assert (status.operation_id.value, status.state) == ("op-1", v1.OperationStatus.OPERATION_ERROR)
    assert "RESERVE" in status.message
    assert _cpus(cluster, scheduler) == 1


def test_teardown_ends_everything_and_the_framework_does_not_come_back() -> None:
    cluster = Cluster()
    scheduler = cluster.subscribe()
    cluster.run(scheduler, cluster.task("t1", executor="e"), cluster.task("t2"))
    cluster.offer(scheduler)
    before = cluster.book.sequence
    cluster.call(scheduler, v1.Call.TEARDOWN)
    assert scheduler.closed
    kinds = cluster.book.kinds(since=before)
    assert kinds[:2] == ["deactivate_framework", "recover_resources"]
    assert kinds[-3:] == ["pause", "remove_framework", "resume"]
    assert cluster.book.free(cluster.agents[0].id) == cluster.book.totals[cluster.agents[0].id]
    assert scheduler.states == ["RUNNING", "STARTING"]  # nothing more was said
    cluster.advance(3600)
    resubscribed = cluster.subscribe(scheduler.framework_id)
    [error] = resubscribed.of(v1.Event.ERROR)
    assert "removed" in error.error.message
    assert resubscribed.closed
    assert not cluster.book.frameworks


def test_resources_are_read_in_mesos_s_text_syntax() -> None:
    messages = {
        (m.name, m.reservations[0].role if m.reservations else "*"): m
        for m in parse_flag("cpus:4; cpus(eng/web):1.5;ports:[31000-32000, 5-9];disks:{sda,sdb}")
    }
    assert messages["cpus", "*"].scalar.value == 4
    assert messages["cpus", "eng/web"].scalar.value == 1.5
    assert [(r.begin, r.end) for r in messages["ports", "*"].ranges.range] == [
        (5, 9),
        (31000, 32000),
    ]
    assert list(messages["disks", "*"].set.item) == ["sda", "sdb"]


@pytest.mark.parametrize(
    "text",
    [
        "cpus",
        "cpus:",
        "cpus:x",
        "cpus:-1",
        "cpus:nan",
        "cpus:inf",
        ":4",
        "ports:[9-1]",
        "ports:[1]",
        "a b:1",
    ],
)
def test_resources_that_cannot_be_read_are_refused_with_the_entry_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"cpus|ports|:4|a b"):
        parse_flag(f"mem:1;{text}")
