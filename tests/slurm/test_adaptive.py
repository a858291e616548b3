"""The adaptive experiment of the SDRF paper, small, on a real Slurm."""

import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from allocator.slurm.bridge import Bridge
from allocator.slurm.jobs import array_tasks
from frameworks.local_slurm.cluster import LocalSlurm
from tests.slurm.real import ROOT, USERS, bridge_to, poll_until, reason_to_skip, recorded
from tests.slurm.separate import Held, commitments

HALF_LIFE = 20.0
"""Seconds; jobs are a quarter as long."""
PHASES = {"games": 18.0, "man": 16.0, "news": 14.0}
"""Seconds from each user's first job to the first job of the next user, or to the end."""
SETTLING = 4.0
"""Seconds of a phase without a measurement: running jobs end first."""
JOB = ("--cpus-per-task=10", "--mem=1000", "--array=0-29")
SCRIPT = "sleep $((3 + SLURM_ARRAY_TASK_ID % 4))"
CAPACITY = {"cpus": 160.0, "mem": 240_000.0}

pytestmark = [
    pytest.mark.usefixtures("ends_as_recorded"),
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.skipif(reason_to_skip() is not None, reason=str(reason_to_skip())),
]


def test_newcomers_lead_and_commitments_decay_on_a_real_slurm(tmp_path: Path) -> None:
    with LocalSlurm(tmp_path / "slurm", root=ROOT) as slurm:
        began = float(int(time.time()))
        bridge = bridge_to(slurm, HALF_LIFE, began, USERS)
        starts = play(slurm, bridge)
        for user in USERS:
            slurm.run("scancel", f"--user={user}")
        poll_until(bridge, lambda _: not bridge.state.running, 60.0)
        bridge.state.settle(bridge.state.observed)
        until = bridge.state.settled.now
        held = list(recorded(slurm.jobcomp))

        def computed(until: float) -> dict[str, dict[str, float]]:
            capacities = [(began, CAPACITY)]
            joined = dict.fromkeys(USERS, began)
            return commitments(held, joined, capacities, HALF_LIFE, until)

    findings = bridge.state.findings
    assert (findings.late, findings.corrections, findings.lost) == ([], [], [])
    for user in USERS:
        exact = pytest.approx(computed(until)[user], abs=1e-9)
        assert bridge.state.settled.commitments((user,))[0] == exact

    def mean(user: str, phase: str) -> float:
        first, last = starts[phase] + SETTLING, starts[phase] + PHASES[phase]
        return mean_cores(held, user, first, last)

    assert mean("games", "games") > 120, "alone, a user gets everything"
    assert mean("man", "man") > 1.2 * mean("games", "man"), "a newcomer leads"
    assert mean("news", "news") > 1.2 * mean("games", "news")
    before, last = computed(starts["man"]), computed(starts["news"] + PHASES["news"])
    assert before["games"]["cpus"] > 0.15
    assert last["games"]["cpus"] < 0.7 * before["games"]["cpus"], "commitments decay"


def play(slurm: LocalSlurm, bridge: Bridge) -> dict[str, float]:
    """Submit the users' jobs while the bridge polls; return when each user's first job came."""
    starts: dict[str, float] = {}
    for newcomer, seconds in PHASES.items():
        starts[newcomer] = time.time()
        while time.time() < starts[newcomer] + seconds:
            for user in starts:
                if pending_tasks(bridge, user) < 15:
                    slurm.submit(*JOB, user=user, script=SCRIPT)
            assert not bridge.poll().failures
            time.sleep(0.5)
    return starts


def pending_tasks(bridge: Bridge, user: str) -> int:
    """Return how many tasks of a user were pending at the latest poll."""
    pending = (seen.job for seen in bridge.state.pending if seen.job.user == user)
    return sum(len(list(array_tasks(job.tasks))) for job in pending)


def mean_cores(held: Iterable[Held], user: str, first: float, last: float) -> float:
    """Return a user's mean number of cores between two times."""
    core_seconds = sum(
        part.amounts["cpus"] * max(min(part.end, last) - max(part.start, first), 0.0)
        for part in held
        if part.user == user
    )
    return core_seconds / (last - first)
