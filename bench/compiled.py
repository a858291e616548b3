"""Processor time of the engine with compiled modules, beside the same sources interpreted.

Two processes measure in turn, so other load affects both. `make compiled-wheel` leaves the modules
in build/compiled.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

import allocator
from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.fairness import policies
from bench.played.cluster import OPTIONS, PlayedCluster

ROOT = Path(__file__).parents[1]
EVENTS = 2_000
"""Default number of events that a figure averages."""
PARAMETERS: dict[str, dict[str, object]] = {"sdrf": {"half_life": "1h"}}


def engine(policy: str, cluster: PlayedCluster) -> Engine:
    """Return an engine of a played cluster."""
    made = Engine(EngineSettings(policies.create(policy, PARAMETERS.get(policy, {}))))
    made.restore(OPTIONS, cluster.snapshot())
    return made


def events(policy: str, frameworks: int, batch: int, number: int) -> Callable[[], float]:
    """Return a function to measure µs per event: `number` events, `batch` in each message."""
    cluster = PlayedCluster(1_000, frameworks)
    following = engine(policy, cluster)

    def measure() -> float:
        seconds = 0.0
        for _ in range(number // batch):
            message = cluster.batch(batch)
            begun = time.process_time()
            decisions = following.apply(message)
            seconds += time.process_time() - begun
            cluster.take(decisions)
        return seconds / number * 1e6

    return measure


def snapshot() -> float:
    """Return the µs of a snapshot of 1,000 agents and 50 frameworks."""
    cluster = PlayedCluster(1_000, 50)
    following, message = engine("sdrf", cluster), cluster.snapshot()
    begun = time.process_time()
    following.restore(OPTIONS, message)
    return (time.process_time() - begun) * 1e6


OPERATIONS: dict[str, Callable[[int], Callable[[], float]]] = {
    "an event under sdrf, 50 frameworks": lambda number: events("sdrf", 50, 1, number),
    "an event under sdrf, 1,000 frameworks": lambda number: events("sdrf", 1_000, 1, number),
    "an event under sdrf, 50 frameworks, 100 in a message": (
        lambda number: events("sdrf", 50, 100, number)
    ),
    "an event under drf, 50 frameworks": lambda number: events("drf", 50, 1, number),
    "a snapshot of 1,000 agents × 50 frameworks": lambda _: snapshot,
}
"""Name of an operation → function that prepares its measurement with a number of events."""


def answer(number: int) -> None:
    """Print the build, then the figures of all operations for each line of the input."""
    print(allocator.build(), flush=True)
    measures = [prepare(number) for prepare in OPERATIONS.values()]
    for _ in sys.stdin:
        print(*(measure() for measure in measures), flush=True)


def ask(process: "subprocess.Popen[str]") -> list[float]:
    """Return the figures of one round of a process."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return [float(figure) for figure in process.stdout.readline().split()]


def main() -> None:
    """Print the table: medians of the rounds, and their range."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--events", type=int, default=EVENTS, help="with --answer: of a figure")
    parser.add_argument("--answer", action="store_true", help="measure for each line of the input")
    arguments = parser.parse_args()
    if arguments.answer:
        answer(arguments.events)
        return
    folders = {"pure": ROOT, "compiled": ROOT / "build" / "compiled"}
    if not folders["compiled"].exists():
        raise SystemExit("no compiled modules to measure: run `make compiled-wheel` first")
    with ExitStack() as stack:
        processes = {}
        for build, folder in folders.items():
            # The folder of the program, which Python puts first in its path, has no `allocator`.
            process = stack.enter_context(
                subprocess.Popen(  # noqa: S603 - this very program
                    [sys.executable, "-P", Path(__file__), "--answer"],
                    env={"PYTHONPATH": f"{folder}:{ROOT}", "PYTHONHASHSEED": "0"},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            assert process.stdout is not None
            assert process.stdout.readline().strip() == build
            processes[build] = process
        rounds = [
            {build: ask(process) for build, process in processes.items()}
            for _ in track(range(arguments.rounds), console=Console(stderr=True))
        ]
        for process in processes.values():
            process.communicate()
    table = Table(title="µs of processor time: median, and range")
    for column in ("operation", "pure", "compiled", "compiled / pure"):
        table.add_column(column, justify="left" if column == "operation" else "right")
    for number, operation in enumerate(OPERATIONS):
        pure = [figures["pure"][number] for figures in rounds]
        compiled = [figures["compiled"][number] for figures in rounds]
        ratios = [ours / theirs for ours, theirs in zip(compiled, pure, strict=True)]
        table.add_row(
            operation, _spread(pure, ",.0f"), _spread(compiled, ",.0f"), _spread(ratios, ".2f")
        )
    Console(width=120).print(table)


def _spread(figures: list[float], form: str) -> str:
    middle = statistics.median(figures)
    return f"{middle:{form}} ({min(figures):{form}}-{max(figures):{form}})"


if __name__ == "__main__":
    main()
