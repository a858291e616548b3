"""Time that Slurm's client commands and slurmctld need for a poll with 10,000 pending records.

As root, the program starts a throw-away Slurm of this machine's packages. The pending records are
tasks of arrays; a site factor has split each task from its array.
"""

import argparse
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from allocator.slurm.client import SlurmClient
from allocator.slurm.factors import FactorUpdate
from frameworks.local_slurm.cluster import LocalSlurm, missing_programs
from frameworks.local_slurm.configuration import NodeGroup, SlurmSettings

USERS = ("daemon", "bin", "sys", "games", "man", "lp", "mail", "news", "uucp", "proxy")
TASKS = 1_000
"""Pending tasks of each user's array."""
UPDATES = 1_000
"""Site factors of one poll at most, the default of `slurm.updates`."""
REPEATS = 5
SETTINGS = SlurmSettings(
    nodes=(NodeGroup("n", 4, 4, 4000),),
    overrides={
        "MaxArraySize": str(TASKS + 1),
        "MaxJobCount": "30000",
        "PriorityCalcPeriod": "10",
        # The usual pace of Slurm's scheduler, which also takes time of slurmctld.
        "SchedulerParameters": "bf_interval=30,sched_interval=60",
    },
)


def main() -> None:
    """Fill a Slurm, run each command of a poll some times, and print the mean times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=TASKS, help="pending tasks of each user")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    arguments = parser.parse_args()
    missing = missing_programs()
    if missing or os.geteuid() != 0:
        print(f"skipped: needs root and Slurm's programs (missing: {', '.join(missing) or 'none'})")
        return
    with (
        tempfile.TemporaryDirectory(prefix="longshare-bench-") as folder,
        LocalSlurm(Path(folder) / "slurm", SETTINGS) as slurm,
    ):
        client = SlurmClient(slurm.environment, timeout=600.0)
        slurm.submit("--nodes=4", "--exclusive", script="sleep 100000")
        while "R" not in slurm.run("squeue", "--noheader", "--format=%t"):
            time.sleep(0.1)
        job = ("--mem=10", f"--array=1-{arguments.tasks}")
        arrays = [slurm.submit(*job, user=user, script="sleep 10") for user in USERS]
        tasks = [f"{array}_{task}" for array in arrays for task in range(1, arguments.tasks + 1)]
        client.set_factors(FactorUpdate(task, 500) for task in tasks)
        controller = int((slurm.folder / "slurmctld.pid").read_text())
        records = client.jobs().count(b"|PENDING|")
        factors = len(client.site_factors())
        print(f"{records} pending records of {len(USERS)} users, {factors} in sprio")
        print(f"seconds, mean of {arguments.repeats}")
        print("command                      elapsed  client's CPU  slurmctld's CPU")
        values = iter(range(1, arguments.repeats + 1))

        def update() -> None:
            factor = 500 + 1009 * next(values)
            client.set_factors(FactorUpdate(task, factor) for task in tasks[:UPDATES])

        commands: dict[str, Callable[[], object]] = {
            "squeue, all jobs": client.jobs,
            "sprio, all site factors": client.site_factors,
            "scontrol show nodes": client.nodes,
            f"scontrol, {UPDATES} site factors": update,
        }
        for name, command in commands.items():
            measured = zip(
                *(_measure(command, controller) for _ in range(arguments.repeats)), strict=True
            )
            elapsed, own, controllers = map(statistics.mean, measured)
            print(f"{name:<28} {elapsed:7.2f} {own:13.2f} {controllers:16.2f}")


def _measure(command: Callable[[], object], controller: int) -> tuple[float, float, float]:
    """Return a command's elapsed time and CPU time, and the CPU time of slurmctld, in seconds."""
    before, theirs, began = _children(), _cpu(controller), time.monotonic()
    command()
    return time.monotonic() - began, _children() - before, _cpu(controller) - theirs


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _cpu(process: int) -> float:
    """Return the CPU time of a process in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
