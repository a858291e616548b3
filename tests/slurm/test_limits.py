"""On a real Slurm with GPUs and QOS: limits, licenses, reservations, and preemption."""

import time
from collections.abc import Callable, Iterator

import pytest

from allocator.slurm.bridge import Bridge
from allocator.slurm.jobs import SeenJob
from frameworks.local_slurm.cluster import LocalSlurm
from frameworks.local_slurm.configuration import NodeGroup, SlurmSettings
from tests.slurm.real import ROOT, USERS, bridge_to, from_sacct, holding, poll_until, reason_to_skip

HALF_LIFE = 15.0
CAPACITY = {"cpus": 24.0, "mem": 6000.0}
"""Cores and MiB of the cluster."""
SETTINGS = SlurmSettings(
    nodes=(NodeGroup("g", 2, 8, 2000, "gpu:a100:2"), NodeGroup("n", 1, 8, 2000)),
    accounting=True,
    overrides={
        "AccountingStorageEnforce": "limits,qos",
        "PreemptType": "preempt/qos",
        "PreemptMode": "REQUEUE",
        "Licenses": "solver:1",
    },
)
QOS = "normal,low,high,single,shared"
ACCOUNTS = f"""\
add qos low
add qos high preempt=low
add qos single MaxJobsPerUser=1
add qos shared GrpTRES=cpu=4
add account lab
add user {",".join(USERS)} account=lab qos={QOS}
quit
"""
"""Commands of sacctmgr."""
LONG = "sleep 100"

pytestmark = [
    pytest.mark.usefixtures("ends_as_recorded"),
    pytest.mark.long,
    pytest.mark.skipif(
        reason_to_skip(accounting=True) is not None, reason=str(reason_to_skip(accounting=True))
    ),
]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSlurm]:
    with LocalSlurm(tmp_path_factory.mktemp("slurm") / "slurm", SETTINGS, ROOT) as running:
        running.run("sacctmgr", "--immediate", text=ACCOUNTS)
        yield running


@pytest.fixture(autouse=True)
def without_jobs(slurm: LocalSlurm) -> Iterator[None]:
    yield
    for user in USERS:
        slurm.run("scancel", f"--user={user}")
    while slurm.run("squeue", "--noheader"):
        time.sleep(0.2)


def seen(bridge: Bridge, job: int) -> SeenJob:
    return next(entry for entry in bridge.state.seen() if entry.job.number == job)


def poll_until_state(bridge: Bridge, state: str, *jobs: int) -> None:
    """Poll until jobs have a state."""

    def reached(_: object) -> bool:
        states = {entry.job.number: entry.job.state for entry in bridge.state.seen()}
        return all(states.get(job) == state for job in jobs)

    poll_until(bridge, reached, 60.0)


def poll_until_reasons(bridge: Bridge, reasons: dict[int, Callable[[str], bool]]) -> list[str]:
    """Poll until Slurm gives the reasons for pending jobs; return the targets in order."""

    def reached(_: object) -> bool:
        shown = {entry.job.number: entry.job.reason for entry in bridge.state.seen()}
        return all(holds(shown.get(job, "")) for job, holds in reasons.items())

    return [placed.target for placed in poll_until(bridge, reached, 60.0).order.placed]


def test_gpus_count_whether_a_job_names_a_model_or_not(slurm: LocalSlurm) -> None:
    bridge = bridge_to(slurm, HALF_LIFE, time.time(), USERS)
    running = [
        slurm.submit(*request, "--mem=10", user="games", script=LONG)
        for request in (("--gres=gpu:a100:1",), ("--gres=gpu:1",))
    ]
    per_gpu = ("--gpus=1", "--cpus-per-gpu=2", "--mem-per-gpu=100")
    running.append(slurm.submit(*per_gpu, user="games", script=LONG))
    # A job that started during a reading is held from the next reading on.
    poll_until(bridge, lambda _: holding(bridge, {"games": 4}), 60.0)
    amounts = [seen(bridge, job).job.quantities.to_doubles() for job in running]
    assert amounts == [
        {"cpus": 1.0, "mem": 10.0, "gpus": 1.0},
        {"cpus": 1.0, "mem": 10.0, "gpus": 1.0},
        {"cpus": 2.0, "mem": 100.0, "gpus": 1.0},
    ]
    assert bridge.state.present().capacity.to_doubles() == CAPACITY | {"gpus": 4.0}
    assert bridge.state.present().standing(("games",)).share == 0.75
    # games has held GPUs, so the jobs of man come first, for any model of GPU.
    last = slurm.submit("--gres=gpu:2", "--mem=10", user="games", script=LONG)
    named = slurm.submit("--gpus-per-node=a100:2", "--mem=10", user="man", script=LONG)
    plain = slurm.submit("--gres=gpu:2", "--mem=10", user="man", script=LONG)
    cores = slurm.submit("--mem=10", user="games", script=LONG)
    poll_until_state(bridge, "RUNNING", cores)
    placed = [job.target for job in bridge.poll().order.placed]
    assert placed == [str(job) for job in (named, plain, last)]


def test_a_job_at_a_limit_of_its_own_is_passed_over_and_one_at_a_shared_limit_keeps_its_place(
    slurm: LocalSlurm,
) -> None:
    bridge = bridge_to(slurm, HALF_LIFE, time.time(), USERS)
    running: list[int] = []
    waiting: list[int] = []
    for request in (("--qos=single",), ("--qos=shared", "--ntasks=3"), ("--licenses=solver:1",)):
        for jobs in (running, waiting):
            jobs.append(slurm.submit(*request, "--mem=10", user="games", script=LONG))
    poll_until_state(bridge, "RUNNING", *running)
    behind = slurm.submit("--mem=10", user="games", script=LONG)
    poll_until_state(bridge, "RUNNING", behind)
    at_own_limit, at_shared_limit, without_license = waiting
    placed = poll_until_reasons(
        bridge,
        {
            at_own_limit: lambda reason: reason.startswith("QOSMax"),
            at_shared_limit: lambda reason: reason.startswith("QOSGrp"),
            without_license: lambda reason: reason in {"Licenses", "Priority"},
        },
    )
    assert placed == [str(at_shared_limit), str(without_license)]


def test_jobs_that_wait_for_a_reservation_keep_their_place_and_hold_nobody_back(
    slurm: LocalSlurm,
) -> None:
    bridge = bridge_to(slurm, HALF_LIFE, time.time(), USERS)
    times = ("starttime=now+1hour", "duration=60")
    slurm.run(
        "scontrol", "create", "reservation", "reservationname=later", *times, "nodes=n1",
        "users=news",
    )  # fmt: skip
    try:
        inside = slurm.submit("--reservation=later", "--mem=10", user="news", script=LONG)
        too_long = slurm.submit("--nodelist=n1", "--mem=10", user="man", script=LONG)
        behind = slurm.submit("--mem=10", user="news", script=LONG)
        poll_until_state(bridge, "RUNNING", behind)
        placed = poll_until_reasons(
            bridge,
            {
                inside: lambda reason: reason == "Reservation",
                too_long: lambda reason: reason in {"ReqNodeNotAvail", "Reservation"},
            },
        )
        assert set(placed) == {str(inside), str(too_long)}
    finally:
        slurm.run("scancel", "--user=news")
        poll_until(bridge, lambda _: not bridge.state.running, 60.0)
        slurm.run("scontrol", "delete", "reservationname=later")


def test_a_preempted_job_counts_until_its_preemption(slurm: LocalSlurm) -> None:
    began = float(int(time.time()))
    bridge = bridge_to(slurm, HALF_LIFE, began, USERS)
    bridge.poll()
    on_n1 = ("--exclusive", "--nodelist=n1", "--mem=10")
    preempted = slurm.submit("--qos=low", *on_n1, user="games", script=LONG)
    poll_until_state(bridge, "RUNNING", preempted)
    assert seen(bridge, preempted).job.quantities["cpus"] == 8000, "the whole node"
    preempting = slurm.submit("--qos=high", *on_n1, user="man", script="sleep 1")
    poll_until_state(bridge, "COMPLETED", preempting)
    assert seen(bridge, preempted).job.restarts == 1
    slurm.run("scancel", str(preempted))
    poll_until(bridge, lambda _: not (bridge.state.running or bridge.state.pending), 60.0)
    bridge.state.settle(bridge.state.observed)
    until = bridge.state.settled.now
    while "DBD Agent queue size: 0\n" not in slurm.run("sdiag"):
        time.sleep(0.5)
    joined, capacities = dict.fromkeys(USERS, began), [(began, CAPACITY)]
    expected = from_sacct(slurm, joined, capacities, HALF_LIFE, until=until)
    findings = bridge.state.findings
    assert (findings.late, findings.corrections, findings.lost) == ([], [], [])
    for user in USERS:
        ours = bridge.state.settled.commitments((user,))[0]
        for resource, amount in expected[user].items():
            assert ours[resource] == pytest.approx(amount, abs=1e-9), (user, resource)
