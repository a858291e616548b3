"""Runs the tests again and again as a slow and crowded machine would, until one fails.

`make flakes`: thirty runs, each in another order, with a load of four beside it, on one core, with
a disk that others write to, ports taken, another time zone and locale. What has failed is kept
under runs/flakes, with its seed.
"""

import argparse
import multiprocessing
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "runs" / "flakes"
USUAL_PORTS = (2181, 5050, 5051, 8080, 9090, 9105, 45871)
ELSEWHERE = {"TZ": "Pacific/Chatham", "LC_ALL": "C", "LANG": "C"}


def _burn() -> None:
    while True:
        pass


def _write() -> None:
    with tempfile.TemporaryFile(dir=ROOT) as file:
        while True:
            file.seek(0)
            file.write(os.urandom(1_000_000))
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def beside(work: Callable[[], None], number: int) -> Iterator[None]:
    """Have processes work beside what is done meanwhile."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=work, daemon=True) for _ in range(number)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


@contextmanager
def ports_taken() -> Iterator[None]:
    """Listen on ports that a test might think its own."""
    with ExitStack() as stack:
        for port in USUAL_PORTS:
            taken = stack.enter_context(socket.socket())
            try:
                taken.bind(("127.0.0.1", port))
                taken.listen()
            except OSError:
                continue  # taken already
        yield


SETTINGS: dict[str, Callable[[], object]] = {
    "crowd": lambda: beside(_burn, 4),
    "disk": lambda: beside(_write, 1),
    "ports": ports_taken,
}
"""Beside what runs; `one core` and `elsewhere` are of the run itself."""


def once(seed: int, settings: set[str], arguments: list[str]) -> int:
    """Run all tests once; return the exit status."""
    environment = {**os.environ, **(ELSEWHERE if "elsewhere" in settings else {})}
    core = ["taskset", "-c", "0"] if "one core" in settings else []
    with ExitStack() as stack:
        for name in settings & SETTINGS.keys():
            stack.enter_context(SETTINGS[name]())  # type: ignore[arg-type]
        pytest = [*core, sys.executable, "-m", "pytest", f"--randomly-seed={seed}"]
        with (KEPT / f"{seed}.log").open("w") as log:
            return subprocess.run(
                [*pytest, "-n", "auto", "--dist", "worksteal", *arguments],
                cwd=ROOT,
                env=environment,
                stdout=log,
                check=False,
            ).returncode


def main() -> int:
    """Run, print a row a run, and return 0 if all have passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    every = [*SETTINGS, "one core", "elsewhere"]
    parser.add_argument("--only", nargs="*", choices=every, default=every, metavar="SETTING")
    parser.add_argument("arguments", nargs="*", help="for pytest, after --")
    options = parser.parse_args()
    console = Console(width=100)
    table = Table("run", "seed", "seconds", "result", title=", ".join(options.only))
    KEPT.mkdir(parents=True, exist_ok=True)
    failed = 0
    for run in range(options.runs):
        seed = (options.seed + run) % 2**32
        begun = time.monotonic()
        status = once(seed, set(options.only), options.arguments)
        failed += status != 0
        if status:
            shutil.copytree(ROOT / "build" / "failures", KEPT / str(seed), dirs_exist_ok=True)
        table.add_row(
            str(run + 1),
            str(seed),
            f"{time.monotonic() - begun:.0f}",
            f"failed, see {KEPT.relative_to(ROOT)}/{seed}.log" if status else "passed",
        )
        console.print(table)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
