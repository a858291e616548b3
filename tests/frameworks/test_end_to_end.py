"""The whole system without fakes: service, contract, embedded Mesos, pymesos frameworks."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import numpy as np
import pytest

from allocator import plugins
from allocator.cli import own_history
from allocator.fairness import policies
from allocator.fairness.plugin_sandbox import PolicyFailedError
from allocator.service.record.event_log import EventLogError
from allocator.service.record.history import reconstruct
from allocator.service.record.replay import new_engine, open_log, replay
from allocator.simulation import reference
from allocator.simulation.setting import Setting
from frameworks import experiment
from frameworks.harness.comparison import compare
from frameworks.harness.film import EVENTS
from frameworks.harness.observer import Observer
from frameworks.harness.processes import Children
from frameworks.harness.runner import ExperimentSettings, Progress, run
from tests.frameworks.local_mesos.shell import HttpScheduler
from tests.plugins.written import file, key
from tests.service.served import PATIENCE, service

SPEED = 40.0
"""Independent of the machine: time stops until all expected frameworks have answered."""
SMALL = """
title = "Two users, one after the other, on three agents"
figure = "none"
shows = "a newcomer gets more than who has used more than its share"
duration = 120
policy = { name = "sdrf", delta = 0.98 }
[[cluster.agents]]
count = 3
resources = "cpus:4;mem:6144"
[tasks]
demand = "cpus:1;mem:1024"
run_time = 4
[[users]]
name = "A"
[[users]]
name = "B"
start = 60
[[claims]]
kind = "phases-agree"
within_cpus = 1.5
[[claims]] # 0.5 × (1 − 0.98⁶⁰)
kind = "commitment-at"
user = "A"
at = 60
value = 0.351
within = 0.02
[[claims]]
kind = "largest-lead"
user = "B"
over = ["A"]
phase = 2
at_least = 2
[[claims]]
kind = "utilization"
above = 0.9
"""


def test_a_small_experiment_matches_the_equations(tmp_path: Path) -> None:
    shown: list[Progress] = []
    verdict = run(
        experiment.parse("small", SMALL),
        ExperimentSettings(speed=SPEED, seed=1, out=tmp_path, record=tmp_path / "events"),
        shown.append,
    )
    assert verdict.agrees, verdict.claims
    assert shown[-1].phase.users == ("A", "B")
    assert json.loads((tmp_path / "summary.json").read_text()) == json.loads(
        json.dumps(verdict.summary())
    )
    for name in ("allocations.csv", "commitments.csv", "figure.png", "figure.svg"):
        assert (tmp_path / name).stat().st_size > 100
    resyncs = (tmp_path / "logs" / "mesos.log").read_text().count("asks anew")
    assert resyncs == 0, "master and allocator never disagreed"
    replayed = replay(tmp_path / "events")
    assert replayed.difference is None
    assert replayed.offers > 50
    assert_simulated_alike(tmp_path / "events", experiment.parse("small", SMALL))


def assert_simulated_alike(events: Path, chosen: experiment.Experiment) -> None:
    """On average each user's tasks hold as many cores in the simulator as they did, within one."""
    header, entries = open_log(events)
    history = reconstruct(new_engine(header), entries)
    trace = own_history.convert([events]).trace
    setting = Setting(chosen.policy["name"], {"delta": 0.98}, blocking="skip")
    outcome = reference.simulate(trace, setting)
    instants = np.arange(0.0, history.end - history.begin, 2.0)[:, np.newaxis]
    for place, user in enumerate(trace.users):
        mine = [task for task in history.tasks if task.user == user]
        began, ended = (
            np.array([getattr(task, name) - history.begin for task in mine])
            for name in ("start", "end")
        )
        cores = np.array([task.demand["cpus"] / 1000 for task in mine])
        held = (cores * ((began <= instants) & (instants < ended))).sum(axis=1)
        its = trace.user == place
        started, finished = outcome.started[its] / 1e6, outcome.finished[its] / 1e6
        cores = trace.demand[its, trace.resources.index("cpus")]
        holds = (cores * ((started <= instants) & (instants < finished))).sum(axis=1)
        assert np.abs(held - holds).mean() < 1.0, user


def test_an_experiment_with_a_failed_policy_has_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "_POLICIES", dict(policies._POLICIES))
    failing = file(tmp_path, key("return 1 / 0 if account.shares.get('disk') else account.share"))
    plugins.load(failing)
    text = SMALL.partition("[[claims]]")[0].replace("mem:6144", "mem:6144;disk:9")
    text = text.replace("duration = 120", "duration = 70").replace("mem:1024", "mem:1024;disk:1")
    chosen = experiment.parse("small", text).with_policy({"name": "mine"})
    settings = ExperimentSettings(speed=SPEED, seed=1, out=tmp_path / "out", policy_file=failing)
    with pytest.raises(PolicyFailedError, match="policy 'mine' failed, so there is no result: "):
        run(chosen, settings, lambda _: None)
    assert not (tmp_path / "out" / "summary.json").exists()


@contextmanager
def mesos(folder: Path, *, speed: float) -> Iterator[str]:
    """A service and an embedded Mesos; its address."""
    config = folder / "longshare.toml"
    config.write_text(
        f'[listen]\naddress = "unix://{folder}/s"\nvirtual_clocks = true\n'
        '[metrics]\naddress = "127.0.0.1:0"\n'
        f'[store]\npath = "{folder}/commitments.sqlite"\n'
    )
    log = folder / "mesos.log"
    with Children(folder) as children:
        children.start("service", "serve", "--config", str(config))
        children.start(
            "mesos",
            *("local-mesos", "--agents=3", f"--speed={speed}", "--port=0"),
            f"--allocator=unix://{folder}/s",
        )
        address = address_of(log, children)
        Observer(address).wait_for(PATIENCE)
        yield address


def address_of(log: Path, children: Children) -> str:
    while (started := re.search(r"Mesos master on (\S+)", log.read_text())) is None:
        children.check()
        time.sleep(0.02)
    return started[1]


THIRD_PARTY = Path(__file__).with_name("third_party_scheduler.py")


def test_an_unmodified_third_party_scheduler_works(tmp_path: Path) -> None:
    with mesos(tmp_path, speed=SPEED) as address:
        ran = subprocess.run(
            [sys.executable, str(THIRD_PARTY), address],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    states = {tuple(line.split()) for line in ran.stdout.splitlines()}  # some more than once
    running, finished = (
        {task for task, state in states if state == name}
        for name in ("TASK_RUNNING", "TASK_FINISHED")
    )
    assert len(finished) >= 4
    assert finished <= running


def test_a_framework_with_a_number_of_tasks_ends_when_they_have_finished(tmp_path: Path) -> None:
    with mesos(tmp_path, speed=SPEED) as address:
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "allocator.cli", "framework", "--name=A", "--role=a"),
                *(f"--master={address}", "--tasks=20", "--run-time=5"),
            ],
            timeout=PATIENCE,
            check=False,
        )
        assert ran.returncode == 0
        assert Observer(address).glance().cpus == {}


def test_a_killed_and_restarted_service_costs_no_task(tmp_path: Path) -> None:
    framework = ("framework", "--name=A", "--role=a", "--tasks=150", "--run-time=10")
    with Children(tmp_path) as children, service(tmp_path) as doomed:
        children.start(
            "mesos",
            *("local-mesos", "--agents=3", f"--speed={SPEED}", "--port=0", "--offer-timeout=0"),
            f"--allocator={doomed.address}",
        )
        address = address_of(tmp_path / "mesos.log", children)
        observer = Observer(address)
        observer.wait_for(PATIENCE)
        running = subprocess.Popen(
            [sys.executable, "-m", "allocator.cli", *framework, f"--master={address}"]
        )
        while observer.metrics()["master/tasks_finished"] < 12:
            time.sleep(0.05)
        doomed.stop(signal.SIGKILL)
        while sum(observer.glance().cpus.values()) > 6:
            time.sleep(0.05)  # tasks run on and end; nothing new is offered
        with service(tmp_path) as restarted:
            assert running.wait(PATIENCE) == 0, "all tasks have finished"
            restarted.wait_to_say("snapshot restored")
        metrics = observer.metrics()
    assert metrics["master/tasks_finished"] == 150
    assert metrics["master/tasks_lost"] == 0


def test_experiments_run_against_an_existing_master(tmp_path: Path) -> None:
    without_claims = experiment.parse("small", SMALL.split("[[claims]]", maxsplit=1)[0])
    (tmp_path / "mesos").mkdir()
    with mesos(tmp_path / "mesos", speed=SPEED) as address:
        settings = ExperimentSettings(speed=SPEED, seed=1, out=tmp_path / "out", master=address)
        verdict = run(without_claims, settings, until_seen(address, {"A", "B"}))
        finished = Observer(address).metrics()["master/tasks_finished"]
    peaks = {
        name: max(phase.users[name].peak_cpus for phase in verdict.phases) for name in ("A", "B")
    }
    assert all(0.0 < peak <= 12.0 for peak in peaks.values()), "seen at moments of wall time"
    assert finished >= 12, "too few tasks finished, by the count of the other master"


def until_seen(address: str, users: set[str]) -> Callable[[Progress], None]:
    """Have an embedded master's time wait for A and B, and before the end until both were seen."""
    observer, seen = Observer(address), set[str]()
    observer.expect("A", 0.0)  # time stands still from here on, until the run begins
    start = observer.glance().uptime
    observer.expect("B", start + 61.0)
    observer.expect("nobody", start + 100.0)

    def look(progress: Progress) -> None:
        if seen != users:
            seen.update(name for name, cpus in progress.cpus.items() if cpus > 0.0)
            if seen == users:
                asyncio.run(come_and_go(address, "nobody"))

    return look


async def come_and_go(address: str, name: str) -> None:
    async with aiohttp.ClientSession() as http:
        await HttpScheduler(http, address).subscribe(name=name)


def test_ctrl_c_stops_everything_that_was_started(tmp_path: Path) -> None:
    running = subprocess.Popen(
        [
            *(sys.executable, "-m", "allocator.cli", "experiment", "run", "drf-baseline"),
            *("--out", str(tmp_path), "--record", str(tmp_path / "events")),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    recording, events = tmp_path / "recorder.csv", tmp_path / "events"
    while not recording.exists() or recording.stat().st_size < 1000 or not offers_in(events):
        assert running.poll() is None
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, output = running.communicate(timeout=PATIENCE)
    assert running.returncode == 130
    assert "all processes have ended" in output
    mine = [p for p in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path) in _read(p)]
    assert mine == []
    replayed = replay(events)
    assert replayed.difference is None
    assert replayed.left_out == 0, "the service was asked to stop, not killed"


def offers_in(events: Path) -> int:
    try:
        return replay(events).offers
    except EventLogError:
        return 0  # not even its header has been written


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


SHARED = """
title = "Two jobs with whitelists, in pools of their own and together"
figure = "none"
shows = "who shares finishes no later"
duration = 120
seeds = 1
policy = { name = "tsf" }
[[cluster.agents]]
count = 2
resources = "cpus:1;mem:1024"
[[cluster.agents]]
count = 2
resources = "cpus:2;mem:1024"
[tasks]
demand = "cpus:1;mem:512"
run_time = 4
[[users]]
name = "picky"
nodes = "1-2"
weight = 0.333
tasks = { demand = "cpus:0.5;mem:512", run_time = 4, count = 8 }
[[users]]
name = "other"
weight = 0.667
tasks = { demand = "cpus:1;mem:512", run_time = 4, count = 24 }
[[variants]]
name = "pools"
nodes = { other = "3-4" }
[[variants]]
name = "TSF"
[[claims]]
kind = "no-later"
users = ["other"]
variant = "TSF"
than = "pools"
"""


def test_variants_run_in_sequence_and_are_compared(tmp_path: Path) -> None:
    chosen = experiment.parse("shared", SHARED)
    seen: list[str] = []

    @contextmanager
    def watch(varied: experiment.Experiment) -> Iterator[Callable[[Progress], None]]:
        seen.append(varied.name)
        yield lambda _: None

    comparison = compare(chosen, ExperimentSettings(speed=SPEED, seed=7, out=tmp_path), watch)
    assert seen == ["shared: pools", "shared: TSF"]
    assert comparison.agrees, comparison.claims
    [in_pool], [together] = (comparison.completions[v]["other"] for v in ("pools", "TSF"))
    assert in_pool > 24 / 4 * 4 * 0.8, "24 tasks, four at a time, take at least this long"
    assert together < in_pool
    written = json.loads((tmp_path / "summary.json").read_text())
    assert written == json.loads(json.dumps(comparison.summary()))
    assert (tmp_path / "figure.png").stat().st_size > 100
    assert (tmp_path / "pools-7" / "figure.png").stat().st_size > 100
    config = (tmp_path / "TSF-7" / "longshare.toml").read_text()
    assert 'name = "tsf"' in config


def test_tasks_start_at_the_same_instants_at_any_speed(tmp_path: Path) -> None:
    chosen = experiment.parse("shared", SHARED)
    together = chosen.variant(chosen.variants[-1])
    started: list[dict[str, list[float]]] = []
    for speed in (10.0, 100.0):
        out = tmp_path / f"{speed:.0f}"
        run(together, ExperimentSettings(speed=speed, seed=7, out=out), lambda _: None)
        header, entries = open_log(out / EVENTS)
        tasks = reconstruct(new_engine(header), entries).tasks
        first = min(task.start for task in tasks)
        of = {
            user.name: [t.start - first for t in tasks if t.user == user.name]
            for user in together.users
        }
        started.append({name: sorted(starts) for name, starts in of.items()})
    slow, fast = started
    assert [len(starts) for starts in slow.values()] == [8, 24]
    assert fast == {name: pytest.approx(starts, abs=1e-3) for name, starts in slow.items()}


def test_users_that_do_not_finish_in_time_are_named(tmp_path: Path) -> None:
    endless = SHARED.replace("duration = 120", "duration = 5").replace(
        "run_time = 4, count = 24", "run_time = 4000, count = 24"
    )
    chosen = experiment.parse("shared", endless)
    varied = chosen.variant(chosen.variants[0])
    with pytest.raises(TimeoutError, match="framework-other"):
        run(varied, ExperimentSettings(speed=SPEED, seed=1, out=tmp_path), lambda _: None)


SINGLE = [name for name in experiment.names() if not experiment.load(name).variants]
LONGER = {"drf-baseline": 70.0, "sdrf-initial-commitments": 70.0, "sdrf-adaptive": 80.0}
"""Figures with longer tasks, and the seconds of their tasks, which the paper leaves open. All its
claims hold with half of these durations or less, and no phase is too fast for them. In the first
two, all tasks have ended when a phase has a minute left, over which means are taken. In the last, B
leads by 74 cores instead of 86; the claim is at least 50.
"""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    [
        name if name == "sdrf-adaptive" else pytest.param(name, marks=pytest.mark.release)
        for name in SINGLE
    ],
)
def test_the_papers_experiment_has_the_published_results(name: str, tmp_path: Path) -> None:
    chosen = experiment.load(name)
    if name in LONGER:
        assert chosen.tasks is not None
        slow = chosen.tasks.model_copy(update={"run_time": LONGER[name]})
        chosen = chosen.model_copy(update={"tasks": slow})
    verdict = run(chosen, ExperimentSettings(speed=SPEED, seed=1, out=tmp_path), lambda _: None)
    assert verdict.agrees, verdict.claims
