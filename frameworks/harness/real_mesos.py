"""A real Mesos on this machine: a master that asks Longshare, and agents on loopback."""

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
"""Name of the module in its library."""
PATIENCE = 60.0
"""Wall seconds for the master to lead, and for all agents to register."""
_LOOK_AGAIN = 0.2
_ASKABLE = "Using '"
"""What a master has logged, of its allocator, once it can tell who asks."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MesosHome:
    """A folder with `mesos-master`, `mesos-agent`, what these need, and our module.

    Raises:
        FileNotFoundError: something of that is missing; the message says what.
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
                f"{self.folder} lacks {', '.join(missing)}; docs/module.md says how to get there"
            )

    def program(self, name: str) -> str:
        """Return the path of one of its programs."""
        return str((self.folder / name).resolve())


class RealMesos:
    """Starts masters and agents on loopback.

    Args:
        home: Where Mesos is.
        children: Stops them in the end.
        work: A folder for what they write.
    """

    def __init__(self, home: MesosHome, children: Children, work: Path) -> None:
        self._home = home
        self._children = children
        self._work = work
        self._ports: dict[str, int] = {}
        """By name of the agent, which must not change its port."""

    def master(
        self,
        parameters: dict[str, str] | None,
        *flags: str,
        port: int | None = None,
        name: str = "mesos",
    ) -> str:
        """Start a master; return its HOST:PORT, where it may be asked.

        Mesos listens before it can tell who asks, and whoever asks for metrics in these first
        moments crashes it. So nobody is told where it is until it says that it is further.

        Args:
            parameters: Of our module; None: the master keeps its own allocator.
            flags: More flags of mesos-master.
            port: Where to listen; None: somewhere.
            name: Of the child.

        Raises:
            ChildFailed: a child ended meanwhile.
            TimeoutError: it took too long.
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
            "--quiet=false",  # for its log is read
            "--logging_level=INFO",
            *flags,
        )
        address = f"127.0.0.1:{port}"
        log = self._children.log(name)
        self._until(address, "to start", lambda: _ASKABLE in log.read_text(errors="replace"))
        return address

    def agent(self, master: str, name: str, resources: str, *flags: str) -> Child:
        """Start an agent that runs tasks as plain processes, without isolation.

        Args:
            master: HOST:PORT of its master.
            name: Also its host name, so that lists of hosts can tell agents of one machine apart.
            resources: In Mesos's flag syntax.
            flags: More flags of mesos-agent.
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
            farewell=signal.SIGUSR1,  # ends its executors as well
        )

    def wait_for(
        self, master: str, what: str, reached: Callable[[dict[str, float]], bool]
    ) -> dict[str, float]:
        """Wait until a master's metrics say so, and return them.

        Raises:
            ChildFailed: a child ended meanwhile.
            TimeoutError: it took too long.
        """
        observer = Observer(master)

        def look() -> dict[str, float]:
            metrics = observer.metrics()
            return metrics if reached(metrics) else {}

        return self._until(master, what, look)

    def _until(self, master: str, what: str, look: Callable[[], T]) -> T:
        """Look again and again until something is seen, and return that."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self._children.check()
            with suppress(OSError):
                if seen := look():
                    return seen
            time.sleep(_LOOK_AGAIN)
        raise TimeoutError(f"{what}: not within {PATIENCE:g} s at the master {master}")

    def _with_module(self, parameters: dict[str, str]) -> Sequence[str]:
        given = [{"key": key, "value": value} for key, value in parameters.items()]
        module = {"name": ALLOCATOR, "parameters": given}
        libraries = [{"file": self._home.program(MODULE), "modules": [module]}]
        listed = self._work / "modules.json"
        listed.write_text(json.dumps({"libraries": libraries}, indent=2) + "\n", encoding="utf-8")
        return f"--modules=file://{listed.resolve()}", f"--allocator={ALLOCATOR}"


@contextmanager
def cluster(
    home: MesosHome, children: Children, size: ClusterSpec, allocator: str
) -> Iterator[str]:
    """Provide a master with all its agents registered; yield its HOST:PORT.

    Args:
        home: Where Mesos is.
        children: Stops master and agents.
        size: How many agents, of what.
        allocator: Address of the allocator service.

    Raises:
        ChildFailed: one of them ended.
        TimeoutError: they did not come up.
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
            kill_whatever_runs_in(work)


def kill_whatever_runs_in(work: Path) -> None:
    """Kill tasks and executors whose sandboxes are in a folder, with or without an agent."""
    mark = f"={work}/".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
