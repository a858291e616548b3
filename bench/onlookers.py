"""Measure the cost of observers for the deciding loop: the same events with and without them.

Several engines get the same events in turn, message by message: without observers; with accounting
of users; with a shadow policy; with both and the status page; and with a recorder as well, which
copies the state of all users once a second. The recorder is off by default.

Times are CPU time of this process, so that load on the machine matters less, and have a ratio to
the first engine of each round. The number of executed lines does not depend on the machine at all.
Deferred work, done in slices between messages, is listed separately. The reasons why users wait are
computed between messages only, so no decision pays for them.

With --only a single engine gets messages and nothing is measured, for a tool that counts
instructions: valgrind --tool=cachegrind --cache-sim=no python -m bench.onlookers --only all
--messages 9100, less the same with 100 messages. With fewer messages, garbage collection distorts
the figure.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings, UserKey
from allocator.cooperative import run_to_completion
from allocator.fairness import policies
from allocator.fairness.metering import Meter
from allocator.service.accounting.database import Database
from allocator.service.accounting.write_batch import Batch
from allocator.service.loop import gc_tuning
from allocator.service.show.offer_history import OfferTrail
from allocator.service.show.recorder import Recorder
from allocator.service.show.shadows import Shadows
from allocator.service.show.standing_history import StandingHistory
from bench.counts import lines_of
from bench.played.cluster import OPTIONS, PlayedCluster

_SECOND = 1000
"""Events of a played cluster in a second."""
_LATER = 50
"""Messages until deferred work is done; in the service, some 50 ms."""
SHADOW = {"drf": policies.create("drf", {})}


class _Side:
    """An engine, its cluster, and its observers."""

    def __init__(
        self,
        size: tuple[int, int],
        meter: Meter | None = None,
        shadows: Shadows | None = None,
        recorder: Recorder | None = None,
        user_key: UserKey = "role",
    ) -> None:
        self.meter = meter
        self._shadows = Shadows({}) if shadows is None else shadows
        self._past = StandingHistory()
        self._recorder = recorder
        settings = EngineSettings(policies.create("sdrf", {"half_life": "1h"}), user_key)
        looked_at = meter is not None or shadows is not None
        look = self._look if looked_at else None
        self.engine = Engine(settings, meter=meter, before_change=look)
        if looked_at:
            followed = (self._shadows,) if self._shadows.followers else ()
            self.engine.watch(OfferTrail(), *followed)
        self.cluster = PlayedCluster(*size)
        self.engine.restore(OPTIONS, self.cluster.snapshot())

    def _look(self, instant: float) -> None:
        self._past.sample_until(self.engine, instant)
        if self._shadows.followers:
            self._shadows.before_change(self.engine, instant)
        if self._recorder is not None:
            self._recorder.sample_until(self.engine, instant)

    def apply(self, number: int, measure: Callable[[Callable[[], object]], float]) -> float:
        """Apply a message; return its measured cost."""
        events = self.cluster.batch(number)
        decided = []
        taken = measure(lambda: decided.append(self.engine.apply(events)))
        self.cluster.take(decided[0])
        return taken

    def later(self) -> None:
        """Do the work that the service does in slices between messages."""
        if self.meter is not None:
            self.meter.counted.add_up()
        if self.engine.role_meter is not None:
            run_to_completion(self.engine.role_meter.add_up_in_steps())
        run_to_completion(self._shadows.replay())
        self._past.backlog.finish()
        if self._recorder is not None:
            self._recorder.backlog.finish()


def seconds_of(operation: Callable[[], object]) -> float:
    """Return the processor seconds of an operation."""
    begun = time.process_time()
    operation()
    return time.process_time() - begun


def main() -> None:
    """Print the table: medians of rounds, executed lines, and the cost of a write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--frameworks", type=int, default=1000)
    parser.add_argument("--events", type=int, default=1, help="in a message")
    parser.add_argument("--messages", type=int, default=100, help="in a round")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument(
        "--only", choices=("nobody", "accounts", "a shadow", "all", "and a recorder")
    )
    parser.add_argument("--users", choices=("role", "framework_name"), default="role")
    parser.add_argument("--no-later", action="store_true", help="with --only: decide, and no more")
    arguments = parser.parse_args()
    size = (arguments.agents, arguments.frameworks)
    key: UserKey = arguments.users
    gc_tuning.enable()  # as in the service
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder, "recorder.csv"), 1.0)
        meter = Meter()
        make: dict[str, Callable[[], _Side]] = {
            "nobody": lambda: _Side(size, user_key=key),
            "accounts": lambda: _Side(size, meter, user_key=key),
            "a shadow": lambda: _Side(size, None, Shadows(SHADOW), user_key=key),
            "all": lambda: _Side(size, Meter(), Shadows(SHADOW), user_key=key),
            "and a recorder": lambda: _Side(size, Meter(), Shadows(SHADOW), recorder, key),
        }
        sides = {name: made() for name, made in make.items() if arguments.only in (None, name)}
        gc_tuning.collect_after_snapshot()
        if arguments.only is None:
            _compare(arguments, sides, size)
            _write(sides["accounts"], meter, Path(folder, "accounting.sqlite"))
        else:
            _play(arguments, sides[arguments.only])
        recorder.close()


def _play(arguments: argparse.Namespace, side: _Side) -> None:
    for number in range(1, arguments.messages + 1):
        side.apply(arguments.events, _done)
        if number % _LATER == 0 and not arguments.no_later:
            side.later()


def _done(operation: Callable[[], object]) -> float:
    operation()
    return 0.0


def _compare(arguments: argparse.Namespace, sides: dict[str, _Side], size: tuple[int, int]) -> None:
    taken: dict[str, list[float]] = {name: [] for name in sides}
    afterwards: dict[str, list[float]] = {name: [] for name in sides}
    total_events = arguments.messages * arguments.events
    for turn in range(arguments.rounds + 1):
        spent, after = dict.fromkeys(sides, 0.0), dict.fromkeys(sides, 0.0)
        first = turn % len(sides)  # otherwise the bare engine has a fixed place in the order
        for name, side in (*list(sides.items())[first:], *list(sides.items())[:first]):
            for number in range(1, arguments.messages + 1):
                spent[name] += side.apply(arguments.events, seconds_of)
                if number % _LATER == 0:
                    after[name] += seconds_of(side.later)
        for name in sides:
            taken[name].append(spent[name] / total_events)
            afterwards[name].append(after[name] / total_events)
    lines = dict.fromkeys(sides, 0.0)
    turns = list(sides.items())
    for _ in range(_SECOND // arguments.events):  # a second of the master's clock: all have turns
        turns.append(turns.pop(0))  # each in turn fills the caches that all share
        for name, side in turns:
            lines[name] += side.apply(arguments.events, lines_of) / _SECOND
            side.later()
    table = Table(title=f"{size[0]:,} agents × {size[1]:,} frameworks, SDRF, an event")
    table.add_column("who looks on")
    for column in ("µs of CPU", "of nobody", "quartiles", "lines", "of nobody", "µs later"):
        table.add_column(column, justify="right")
    for name in sides:
        ratios = [a / b for a, b in zip(taken[name][1:], taken["nobody"][1:], strict=True)]
        low, _, high = statistics.quantiles(ratios, n=4)
        table.add_row(
            name,
            f"{1e6 * statistics.median(taken[name][1:]):.1f}",
            f"{statistics.median(ratios):.3f}",
            f"{low:.3f}–{high:.3f}",
            f"{lines[name]:.0f}",
            f"{lines[name] / lines['nobody']:.3f}",
            f"{1e6 * statistics.median(afterwards[name][1:]):.1f}",
        )
    Console(width=110).print(table)


def _write(side: _Side, meter: Meter, path: Path) -> None:
    database = Database(path)
    begun = time.process_time()
    formers = run_to_completion(side.engine.close_accounts())
    counted = time.process_time() - begun
    now = side.engine.now
    batch = Batch("bench", 1, now, now, meter.take(), formers)
    begun = time.process_time()
    batch.counted.add_up()
    database.write(batch, 100_000)
    written = time.process_time() - begun
    database.close()
    Console(width=110).print(
        f"a write of {len(formers):,} users: {1e3 * counted:.0f} ms of the loop's thread, "
        f"in slices; "
        f"{1e3 * written:.0f} ms of others"
    )


if __name__ == "__main__":
    main()
