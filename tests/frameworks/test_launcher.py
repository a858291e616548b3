"""Assignment of tasks to offers, without losing any task."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworks.harness.ports import free_port
from frameworks.launcher import ENDED, FrameworkWorkload, Plan, TaskLauncher, launch
from tests.frameworks.local_mesos.shell import system, until


def offer(cpus: float, mem: float, **extra: object) -> dict[str, Any]:
    def scalar(name: str, value: float, **fields: object) -> dict[str, Any]:
        return {"name": name, "type": "SCALAR", "scalar": {"value": value}, **fields}

    return {
        "agent_id": {"value": "s1"},
        "resources": [scalar("cpus", cpus, **extra), scalar("mem", mem, **extra)],
    }


def workload(tasks: int | None = None, seed: int = 0) -> FrameworkWorkload:
    return FrameworkWorkload("A", "a", {"cpus": 1.0, "mem": 1024.0}, 20.0, tasks=tasks, seed=seed)


def seconds(task: dict[str, Any]) -> float:
    command, time = task["command"]["value"].split()
    assert command == "sleep"
    return float(time)


@given(st.floats(0, 16), st.floats(0, 16384))
def test_an_offer_is_filled_and_never_overfilled(cpus: float, mem: float) -> None:
    tasks = Plan(workload()).fill(offer(cpus, mem))
    n = len(tasks)
    assert n <= cpus + 1e-5
    assert n * 1024 <= mem + 1e-5
    assert n + 1 > cpus - 1e-5 or (n + 1) * 1024 > mem - 1e-5, "a further task would fit"


@given(st.integers(1, 30), st.lists(st.integers(0, 8), max_size=20))
def test_no_more_tasks_are_launched_than_wanted_and_ids_never_repeat(
    wanted: int, offers: list[int]
) -> None:
    plan = Plan(workload(tasks=wanted))
    launched = [task for cpus in offers for task in plan.fill(offer(cpus, 1e6))]
    assert len(launched) == min(wanted, sum(offers))
    assert len({task["task_id"]["value"] for task in launched}) == len(launched)


@given(st.data())
def test_failed_tasks_are_launched_again_until_all_tasks_have_finished(
    data: st.DataObject,
) -> None:
    plan = Plan(workload(tasks=5))
    ends: Counter[str] = Counter()
    for _ in range(200):
        for task in plan.fill(offer(2, 1e6)):
            fails = len(ends) < 40 and data.draw(st.booleans())
            state = data.draw(st.sampled_from(sorted(ENDED))) if fails else "TASK_FINISHED"
            for reported in ("TASK_RUNNING", state, state):  # repeated until acknowledged
                plan.ended(task["task_id"]["value"], reported)
            ends[state] += 1
        if plan.done:
            break
    assert ends["TASK_FINISHED"] == plan.finished <= 5
    assert plan.done == (plan.finished == 5)
    assert plan.launched == sum(ends.values())


def test_run_times_vary_evenly_around_their_mean_and_repeat_with_the_seed() -> None:
    def run_times(seed: int) -> list[float]:
        return [seconds(task) for task in Plan(workload(seed=seed)).fill(offer(2000, 1e9))]

    times = run_times(7)
    assert times == run_times(7) != run_times(8)
    assert min(times) >= 16.0
    assert max(times) <= 24.0
    assert abs(sum(times) / len(times) - 20.0) < 0.3


def test_reserved_and_revocable_resources_are_not_used() -> None:
    plan = Plan(workload())
    assert plan.fill(offer(4, 8192, reservations=[{"role": "a"}])) == []
    assert plan.fill(offer(4, 8192, role="a")) == []
    assert plan.fill(offer(4, 8192, revocable={})) == []
    assert len(plan.fill(offer(4, 8192, role="*"))) == 4


def test_tasks_that_a_new_master_does_not_know_are_launched_again(tmp_path: Path) -> None:
    """A former launcher hung with suppressed offers, because no request named these tasks."""
    stop, port, counts = threading.Event(), free_port(), Counter[str]()
    wanted = replace(workload(4), demand={"cpus": 1.0})

    async def first(running: "asyncio.Future[None]") -> None:
        async with system(tmp_path, port=port, task_seconds=1e6) as (_, embedded):
            while not any(len(f.tasks) == 4 for f in embedded.master.frameworks.values()):
                assert not running.done()
                await asyncio.sleep(0.01)

    async def scenario() -> None:
        launching = partial(launch, replace(wanted, run_time=1e5), f"127.0.0.1:{port}", stop)
        running = asyncio.ensure_future(asyncio.to_thread(launching))
        await first(running)
        async with system(tmp_path, port=port) as (_, embedded):
            while not counts["tasks"]:
                assert not running.done()
                frameworks = embedded.master.frameworks.values()
                counts["tasks"] = max((len(f.tasks) for f in frameworks), default=0)
                await asyncio.sleep(0.01)
            stop.set()
            await running

    asyncio.run(scenario())
    assert counts["tasks"] > 0


def test_a_framework_that_starts_before_its_master_says_so_and_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stop, port = threading.Event(), free_port()

    async def scenario() -> None:
        launching = partial(launch, workload(4), f"127.0.0.1:{port}", stop)
        running = asyncio.ensure_future(asyncio.to_thread(launching))
        await until(lambda: "start one with 'longshare local-mesos'" in caplog.text)
        async with system(tmp_path, port=port) as (_, embedded):
            await until(lambda: any(f.tasks for f in embedded.master.frameworks.values()))
            stop.set()
            await running

    asyncio.run(scenario())
    assert "ConnectionRefusedError" not in caplog.text
    assert [record.getMessage() for record in caplog.records if record.name == launch.__module__][
        1
    ] == f"the Mesos master at 127.0.0.1:{port} answers"


def test_a_subscribed_framework_logs_its_id(caplog: pytest.LogCaptureFixture) -> None:
    launcher = TaskLauncher(Plan(workload()), threading.Event())
    with caplog.at_level("INFO"):
        launcher.registered(None, {"value": "f-0001"}, {})
    assert "subscribed as framework f-0001" in caplog.text


def test_a_framework_that_waits_for_a_master_ends_on_request() -> None:
    stop = threading.Event()
    stop.set()
    launch(workload(), f"127.0.0.1:{free_port()}", stop)


def test_an_invalid_task_ends_the_framework_because_its_tasks_are_identical() -> None:
    stop, plan = threading.Event(), Plan(workload())
    launcher = TaskLauncher(plan, stop)
    [task, *_] = plan.fill(offer(2, 1e6))
    update = {"task_id": task["task_id"], "state": "TASK_ERROR", "message": "no such resource"}
    launcher.statusUpdate(None, update)
    assert stop.is_set()
    assert launcher.failure == "TASK_ERROR: no such resource"


@pytest.mark.parametrize("caught", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_a_framework_as_sigterm_does(caught: signal.Signals) -> None:
    command = ["framework", "--name", "x", "--master", "127.0.0.1:1"]
    with subprocess.Popen(
        [sys.executable, "-m", "allocator.cli", *command], stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        assert "waiting for a Mesos master" in running.stderr.readline()
        running.send_signal(caught)
        assert running.wait() == 0
