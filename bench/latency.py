"""Measure the time from a task's end to the next offer, under an open-loop load, with its tail.

Tasks end at instants of a Poisson process, whether or not the service keeps up. A single message is
in flight; events that gather meanwhile go into the next message, as from the module. Each end
becomes an offer, which is accepted. The store and the recorder write, Prometheus scrapes, and the
status page is open.

The same run has two references: a bare echo on grpc.aio, which answers messages of the same size at
the same instants; and the time until a stock master's next batch.
"""

import argparse
import multiprocessing
import random
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.table import Table

from allocator.contract import allocator_pb2 as contract
from bench.played.cluster import SECOND, PlayedCluster
from bench.played.peers import ServiceStream, echo, service

QUANTILES = (0.5, 0.9, 0.99, 0.999)
SCRAPED = 5.0
"""Seconds between two scrapes of Prometheus."""
LOOKED = 2.0
"""Seconds between two looks of the status page."""
_LEAST_SLEEP = 0.0001


def arrivals(rate: float, seconds: float) -> list[float]:
    """Return instants of a Poisson process, in seconds from its begin."""
    chance, instants, now = random.Random(2), [], 0.0  # noqa: S311 - a load, not a secret
    while (now := now + chance.expovariate(rate)) < seconds:
        instants.append(now)
    return instants


def open_loop(instants: Sequence[float], send: Callable[[int, int], object]) -> list[float]:
    """Send due events, one message at a time; return the wait of each event in seconds.

    Args:
        instants: Times of the events.
        send: Called with the range of events in a message: first, and last plus one.
    """
    waited: list[float] = []
    begun = time.perf_counter()
    while (first := len(waited)) < len(instants):
        pause = instants[first] - (time.perf_counter() - begun)
        if pause > 0:
            time.sleep(max(pause, _LEAST_SLEEP))
        now = time.perf_counter() - begun
        last = first + 1
        while last < len(instants) and instants[last] <= now:
            last += 1
        send(first, last)
        answered = time.perf_counter() - begun
        waited += [answered - instant for instant in instants[first:last]]
    return waited


def through_the_service(
    stream: ServiceStream, cluster: PlayedCluster, instants: Sequence[float]
) -> tuple[list[float], list[int]]:
    """Return the waits of events in seconds, and the sizes of messages in bytes."""
    sizes: list[int] = []
    begin_ns = time.time_ns()
    ticked = 0

    def send(first: int, last: int) -> None:
        nonlocal ticked
        events = contract.Events()
        for instant in instants[first:last]:
            now_ns = begin_ns + round(instant * SECOND)
            if int(instant) > ticked:
                ticked = int(instant)
                cluster.tick(events, now_ns)
            cluster.end_task(events, now_ns)
        message = contract.FromMaster(events=events).SerializeToString()
        sizes.append(len(message))
        answer = contract.ToMaster.FromString(stream.ask(message))
        if not answer.HasField("decisions"):
            raise RuntimeError(f"no decisions but {answer}")
        cluster.take(answer.decisions)

    return open_loop(instants, send), sizes


def _watch(url: str, every: float) -> None:
    while True:
        # An overloaded service may close the connection.
        with suppress(OSError), urllib.request.urlopen(url) as answer:  # noqa: S310 - our own
            answer.read()
        time.sleep(every)


@contextmanager
def watched(url: str) -> Iterator[None]:
    """Scrape, and look at the status page, while the block runs."""
    context = multiprocessing.get_context("spawn")
    looks = {"/metrics": SCRAPED, "/api/status": LOOKED}
    watchers = [
        context.Process(target=_watch, args=(url + path, every), daemon=True)
        for path, every in looks.items()
    ]
    for watcher in watchers:
        watcher.start()
    try:
        yield
    finally:
        for watcher in watchers:
            watcher.terminate()
            watcher.join()


def settings(arguments: argparse.Namespace, folder: str, *, plain: bool) -> str:
    """Return the settings of a service under load."""
    half_life = 'half_life = "1h"\n' if arguments.policy in ("sdrf", "stsf") else ""
    recorder = "" if plain else f'[recorder]\nfile = "{folder}/recorder.csv"\n'
    return f'[policy]\nname = "{arguments.policy}"\n{half_life}{recorder}'


def longest_pause(url: str) -> float:
    """Return for how long the service's event loop has worked at a stretch, in seconds."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:  # noqa: S310 - our own service's
        text = answer.read().decode()
    name = "longshare_loop_longest_pause_seconds "
    values = [line.removeprefix(name) for line in text.splitlines() if line.startswith(name)]
    return float(values[0])


def under_load(arguments: argparse.Namespace, size: str, table: Table) -> list[float]:
    """Measure a cluster size; add its row and the echo's row; return the waits."""
    agents, frameworks = (int(number) for number in size.split("x"))
    instants = arrivals(arguments.rate, arguments.seconds)
    with tempfile.TemporaryDirectory() as folder:
        cluster = PlayedCluster(agents, frameworks, time.time_ns())
        with service(Path(folder), settings(arguments, folder, plain=arguments.plain)) as (
            stream,
            process,
        ):
            cluster.take(stream.begin(cluster))
            url = process.url()
            with watched(url) if not arguments.plain else _nothing():
                through_the_service(stream, cluster, arrivals(arguments.rate, arguments.warm_up))
                before = process.cpu()
                waits, sizes = through_the_service(stream, cluster, instants)
                cpu = process.cpu() - before
            pause = longest_pause(url)
            _add(table, f"service, {size}", waits, instants, (cpu, process.memory(), pause))
    with tempfile.TemporaryDirectory() as folder, echo(Path(folder)) as (stream, process):
        before = process.cpu()
        bare = echoed(stream, instants, round(sum(sizes) / len(instants)))
        _add(table, "bare echo", bare, instants, (process.cpu() - before, process.memory(), None))
    return waits


def on_and_off(arguments: argparse.Namespace, size: str) -> Table:
    """Measure in turn a service with all observers and a service without observers."""
    agents, frameworks = (int(number) for number in size.split("x"))
    extras = {"off": '[accounting]\ndatabase = "none"\n', "on": '[[shadow]]\nname = "drf"\n'}
    results: dict[str, list[tuple[float, float, float]]] = {name: [] for name in extras}
    with ExitStack() as stack:
        sides = {}
        for name, extra in extras.items():
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            settings_text = settings(arguments, folder, plain=True) + extra
            stream, process = stack.enter_context(service(Path(folder), settings_text))
            cluster = PlayedCluster(agents, frameworks, time.time_ns())
            cluster.take(stream.begin(cluster))
            sides[name] = stream, process, cluster
        stack.enter_context(watched(sides["on"][1].url()))
        for turn in range(arguments.on_off + 1):
            for name in sorted(sides, reverse=turn % 2 == 1):
                stream, process, cluster = sides[name]
                instants = arrivals(arguments.rate, arguments.seconds / arguments.on_off)
                before = process.cpu()
                waits, _ = through_the_service(stream, cluster, instants)
                cost = (process.cpu() - before) / len(waits)
                results[name].append((quantile(waits, 0.5), quantile(waits, 0.99), cost))
    table = Table(title=f"{size}, {arguments.rate:g}/s: all look on, and nobody does")
    for heading in ("of a round", "off", "on", "on / off", "quartiles of rounds"):
        table.add_column(heading, justify="right")
    for place, heading in enumerate(("p50, ms", "p99, ms", "CPU of an event, ms")):
        on, off = ([row[place] for row in results[name][1:]] for name in ("on", "off"))
        ratios = [a / b for a, b in zip(on, off, strict=True)]
        low, _, high = statistics.quantiles(ratios, n=4)
        table.add_row(
            heading,
            *(f"{1000 * statistics.median(values):.2f}" for values in (off, on)),
            f"{statistics.median(ratios):.2f}",
            f"{low:.2f}–{high:.2f}",
        )
    return table


def echoed(stream: ServiceStream, instants: Sequence[float], size: int) -> list[float]:
    """Return the waits when events of a size in bytes are sent back unread."""
    return open_loop(instants, lambda first, last: stream.ask(bytes(size * (last - first))))


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def quantile(waits: Sequence[float], part: float) -> float:
    """Return the percentile of the waits for a given fraction."""
    return sorted(waits)[min(int(part * len(waits)), len(waits) - 1)]


def _add(
    table: Table,
    name: str,
    waits: Sequence[float],
    instants: Sequence[float],
    cost: tuple[float, float, float | None],
) -> None:
    cpu, memory, pause = cost
    taken = max(instant + wait for instant, wait in zip(instants, waits, strict=True))
    table.add_row(
        name,
        *(f"{1000 * quantile(waits, part):.1f}" for part in QUANTILES),
        f"{1000 * max(waits):.1f}",
        f"{len(waits) / taken:,.0f}",
        f"{cpu / taken:.0%}",
        f"{memory:.0f}",
        "" if pause is None else f"{1000 * pause:.0f}",
    )


def main() -> None:
    """Print a table, and the ratio of the last size's tail to the first size's tail."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1000x50,10000x1000", help="agents x frameworks, …")
    parser.add_argument("--rate", type=float, default=1000.0, help="ends of tasks in a second")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--warm-up", type=float, default=5.0, help="seconds that do not count")
    parser.add_argument("--policy", default="sdrf")
    parser.add_argument(
        "--on-off",
        type=int,
        default=0,
        metavar="ROUNDS",
        help="instead compare, in so many rounds, a service with accounts, a shadow, scrapes and "
        "the page open with one that has none of it; a recorder has neither",
    )
    parser.add_argument("--plain", action="store_true", help="nobody records, scrapes or looks")
    arguments = parser.parse_args()
    if arguments.on_off:
        Console(width=110).print(on_and_off(arguments, arguments.sizes.split(",")[-1]))
        return
    table = Table(title=f"Milliseconds from the end of a task to its offer, {arguments.rate:g}/s")
    table.add_column("")
    for part in QUANTILES:
        table.add_column(f"p{100 * part:g}", justify="right")
    for heading in ("longest", "achieved/s", "CPU", "MB", "loop's longest pause"):
        table.add_column(heading, justify="right")
    tails = [
        quantile(under_load(arguments, size, table), QUANTILES[-1])
        for size in arguments.sizes.split(",")
    ]
    interval = 1000.0  # Mesos's --allocation_interval, in milliseconds
    stock = [f"{interval * part:.1f}" for part in QUANTILES]
    table.add_row("stock master, until its batch", *stock, f"{interval:.1f}")
    console = Console(width=130)
    console.print(table)
    console.print(f"p{100 * QUANTILES[-1]:g}, last size / first: {tails[-1] / tails[0]:.1f}")


if __name__ == "__main__":
    main()
