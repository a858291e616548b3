"""Count the lines of our code that typical operations execute: a measure without clock noise.

Without arguments the program prints the numbers beside the record in bench/counts.json; --json
prints the numbers as JSON; --renew writes them into the record, for the running Python version.
Only lines of our own functions count; libraries and C code do not.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

from prometheus_client import generate_latest
from rich.console import Console
from rich.table import Table

import allocator
from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness import policies
from allocator.service.masters.session import SessionStatistics
from allocator.service.show.mesos_metrics import registry
from allocator.service.show.metric_definitions import register
from allocator.service.show.metrics import POOL
from bench.played.cluster import OPTIONS, SECOND, PlayedCluster

FILE = Path(__file__).with_name("counts.json")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_OURS = str(Path(allocator.__file__).parent)
_EVENTS = 200
"""Events over which a count is averaged, after the same number of uncounted events."""

Operation: TypeAlias = Callable[[], tuple[Callable[[], object], int]]
"""Prepares an operation; returns a function to count and how often that function does the
operation.
"""


def lines_of(operation: Callable[[], object]) -> int:
    """Return how many lines of our own functions an operation runs."""
    count = 0

    def within(_frame: FrameType, event: str, _arg: object) -> Any:  # noqa: ANN401 - as `sys` has it
        nonlocal count
        count += event == "line"
        return within

    def entered(frame: FrameType, _event: str, _arg: object) -> Any:  # noqa: ANN401
        return within if frame.f_code.co_filename.startswith(_OURS) else None

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        operation()
    finally:
        sys.settrace(before)
    return count


def restored(
    policy: str, agents: int, frameworks: int, demand: str = ""
) -> tuple[Engine, PlayedCluster]:
    """Return an engine with a snapshot of a played cluster; frameworks may state task demands."""
    parameters = {"half_life": "1h"} if policy in ("sdrf", "stsf") else {}
    engine = Engine(EngineSettings(policies.create(policy, parameters)))
    cluster = PlayedCluster(agents, frameworks)
    engine.restore(OPTIONS, _with_demand(cluster.snapshot(), demand))
    return engine, cluster


def _with_demand(snapshot: contract.Snapshot, demand: str) -> contract.Snapshot:
    for framework in snapshot.frameworks if demand else ():
        info = mesos.FrameworkInfo.FromString(framework.info)
        info.labels.labels.add(key="longshare.demand", value=demand)
        framework.info = info.SerializeToString()
    return snapshot


def events(policy: str, frameworks: int, demand: str = "", batch: int = 1) -> Operation:
    """Prepare ends of tasks, `batch` in each message; each end leads to an accepted offer."""

    def prepare() -> tuple[Callable[[], object], int]:
        engine, cluster = restored(policy, 200, frameworks, demand)

        def run() -> None:
            for _ in range(_EVENTS // batch):
                cluster.take(engine.apply(cluster.batch(batch)))

        run()
        return run, _EVENTS

    return prepare


def refusals() -> tuple[Callable[[], object], int]:
    """Prepare ends of tasks whose frameworks decline the recovered resources."""
    engine, cluster = restored("sdrf", 200, 50)

    def run() -> None:
        for number in range(_EVENTS):
            message = contract.Events()
            cluster.end_task(message, SECOND + number * SECOND // 1000, refuse=5.0)
            cluster.take(engine.apply(message))

    run()
    return run, _EVENTS


def idle_tick() -> tuple[Callable[[], object], int]:
    """A tick on a big cluster where nothing has happened."""
    engine, cluster = restored("sdrf", 10_000, 1_000)

    def run() -> None:
        message = contract.Events()
        cluster.tick(message, 2 * SECOND)
        engine.apply(message)

    run()
    return run, 1


def snapshot(demand: str = "") -> Operation:
    """Restoring a snapshot."""

    def prepare() -> tuple[Callable[[], object], int]:
        engine, _cluster = restored("sdrf", 1, 1)
        message = _with_demand(PlayedCluster(1_000, 50).snapshot(), demand)
        return lambda: engine.restore(OPTIONS, message), 1

    return prepare


def scrape() -> tuple[Callable[[], object], int]:
    """Metrics, as Prometheus asks for them."""
    engine, cluster = restored("sdrf", 1_000, 1_000)
    cluster.take(engine.apply(cluster.batch(_EVENTS)))
    shown = registry(engine, SessionStatistics())
    register(shown, (POOL, engine))
    return lambda: generate_latest(shown), 1


def what_is_remembered() -> tuple[Callable[[], object], int]:
    """Prepare the memory handover of 1,000 users."""
    engine, cluster = restored("sdrf", 1_000, 1_000)
    cluster.take(engine.apply(cluster.batch(_EVENTS)))
    return engine.memory, 1


TASK = "cpus:1;mem:1024"
OPERATIONS: dict[str, Operation] = {
    **{
        f"an event under {policy}, 50 users": events(policy, 50)
        for policy in ("drf", "sdrf", "dynamic-drf", "per-machine-drf")
    },
    **{
        f"an event under {policy}, 50 users whose tasks are known": events(policy, 50, TASK)
        for policy in ("tsf", "stsf", "cdrf", "sdrf")
    },
    "an event under sdrf, 200 users": events("sdrf", 200),
    "an event under sdrf, 50 users, 100 in a message": events("sdrf", 50, batch=100),
    "a refusal": refusals,
    "a tick with nothing to do, 10,000 agents × 1,000 users": idle_tick,
    "a snapshot of 1,000 agents × 50 users": snapshot(),
    "a snapshot of 1,000 agents × 50 users whose tasks are known": snapshot(TASK),
    "a scrape, 1,000 users": scrape,
    "what is remembered of 1,000 users": what_is_remembered,
}


def count() -> dict[str, int]:
    """Return the lines of each operation."""
    counted = {}
    for name, prepare in OPERATIONS.items():
        operation, number = prepare()
        counted[name] = round(lines_of(operation) / number)
    return counted


def recorded() -> dict[str, dict[str, int]]:
    """Return the recorded counts: Python version → operation → lines."""
    known: dict[str, dict[str, int]] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return known


def main() -> None:
    """Print the numbers, or write them into the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--renew", action="store_true", help="write them into the file")
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of strings are gone through in this order
        os.execve(  # noqa: S606 - this very program again
            sys.executable,
            [sys.executable, "-m", "bench.counts", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    counted, known = count(), recorded()
    if arguments.json:
        print(json.dumps(counted))
        return
    table = Table(title=f"Lines run, Python {PYTHON}")
    for column in ("operation", "recorded", "now"):
        table.add_column(column, justify="left" if column == "operation" else "right")
    for name, number in counted.items():
        before = known.get(PYTHON, {}).get(name)
        table.add_row(name, f"{before:,}" if before is not None else "", f"{number:,}")
    Console().print(table)
    if arguments.renew:
        renewed = dict(sorted({**known, PYTHON: counted}.items()))
        FILE.write_text(json.dumps(renewed, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
