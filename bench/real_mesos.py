"""Compare with stock on a real Mesos: time from a finished task to an offer, master's CPU time.

Needs LONGSHARE_MESOS_HOME, see docs/lab/real-mesos.md.
"""

import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pymesos import MesosSchedulerDriver, Scheduler
from rich.console import Console
from rich.progress import track
from rich.table import Table

from frameworks.harness.processes import Children
from frameworks.harness.real_mesos import MesosHome, RealMesos, kill_processes_in

TASKS = 30
AGENTS = 4
CONFIGURATION = """
[policy]
name = "drf"
[offers]
allocation = "{allocation}"
[listen]
address = "unix://{folder}/allocator.sock"
[metrics]
address = "127.0.0.1:0"
[store]
path = "{folder}/commitments.sqlite"
"""


@dataclass
class OneAfterTheOther(Scheduler):  # type: ignore[misc]  # pymesos is not typed
    """Runs a task as soon as a core is offered, and records the waiting times."""

    waits: list[float] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)
    finished: float | None = None
    launched: int = 0
    running: bool = False

    def resourceOffers(  # noqa: N802 - pymesos's name
        self, driver: MesosSchedulerDriver, offers: Sequence[Mapping[str, Any]]
    ) -> None:
        """Launch a task on the offer, and decline the rest for long."""
        for offer in offers:
            if self.running or self.launched >= TASKS:
                driver.declineOffer(offer["id"], filters={"refuse_seconds": 3600.0})
                continue
            if self.finished is not None:
                self.waits.append(time.monotonic() - self.finished)
            self.running = True
            self.launched += 1
            resource = {"name": "cpus", "type": "SCALAR", "scalar": {"value": 1}}
            task = {
                "task_id": {"value": f"t{self.launched}"},
                "name": "t",
                "agent_id": offer["agent_id"],
                "command": {"value": "true"},
                "resources": [resource],
            }
            driver.launchTasks(offer["id"], [task], filters={"refuse_seconds": 3600.0})

    def statusUpdate(  # noqa: N802 - pymesos's name
        self,
        driver: MesosSchedulerDriver,  # noqa: ARG002
        update: Mapping[str, Any],
    ) -> None:
        """Note when the task has finished."""
        if update["state"] == "TASK_FINISHED":
            self.finished = time.monotonic()
            self.running = False
            if self.launched >= TASKS:
                self.done.set()


@dataclass(frozen=True)
class MesosResult:
    """The measurements of one allocator."""

    name: str
    waits: list[float]
    cpu: float
    """Seconds of the master's CPU time for each task."""


def measure(home: MesosHome, name: str, allocation: str | None) -> MesosResult:
    """Run the tasks; allocation None: with the stock allocator."""
    with tempfile.TemporaryDirectory(prefix="longshare-bench-") as folder:
        work = Path(folder)
        (work / "logs").mkdir()
        with Children(work / "logs") as children:
            mesos = RealMesos(home, children, work)
            parameters = None
            if allocation is not None:
                config = work / "longshare.toml"
                config.write_text(
                    CONFIGURATION.format(folder=folder, allocation=allocation), encoding="utf-8"
                )
                children.start("allocator", "serve", "--config", str(config))
                parameters = {"address": f"unix://{folder}/allocator.sock"}
            master = mesos.master(parameters)
            mesos.wait_for(master, "to lead", lambda metrics: metrics.get("master/elected") == 1)
            for index in range(AGENTS):
                mesos.agent(master, f"agent-{index}", "cpus:1;mem:512")
            mesos.wait_for(
                master, "agents", lambda metrics: metrics.get("master/slaves_active") == AGENTS
            )
            scheduler = OneAfterTheOther()
            info = {
                "user": "root",
                "name": "bench",
                "roles": ["a"],
                "capabilities": [{"type": "MULTI_ROLE"}],
            }
            driver = MesosSchedulerDriver(scheduler, info, master)
            before = cpu_time(children.latest("mesos").pid)
            driver.start()
            scheduler.done.wait(600.0)
            used = cpu_time(children.latest("mesos").pid) - before
            driver.stop()
            driver.join()
            children.stop()
            kill_processes_in(work)
        return MesosResult(name, scheduler.waits, used / TASKS)


def cpu_time(pid: int) -> float:
    """Return the seconds of CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print a row for each allocator."""
    folder = os.environ.get("LONGSHARE_MESOS_HOME")
    if folder is None:
        print("skipped: LONGSHARE_MESOS_HOME names no folder with a real Mesos")
        sys.exit()
    home = MesosHome(Path(folder))
    kinds = [("stock", None), ("Longshare, batch", "batch"), ("Longshare, event", "event")]
    table = Table(title=f"{TASKS} tasks, one after the other, on {AGENTS} agents of a real Mesos")
    headings = (
        "allocator",
        "finished to offer, median",
        "longest",
        "of stock",
        "master's CPU a task",
    )
    for heading in headings:
        table.add_column(heading)
    stock: float | None = None
    for name, allocation in track(kinds, "Measuring", console=Console(stderr=True)):
        result = measure(home, name, allocation)
        median = statistics.median(result.waits)
        stock = stock or median
        table.add_row(
            name,
            f"{1000 * median:.0f} ms",
            f"{1000 * max(result.waits):.0f} ms",
            f"{median / stock:.3f}",
            f"{1000 * result.cpu:.0f} ms",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
