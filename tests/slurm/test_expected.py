"""With a real Slurm: a pending job counts in the order as much as Slurm allocates at its start."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from allocator.slurm.client import SlurmClient
from allocator.slurm.jobs import Job, JobReader, read_nodes
from frameworks.local_slurm.cluster import LocalSlurm
from frameworks.local_slurm.configuration import NodeGroup, SlurmSettings
from tests.slurm.real import ROOT, bridge_to, poll_until, reason_to_skip

OPTIONS = (  # `--mem` with more CPUs than nodes: otherwise it could be `--mem-per-cpu`
    ("--exclusive", "--ntasks=2"),
    ("--exclusive", "--nodes=2", "--ntasks=3"),
    ("--exclusive=user",),
    ("--mincpus=5", "--ntasks=2"),
    ("--mincpus=3", "--nodes=2", "--ntasks=3"),
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
        if ROOT is not None:  # Slurm 24.11 chooses nodes by --mincpus, but allocates fewer CPUs
            for number, options in zip(jobs, OPTIONS, strict=True):
                if "--mincpus" in options[0] and expected[number].contains(given[number]):
                    given[number] = expected[number]
        assert expected == given


RANGES = (
    ("--nodes=1-4", "--cpus-per-task=4"),
    ("--nodes=1-4", "--ntasks=4", "--mem=1000"),
    ("--nodes=1-4", "--mem-per-cpu=500", "--cpus-per-task=2"),
    ("--nodes=1-4", "--exclusive"),
    ("--nodes=1-4", "--gpus-per-node=4"),
    ("--nodes=1-4", "--gpus-per-node=2", "--cpus-per-gpu=3"),
    ("--nodes=1-3", "--gpus-per-node=2", "--mem-per-gpu=300", "--ntasks=8"),
    ("--nodes=1-3", "--overcommit"),
    ("--nodes=1-100000", "--gres=gpu:1"),
    ("--ntasks=4", "--ntasks-per-node=1", "--gres=gpu:4"),
    ("--ntasks=4", "--ntasks-per-node=1", "--gres=gpu:4", "--mem=4000"),
    ("--ntasks=6", "--ntasks-per-node=4", "--gres=gpu:1"),
    ("--ntasks=4", "--cpus-per-task=8", "--gres=gpu:4"),
    ("--ntasks=4", "--mem-per-cpu=4000", "--gres=gpu:4"),
    ("--ntasks=4", "--mem-per-cpu=3000", "--gres=gpu:4"),
    ("--ntasks=3", "--cpus-per-task=5", "--gres=gpu:4"),
    ("--ntasks=4", "--spread-job", "--gres=gpu:2", "--mem=1000"),
    ("--ntasks=16", "--mem=1000"),
    ("--gpus=8", "--mem=1000"),
    ("--exclusive",),
    ("--exclusive", "--ntasks=2", "--mem=500"),
)
"""Requests for which Slurm allocates more than the least. Without `--mem`, Slurm allocates memory
for each CPU."""


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif(
    reason_to_skip(accounting=True) is not None, reason=str(reason_to_skip(accounting=True))
)
def test_a_pending_job_of_several_possible_sizes_counts_as_the_largest() -> None:
    """Each job gets the whole cluster, so Slurm allocates the most."""
    settings = SlurmSettings(
        nodes=(NodeGroup("n", 4, 8, 4000, "gpu:4"),),
        accounting=True,
        overrides={"DefMemPerCPU": "100", "AccountingStorageEnforce": "nojobs"},
    )
    with (
        TemporaryDirectory(prefix="longshare-ranges-") as folder,
        # Sockets have paths of at most 107 bytes, but the folder may have a longer path.
        LocalSlurm(Path(folder) / ("long-" * 20), settings, ROOT) as slurm,
    ):
        client = SlurmClient(slurm.environment, timeout=20.0)
        reader = JobReader()
        reader.set_nodes(read_nodes(client.nodes()))
        expected, given = {}, {}
        for options in RANGES:
            number = slurm.submit("--hold", *options, script="sleep 300")
            expected[options] = seen(client, reader, number).quantities
            slurm.run("scontrol", "release", str(number))
            deadline = time.monotonic() + 30.0
            while (job := seen(client, reader, number)).started is None:
                assert time.monotonic() < deadline, f"{options}: {job}"
                time.sleep(0.1)
            given[options] = job.quantities
            slurm.run("scancel", str(number))
            slurm.wait_until_idle()  # nodes of a completing job hold no other job
        assert expected == given


THREADS = (
    ("--ntasks=3", "--mem-per-cpu=100"),
    ("--ntasks=3", "--cpus-per-task=3", "--mem-per-cpu=100"),
    ("--nodes=2", "--ntasks=5", "--mem-per-cpu=100"),
    ("--nodes=4", "--mem-per-cpu=100"),
    ("--threads-per-core=1", "--ntasks=3", "--mem-per-cpu=100"),
    ("--threads-per-core=1", "--ntasks=2", "--cpus-per-task=3", "--mem-per-cpu=100"),
    ("--threads-per-core=2", "--ntasks=3", "--mem-per-cpu=100"),
    ("--threads-per-core=1", "--mincpus=3", "--mem-per-cpu=100"),
    ("--hint=nomultithread", "--ntasks=4", "--mem=1000"),
    ("--hint=compute_bound", "--ntasks=4", "--mem=1000"),
    ("--ntasks-per-core=1", "--ntasks=4", "--mem-per-cpu=100"),
    ("--ntasks-per-core=1", "--ntasks=2", "--cpus-per-task=3", "--mem-per-cpu=100"),
    ("--ntasks-per-core=2", "--ntasks=4", "--mem-per-cpu=100"),
    ("--exclusive", "--ntasks=3", "--mem=1000"),
)
"""Requests on nodes with two threads for each core. Slurm allocates whole cores."""


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif(reason_to_skip() is not None, reason=str(reason_to_skip()))
@pytest.mark.parametrize("parameters", ["CR_Core_Memory", "CR_CPU_Memory"])
def test_a_pending_job_counts_with_the_threads_that_slurm_allocates(parameters: str) -> None:
    settings = SlurmSettings(
        nodes=(NodeGroup("n", 4, 16, 4000, threads=2),),
        overrides={"SelectTypeParameters": parameters},
    )
    with (
        TemporaryDirectory(prefix="longshare-threads-") as folder,
        LocalSlurm(Path(folder) / "slurm", settings, ROOT) as slurm,
    ):
        bridge = bridge_to(slurm, 600.0, time.time())
        expected, given = {}, {}
        for options in THREADS:
            number = slurm.submit("--hold", *options, script="sleep 300")
            poll_until(bridge, lambda _: len(bridge.state.pending) == 1, 30.0)
            ((job, _),) = bridge.state.pending
            expected[options] = job.quantities
            slurm.run("scontrol", "release", str(number))
            poll_until(bridge, lambda _: bridge.state.running == 1, 30.0)
            (given[options],) = [
                seen.job.quantities
                for seen in bridge.state.seen()
                if seen.job.number == number and seen.job.ended is None
            ]
            slurm.run("scancel", str(number))
            slurm.wait_until_idle()
        assert expected == given


def seen(client: SlurmClient, reader: JobReader, number: int) -> Job:
    """Return a job as the service reads it."""
    (job,) = (job for job, _ in reader.read(client.jobs()) if job.number == number)
    return job
