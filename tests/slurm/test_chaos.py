"""Commitments stay exact on a real Slurm: failures of either side, and jobs of all kinds."""

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from allocator.slurm.bridge import Bridge, Cycle
from allocator.slurm.client import CommandError
from frameworks.local_slurm.cluster import LocalSlurm, ended_jobs
from frameworks.local_slurm.configuration import NodeGroup, SlurmSettings
from tests.slurm.real import (
    ROOT,
    Start,
    bridge_to,
    from_jobcomp,
    poll_until,
    reason_to_skip,
    recorded,
    recorded_starts,
    shown_as_running,
)
from tests.slurm.separate import Held

HALF_LIFE = 15.0
PLAIN = ("games", "man", "news")
"""Users whose jobs are never suspended and never change size."""
SPECIAL = "mail"
CAPACITY = {"cpus": 160.0, "mem": 240_000.0}
SETTINGS = SlurmSettings(
    nodes=(NodeGroup("n", 4, 40, 60_000),),
    partitions={"main": "ALL", "half": "n[1-2]"},
    overrides={"SlurmdTimeout": "5", "MinJobAge": "10"},
)

pytestmark = [
    pytest.mark.usefixtures("ends_as_recorded"),
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.skipif(reason_to_skip() is not None, reason=str(reason_to_skip())),
]


def test_commitments_equal_those_of_the_records_after_failures_and_jobs_of_all_kinds(
    tmp_path: Path,
) -> None:
    with LocalSlurm(tmp_path / "slurm", SETTINGS, ROOT) as slurm:
        began = float(int(time.time()))
        users = dict.fromkeys((*PLAIN, SPECIAL), began)
        bridge = bridge_to(slurm, HALF_LIFE, began, users)
        bridge.poll()
        special = submit_all_kinds(slurm)
        poll_until(bridge, lambda _: special.keys() <= running(bridge, special), 60.0)

        change_jobs(slurm, bridge, special)

        # The controller is killed, and comes back after jobs have ended. It saves its state after
        # at most five seconds; what is newer is lost: ends, starts, and the ids of jobs.
        for _ in range(6):
            bridge.poll()
            time.sleep(1.0)
        before_crash = shown_as_running(slurm)
        slurm.kill_controller()
        with pytest.raises(CommandError):
            bridge.poll()
        time.sleep(3.0)
        slurm.start_controller()
        bridge.poll()
        returned = time.time()

        # Longshare is killed. It comes back from stored commitments after Slurm has forgotten jobs.
        bridge.state.settle(bridge.state.observed - 5.0)
        stored = bridge.state.settled
        since, memory = stored.now, stored.tree.memory()
        observed = bridge.state.findings
        time.sleep(14.0)
        bridge = bridge_to(slurm, HALF_LIFE, since, users)
        bridge.state.inherit(memory)
        bridge.poll()

        fail_node(slurm, bridge)
        for user in users:
            slurm.run("scancel", f"--user={user}")
        poll_until(bridge, lambda _: not bridge.state.running, 60.0)
        time.sleep(2.0)
        until = float(int(time.time()))
        bridge.poll()
        bridge.state.settle(until)
        forgotten = forgotten_starts(before_crash, slurm.jobcomp, returned)
        records = (slurm.jobcomp, users, capacities(bridge, began), HALF_LIFE)
        least = from_jobcomp(*records, until=until)
        # The time of a requeue, which Slurm tells later, can be a second after the recorded end.
        later = [
            replace(held, start=held.end, end=held.end + 1.0)
            for held in recorded(slurm.jobcomp, "PENDING")
        ]
        most = from_jobcomp(*records, until=until, more=[*forgotten, *later])
    assert not observed.late
    assert not bridge.state.findings.late
    assert not bridge.state.findings.lost
    settled = bridge.state.settled
    for user in PLAIN:
        for resource, ours in settled.commitments((user,))[0].items():
            low, high = least[user].get(resource, 0.0), most[user].get(resource, 0.0)
            assert low - 1e-9 <= ours <= high + 1e-9, (user, resource, forgotten)
    # jobcomp knows no suspension, and the start of a job whose size changed; see slurm-order.md.
    commitments = settled.commitments((SPECIAL,))[0]
    assert commitments["cpus"] == pytest.approx(least[SPECIAL]["cpus"], abs=0.03)


def test_jobs_that_slurmctld_forgot_when_it_crashed_count_by_its_records(tmp_path: Path) -> None:
    with LocalSlurm(tmp_path / "slurm", SETTINGS, ROOT) as slurm:
        began = float(int(time.time()))
        users = dict.fromkeys(PLAIN, began)
        bridge = bridge_to(slurm, HALF_LIFE, began, users)
        bridge.poll()
        held = ("--hold", "--exclusive", "--nodes=2", "--mem=0")
        seen = slurm.submit(*held, user="games", script="sleep 600")
        unseen = slurm.submit(*held, user="man", script="sleep 2")
        bridge.poll()
        state, saved = slurm.folder / "state", tmp_path / "saved"
        slurm.stop_controller()  # saves its state
        shutil.copytree(state, saved)
        slurm.start_controller()
        slurm.run("scontrol", "release", f"{seen},{unseen}")
        poll_until(bridge, lambda _: seen in shown_numbers(bridge, "RUNNING"), 60.0)
        time.sleep(1.0)
        slurm.run("scancel", str(seen))
        ends = {(str(seen), "CANCELLED"), (str(unseen), "COMPLETED")}
        while not ends <= {(job["JobId"], job["JobState"]) for job in ended_jobs(slurm.jobcomp)}:
            time.sleep(0.2)
        slurm.kill_controller()
        shutil.rmtree(state)
        saved.rename(state)
        slurm.start_controller()
        time.sleep(bridge.settings.nodes_every)
        bridge.poll()
        assert shown_numbers(bridge, "PENDING") == {seen, unseen}
        bridge.state.settle(bridge.state.observed)
        until = bridge.state.settled.now
        records = (slurm.jobcomp, users, [(began, CAPACITY)], HALF_LIFE)
        expected = from_jobcomp(*records, until=until)
    for user in PLAIN:
        exact = pytest.approx(expected[user], abs=1e-9)
        assert bridge.state.settled.commitments((user,))[0] == exact, user
    assert expected["games"]["cpus"] > 0.0
    assert expected["man"]["cpus"] > 0.0


def shown_numbers(bridge: Bridge, state: str) -> set[int]:
    """Return the jobs with a state at the latest poll."""
    return {seen.job.number for seen in bridge.state.seen() if seen.job.state == state}


def submit_all_kinds(slurm: LocalSlurm) -> dict[str, int]:
    """Submit jobs of all kinds, and return the jobs that are changed later."""
    short, long = "sleep $((4 + SLURM_JOB_ID % 7))", "sleep 60"
    changed = {
        "requeued": slurm.submit("--requeue", "--mem=100", user="news", script=long),
        "resized": slurm.submit("--nodes=2", "--ntasks=4", "--mem=200", user=SPECIAL, script=long),
        "suspended": slurm.submit("--cpus-per-task=6", "--mem=300", user=SPECIAL, script=long),
    }
    slurm.submit("--cpus-per-task=4", "--mem=400", "--array=1-20%8", user="games", script=short)
    slurm.submit("--cpus-per-task=8", "--mem-per-cpu=100", "--array=1-30", user="man", script=short)
    slurm.submit("--partition=half,main", "--exclusive", user="news", script=short)
    component = ("--nodes=1", "--mem=10")  # jobcomp does not tell the memory on several nodes
    slurm.submit("--ntasks=2", *component, ":", "--ntasks=9", *component, user="news", script=short)
    held = slurm.submit("--hold", user="games", script=short)
    slurm.submit(f"--dependency=afterok:{held}", user="man", script=short)
    slurm.submit("--begin=now+1hour", user="man", script=short)
    slurm.run("scancel", str(slurm.submit("--hold", user="news", script=short)))
    on_n4 = ("--nodelist=n4", "--mem=100", "--no-requeue")
    slurm.submit(*on_n4, "--cpus-per-task=5", user="games", script=long)
    slurm.submit("--nodelist=n4", "--mem=100", "--requeue", user="man", script=long)
    return changed


def change_jobs(slurm: LocalSlurm, bridge: Bridge, special: dict[str, int]) -> None:
    """Resize a job, suspend and resume another one, and requeue a job that then starts again."""
    slurm.run("scontrol", "update", f"jobid={special['resized']}", "numnodes=1")
    slurm.run("scontrol", "suspend", str(special["suspended"]))
    slurm.run("scontrol", "requeue", str(special["requeued"]))
    bridge.poll()
    time.sleep(2.0)
    slurm.run("scontrol", "resume", str(special["suspended"]))
    bridge.poll()


def forgotten_starts(before_crash: dict[Start, Held], jobcomp: Path, until: float) -> list[Held]:
    """Return the starts that squeue showed before a crash, and that jobcomp does not have.

    The controller had not saved these starts. It later started the same jobs once more, and a node
    refuses a job that still runs there. So the two sources differ about the time in between: at
    most all of it counts.
    """
    starts = recorded_starts(jobcomp)
    return [replace(held, end=until) for start, held in before_crash.items() if start not in starts]


def fail_node(slurm: LocalSlurm, bridge: Bridge) -> None:
    """Kill a node with its jobs until the bridge has seen that it is down, then start it again."""
    slurm.kill_node("n4")
    poll_until(bridge, lambda _: not bridge.state.nodes["n4"].counts, 60.0)
    slurm.start_node("n4")

    def is_back(_: Cycle) -> bool:
        # After its crash, the controller may give a job's number twice. It then drains the node.
        if "DRAIN" in slurm.run("scontrol", "show", "node", "n4"):
            slurm.run("scontrol", "update", "nodename=n4", "state=resume")
        return bridge.state.nodes["n4"].counts

    poll_until(bridge, is_back, 60.0)


def running(bridge: Bridge, jobs: dict[str, int]) -> set[str]:
    """Return the names of the jobs that were running at the latest poll."""
    numbers = shown_numbers(bridge, "RUNNING")
    return {name for name, number in jobs.items() if number in numbers}


def capacities(bridge: Bridge, began: float) -> list[tuple[float, dict[str, float]]]:
    """Return the capacity of the cluster from each time on, as the bridge saw its changes."""
    changes = [(time, capacity.to_doubles()) for time, capacity in bridge.state.capacities]
    return [(began, CAPACITY), *changes]
