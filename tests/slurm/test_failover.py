"""The bridge goes on when a second slurmctld takes over from the first."""

import math
import time
from pathlib import Path

import pytest

from allocator.slurm.bridge import Bridge, Cycle
from allocator.slurm.client import CommandError
from frameworks.local_slurm.cluster import LocalSlurm
from frameworks.local_slurm.configuration import NodeGroup, SlurmSettings
from tests.slurm.real import ROOT, bridge_to, from_jobcomp, reason_to_skip

HALF_LIFE = 15.0
CAPACITY = {"cpus": 8.0, "mem": 1000.0}
SETTINGS = SlurmSettings(
    nodes=(NodeGroup("n", 1, 8, 1000),), backup=True, overrides={"SlurmctldTimeout": "3"}
)
USERS = ("games", "man")
WHOLE_NODE = ("--cpus-per-task=8", "--mem=10")
UNTIL_CANCELLED = "sleep 600"

pytestmark = [
    pytest.mark.usefixtures("ends_as_recorded"),
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.skipif(reason_to_skip() is not None, reason=str(reason_to_skip())),
]


def test_after_a_failover_of_slurmctld_the_order_continues_and_commitments_are_exact(
    tmp_path: Path,
) -> None:
    with LocalSlurm(tmp_path / "slurm", SETTINGS, ROOT) as slurm:
        began = float(int(time.time()))
        bridge = bridge_to(slurm, HALF_LIFE, began, USERS)
        bridge.poll()
        blocking = slurm.submit(*WHOLE_NODE, user="games", script=UNTIL_CANCELLED)
        waiting = slurm.submit(*WHOLE_NODE, user="man", script="sleep 1")
        first = poll_through(bridge, running=1)
        assert [placed.target for placed in first.order.placed] == [str(waiting)]
        before = time.time()
        slurm.run("scontrol", "update", f"jobid={waiting}", "comment=causes-a-save")
        wait_for_state(slurm.folder / "state", before)
        slurm.kill_controller()
        poll_through(bridge, running=1)
        assert "backup is UP" in slurm.run("scontrol", "ping")
        slurm.run("scancel", str(blocking))
        poll_through(bridge, running=0)
        # The new controller accepts site factors.
        blocking = slurm.submit(*WHOLE_NODE, user="games", script=UNTIL_CANCELLED)
        poll_through(bridge, running=1)
        waiting = slurm.submit(*WHOLE_NODE, user="man", script="sleep 1")
        while not bridge.client.site_factors().get(str(waiting)):
            assert not bridge.poll().failures
            assert bridge.state.running == 1
        slurm.run("scancel", str(blocking))
        poll_through(bridge, running=0)
        bridge.state.settle(bridge.state.observed)
        until = bridge.state.settled.now
        known, capacities = dict.fromkeys(USERS, began), [(began, CAPACITY)]
        expected = from_jobcomp(slurm.jobcomp, known, capacities, HALF_LIFE, until=until)
    assert not bridge.state.findings.lost
    for user in USERS:
        exact = pytest.approx(expected[user], abs=1e-9)
        assert bridge.state.settled.commitments((user,))[0] == exact, user


def modified_at(file: Path) -> float:
    """Return when a file was modified, in seconds since 1970; −∞ while slurmctld replaces it."""
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return -math.inf


def wait_for_state(folder: Path, since: float) -> None:
    """Wait until slurmctld has saved its state after a time, for the second slurmctld."""
    deadline = time.monotonic() + 60.0
    needed = [folder / name for name in ("heartbeat", "job_state")]
    while not all(modified_at(file) > since for file in needed):
        assert time.monotonic() < deadline, "slurmctld has not saved its state"
        time.sleep(0.2)


def poll_through(bridge: Bridge, running: int) -> Cycle:
    """Poll until a number of jobs run and no controller is missing; fail after a minute."""
    deadline = time.monotonic() + 60.0
    while True:
        try:
            cycle = bridge.poll()
        except CommandError:
            assert time.monotonic() < deadline
            continue
        if bridge.state.running == running and (running or not bridge.state.pending):
            return cycle
        assert time.monotonic() < deadline
        time.sleep(0.3)
