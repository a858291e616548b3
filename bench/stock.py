"""Mesos's own benchmark DeclineOffers with the stock allocator and with Longshare, in turn.

The program compiles the benchmark from the sources of a Mesos release, beside a small main program
in bench/mesos. Each pass runs it with the stock allocator, with the module and a service of plain
Python, and with a service of compiled modules if `make compiled-wheel` has left them in
build/compiled. In each round all frameworks decline all offers, then one batch makes offers.

Without `--home`, the program does nothing.
"""

import argparse
import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import grpc
from rich.console import Console
from rich.progress import Progress

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "lab" / "benchmarks.md"
BEGIN, END = "<!-- bench.stock -->\n", "<!-- end of bench.stock -->\n"
SIZES = "1000x50,1000x200,1000x1000,5000x50,10000x50,10000x1000"
MODULE = "liblongshare_allocator.so"
AGENTS = (1_000, 5_000, 10_000, 20_000, 30_000, 50_000)
FRAMEWORKS = (1, 50, 100, 200, 500, 1_000, 3_000, 6_000)
"""Numbers that the parameters of Mesos's benchmark combine, in its order."""
UNITS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "secs": 1e3, "mins": 6e4}
"""Milliseconds of each unit that Mesos prints."""
ROUND = re.compile(r"round \d+ allocate\(\) took ([\d.e+-]+)(\w+) to make (\d+) offers")
CONFIGURATION = """
[policy]
name = "drf"
[users]
key = "role"
[offers]
allocation = "batch"
[listen]
address = "unix://{folder}/allocator.sock"
virtual_clocks = true
[metrics]
address = "127.0.0.1:0"
[store]
path = "{folder}/commitments.sqlite"
[log]
level = "error"
"""


@dataclass(frozen=True)
class Run:
    """The measurements of one run."""

    batches: list[float]
    """Milliseconds that each batch took, by Mesos's own measurement."""
    offers: list[int]
    """Number of offers of each batch."""
    times: Sequence[tuple[float, ...]]
    """Seconds before the first batch, after it, after its declines, and so on.

    The columns are a clock, then CPU times: of the benchmark with Mesos's actors, of the module's
    thread, and of the service."""

    @property
    def whole(self) -> float:
        """Seconds of all rounds, with their declines."""
        return self.times[-1][0] - self.times[0][0]

    def cpu(self, column: int, first: int, rounds: int | None = None) -> float:
        """Return µs of CPU time per offer.

        Args:
            column: The column of `times`.
            first: 0: of batches; 1: of the declines after each batch.
            rounds: The number of rounds to consider; None: all.
        """
        count = rounds or len(self.offers)
        used = sum(
            self.times[number + 1][column] - self.times[number][column]
            for number in range(first, 2 * count, 2)
        )
        return used / max(sum(self.offers[:count]), 1) * 1e6


def excerpt(tests: str) -> str:
    """Return the benchmark DeclineOffers from the text of Mesos's hierarchical_allocator_tests.cpp.

    Raises:
        ValueError: The text lacks a part.
    """
    benchmark = "HierarchicalAllocator_BENCHMARK_Test"
    parts = [
        _between(tests, "#include <atomic>", "\nclass HierarchicalAllocatorTest :"),
        _between(tests, f"\nclass {benchmark}\n", f"\nTEST_P({benchmark}, AddAndUpdateSlave)"),
        _between(tests, f"\nTEST_P({benchmark}, DeclineOffers)", "\n}\n"),
    ]
    text = "\n".join(
        [*parts, "}\n} // namespace tests\n} // namespace internal\n} // namespace mesos\n"]
    )
    text = re.sub(
        r"#include <gmock/gmock.h>|#include \"tests/(allocator|mesos|utils).hpp\"", "", text
    )
    created = "createAllocator<HierarchicalDRFAllocator>()"
    if created not in text:
        raise ValueError(f"Mesos's tests have no {created}")
    return '#include "allocator.hpp"\n' + text.replace(
        created, "longshare::bench::create_allocator()"
    )


def _between(text: str, begin: str, end: str) -> str:
    first = text.find(begin)
    last = text.find(end, first)
    if first < 0 or last < 0:
        raise ValueError(f"Mesos's tests lack {begin.strip()!r} followed by {end.strip()!r}")
    return text[first:last]


def stubs(library: Path) -> str:
    """Return C definitions of the symbols that libmesos.so needs from a Python interpreter."""
    listed = subprocess.run(  # noqa: S603
        ["nm", "--dynamic", "--undefined-only", library],  # noqa: S607
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    names = sorted(set(re.findall(r"\b_?Py\w+", listed)))
    return "".join(f"void *{name}[64];\n" for name in names) or "typedef int nothing;\n"


def build(source: Path, library: Path, protobuf: Path | None, folder: Path) -> Path:
    """Compile the benchmark in a folder, and return the program's path."""
    folder.mkdir(parents=True, exist_ok=True)
    tests = source / "src" / "tests" / "hierarchical_allocator_tests.cpp"
    for name, text in (
        ("excerpt.cc", excerpt(tests.read_text("utf-8"))),
        ("stubs.c", stubs(library)),
    ):
        if not (folder / name).exists() or (folder / name).read_text("utf-8") != text:
            (folder / name).write_text(text, "utf-8")
    variables = {
        "MESOS_SOURCE": source,
        "MESOS_LIBRARY": library,
        "PROTOBUF_SOURCE": protobuf or "",
        "EXCERPT": folder / "excerpt.cc",
        "STUBS": folder / "stubs.c",
    }
    made = folder / "made"
    settings = [f"-D{name}={value}" for name, value in variables.items()]
    subprocess.run(["cmake", "-S", ROOT / "bench" / "mesos", "-B", made, *settings], check=True)  # noqa: S603, S607
    subprocess.run(["cmake", "--build", made, "--target", "decline_offers", "-j2"], check=True)  # noqa: S603, S607
    return made / "decline_offers"


@contextmanager
def service(folder: Path, checkout: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the service of a checkout during the block, with its socket in the folder."""
    config = folder / "longshare.toml"
    config.write_text(CONFIGURATION.format(folder=folder), "utf-8")
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-P", "-m", "allocator.cli", "serve", "--config", config],
        env={"PYTHONPATH": f"{checkout}:{ROOT}", "PATH": os.environ["PATH"]},
    )
    try:
        with grpc.insecure_channel(f"unix://{folder}/allocator.sock") as channel:
            grpc.channel_ready_future(channel).result(timeout=120)
        yield process
    finally:
        process.terminate()
        process.wait()


@dataclass(frozen=True)
class Benchmark:
    """The compiled benchmark, and what a run needs."""

    program: Path
    home: Path
    """Folder of libmesos.so, and of both libraries of the module."""
    rounds: int
    """Number of rounds of a run; 0: twice as many as frameworks, as in Mesos."""

    def run(self, size: tuple[int, int], checkout: Path | None, *, waits: bool) -> Run:
        """Run the benchmark once.

        Args:
            size: Numbers of agents and frameworks.
            checkout: Folder of the service's code; None: the stock allocator.
            waits: Whether the benchmark's thread sleeps instead of spinning.
        """
        with tempfile.TemporaryDirectory(prefix="longshare-bench-") as name:
            if checkout is None:
                return self._run(size, {}, waits=waits)
            with service(Path(name), checkout) as process:
                module = {
                    "LONGSHARE_MODULE": str(self.home / MODULE),
                    "LONGSHARE_ADDRESS": f"unix://{name}/allocator.sock",
                    "LONGSHARE_SERVICE": str(process.pid),
                }
                return self._run(size, module, waits=waits)

    def _run(self, size: tuple[int, int], module: dict[str, str], *, waits: bool) -> Run:
        agents, frameworks = size
        number = AGENTS.index(agents) * len(FRAMEWORKS) + FRAMEWORKS.index(frameworks)
        rounds = min(self.rounds or 2 * frameworks, 2 * frameworks - 1)
        environment = {
            "LD_LIBRARY_PATH": str(self.home),
            "LIBPROCESS_IP": "127.0.0.1",
            "LIBPROCESS_METRICS_SNAPSHOT_ENDPOINT_RATE_LIMIT": "",
            "GLOG_minloglevel": "2",  # the stock allocator logs a warning for each filter
            "LONGSHARE_ROUNDS": str(rounds),
            "LONGSHARE_WAITS": "1" if waits else "",
            **module,
        }
        done = subprocess.run(  # noqa: S603
            [self.program, f"--gtest_filter=*DeclineOffers/{number}"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode or not ROUND.search(done.stdout):
            raise SystemExit(f"{self.program} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        batches = [
            (float(time) * UNITS[unit], int(made))
            for time, unit, made in ROUND.findall(done.stdout)
        ]
        lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("cpu ")]
        return Run(
            [time for time, _ in batches],
            [made for _, made in batches],
            [tuple(map(float, line)) for line in lines],
        )


def milliseconds(number: str, unit: str) -> float:
    """Return a duration that Mesos has printed."""
    return float(number) * UNITS[unit]


Results = dict[tuple[tuple[int, int], bool], dict[str, list[Run]]]
"""Size, and whether the benchmark waits → allocator → its runs."""


def tables(results: Results, kinds: list[str]) -> str:
    """Return the Markdown tables of elapsed times and of CPU times."""
    variants = kinds[1:]
    head = ["agents", "frameworks", "clock"]
    head += [f"{quantity}: {kind}" for quantity in ("first round", "mean") for kind in kinds]
    head += [f"first round of stock: {kind}" for kind in variants] + [
        f"whole run: {kind}" for kind in kinds
    ]
    elapsed = [head]
    spent = [["agents", "frameworks", "rounds", "part"]]
    spent[0] += [f"master: {kind}" for kind in kinds]
    spent[0] += [
        f"{quantity}: {kind}" for quantity in ("module's thread", "service") for kind in variants
    ]
    for ((agents, frameworks), waits), runs in results.items():
        size = [f"{agents:,}", f"{frameworks:,}"]
        firsts = {kind: [run.batches[0] for run in runs[kind]] for kind in kinds}
        row = [*size, "waits" if waits else "spins"]
        row += [spread(firsts[kind]) for kind in kinds]
        row += [spread([statistics.mean(run.batches) for run in runs[kind]]) for kind in kinds]
        for kind in variants:
            pairs = zip(firsts[kind], firsts["stock"], strict=True)
            row.append(spread([ours / stock for ours, stock in pairs], 2))
        elapsed.append([*row, *(spread([run.whole for run in runs[kind]], 1) for kind in kinds)])
        parts = itertools.product((("first", 1), ("all", None)), ("batch", "declines"))
        for (name, rounds), part in parts if waits else ():
            first = int(part == "declines")
            columns = [(1, kind) for kind in kinds]
            columns += itertools.product((2, 3), variants)
            row = [*size, name, part]
            for column, kind in columns:
                row.append(spread([run.cpu(column, first, rounds) for run in runs[kind]], 1))
            spent.append(row)
    between = "CPU time in µs per offer, while the benchmark waits:"
    return f"{_markdown(elapsed)}\n{between}\n\n{_markdown(spent)}"


def spread(figures: list[float], digits: int = 0) -> str:
    """Return the median, and the range of several figures."""
    middle = f"{statistics.median(figures):,.{digits}f}"
    if len(figures) == 1:
        return middle
    return f"{middle} ({min(figures):,.{digits}f}–{max(figures):,.{digits}f})"


def _markdown(rows: list[list[str]]) -> str:
    head, *body = [f"| {' | '.join(row)} |\n" for row in rows]
    return "".join([head, f"|{'---|' * len(rows[0])}\n", *body])


def main() -> None:
    """Measure all sizes in turn, and print the tables or renew them in the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--home", type=Path, help=f"folder of libmesos.so, {MODULE} and the transport"
    )
    parser.add_argument("--source", type=Path, help="sources of the same release of Mesos")
    parser.add_argument(
        "--protobuf", type=Path, help="protobuf 3.5.0, unless Mesos's sources have it"
    )
    parser.add_argument(
        "--program", type=Path, help="the benchmark compiled before, instead of --source"
    )
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build" / "stock", help="folder for the compiler"
    )
    parser.add_argument(
        "--compiled", type=Path, default=ROOT / "build" / "compiled", help="compiled checkout"
    )
    parser.add_argument("--sizes", default=SIZES, help=f"agents x frameworks, default {SIZES}")
    parser.add_argument(
        "--rounds", type=int, default=6, help="rounds of a run; 0: all, as in Mesos"
    )
    parser.add_argument("--passes", type=int, default=5, help="runs of each allocator, in turn")
    parser.add_argument("--write", action="store_true", help=f"renew the tables in {PAGE.name}")
    arguments = parser.parse_args()
    if arguments.home is None:
        print("skipped: --home names no folder with a real Mesos")
        return
    home = arguments.home.resolve()
    program = arguments.program or build(
        arguments.source.resolve(),
        home / "libmesos.so",
        arguments.protobuf,
        arguments.build.resolve(),
    )
    checkouts: dict[str, Path | None] = {"stock": None, "plain": ROOT}
    if (arguments.compiled / "allocator").exists():
        checkouts["compiled"] = arguments.compiled.resolve()
    named = (size.split("x") for size in arguments.sizes.split(","))
    sizes = [(int(agents), int(frameworks)) for agents, frameworks in named]
    benchmark = Benchmark(program.resolve(), home, arguments.rounds)
    results: Results = {
        (size, waits): {kind: [] for kind in checkouts} for size in sizes for waits in (False, True)
    }
    with Progress(console=Console(stderr=True)) as progress:
        todo = list(itertools.product(range(arguments.passes), results.items(), checkouts.items()))
        for _, ((size, waits), runs), (kind, checkout) in progress.track(
            todo, description="Measuring"
        ):
            runs[kind].append(benchmark.run(size, checkout, waits=waits))
    count = f"{arguments.passes} passes of {arguments.rounds or 'all'} rounds"
    day = f"{datetime.now(tz=UTC):%Y-%m-%d}"
    title = f"{day}, load {os.getloadavg()[-1]:.0f}, {count}; milliseconds, and seconds of a run:"
    text = f"{title}\n\n{tables(results, list(checkouts))}"
    print(text)
    if arguments.write:
        page = PAGE.read_text("utf-8")
        begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
        PAGE.write_text(f"{page[:begin]}\n{text}\n{page[end:]}", "utf-8")


if __name__ == "__main__":
    main()
