"""Runs a real Mesos on this machine: masters with Longshare's module, and agents on loopback."""

import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from frameworks.experiment import ClusterSpec
from frameworks.harness.observer import Observer
from frameworks.harness.ports import free_port
from frameworks.harness.processes import Child, Children

MODULE = "liblongshare_allocator.so"
ALLOCATOR = "org_longshare_Allocator"
"""Name of Longshare's allocator module in its library."""
PATIENCE = 60.0
"""Maximum real time in seconds until a master is elected, and until all agents are registered."""
_POLL_INTERVAL = 0.2
_READY_TEXT = "Using '"
"""Text in a master's log that shows that the master can authenticate requests."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MesosHome:
    """A folder that contains the programs of Mesos and Longshare's allocator module.

    Raises:
        FileNotFoundError: A file is missing; the message names the file.
    """

    folder: Path

    def __post_init__(self) -> None:
        missing = [
            name
            for name in ("mesos-master", "mesos-agent", MODULE)
            if not (self.folder / name).exists()
        ]
        if missing:
            raise FileNotFoundError(
                f"{self.folder} lacks {', '.join(missing)}; "
                "docs/lab/real-mesos.md says how to get there"
            )

    def program(self, name: str) -> str:
        """Return the path of a program, such as `mesos-agent`."""
        return str((self.folder / name).resolve())


class RealMesos:
    """Starts masters and agents of a real Mesos as child processes.

    Args:
        home: Folder with the programs of Mesos.
        children: Receives the processes, and stops them at the end.
        work: Folder for files of masters and agents.
    """

    def __init__(self, home: MesosHome, children: Children, work: Path) -> None:
        self._home = home
        self._children = children
        self._work = work
        self._ports: dict[str, int] = {}
        """Port by agent name. An agent must have the same port after a restart."""

    def master(
        self,
        parameters: dict[str, str] | None,
        *flags: str,
        port: int | None = None,
        name: str = "mesos",
    ) -> str:
        """Start a master, and return its HOST:PORT once it accepts requests.

        A master listens before it can authenticate requests, and a request for metrics in between
        would crash it. The function therefore waits until the log reports a ready master.

        Args:
            parameters: Parameters of Longshare's module; None selects Mesos's own allocator.
            flags: Additional flags of mesos-master.
            port: Port to listen on; None selects a free port.
            name: Name of the child process.

        Raises:
            ChildFailed: A child ended in the meantime.
            TimeoutError: The master was not ready in time.
        """
        port = port or free_port()
        if parameters is not None:
            flags = (*flags, *self._with_module(parameters))
        if not any(flag.startswith("--registry=") for flag in flags):
            flags = (*flags, "--registry=in_memory")
        self._children.start_program(
            name,
            self._home.program("mesos-master"),
            "--ip=127.0.0.1",
            "--hostname=127.0.0.1",
            f"--port={port}",
            f"--work_dir={self._work / 'master'}",
            "--quiet=false",  # the log is read below
            "--logging_level=INFO",
            *flags,
        )
        address = f"127.0.0.1:{port}"
        log = self._children.log(name)
        self._until(address, "to start", lambda: _READY_TEXT in log.read_text(errors="replace"))
        return address

    def agent(self, master: str, name: str, resources: str, *flags: str) -> Child:
        """Start an agent. Its tasks run as plain processes, without isolation.

        Args:
            master: HOST:PORT of the master.
            name: Name of the child process, and host name of the agent.
            resources: Resources in Mesos's flag syntax.
            flags: Additional flags of mesos-agent.
        """
        return self._children.start_program(
            name,
            self._home.program("mesos-agent"),
            f"--master={master}",
            "--ip=127.0.0.1",
            f"--hostname={name}",
            f"--port={self._ports.setdefault(name, free_port())}",
            f"--work_dir={self._work / name / 'work'}",
            f"--runtime_dir={self._work / name / 'run'}",
            f"--launcher_dir={self._home.folder.resolve()}",
            "--launcher=posix",
            "--isolation=posix/cpu,posix/mem",
            "--no-systemd_enable_support",
            f"--resources={resources}",
            *flags,
            farewell=signal.SIGUSR1,  # also ends the agent's executors
        )

    def wait_for(
        self, master: str, description: str, reached: Callable[[dict[str, float]], bool]
    ) -> dict[str, float]:
        """Wait until a master's metrics meet a condition, and return these metrics.

        Args:
            master: HOST:PORT of the master.
            description: The condition in words, for the error message.
            reached: Function of the metrics: True if the condition is met.

        Raises:
            ChildFailed: A child ended in the meantime.
            TimeoutError: The condition was not met in time.
        """
        observer = Observer(master)

        def probe() -> dict[str, float]:
            metrics = observer.metrics()
            return metrics if reached(metrics) else {}

        return self._until(master, description, probe)

    def _until(self, master: str, description: str, probe: Callable[[], T]) -> T:
        """Call a function repeatedly until its result is true, and return this result.

        Args:
            master: HOST:PORT of the master, for the error message.
            description: The awaited event in words, for the error message.
            probe: The function to call.

        Raises:
            ChildFailed: A child ended in the meantime.
            TimeoutError: The result was not true within `PATIENCE` seconds.
        """
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self._children.check()
            with suppress(OSError):
                if result := probe():
                    return result
            time.sleep(_POLL_INTERVAL)
        raise TimeoutError(f"{description}: not within {PATIENCE:g} s at the master {master}")

    def _with_module(self, parameters: dict[str, str]) -> Sequence[str]:
        settings = [{"key": key, "value": value} for key, value in parameters.items()]
        module = {"name": ALLOCATOR, "parameters": settings}
        libraries = [{"file": self._home.program(MODULE), "modules": [module]}]
        listing = self._work / "modules.json"
        listing.write_text(json.dumps({"libraries": libraries}, indent=2) + "\n", encoding="utf-8")
        return f"--modules=file://{listing.resolve()}", f"--allocator={ALLOCATOR}"


@contextmanager
def cluster(
    home: MesosHome, children: Children, size: ClusterSpec, allocator: str
) -> Iterator[str]:
    """Context with a real Mesos: one master, and all agents of a cluster.

    The context's value is the master's HOST:PORT. The processes end with `children`.

    Args:
        home: Folder with Mesos.
        children: Receives the processes, and stops them at the end.
        size: The agents to start.
        allocator: Address of the allocator service.

    Raises:
        ChildFailed: A process ended.
        TimeoutError: The processes did not start in time.
    """
    with tempfile.TemporaryDirectory(prefix="longshare-mesos-") as folder:
        work = Path(folder)
        mesos = RealMesos(home, children, work)
        try:
            address = mesos.master({"address": allocator})
            mesos.wait_for(address, "to lead", lambda metrics: metrics.get("master/elected") == 1)
            for name, agents in size.hosts:
                mesos.agent(address, name, agents.resources)
            mesos.wait_for(
                address,
                f"{size.size} agents",
                lambda metrics: metrics.get("master/slaves_active") == size.size,
            )
            yield address
        finally:
            children.stop()
            kill_processes_in(work)


def kill_processes_in(work: Path) -> None:
    """Kill all processes with an environment variable that names a path in a folder.

    This ends the tasks and executors of agents with this work folder, which can outlive the agent.
    """
    pattern = f"={work}/".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if pattern in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
