"""Event logs of a cluster are converted to a trace for the simulators."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from allocator.cli import app
from allocator.cli.own_history import convert
from allocator.cluster.agents.placement_constraints import Constraint, Hosts
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.fairness import policies
from allocator.fairness.quantities import Quantities
from allocator.service.record.event_log import EventLogError
from allocator.simulation import reference, store
from allocator.simulation.setting import Setting
from allocator.users.settings import DeclaredUser
from tests.cluster.master_side import SECOND, START_NS, Offered, agent_call, framework_info
from tests.cluster.master_side import resources as of
from tests.service.record.test_event_log import RecordedMaster, entries, rewrite

TASK = "cpus:1;mem:1024"
SETTINGS = EngineSettings(
    policies.create("sdrf", {"half_life": 600.0}),
    users=(DeclaredUser("a", 2.0, {"cpus": 0.25}), DeclaredUser("b"), DeclaredUser("idle")),
    demands={f"f{number} of the tests": Quantities.parse(TASK) for number in range(3)},
    constraints={"f2 of the tests": Constraint(Hosts(("s2*", "s3*")), Hosts(()), ())},
)


def record_one(path: Path) -> RecordedMaster:
    """Record user a, which fills two agents; after 10 s user b gets the second agent."""
    master = RecordedMaster(path, SETTINGS, excluded=("mem",))
    master.add_framework("f1", "a")
    held = [*master.add_agent("s1", "cpus:4;mem:8192"), *master.add_agent("s2", "cpus:2;mem:8192")]
    assert [(offer.agent, offer.role) for offer in held] == [("s1", "a"), ("s2", "a")]
    master.wait(4)
    assert master.add_framework("f2", "b") == []
    master.wait(6)
    [on_s2] = master.recover(held[1])
    assert (on_s2.agent, on_s2.framework) == ("s2", "f2")
    master.wait(5)
    assert master.recover(held[0], "cpus:1;mem:1024", refuse_seconds=None)
    master.tick(5)
    master.event_log.close()
    return master


def record_two(path: Path, gap: float) -> None:
    """Record the restarted service: only b's tasks still run, and there is a third agent."""
    master = RecordedMaster(path, SETTINGS, excluded=("mem",))
    master.now_ns = START_NS + int((20 + gap) * SECOND)
    master.restore(
        contract.Snapshot(
            sequence=master.sequence,
            time_ns=master.now_ns,
            agents=[
                agent_call("s1", "cpus:4;mem:8192"),
                agent_call("s2", "cpus:2;mem:8192", {"f2": of("cpus:2;mem:2048", "b")}),
                agent_call("s3", "cpus:2;mem:8192"),
            ],
            frameworks=[
                contract.AddFramework(
                    framework_id="f2",
                    info=framework_info("f2", "b"),
                    active=True,
                    suppressed_roles=["b"],
                )
            ],
        )
    )
    master.tick(20 - gap)
    master.event_log.close()
    rewrite(path, [entry for place, entry in enumerate(entries(path)) if place != 1])


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    record_one(tmp_path / "log.1")
    record_two(tmp_path / "log", gap=5)
    return [tmp_path / "log", tmp_path / "log.1"]


def test_logs_in_any_order_become_the_recorded_tasks_users_and_machines(logs: list[Path]) -> None:
    conversion = convert(logs)
    trace = conversion.trace
    assert conversion.policy == "sdrf"
    assert trace.resources == ("cpus",)
    assert trace.users == ("a", "b", "idle")
    assert trace.weights == (2.0, 1.0, 1.0)
    assert trace.commitments == ((0.25,), (0.0,), (0.0,))
    rows = zip(
        (trace.users[user] for user in trace.user),
        trace.submitted / 1e6,
        trace.runtime / 1e6,
        trace.demand[:, 0],
        trace.constraint,
        strict=True,
    )
    # User a: two tasks on s2 for 10 s, one on s1 for 15 s, three until the gap is over, and a task
    # on the core freed 15 s after the beginning. User b wanted offers from the fourth second on.
    assert sorted(rows) == sorted(
        [
            *[("a", 0.0, 10.0, 1.0, -1)] * 2,
            ("a", 0.0, 15.0, 1.0, -1),
            *[("a", 0.0, 25.0, 1.0, -1)] * 3,
            ("a", 0.0, 10.0, 1.0, -1),
            *[("b", 4.0, 30.0, 1.0, 0)] * 2,
        ]
    )
    [s1, like_s2] = trace.machines
    assert (s1.count, s1.capacity) == (1, (4.0,))
    assert (like_s2.count, like_s2.capacity) == (1, (2.0,)), (
        "s3 existed for less than half of the time"
    )
    assert trace.constraints == ((1,),)
    notes = "\n".join(conversion.notes)
    for note in (
        "resources that do not count in shares are left out: mem",
        "2 tasks ran when recording ended",
        "the recording has a gap of 5.0 s, after 20.0 s",
        "agents joined, changed or left: 3 in all, 2 at a time",
    ):
        assert note in notes


def test_logs_that_overlap_are_refused(logs: list[Path]) -> None:
    with pytest.raises(EventLogError, match="overlap"):
        convert([*logs, logs[0]])


def test_a_log_without_a_master_has_no_history(tmp_path: Path) -> None:
    record_one(tmp_path / "log")
    rewrite(tmp_path / "log", entries(tmp_path / "log")[:1])
    with pytest.raises(EventLogError, match="no master ever connected"):
        convert([tmp_path / "log"])


def test_an_offer_rescinded_by_the_master_is_not_a_task(tmp_path: Path) -> None:
    master = RecordedMaster(tmp_path / "log", SETTINGS)
    master.options.tells_running = True
    master.restore(contract.Snapshot(sequence=master.sequence, time_ns=master.now_ns))
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:4;mem:8192")
    master.wait(3)
    master.recover(offer)
    master.remove_agent("s1")
    master.event_log.close()
    assert len(convert([tmp_path / "log"]).trace) == 0


def played(path: Path) -> list[tuple[str, float, float]]:
    """Record three users that arrive one by one with random task lengths; return all task runs."""
    master = RecordedMaster(path, SETTINGS)
    for number in range(4):
        master.add_agent(f"s{number}", "cpus:4;mem:8192")
    rng = np.random.default_rng(5)
    ends: list[tuple[float, Offered, float]] = []
    ran: list[tuple[str, float, float]] = []

    def take(offers: list[Offered]) -> None:
        now = (master.now_ns - START_NS) / SECOND
        for offer in offers:
            tasks = Quantities.parse(offer.resources)["cpus"] // 1000
            ends.extend((now + float(rng.integers(5, 25)), offer, now) for _ in range(tasks))

    for second in range(240):
        if second in (0, 60, 120):
            number = second // 60
            take(master.add_framework(f"f{number}", "abc"[number]))
        now = (master.now_ns - START_NS) / SECOND
        for end in [entry for entry in ends if entry[0] <= now]:
            ends.remove(end)
            ran.append((end[1].role, end[2], now))
            take(master.recover(end[1], TASK))
        take(master.tick())
    master.event_log.close()
    return ran + [(offer.role, begun, 240.0) for _end, offer, begun in ends if begun < 240.0]


def test_a_simulation_of_the_trace_runs_as_many_tasks_as_recorded(tmp_path: Path) -> None:
    settings = ["--policy", "sdrf", "--set", "half_life=600", "--blocking", "skip", "--reference"]
    ran = played(tmp_path / "log")
    trace = str(tmp_path / "trace")
    for command in (
        ["trace", "convert", "--from", "log", str(tmp_path / "log"), trace, "--json"],
        ["simulate", trace, *settings, "--out", str(tmp_path / "out"), "--json"],
    ):
        completed = CliRunner().invoke(app, command)
        assert completed.exit_code == 0, completed.output
        assert json.loads(completed.stdout)["tasks"] == len(ran)
    read = store.read(tmp_path / "trace")
    setting = Setting("sdrf", {"half_life": 600.0}, blocking="skip")
    outcome = reference.simulate(read, setting)
    for name in "abc":
        mine = read.user == read.users.index(name)
        started, finished = outcome.started[mine] / 1e6, outcome.finished[mine] / 1e6
        for second in range(0, 240, 10):
            were = sum(user == name and start <= second < end for user, start, end in ran)
            are = int(((started <= second) & (second < finished)).sum())
            assert abs(were - are) <= 1, (name, second)


def test_the_conversion_of_a_log_prints_verifiable_totals(tmp_path: Path) -> None:
    ran = played(tmp_path / "log")
    command = ["trace", "convert", "--from", "log", str(tmp_path / "log"), str(tmp_path / "trace")]
    report = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    held = sum(end - begin for _user, begin, end in ran) / 3600
    assert report["rows"] == len(entries(tmp_path / "log")) - 1, "the header is not an entry"
    assert report["core_hours"] == pytest.approx(held, rel=0.02), "each task has one core"
    output = CliRunner().invoke(app, command).stdout
    assert f"entries read: {report['rows']:,}" in output
    assert "core-hours: " in output
