"""Events per second through the whole service on one stream, one message after the other.

The same run measures three references: the engine called directly; an engine behind grpc.aio
without any other component; and a bare echo of messages of the same size, the limit of the wire.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from allocator.cluster.engine import Engine
from allocator.contract import allocator_pb2 as contract
from bench.played.bare import settings
from bench.played.cluster import OPTIONS, PlayedCluster
from bench.played.peers import ServiceStream, bare, echo, service

EVENTS = 10_000
SETTINGS = '[policy]\nname = "sdrf"\nhalf_life = "1h"\n[log]\nlevel = "warning"\n'
BATCHES = (1, 10, 100)


def rate(
    cluster: PlayedCluster,
    apply: Callable[[contract.Events], contract.Decisions],
    batch: int,
    number: int,
) -> float:
    """Return the events per second with `batch` of `number` events in each message."""
    seconds = 0.0
    for _ in range(number // batch):
        events = cluster.batch(batch)
        begun = time.perf_counter()
        decisions = apply(events)
        seconds += time.perf_counter() - begun
        cluster.take(decisions)
    return number / seconds


def echoed(cluster: PlayedCluster, stream: ServiceStream, batch: int, number: int) -> float:
    """Return events per second when they are sent back unread."""
    message = contract.FromMaster(events=cluster.batch(batch)).SerializeToString()
    begun = time.perf_counter()
    for _ in range(number // batch):
        stream.ask(message)
    return number / (time.perf_counter() - begun)


def rounds(
    agents: int, frameworks: int, number: int, events: int = EVENTS
) -> Iterator[tuple[int, list[tuple[float, float, float, float]]]]:
    """Yield for each message size its number of events, and the events per second of each round.

    Each round measures the engine called directly, behind grpc.aio, in the service, and the bare
    echo, one after the other.
    """
    size = agents, frameworks
    engine = Engine(settings())
    alone, behind, served = PlayedCluster(*size), PlayedCluster(*size), PlayedCluster(*size)
    engine.restore(OPTIONS, alone.snapshot())
    with (
        tempfile.TemporaryDirectory() as first,
        tempfile.TemporaryDirectory() as second,
        tempfile.TemporaryDirectory() as another,
        service(Path(first), SETTINGS) as (stream, _),
        bare(Path(second)) as (naked, _),
        echo(Path(another)) as (wire, _),
    ):
        stream.begin(served)
        naked.begin(behind)
        for batch in BATCHES:
            sent = max(events if batch > 1 else events // 4, batch)
            yield (
                batch,
                [
                    (
                        rate(alone, engine.apply, batch, sent),
                        rate(behind, naked.apply, batch, sent),
                        rate(served, stream.apply, batch, sent),
                        echoed(PlayedCluster(*size), wire, batch, sent),
                    )
                    for _ in track(range(number), console=Console(stderr=True))
                ],
            )


def main() -> None:
    """Print the table: medians of interleaved rounds, and their range."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--frameworks", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--events", type=int, default=EVENTS, help="of a figure")
    arguments = parser.parse_args()
    size = arguments.agents, arguments.frameworks
    columns = ("engine alone", "behind bare gRPC", "through the service", "bare echo")
    table = Table(title=f"Events per second, {size[0]:,} agents × {size[1]:,} frameworks, SDRF")
    for column in ("events in a message", *columns, "service / echo"):
        table.add_column(column, justify="right")
    for batch, measured in rounds(*size, arguments.rounds, arguments.events):
        ratios = [through / limit for *_, through, limit in measured]
        cells = [_spread(column, ",.0f") for column in zip(*measured, strict=True)]
        table.add_row(str(batch), *cells, _spread(ratios, ".2f"))
    Console(width=120).print(table)


def _spread(figures: "tuple[float, ...] | list[float]", form: str) -> str:
    middle = statistics.median(figures)
    return f"{middle:{form}} ({min(figures):{form}}-{max(figures):{form}})"


if __name__ == "__main__":
    main()
