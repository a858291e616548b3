"""Measure the memory that one snapshot costs, for various contents, in a separate process.

The figure is the growth of the process's peak memory in MiB, from the arrival of the bytes until
the engine has applied or refused the snapshot.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.table import Table

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.service.config import ListenSection
from bench.played.cluster import resources

MIB = 2**20
MOST_PARTS = ListenSection().most_parts
"""The default of `listen.most_parts`."""
_PROBE = """
import re, sys
from pathlib import Path
from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.fairness import policies
from allocator.service.masters import wire

engine = Engine(EngineSettings(policies.create("sdrf", {"half_life": 60.0})))
data = sys.stdin.buffer.read()
peak = lambda: int(re.search("VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
Path("/proc/self/clear_refs").write_text("5")  # the largest that it has been begins anew
before = peak()
try:
    message = wire.parse(data, int(sys.argv[1]))
except wire.WireError as error:
    print(peak() - before, -1, -1)
else:
    engine.restore(contract.Options(), message.snapshot)
    print(peak() - before, engine.agents + engine.frameworks, len(engine.users()))
"""


@dataclass(frozen=True)
class MemoryCost:
    """The memory cost of a snapshot, and whether it was accepted."""

    said: float
    """MiB of the message."""
    kept: float
    """MiB that the engine keeps."""
    subjects: int
    """Number of agents and frameworks after the snapshot; −1 if it was refused."""
    users: int


def cost(snapshot: contract.Snapshot, most_parts: int = MOST_PARTS) -> MemoryCost:
    """Parse a snapshot, and restore it unless refused."""
    data = contract.FromMaster(snapshot=snapshot).SerializeToString()
    done = subprocess.run(  # noqa: S603 - this Python
        [sys.executable, "-c", _PROBE, str(most_parts)],
        input=data,
        capture_output=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    kib, subjects, users = map(int, done.stdout.split())
    return MemoryCost(len(data) / MIB, kib * 1024 / MIB, subjects, users)


def of_many_roles() -> Iterator[contract.AddFramework]:
    """Yield frameworks that have a hundred thousand roles together."""
    multi_role = mesos.FrameworkInfo.Capability(type=mesos.FrameworkInfo.Capability.MULTI_ROLE)
    for number in range(390):
        roles = [f"{number:x}.{index:x}" for index in range(256)]
        info = mesos.FrameworkInfo(user="u", name="n", roles=roles, capabilities=[multi_role])
        yield contract.AddFramework(
            framework_id=f"f{number}", info=info.SerializeToString(), active=True
        )


def _empty(kind: type[contract.AddAgent | contract.AddFramework], number: int) -> contract.Snapshot:
    if kind is contract.AddAgent:
        return contract.Snapshot(
            agents=[contract.AddAgent(agent_id=f"{n:x}") for n in range(number)]
        )
    made = [contract.AddFramework(framework_id=f"{n:x}") for n in range(number)]
    return contract.Snapshot(frameworks=made)


def _excluding(agents: int) -> contract.Snapshot:
    exclusions = [contract.Exclusion(framework_id=f"{n:x}", role="r") for n in range(1000)]
    excluded = contract.ExclusionList(exclusions=exclusions)
    return contract.Snapshot(
        agents=[contract.AddAgent(agent_id=f"{n:x}", excluded=excluded) for n in range(agents)]
    )


def _held(agents: int) -> contract.Snapshot:
    used = [
        contract.Allocation(framework_id=f"{n:x}", resources=resources("r", 0.01, 1.0)[:1])
        for n in range(300)
    ]
    total = resources(None, 3.0, 300.0)
    return contract.Snapshot(
        agents=[contract.AddAgent(agent_id=f"{n:x}", total=total, used=used) for n in range(agents)]
    )


def _named(agents: int) -> contract.Snapshot:
    return contract.Snapshot(
        agents=[
            contract.AddAgent(
                agent_id=f"{n:x}",
                info=mesos.SlaveInfo(hostname=f"{n:0130x}").SerializeToString(),
            )
            for n in range(agents)
        ]
    )


def _talkative(frameworks: int) -> contract.Snapshot:
    info = mesos.FrameworkInfo(user="u", name="x" * (MIB - 64)).SerializeToString()
    return contract.Snapshot(
        frameworks=[
            contract.AddFramework(framework_id=f"{n:x}", info=info) for n in range(frameworks)
        ]
    )


CASES: dict[str, Callable[[], contract.Snapshot]] = {
    "390 frameworks of 256 roles each": lambda: contract.Snapshot(frameworks=of_many_roles()),
    "101,680 agents without content": lambda: _empty(contract.AddAgent, 101_680),
    "101,680 frameworks without content": lambda: _empty(contract.AddFramework, 101_680),
    "1,000,000 agents without content": lambda: _empty(contract.AddAgent, 1_000_000),
    "1,800 agents, each with a thousand exclusions": lambda: _excluding(1800),
    "1,600 agents, each with 300 frameworks' resources": lambda: _held(1600),
    "9,000 agents, each with 300 frameworks' resources": lambda: _held(9000),
    "180,000 agents whose hosts have names of 130 characters": lambda: _named(180_000),
    "370,000 agents whose hosts have names of 130 characters": lambda: _named(370_000),
    "63 frameworks that say 1 MiB each": lambda: _talkative(63),
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=len(CASES), help="measure the first ones only")
    arguments = parser.parse_args()
    table = Table(title="What one message costs in memory")
    for column in ("message", "MiB of it", "MiB that it takes", "and then"):
        table.add_column(column, justify="left" if column == "message" else "right")
    for name, made in islice(CASES.items(), arguments.cases):
        measured = cost(made())
        known = f"{measured.subjects:,} are known, {measured.users:,} users"
        table.add_row(
            *(name, f"{measured.said:.1f}", f"{measured.kept:.0f}"),
            "refused" if measured.subjects < 0 else known,
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
