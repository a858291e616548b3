"""A real Mesos master with our module, real agents and a real service, if Mesos is installed."""

import asyncio
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from frameworks.harness.observer import Observer
from frameworks.harness.processes import Children
from frameworks.harness.real_mesos import MesosHome, RealMesos, kill_processes_in
from tests.frameworks.local_mesos.shell import HttpScheduler
from tests.service.served import Service

AGENT = "cpus:4;mem:1024;disk:1024;ports:[31000-31005]"
SDRF = '[policy]\nname = "sdrf"\nhalf_life = "1m"\n'
PAPERS_FORM = "[users]\ncounts_for = inf\n"
"""Every known user counts whole in n, the only form that the checkers support."""
TAU = 60.0 / math.log(2.0)
"""The time constant of a half-life of a minute, in seconds."""
PATIENCE = 40.0


def mesos_home() -> MesosHome:
    """Return where Mesos is, or skip the test."""
    folder = os.environ.get("LONGSHARE_MESOS_HOME")
    if folder is None:
        pytest.skip("LONGSHARE_MESOS_HOME names no folder with a real Mesos")
    return MesosHome(Path(folder))


@cache
def mesos_version() -> tuple[int, ...]:
    """Return the version of the installed Mesos, such as (1, 8, 0)."""
    completed = subprocess.run(
        [mesos_home().program("mesos-master"), "--version"],
        capture_output=True,
        check=True,
        text=True,
    )
    return tuple(int(part) for part in completed.stdout.split()[-1].split("."))


def needs_mesos(*version: int) -> None:
    """Skip the test if Mesos is older than a version."""
    if mesos_version() < version:
        pytest.skip(f"Mesos {'.'.join(map(str, mesos_version()))} has no such thing")


def shares_then(service: Service) -> tuple[float, dict[str, Any]]:
    """Return the time and the output of `longshare shares` for a service, by user."""
    completed = subprocess.run(
        [sys.executable, "-m", "allocator.cli", "shares", "--json", "--address", service.address],
        capture_output=True,
        check=True,
        text=True,
    )
    reply = json.loads(completed.stdout)
    return reply["cluster"]["time"], {user["user"]: user for user in reply["users"]}


class Cluster:
    """The running processes, and helpers to call them."""

    def __init__(self, folder: Path, children: Children) -> None:
        self.folder = folder
        self.mesos = RealMesos(mesos_home(), children, folder)
        self._children = children
        self.service: Service
        self.address = ""
        self._flags: tuple[str, ...] = ()
        self._resyncs = 0.0

    def start_service(self, settings: str = SDRF, *arguments: str) -> None:
        self.service = Service(self.folder, settings, arguments=arguments)
        self.service.wait_until_ready()

    def kill_service(self) -> None:
        self.service.process.kill()
        self.service.process.wait()

    def start_master(self, *flags: str) -> None:
        """Start a master, and wait until it leads and the service serves it."""
        port = int(self.address.rpartition(":")[2]) if self.address else None
        self._flags = flags or self._flags
        parameters = {"address": self.service.address}
        self.address = self.mesos.master(parameters, *self._flags, port=port)
        self.wait_for(lambda metrics: metrics.get("master/elected") == 1)
        # Otherwise the master is elected but still recovers, or is synchronised but on standby.
        self.service.wait_for_metric("longshare_session_connected 1.0")
        metrics = self.wait_for(lambda metrics: metrics.get("longshare/synchronised") == 1)
        self._resyncs = metrics["longshare/resyncs_total"]

    def resyncs(self) -> float:
        """Return the number of resyncs since the master's election.

        A master known to the service before its election is asked for a snapshot; that request is
        not counted.
        """
        return self.metrics()["longshare/resyncs_total"] - self._resyncs

    def kill_master(self) -> None:
        self._children.latest("mesos").kill()
        self.service.wait_for_metric("longshare_session_connected 0.0")

    def start_agents(self, number: int = 1, *flags: str, resources: str = AGENT) -> None:
        for index in range(number):
            self.mesos.agent(self.address, f"agent-{index}", resources, *flags)
        self.wait_for(lambda metrics: metrics.get("master/slaves_active") == number)

    def metrics(self) -> dict[str, float]:
        return Observer(self.address).metrics()

    def state(self) -> dict[str, Any]:
        """Return the master's own account of agents, tasks and offers."""
        return Observer(self.address).state()

    def wait_for(self, reached: Callable[[dict[str, float]], bool]) -> dict[str, float]:
        return self.mesos.wait_for(self.address, "what the test waits for", reached)

    def shares(self) -> dict[str, Any]:
        """Return the output of `longshare shares`, by user."""
        return self.shares_then()[1]

    def shares_then(self) -> tuple[float, dict[str, Any]]:
        """Return the time and the output of `longshare shares`, by user."""
        return shares_then(self.service)

    @asynccontextmanager
    async def scheduler(
        self,
        role: str,
        framework_id: str | None = None,
        *capabilities: str,
        constraints: dict[str, Any] | None = None,
    ) -> AsyncIterator[HttpScheduler]:
        """Subscribe a framework with a single role, and with offer constraints if given."""
        able = [{"type": capability} for capability in ("MULTI_ROLE", *capabilities)]
        async with aiohttp.ClientSession() as session:
            scheduler = HttpScheduler(session, self.address)
            await scheduler.subscribe(
                framework_id,
                constraints=constraints,
                user="root",
                roles=[role],
                capabilities=able,
                failover_timeout=60.0,
                principal="tester",
                checkpoint=True,
            )
            try:
                yield scheduler
            finally:
                scheduler.break_off()

    async def operate(self, kind: str, **content: object) -> tuple[int, str]:
        """Make a call of an operator; return the answer's status and text."""
        url = f"http://{self.address}/api/v1"
        call = {"type": kind, **content}
        headers = {"Accept": "application/json"}
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, json=call, headers=headers) as answer,
        ):
            return answer.status, await answer.text()


@contextmanager
def nothing_running(folder: Path) -> Iterator[Cluster]:
    """Provide a function that starts a cluster; end the cluster afterwards."""
    logs = folder / "logs"
    logs.mkdir()
    with Children(logs) as children:
        cluster = Cluster(folder, children)
        try:
            yield cluster
        finally:
            children.stop()
            kill_processes_in(folder)
            if hasattr(cluster, "service"):
                cluster.kill_service()


@contextmanager
def running(folder: Path, agents: int = 1, *flags: str) -> Iterator[Cluster]:
    """Provide a service, a master with flags, and agents."""
    with nothing_running(folder) as cluster:
        cluster.start_service()
        cluster.start_master(*flags)
        cluster.start_agents(agents)
        yield cluster


async def next_offer(scheduler: HttpScheduler) -> dict[str, Any]:
    """Wait for an event with new offers; return the first offer."""
    event = await asyncio.wait_for(scheduler.next("OFFERS"), PATIENCE)
    offer: dict[str, Any] = event["offers"][0]
    return offer


async def offer_where(
    scheduler: HttpScheduler, holds: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Decline offers until an offer meets a condition; return that offer."""
    deadline = time.monotonic() + PATIENCE
    while True:
        event = await asyncio.wait_for(scheduler.next("OFFERS"), deadline - time.monotonic())
        fitting = [offer for offer in event["offers"] if holds(offer)]
        unused = [offer["id"] for offer in event["offers"] if offer not in fitting[:1]]
        if unused:
            await scheduler.call(
                "DECLINE", decline={"offer_ids": unused, "filters": {"refuse_seconds": 0.01}}
            )
        if fitting:
            chosen: dict[str, Any] = fitting[0]
            return chosen


def amount(offer: dict[str, Any], name: str, *, reserved: bool | None = None) -> float:
    """Sum up a resource of an offer; if asked for, only reserved or only unreserved amounts."""
    return float(
        sum(
            resource["scalar"]["value"]
            for resource in offer["resources"]
            if resource["name"] == name and reserved in (None, bool(resource.get("reservations")))
        )
    )


def cpus(event: dict[str, Any]) -> float:
    """Sum the cores of all offers of an event."""
    return sum(amount(offer, "cpus") for offer in event["offers"])
