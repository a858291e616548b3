"""With a real Slurm: a pending job counts in the order as much as Slurm allocates at its start."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from frameworks.local_slurm.cluster import LocalSlurm
from frameworks.local_slurm.configuration import NodeGroup, SlurmSettings
from tests.slurm.real import ROOT, bridge_to, poll_until, reason_to_skip

OPTIONS = (
    ("--exclusive",),
    ("--exclusive", "--nodes=2", "--ntasks=3"),
    ("--exclusive=user",),
    ("--mincpus=5",),
    ("--mincpus=3", "--nodes=2"),
    ("--ntasks=2", "--cpus-per-task=3"),
    ("--mem=0",),
    ("--overcommit", "--ntasks=3"),
)

USERS = ["news" if options == ("--exclusive=user",) else "man" for options in OPTIONS]
"""The user of the exclusive job has no further job, so the job is alone on its node."""


@pytest.mark.slow
@pytest.mark.skipif(reason_to_skip() is not None, reason=str(reason_to_skip()))
def test_a_pending_job_counts_as_much_as_it_gets_at_its_start() -> None:
    settings = SlurmSettings(nodes=(NodeGroup("n", 10, 8, 1000),))
    with (
        TemporaryDirectory(prefix="longshare-expected-") as folder,
        LocalSlurm(Path(folder) / "slurm", settings, ROOT) as slurm,
    ):
        bridge = bridge_to(slurm, 600.0, time.time())
        jobs = [
            slurm.submit("--hold", "--mem=10", *options, user=user, script="sleep 300")
            for options, user in zip(OPTIONS, USERS, strict=True)
        ]
        poll_until(bridge, lambda _: len(bridge.state.pending) == len(jobs), 60.0)
        expected = {job.number: job.quantities for job, _ in bridge.state.pending}
        slurm.run("scontrol", "release", ",".join(map(str, jobs)))
        poll_until(bridge, lambda _: bridge.state.running == len(jobs), 60.0)
        given = {job.number: job.quantities for job, _ in bridge.state.seen()}
        (kept,) = (job for job, _ in bridge.state.seen() if job.exclusive)
        idle = bridge.state._owned.idle(bridge.state.path(kept.user, kept.account))
        given[kept.number] += idle
        assert expected == given
