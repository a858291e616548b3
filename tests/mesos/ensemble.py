"""Three ZooKeeper servers, three masters and three services on one machine; each can fail."""

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from frameworks.harness.observer import Observer
from frameworks.harness.ports import free_port
from frameworks.harness.processes import Child, Children
from frameworks.harness.real_mesos import RealMesos, kill_processes_in
from tests.frameworks.local_mesos.shell import HttpScheduler
from tests.mesos.cluster import mesos_home, shares_then
from tests.service.served import Service, freeze
from tests.service.show.test_metrics import scrape

PATIENCE = 90.0
SESSION = "3secs"
"""Seconds until ZooKeeper ends the session of a silent master."""
SETTINGS = """
[policy]
name = "sdrf"
half_life = "1m"
[users]
counts_for = inf
[store]
kind = "zookeeper"
hosts = "{hosts}"
"""


class Ensemble:
    """Three masters, services and ZooKeeper servers; masters use the service with their number."""

    def __init__(self, folder: Path, children: Children) -> None:
        home = mesos_home()  # before anything is started
        self._folder = folder
        self._children = children
        self.zookeepers = [self._zookeeper(number) for number in self._written()]
        self._hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        self.services = [self._service(number) for number in range(3)]
        for service in self.services:
            service.wait_until_ready()
        self.addresses: list[str] = []
        self.masters = [self._master(number) for number in range(3)]
        self._agents = RealMesos(home, children, folder)

    def leader(self, other_than: int | None = None) -> int:
        """Wait until a master leads and is served; return its number."""
        numbers: list[int] = []

        def leads() -> bool:
            numbers[:] = [
                number
                for number in range(3)
                if number != other_than
                and self.metrics(number).get("master/elected") == 1
                and self.metrics(number).get("longshare/synchronised") == 1
                and number in self.served()  # or the master is elected but still recovers
            ]
            return bool(numbers)

        wait_until(leads)
        [number] = numbers
        return number

    def metrics(self, number: int) -> dict[str, float]:
        """Return a master's metrics; empty if the master does not answer."""
        with suppress(OSError, ValueError):
            return Observer(self.addresses[number]).metrics()
        return {}

    def state(self, number: int) -> dict[str, Any]:
        """Return a master's own account of agents, tasks and offers."""
        with urllib.request.urlopen(f"http://{self.addresses[number]}/state", timeout=10) as answer:
            state: dict[str, Any] = json.load(answer)
            return state

    def shares(self, number: int) -> tuple[float, dict[str, Any]]:
        """Return the time and the output of `longshare shares` for a service, by user."""
        return shares_then(self.services[number])

    def wait_until_saved(self, number: int) -> None:
        """Wait until a service has stored its present state."""
        saves = "longshare_store_saves_total"
        so_far = scrape(self.services[number])[saves,]
        wait_until(lambda: scrape(self.services[number])[saves,] > so_far + 1)

    def served(self) -> list[int]:
        """Return the numbers of the services that serve a leading master."""
        numbers = []
        for number, service in enumerate(self.services):
            with suppress(OSError):
                if service.process.poll() is None and _serves(service):
                    numbers.append(number)
        return numbers

    def start_agents(self, number: int, resources: str) -> None:
        for index in range(number):
            self._agents.agent(f"zk://{self._hosts}/mesos", f"agent-{index}", resources)
        leader = self.leader()
        wait_until(lambda: self.metrics(leader).get("master/slaves_active") == number)

    def _written(self) -> Iterator[int]:
        """Write the configuration of each ZooKeeper, and go through their numbers."""
        self._ports = [free_port() for _ in range(3)]
        peers = "".join(
            f"server.{number}=127.0.0.1:{free_port()}:{free_port()}\n" for number in range(3)
        )
        for number, port in enumerate(self._ports):
            data = self._folder / f"zookeeper-{number}"
            data.mkdir()
            (data / "myid").write_text(f"{number}\n")
            (data / "zoo.cfg").write_text(
                f"tickTime=500\ninitLimit=20\nsyncLimit=10\ndataDir={data}\nclientPort={port}\n"
                "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
                f"minSessionTimeout=1000\nmaxSessionTimeout=60000\n{peers}"
            )
            yield number

    def _zookeeper(self, number: int) -> Child:
        classpath = os.environ.get("LONGSHARE_ZOOKEEPER_CLASSPATH")
        if classpath is None or shutil.which("java") is None:
            pytest.skip("no ZooKeeper: LONGSHARE_ZOOKEEPER_CLASSPATH and java")
        return self._children.start_program(
            f"zookeeper-{number}",
            *("java", "-Xmx64m", "-cp", classpath),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(self._folder / f"zookeeper-{number}" / "zoo.cfg"),
        )

    def _service(self, number: int) -> Service:
        folder = self._folder / f"service-{number}"
        folder.mkdir()
        return Service(folder, SETTINGS.format(hosts=self._hosts), virtual_clocks=False)

    def _master(self, number: int) -> Child:
        work = self._folder / f"master-{number}"
        work.mkdir()
        mesos = RealMesos(mesos_home(), self._children, work)
        # The service knows only the node with its number, so stopping that node isolates the
        # service.
        address = mesos.master(
            {"address": self.services[number].address},
            f"--zk=zk://127.0.0.1:{self._ports[number]}/mesos",
            f"--zk_session_timeout={SESSION}",
            "--registry=replicated_log",
            "--quorum=2",
            name=f"master-{number}",
        )
        self.addresses.append(address)
        return self._children.latest(f"master-{number}")


@contextmanager
def ensemble(folder: Path) -> Iterator[Ensemble]:
    """Provide all three of all, and end them."""
    logs = folder / "logs"
    logs.mkdir()
    started: Ensemble | None = None
    with Children(logs) as children:
        try:
            started = Ensemble(folder, children)
            yield started
        finally:
            for child in [*started.zookeepers, *started.masters] if started else []:
                with suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGCONT)
            children.stop()
            kill_processes_in(folder)
            for service in started.services if started else []:
                service.process.kill()
                service.process.wait()


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def stop(child: Child | subprocess.Popen[bytes]) -> None:
    """Freeze a process."""
    freeze(child.pid)


def go_on(child: Child) -> None:
    """Let a frozen process go on."""
    os.kill(child.pid, signal.SIGCONT)


def booked_twice(state: dict[str, Any], offers: list[dict[str, Any]]) -> list[str]:
    """Return the agents with more used and offered resources than capacity, in a master's view."""
    wrong = []
    for agent in state["slaves"]:
        offered = sum(
            resource["scalar"]["value"]
            for offer in offers
            if offer["agent_id"]["value"] == agent["id"]
            for resource in offer["resources"]
            if resource["name"] == "cpus"
        )
        if agent["used_resources"]["cpus"] + offered > agent["resources"]["cpus"] + 1e-6:
            wrong.append(agent["id"])
    return wrong


async def rejoin(scheduler: HttpScheduler, framework_id: str | None, role: str) -> None:
    """Subscribe a framework with a failover timeout of a minute."""
    await scheduler.subscribe(
        framework_id,
        user="root",
        roles=[role],
        capabilities=[{"type": "MULTI_ROLE"}],
        failover_timeout=600.0,
        principal="tester",
        checkpoint=True,
    )


def _serves(service: Service) -> bool:
    return scrape(service)["longshare_session_connected",] == 1.0
