"""The adaptive experiment of the SDRF paper, small, on a real Slurm."""

import time
from pathlib import Path

import pytest

from allocator.slurm.bridge import Bridge
from allocator.slurm.jobs import array_tasks
from frameworks.local_slurm.cluster import LocalSlurm
from tests.slurm.real import ROOT, USERS, bridge_to, from_jobcomp, reason_to_skip

HALF_LIFE = 20.0
"""Seconds; jobs are a quarter as long."""
ARRIVALS = {"games": 0.0, "man": 18.0, "news": 34.0}
END = 48.0
JOB = ("--cpus-per-task=10", "--mem=1000", "--array=0-29")
SCRIPT = "sleep $((3 + SLURM_ARRAY_TASK_ID % 4))"
CAPACITY = {"cpus": 160.0, "mem": 240_000.0}
Series = dict[float, dict[str, float]]

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(reason_to_skip() is not None, reason=str(reason_to_skip())),
]


def test_newcomers_lead_and_commitments_decay_on_a_real_slurm(tmp_path: Path) -> None:
    with LocalSlurm(tmp_path / "slurm", root=ROOT) as slurm:
        began = float(int(time.time()))
        bridge = bridge_to(slurm, HALF_LIFE, began, USERS)
        cores, commitments = play(slurm, bridge)
        for user in USERS:
            slurm.run("scancel", f"--user={user}")
        time.sleep(3.0)
        bridge.poll()
        until = float(int(time.time()))
        bridge.poll()
        bridge.state.settle(until)
        expected = from_jobcomp(
            slurm.jobcomp, dict.fromkeys(USERS, began), [(began, CAPACITY)], HALF_LIFE, until=until
        )
    findings = bridge.state.findings
    assert (findings.late, findings.corrections, findings.lost) == ([], [], [])
    for user in USERS:
        exact = pytest.approx(expected[user], abs=1e-9)
        assert bridge.state.settled.commitments((user,))[0] == exact

    assert mean(cores, "games", 4, 18) > 120, "alone, a user gets everything"
    assert mean(cores, "man", 22, 32) > 1.2 * mean(cores, "games", 22, 32), "a newcomer leads"
    assert mean(cores, "news", 38, 46) > 1.2 * mean(cores, "games", 38, 46)
    before = max(time for time in commitments if time < ARRIVALS["man"])
    last = max(commitments)
    assert commitments[before]["games"] > 0.15
    assert commitments[last]["games"] < 0.7 * commitments[before]["games"], "commitments decay"


def play(slurm: LocalSlurm, bridge: Bridge) -> tuple[Series, Series]:
    """Submit the users' jobs while the bridge polls; return cores and commitments over time."""
    began = time.monotonic()
    cores: Series = {}
    commitments: Series = {}
    while (elapsed := time.monotonic() - began) < END:
        for user, arrival in ARRIVALS.items():
            if elapsed >= arrival and pending_tasks(bridge, user) < 15:
                slurm.submit(*JOB, user=user, script=SCRIPT)
        cycle = bridge.poll()
        assert not cycle.failures
        standings = {path[0]: cycle.tree.standing(path) for path in cycle.tree.users()}
        cores[elapsed] = {u: s.allocation["cpus"] / 1000 for u, s in standings.items()}
        commitments[elapsed] = {u: s.commitment for u, s in standings.items()}
        time.sleep(0.5)
    return cores, commitments


def pending_tasks(bridge: Bridge, user: str) -> int:
    """Return how many tasks of a user were pending at the latest poll."""
    pending = (seen.job for seen in bridge.state.pending if seen.job.user == user)
    return sum(len(list(array_tasks(job.tasks))) for job in pending)


def mean(cores: Series, user: str, first: float, last: float) -> float:
    values = [by_user[user] for time, by_user in cores.items() if first <= time <= last]
    return sum(values) / len(values)
