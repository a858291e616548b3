"""Events per second through the whole service on one stream, beside the engine called directly."""

import queue
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
from rich.console import Console
from rich.progress import track
from rich.table import Table

from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.contract import VERSION
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.contract.allocator_pb2_grpc import AllocatorStub
from allocator.fairness import policies

AGENTS, FRAMEWORKS = 1000, 50
EVENTS = 20_000
SECOND = 1_000_000_000
OPTIONS = contract.Options(
    allocation_interval_ns=SECOND,
    min_allocatable=[contract.Quantities(amounts={"cpus": 0.01})],
)


def resources(role: str | None = None, cpus: float = 1.0, mem: float = 1024.0) -> list[bytes]:
    """Return CPUs and memory, allocated to a role if one is given."""
    made = []
    for name, amount in (("cpus", cpus), ("mem", mem)):
        message = mesos.Resource(name=name, type=mesos.Value.SCALAR)
        message.scalar.value = amount
        if role is not None:
            message.allocation_info.role = role
        made.append(message.SerializeToString())
    return made


def snapshot() -> contract.Snapshot:
    """A full cluster: each agent runs four tasks of one framework."""
    agents = [
        contract.AddAgent(
            agent_id=f"s{i}",
            info=mesos.SlaveInfo(hostname=f"host{i}").SerializeToString(),
            capabilities=[mesos.SlaveInfo.Capability.MULTI_ROLE],
            total=resources(cpus=4.0, mem=4096.0),
            used=[
                contract.Allocation(
                    framework_id=f"f{i % FRAMEWORKS}",
                    resources=resources(f"role{i % FRAMEWORKS}", 4.0, 4096.0),
                )
            ],
        )
        for i in range(AGENTS)
    ]
    frameworks = [
        contract.AddFramework(
            framework_id=f"f{i}",
            info=mesos.FrameworkInfo(
                user="bench", name=f"f{i}", role=f"role{i}"
            ).SerializeToString(),
            active=True,
        )
        for i in range(FRAMEWORKS)
    ]
    return contract.Snapshot(
        time_ns=SECOND, leading_since_ns=1, agents=agents, frameworks=frameworks
    )


class Cluster:
    """Plays the master: a task ends, somebody is offered its place and takes it."""

    def __init__(self) -> None:
        self._random = random.Random(1)  # noqa: S311 - which task ends, not a secret
        self._sequence = 0
        self._running = [
            (f"f{i % FRAMEWORKS}", f"role{i % FRAMEWORKS}", f"s{i}")
            for i in range(AGENTS)
            for _ in range(4)
        ]

    def batch(self, size: int) -> contract.Events:
        """Return the next events: mostly tasks that end, now and then a refusal or a tick."""
        events = contract.Events()
        for _ in range(size):
            self._sequence += 1
            event = events.events.add(
                sequence=self._sequence, time_ns=SECOND + self._sequence * SECOND // 1000
            )
            if self._sequence % 1000 == 0 or not self._running:
                event.tick.SetInParent()
                continue
            framework, role, agent = self._running.pop(self._random.randrange(len(self._running)))
            recovered = event.recover_resources
            recovered.framework_id, recovered.agent_id = framework, agent
            recovered.resources.extend(resources(role))
            if self._sequence % 20 == 0:
                recovered.filters = mesos.Filters(refuse_seconds=5.0).SerializeToString()
        return events

    def take(self, decisions: contract.Decisions) -> None:
        """Launch tasks on all offers."""
        for offers in decisions.offers:
            for offer in offers.offers:
                cpus = next(r for d in offer.resources if (r := mesos.Resource.FromString(d)))
                place = (offers.framework_id, offer.role, offer.agent_id)
                self._running += [place] * int(cpus.scalar.value)


def rate(apply: Callable[[contract.Events], contract.Decisions], batch: int) -> float:
    """Return events per second when so many go into one message."""
    cluster = Cluster()
    number = EVENTS if batch > 1 else EVENTS // 4
    seconds = 0.0
    for _ in range(number // batch):
        events = cluster.batch(batch)
        begun = time.perf_counter()
        decisions = apply(events)
        seconds += time.perf_counter() - begun
        cluster.take(decisions)
    return number / seconds


def directly() -> Callable[[contract.Events], contract.Decisions]:
    """The engine in this process."""
    engine = Engine(EngineSettings(policies.create("sdrf", {"half_life": "1h"})))
    engine.restore(OPTIONS, snapshot())
    return engine.apply


@contextmanager
def through_the_service() -> Iterator[Callable[[contract.Events], contract.Decisions]]:
    """A real service in a process of its own, over a Unix socket."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "longshare.toml")
        config.write_text(
            '[policy]\nname = "sdrf"\nhalf_life = "1h"\n'
            f'[listen]\naddress = "unix://{folder}/s"\nvirtual_clocks = true\n'
            '[metrics]\naddress = "127.0.0.1:0"\n'
            f'[store]\npath = "{folder}/commitments.sqlite"\n[log]\nlevel = "warning"\n'
        )
        service = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "allocator.cli", "serve", "--config", str(config)]
        )
        outbox: queue.SimpleQueue[contract.FromMaster | None] = queue.SimpleQueue()
        try:
            while not Path(folder, "s").exists():
                time.sleep(0.05)
            with grpc.insecure_channel(f"unix://{folder}/s") as channel:
                answers = AllocatorStub(channel).Session(iter(outbox.get, None))
                hello = contract.Hello(
                    contract_version=VERSION, master="bench", options=OPTIONS, virtual_clock=True
                )
                outbox.put(contract.FromMaster(hello=hello))
                outbox.put(contract.FromMaster(snapshot=snapshot()))
                next(answers), next(answers)

                def apply(events: contract.Events) -> contract.Decisions:
                    outbox.put(contract.FromMaster(events=events))
                    return next(answers).decisions

                yield apply
                outbox.put(None)
        finally:
            service.terminate()
            service.wait()


def main() -> None:
    """Print the table."""
    table = Table(title=f"Events per second, {AGENTS} agents × {FRAMEWORKS} frameworks, SDRF")
    for column in ("events in a message", "engine alone", "through the service", "ratio"):
        table.add_column(column, justify="right")
    for batch in track((1, 10, 100), description="Events …", console=Console(stderr=True)):
        alone = rate(directly(), batch)
        with through_the_service() as apply:
            served = rate(apply, batch)
        table.add_row(str(batch), f"{alone:,.0f}", f"{served:,.0f}", f"{served / alone:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
