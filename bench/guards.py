"""What it costs honest load that others are not trusted: limits, weighing, stamps, who answers.

The same messages, from their bytes to the answer's, go to two engines in one process: past all that
holds what is said against a limit, and past functions that let everything through in its place.
Rounds alternate; CPU time of the thread, and the ratio of each pair.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

from rich.console import Console
from rich.table import Table

from allocator.cluster import subscriptions
from allocator.cluster.allocation import run
from allocator.cluster.caches import Cache
from allocator.cluster.engine import Engine
from allocator.cluster.resources import parse_allocated, parse_total, parse_used
from allocator.cluster.settings import EngineSettings
from allocator.cluster.sieve import Sieve
from allocator.contract import allocator_pb2 as contract
from allocator.fairness import policies
from allocator.service.masters import parts, stamps, wire
from bench.played.cluster import OPTIONS, SECOND, Cluster

EVENTS = 200
"""In a round."""
MOST_PARTS = 2**23


class _Answering:
    """In place of `Unanswered`: everybody answers."""

    full = 0
    kept = False

    def __init__(self, *_: object) -> None:
        pass

    def without(self, may: int) -> int:
        return may

    def admits(self, _gifts: object) -> bool:
        return True

    def give(self, _client: object, _quantities: object) -> None:
        pass


def _kept(cache: Cache[Any, Any], key: object, result: object, _size: int) -> object:
    cache._young[key] = result  # noqa: SLF001 - as `put` does, unweighed
    return result


@contextmanager
def trusting() -> Iterator[None]:
    """Believe in the block whatever is said."""
    replaced: list[tuple[Any, str, Any]] = [
        (wire, "parse", lambda data, _most: contract.FromMaster.FromString(data)),
        (parts, "parts_of", lambda message: (message,)),
        (stamps.Stamps, "bound", lambda _stamps, _message: None),
        (stamps.Stamps, "believe", lambda _stamps, _stamp: None),
        (run, "Unanswered", _Answering),
        (Cache, "put", _kept),
        (Sieve, "total", lambda _sieve, messages: parse_total(messages)),
        (Sieve, "used", lambda _sieve, messages: parse_used(messages)),
        (Sieve, "allocated", lambda _sieve, messages: parse_allocated(messages)),
        (subscriptions, "_check_names", lambda *_: None),
        (subscriptions, "_check_length", lambda *_: None),
        (subscriptions, "levels", lambda _roles: 0),
    ]
    with ExitStack() as stack:
        for where, name, other in replaced:
            stack.enter_context(mock.patch.object(where, name, other))
        yield


class Side:
    """An engine, the master that it serves, and how long it has worked.

    Args:
        agents: Of the cluster.
        frameworks: Likewise.
    """

    def __init__(self, agents: int, frameworks: int) -> None:
        self._cluster = Cluster(agents, frameworks)
        self._engine = Engine(EngineSettings(policies.create("sdrf", {"half_life": "1h"})))
        self._played_ns = 0
        timeline = stamps.Timeline(SECOND, lambda: self._played_ns)
        self._stamps = stamps.Stamps(timeline, "bench")

    def snapshot(self) -> float:
        """Have a snapshot taken; return the seconds."""
        said = contract.FromMaster(snapshot=self._cluster.snapshot()).SerializeToString()
        begun = time.thread_time()
        message = wire.parse(said, MOST_PARTS)
        self._stamps.bound(message)
        self._engine.restore(OPTIONS, message.snapshot)
        return time.thread_time() - begun

    def events(self, number: int) -> float:
        """Have so many events decided, each a message; return the seconds."""
        took = 0.0
        for _ in range(number):
            said = contract.FromMaster(events=self._cluster.batch(1)).SerializeToString()
            begun = time.thread_time()
            message = wire.parse(said, MOST_PARTS)
            self._stamps.bound(message)
            for part in parts.parts_of(message):
                self._stamps.believe(part.events.events[-1].time_ns)
                decisions = self._engine.apply(part.events)
                decisions.SerializeToString()
            took += time.thread_time() - begun
            self._cluster.take(decisions)
            self._played_ns += SECOND // 1000
        return took


def pairs(agents: int, frameworks: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return seconds with and without, of each round, by what was done."""
    lasting = {trusted: Side(agents, frameworks) for trusted in (False, True)}
    for side in lasting.values():
        side.snapshot()
    doing: dict[str, Callable[[bool], float]] = {
        "snapshot": lambda _: Side(agents, frameworks).snapshot(),
        "event": lambda trusted: lasting[trusted].events(EVENTS) / EVENTS,
    }
    found: dict[str, list[tuple[float, float]]] = {what: [] for what in doing}
    for number in range(rounds + 1):
        for what, do in doing.items():
            seconds = dict[bool, float]()
            for trusted in (False, True) if number % 2 else (True, False):
                gc.collect()
                with trusting() if trusted else nullcontext():
                    seconds[trusted] = do(trusted)
            if number:  # the first fills caches
                found[what].append((seconds[False], seconds[True]))
    return found


def main() -> None:
    """Print the table: medians, and the ratios of pairs with their quartiles."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--frameworks", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=50)
    arguments = parser.parse_args()
    found = pairs(arguments.agents, arguments.frameworks, arguments.rounds)
    table = Table(title=f"{arguments.agents:,} agents × {arguments.frameworks:,} frameworks, SDRF")
    for column in ("", "with limits", "without", "with, of without", "quartiles"):
        table.add_column(column, justify="right")
    for what, measured in found.items():
        with_, without = (statistics.median(times) for times in zip(*measured, strict=True))
        ratios = [one / other for one, other in measured]
        low, middle, high = statistics.quantiles(ratios, n=4)
        table.add_row(
            *(what, f"{1000 * with_:.3f} ms", f"{1000 * without:.3f} ms"),
            *(f"{middle:.3f}", f"{low:.3f} to {high:.3f}"),
        )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
