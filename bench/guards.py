"""Measure the cost of guards for honest load: limits, weighing, timestamps, unanswered offers.

The same messages, from request bytes to response bytes, go to two engines in one process: the first
with all guards, the second with functions that let everything pass. With --service the messages go
to two services in processes of their own behind gRPC. Rounds alternate. The program prints the CPU
time of the thread, or of the service with all its threads, and the ratio of each pair.
"""

import argparse
import gc
import statistics
import tempfile
import time
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Console
from rich.table import Table

from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.fairness import policies
from allocator.service.config import ListenSection
from allocator.service.masters import message_splitting, timestamp_guard, wire
from bench.played.cluster import OPTIONS, SECOND, PlayedCluster
from bench.played.peers import Process, ServiceStream, service
from bench.played.trusting import trusting

if TYPE_CHECKING:
    from collections.abc import Callable

EVENTS = 200
"""In a round."""
TURNS, IN_A_TURN = 100, 20
"""Turns of a service in a round, and events in a turn. The result is the median over turns: work
that a service does once a second, like saving, costs both sides the same, but at different moments.
"""
SETTINGS = '[policy]\nname = "sdrf"\nhalf_life = "1h"\n[log]\nlevel = "warning"\n'
COMMANDS = {False: "allocator.cli", True: "bench.played.trusting"}
"""Modules to run as `longshare`, by whether the service trusts its peers."""
MOST_PARTS = ListenSection().most_parts


class Side:
    """An engine, its played master, and the CPU time it has used.

    Args:
        agents: The number of agents.
        frameworks: The number of frameworks.
    """

    def __init__(self, agents: int, frameworks: int) -> None:
        self._cluster = PlayedCluster(agents, frameworks)
        self._engine = Engine(EngineSettings(policies.create("sdrf", {"half_life": "1h"})))
        self._played_ns = 0
        timeline = timestamp_guard.Timeline(SECOND, lambda: self._played_ns)
        self._stamps = timestamp_guard.TimestampGuard(timeline, "bench")

    def snapshot(self) -> float:
        """Have a snapshot taken; return the seconds."""
        data = contract.FromMaster(snapshot=self._cluster.snapshot()).SerializeToString()
        begun = time.thread_time()
        message = wire.parse(data, MOST_PARTS)
        self._stamps.bound(message)
        self._engine.restore(OPTIONS, message.snapshot)
        return time.thread_time() - begun

    def events(self, number: int) -> float:
        """Let the engine decide `number` events, each a message; return the seconds."""
        took = 0.0
        for _ in range(number):
            data = contract.FromMaster(events=self._cluster.batch(1)).SerializeToString()
            begun = time.thread_time()
            message = wire.parse(data, MOST_PARTS)
            self._stamps.bound(message)
            for part in message_splitting.split_message(message):
                self._stamps.record(part.events.events[-1].time_ns)
                decisions = self._engine.apply(part.events)
                decisions.SerializeToString()
            took += time.thread_time() - begun
            self._cluster.take(decisions)
            self._played_ns += SECOND // 1000
        return took


Pairs: TypeAlias = dict[str, list[tuple[float, float]]]
"""Seconds with and without guards in each round, by operation."""


def pairs(agents: int, frameworks: int, rounds: int) -> Pairs:
    """Have engines in this process work."""
    lasting = {trusted: Side(agents, frameworks) for trusted in (False, True)}
    for side in lasting.values():
        side.snapshot()
    doing: dict[str, Callable[[bool], float]] = {
        "snapshot": lambda _: Side(agents, frameworks).snapshot(),
        "event": lambda trusted: lasting[trusted].events(EVENTS) / EVENTS,
    }
    results: Pairs = {kind: [] for kind in doing}
    for number in range(rounds + 1):
        for kind, do in doing.items():
            seconds = dict[bool, float]()
            for trusted in (False, True) if number % 2 else (True, False):
                gc.collect()
                with trusting() if trusted else nullcontext():
                    seconds[trusted] = do(trusted)
            if number:  # the first fills caches
                results[kind].append((seconds[False], seconds[True]))
    return results


class Served:
    """A service and its played master, on the clock of this machine.

    Args:
        stream: The connection to the service.
        process: The process of the service.
        size: The numbers of agents and frameworks.
    """

    def __init__(self, stream: ServiceStream, process: Process, size: tuple[int, int]) -> None:
        self._stream = stream
        self._process = process
        self._size = size
        self._cluster = self._begun()
        stream.begin(self._cluster, virtual_clock=False)

    def snapshot(self) -> float:
        """Restore the cluster's first snapshot; return the seconds."""
        self._cluster = self._begun()
        data = contract.FromMaster(snapshot=self._cluster.snapshot()).SerializeToString()
        before = self._process.cpu()
        self._stream.restore(data)
        return self._process.cpu() - before

    def events(self, number: int) -> float:
        """Let the service decide `number` events, each a message; return the seconds."""
        before = self._process.cpu()
        for _ in range(number):
            self._cluster.take(self._stream.apply(self._cluster.batch(1)))
        return self._process.cpu() - before

    def _begun(self) -> PlayedCluster:
        return PlayedCluster(*self._size, begin_ns=time.time_ns())


def served_pairs(agents: int, frameworks: int, rounds: int, turns: int = TURNS) -> Pairs:
    """Have services work, each in a process of its own."""
    with ExitStack() as stack:
        sides = dict[bool, Served]()
        for trusted, module in COMMANDS.items():
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            stream, process = stack.enter_context(service(folder, SETTINGS, module))
            sides[trusted] = Served(stream, process, (agents, frameworks))
        results: Pairs = {"snapshot": [], "event": []}
        for number in range(rounds + 1):
            order = (False, True) if number % 2 else (True, False)
            snapshot = {trusted: sides[trusted].snapshot() for trusted in order}
            event: dict[bool, list[float]] = {trusted: [] for trusted in order}
            for _ in range(turns):
                for trusted in order:
                    event[trusted].append(sides[trusted].events(IN_A_TURN) / IN_A_TURN)
            if number:
                results["snapshot"].append((snapshot[False], snapshot[True]))
                with_, without = (statistics.median(event[trusted]) for trusted in (False, True))
                results["event"].append((with_, without))
        return results


def main() -> None:
    """Print the table: medians, and the ratios of pairs with their quartiles."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--frameworks", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--turns", type=int, default=TURNS, help="with --service: in a round")
    parser.add_argument("--service", action="store_true", help="whole services, through gRPC")
    arguments = parser.parse_args()
    size = arguments.agents, arguments.frameworks, arguments.rounds
    results = served_pairs(*size, arguments.turns) if arguments.service else pairs(*size)
    table = Table(title=f"{arguments.agents:,} agents × {arguments.frameworks:,} frameworks, SDRF")
    for column in ("", "with limits", "without", "with, of without", "quartiles"):
        table.add_column(column, justify="right")
    for kind, measured in results.items():
        with_, without = (statistics.median(times) for times in zip(*measured, strict=True))
        ratios = [first / second for first, second in measured]
        low, middle, high = statistics.quantiles(ratios, n=4)
        table.add_row(
            *(kind, f"{1000 * with_:.3f} ms", f"{1000 * without:.3f} ms"),
            *(f"{middle:.3f}", f"{low:.3f} to {high:.3f}"),
        )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
