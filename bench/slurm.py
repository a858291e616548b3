"""CPU time and memory of a poll of a large Slurm: 10,000 pending and 5,000 running jobs.

The output of Slurm's client commands is generated, in the form of Slurm 22.05. The figures concern
Longshare's own process alone.
"""

import argparse
import gc
import random
import resource
import statistics
import time
from collections import deque
from collections.abc import Iterable

from allocator.fairness.policies import create
from allocator.service.loop import gc_tuning
from allocator.slurm.bridge import Bridge, BridgeSettings
from allocator.slurm.client import SlurmClient
from allocator.slurm.factors import FactorUpdate
from allocator.slurm.rows import COLUMN_END
from allocator.slurm.state import StateSettings

PENDING = 10_000
RUNNING = 5_000
USERS = 500
NODES = 1_000
PERIOD = 10
"""Seconds between two polls."""
STARTS = 100
"""Jobs that start, and jobs that end, between two polls."""
POLLS = 40
BEGAN = 1_800_000_000


class GeneratedSlurm(SlurmClient):
    """A Slurm that exists as text only; starts the jobs with the highest site factors.

    Args:
        pending: Number of pending jobs.
        running: Number of running jobs.
    """

    def __init__(self, pending: int, running: int) -> None:
        super().__init__()
        self._random = random.Random(1)  # noqa: S311 - a generator of test data
        self.now = BEGAN
        self._number = 0
        self._running: deque[tuple[int, str, int]] = deque()
        self._ended: deque[tuple[int, str, int, int]] = deque()
        self._waiting: dict[int, str] = {}
        self._factors: dict[str, int] = {}
        self._submit(pending)
        for _ in range(running):
            self._number += 1
            self._running.append(
                (self._number, self._shape(), BEGAN - self._random.randrange(9000))
            )

    def _shape(self) -> str:
        cores = self._random.choice((1, 1, 2, 4, 8, 16, 64))
        gpus = self._random.choice(("", "", "", ",gres/gpu=1", ",gres/gpu:a100=2,gres/gpu=2"))
        user = int(USERS * self._random.random() ** 2)
        partition = "gpu" if gpus else self._random.choice(("main", "main", "long", "main,long"))
        return (
            f"user{user}|account{user % 40}|{partition}|normal|"
            f"cpu={cores},mem={cores * 4000}M,node=1,billing={cores}{gpus}"
        )

    def _submit(self, count: int) -> None:
        for _ in range(count):
            self._number += 1
            self._waiting[self._number] = self._shape()

    def pass_time(self) -> None:
        """End and start jobs between two polls."""
        for _ in range(STARTS):
            number, shape, start = self._running.popleft()
            self._ended.append((number, shape, start, self.now + self._random.randrange(PERIOD)))
        while self._ended and self._ended[0][3] < self.now - 300:
            self._ended.popleft()
        first = sorted(self._waiting, key=lambda number: -self._factors.get(str(number), 0))
        for number in first[:STARTS]:
            start = self.now + self._random.randrange(PERIOD)
            self._running.append((number, self._waiting.pop(number), start))
            self._factors.pop(str(number), None)
        self._submit(STARTS)
        self.now += PERIOD

    def jobs(self) -> bytes:
        """Return all jobs, as squeue prints them."""
        lines = []
        for number, shape in self._waiting.items():
            lines.append(self._line(number, shape, "PENDING", "N/A", "N/A", "0:00", "Priority"))
        for number, shape, start in self._running:
            ran = self.now - start
            used = f"{ran // 3600}:{ran // 60 % 60:02}:{ran % 60:02}"
            lines.append(self._line(number, shape, "RUNNING", str(start), "N/A", used, "None"))
        for number, shape, start, end in self._ended:
            ran = end - start
            used = f"{ran // 3600}:{ran // 60 % 60:02}:{ran % 60:02}"
            line = self._line(number, shape, "COMPLETED", str(start), str(end), used, "None")
            lines.append(line)
        return ("\n".join(lines) + "\n").encode()

    def _line(  # noqa: PLR0913, PLR0917 - columns
        self, number: int, shape: str, state: str, start: str, end: str, used: str, reason: str
    ) -> str:
        user, account, partition, qos, resources = shape.split("|")
        priority = self._factors.get(str(number), 1)
        memory = resources.partition("mem=")[2].partition(",")[0]
        own = (
            f"{used}|{number}|{number}|N/A|N/A|{state}|{priority}"
            f"|0|{BEGAN - 20_000}|{BEGAN - 20_000}|{start}|{end}|N/A|0|1"
            f"|1|1|0|N/A|N/A|*|{memory}|OK||{resources}"
        )
        return COLUMN_END.join(
            (own, user, account, partition, qos, reason, "N/A", "N/A", "N/A", "", "(null)", "")
        )

    def configuration(self) -> dict[str, str]:
        """Return the settings of slurmctld by name."""
        return {"MinJobAge": "300 sec", "BOOT_TIME": str(BEGAN)}

    def nodes(self) -> str:
        """Return all nodes, as scontrol prints them."""
        lines = []
        for number in range(NODES):
            kind = "gpu" if number % 4 == 0 else "main,long"
            gpus = ",gres/gpu=4,gres/gpu:a100=4" if kind == "gpu" else ""
            lines.append(
                f"NodeName=n{number} Arch=x86_64 CoresPerSocket=32  CPUAlloc=12 CPUTot=64 "
                f"Gres=(null) NodeAddr=10.0.0.1 NodeHostName=n{number} Port=6818 Version=22.05.8 "
                f"OS=Linux 6.1 #1 SMP RealMemory=256000 State=MIXED Partitions={kind}  "
                f"CfgTRES=cpu=64,mem=250G,billing=64{gpus} AllocTRES=cpu=12"
            )
        return "\n".join(lines)

    def site_factors(self) -> dict[str, int]:
        """Return the site factors, as sprio prints them."""
        return dict(self._factors)

    def set_factors(self, updates: Iterable[FactorUpdate]) -> list[str]:
        """Set site factors."""
        for target, factor in updates:
            if factor:
                self._factors[target] = factor
            else:
                self._factors.pop(target, None)
        return []


def main() -> None:
    """Poll a generated Slurm, and print the CPU time of a poll and the memory of the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pending", type=int, default=PENDING, help=f"at least {STARTS}")
    parser.add_argument("--running", type=int, default=RUNNING, help=f"at least {STARTS}")
    parser.add_argument("--polls", type=int, default=POLLS)
    arguments = parser.parse_args()
    gc_tuning.enable()  # as the service does
    slurm = GeneratedSlurm(arguments.pending, arguments.running)
    state = StateSettings(create("sdrf", {"half_life": "1d"}))
    bridge = Bridge(slurm, BridgeSettings(state, dry_run=False), float(BEGAN - 5))
    seconds, updates, collections = [], [], []
    for _ in range(arguments.polls):
        slurm.jobs()  # warm
        before = time.process_time()
        text, factors = slurm.jobs(), slurm.site_factors()
        generated = time.process_time() - before
        del text, factors
        before = time.process_time()
        cycle = bridge.poll(float(slurm.now))
        seconds.append(time.process_time() - before - generated)
        updates.append(len(cycle.updates))
        before = time.process_time()
        gc.unfreeze()  # as `collect_after_snapshot`, which the service calls after a reading
        gc.collect()
        collections.append(time.process_time() - before)
        slurm.pass_time()
    first, later = seconds[0], sorted(seconds[1:])
    print(f"pending {arguments.pending}, running {arguments.running}, ", end="")
    print(f"users {USERS}, nodes {NODES}, starts {STARTS}")
    print(f"first poll           {first:.3f} s of CPU")
    print(f"later polls, median  {statistics.median(later):.3f} s of CPU")
    print(f"later polls, longest {later[-1]:.3f} s of CPU")
    print(
        f"full collection, median {statistics.median(collections):.3f} s of CPU, each 10 s or more"
    )
    print(f"updates, median      {statistics.median(updates[1:]):.0f}")
    print(f"placed               {len(cycle.order.placed)}")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"memory               {memory:.0f} MiB, with the generated Slurm")


if __name__ == "__main__":
    main()
