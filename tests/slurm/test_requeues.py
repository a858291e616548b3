"""With a real Slurm: each attempt of a requeued job counts once, from its start to its end."""

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from allocator.slurm.bridge import Bridge
from frameworks.local_slurm.cluster import LocalSlurm
from frameworks.local_slurm.configuration import NodeGroup, SlurmSettings
from tests.slurm.real import ROOT, bridge_to, holding, poll_until, reason_to_skip, recorded

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(reason_to_skip() is not None, reason=str(reason_to_skip())),
]
CORES = 4
KILL_WAIT = 15
"""Seconds in which a busy machine runs a dozen commands and the epilogs of several jobs."""
OPTIONS = (f"--ntasks={CORES}", "--nodes=1", "--mem=10", "--requeue", "--time=60")
LEAVES_SLOWLY = "trap '' TERM\nwhile :; do sleep 1; done"
"""A script that only ends after `KillWait`."""


@pytest.fixture
def slurm() -> Iterator[LocalSlurm]:
    with TemporaryDirectory(prefix="longshare-requeue-") as folder:
        Path(folder).chmod(0o755)  # other users run the epilog
        epilog = Path(folder) / "epilog.sh"
        epilog.write_text("#!/bin/sh\nsleep 2\n")
        epilog.chmod(0o755)
        overrides = {"Epilog": str(epilog), "KillWait": f"{KILL_WAIT}"}
        settings = SlurmSettings(nodes=(NodeGroup("n", 6, CORES, 1000),), overrides=overrides)
        with LocalSlurm(Path(folder) / "slurm", settings, ROOT) as running:
            yield running


def states(slurm: LocalSlurm) -> dict[int, str]:
    rows = slurm.run("squeue", "--states=all", "--noheader", "--format=%A %T").splitlines()
    return {int(job): state for job, state in map(str.split, rows)}


def ends_of(bridge: Bridge, job: int) -> list[tuple[float, float | None]]:
    """Return the start and the end of all attempts of a job.

    Slurm tells an attempt without duration of a job cancelled before its next start. The function
    leaves such attempts out.
    """
    timelines = {key.number: line for key, line in bridge.state._timelines.items()}
    times = ((attempt.start, attempt.end) for attempt in timelines[job].attempts)
    return [(start, end) for start, end in times if start != end]


def test_a_suspended_task_and_a_component_are_read_alone(slurm: LocalSlurm) -> None:
    bridge = bridge_to(slurm, 600.0, time.time())
    small = ("--nodes=1", "--ntasks=1", "--mem=10")
    array = slurm.submit(*small, "--array=1-2", script="sleep 300")
    components = slurm.submit(*small, ":", *small, script="sleep 300")
    poll_until(bridge, lambda _: bridge.state.running == 4, 60.0)
    suspended = (f"{array}_1", f"{array}_2", str(components))
    for name in suspended:
        slurm.run("scontrol", "suspend", name)
    cycle = bridge.poll()
    assert cycle.tree.standing(("games",)).allocation.to_doubles()["mem"] == 40.0
    assert "cpus" not in cycle.tree.standing(("games",)).allocation
    for name in suspended:
        slurm.run("scontrol", "resume", name)
    poll_until(bridge, lambda _: holding(bridge, {"games": 4}), 30.0)
    assert not bridge.rejected.counts


def test_requeued_jobs_hold_nothing_from_leaving_their_nodes_until_their_next_start(
    slurm: LocalSlurm,
) -> None:
    bridge = bridge_to(slurm, 600.0, time.time())
    requeued, held, special, failed, cancelled, slow = jobs = [
        slurm.submit(*OPTIONS, script="sleep 300" if place < 5 else LEAVES_SLOWLY)
        for place in range(6)
    ]
    poll_until(bridge, lambda _: bridge.state.running == len(jobs), 60.0)
    time.sleep(2.0)  # each attempt lasts a few seconds
    node = slurm.run("squeue", f"--jobs={failed}", "--noheader", "--format=%N").strip()
    slurm.run("scontrol", "requeue", f"{requeued},{cancelled},{slow}")
    slurm.run("scontrol", "requeuehold", str(held))
    slurm.run("scontrol", "requeuehold", "state=specialexit", str(special))
    slurm.run("scontrol", "update", f"nodename={node}", "state=down", "reason=trial")
    bridge.poll()
    assert states(slurm)[slow] == "COMPLETING"
    assert not bridge.state.running
    slurm.run("scancel", str(cancelled))
    poll_until(bridge, lambda _: holding(bridge, {"games": CORES}), 60.0)
    latest_end = stays = time.time()
    slurm.run("scontrol", "update", f"jobid={slow}", "starttime=now")  # squeue: N/A as the start
    while (asked := time.time()) and states(slurm)[slow] == "COMPLETING":
        stays = asked
        bridge.poll()
        time.sleep(0.5)
    gone = time.time()
    slurm.run("scontrol", "update", f"jobid={slow}", "starttime=now")
    poll_until(bridge, lambda _: states(slurm)[slow] == "RUNNING", 60.0)
    cycle = bridge.poll()
    assert cycle.tree.standing(("games",)).allocation.to_doubles()["cpus"] == CORES
    first, second = ends_of(bridge, slow)
    assert second[1] is None
    attempts = [ends_of(bridge, job) for job in jobs[:-1]]
    ends = sorted((end or 0.0) for times in attempts for _, end in times if end)
    # jobcomp tells when each job was requeued, not when the job left its node.
    requeues = sorted(record.end for record in recorded(slurm.jobcomp))
    assert first[1] is not None
    assert stays - 1.0 <= first[1] <= gone, "Slurm's times are whole seconds"
    assert [len(times) for times in attempts] == [1] * len(ends)
    assert all(requeue <= end <= latest_end for requeue, end in zip(requeues, ends, strict=False))
    assert not bridge.state.findings.corrections
