"""What counting what users have costs the deciding loop: the same events with and without a meter.

Two engines get the same events in turn, one message after the other; time is that of this process
on a CPU, so that others on the machine matter less. Beside it what a write of accounts takes of the
event loop's thread, in slices, and of the thread that writes.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.cluster.steps import finished
from allocator.fairness import policies
from allocator.fairness.metering import Meter
from allocator.service.accounting.batch import Batch
from allocator.service.accounting.database import Database
from bench.played.cluster import OPTIONS, Cluster


class _Side:
    """An engine and its cluster."""

    def __init__(self, size: tuple[int, int], meter: Meter | None) -> None:
        settings = EngineSettings(policies.create("sdrf", {"half_life": "1h"}))
        self.engine = Engine(settings, meter=meter)
        self.cluster = Cluster(*size)
        self.engine.restore(OPTIONS, self.cluster.snapshot())

    def apply(self, number: int) -> float:
        """Apply a message; return the seconds that took."""
        events = self.cluster.batch(number)
        begun = time.process_time()
        decisions = self.engine.apply(events)
        seconds = time.process_time() - begun
        self.cluster.take(decisions)
        return seconds


def main() -> None:
    """Print the table: medians of rounds, and what a write takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--frameworks", type=int, default=1000)
    parser.add_argument("--events", type=int, default=10, help="in a message")
    parser.add_argument("--messages", type=int, default=40, help="in a round")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    size, meter = (arguments.agents, arguments.frameworks), Meter()
    with_it, without = _Side(size, meter), _Side(size, None)
    taken: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(arguments.rounds + 1):
        spent = {"with": 0.0, "without": 0.0}
        for _ in range(arguments.messages):
            spent["with"] += with_it.apply(arguments.events)
            spent["without"] += without.apply(arguments.events)
        for name, seconds in spent.items():
            taken[name].append(seconds / arguments.messages / arguments.events)
    medians = {name: statistics.median(each[1:]) for name, each in taken.items()}
    ratios = [a / b for a, b in zip(taken["with"][1:], taken["without"][1:], strict=True)]
    table = Table(title=f"{size[0]:,} agents × {size[1]:,} frameworks, SDRF, CPU time")
    for column in ("µs an event", "median"):
        table.add_column(column, justify="right")
    for name, seconds in medians.items():
        table.add_row(f"{name} a meter", f"{1e6 * seconds:.1f}")
    console = Console(width=100)
    console.print(table)
    console.print(
        f"with / without: {statistics.median(ratios):.3f} (median of rounds; quartiles "
        f"{', '.join(f'{each:.3f}' for each in statistics.quantiles(ratios, n=4)[::2])})"
    )
    with tempfile.TemporaryDirectory() as folder:
        database = Database(Path(folder, "accounting.sqlite"))
        begun = time.process_time()
        formers = finished(with_it.engine.counting())
        counted = time.process_time() - begun
        now = with_it.engine.now
        batch = Batch("bench", 1, now, now, meter.take(), formers)
        begun = time.process_time()
        batch.counted.settle()
        database.write(batch, 100_000)
        written = time.process_time() - begun
        database.close()
    console.print(
        f"a write of {len(formers):,} users: {1e3 * counted:.0f} ms of the loop's thread, "
        f"in slices; "
        f"{1e3 * written:.0f} ms of others"
    )


if __name__ == "__main__":
    main()
