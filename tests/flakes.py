"""Run the tests repeatedly under the conditions of a slow and crowded machine.

`make flakes` runs the tests until thirty runs in a row have passed. Each run has another order.
The conditions are:

- a load of four processes, and a single core;
- a disk with other writers;
- starved processes (as root);
- occupied ports;
- another time zone and locale;
- no real Mesos, in every other run.

Each run is a line of runs/flakes/runs.jsonl. An interrupted count continues as long as the commit
is the same. Output of failed runs is kept in the same folder, with the seed.
"""

import argparse
import json
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
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from multiprocessing.context import SpawnProcess
from pathlib import Path

from rich.console import Console

from frameworks.harness.real_mesos import MesosHome

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "runs" / "flakes"
RUNS = KEPT / "runs.jsonl"
MESOS = "LONGSHARE_MESOS_HOME"
USUAL_PORTS = (2181, 5050, 5051, 8080, 9090, 9105, 45871)
STARVED = 0.25
"""Fraction of starved processes at any time."""
ELSEWHERE = {"TZ": "Pacific/Chatham", "LC_ALL": "C", "LANG": "C"}


def _wanted() -> bool:
    """Return whether the search still runs; load processes end with the search."""
    search = multiprocessing.parent_process()
    return search is not None and search.is_alive()


def _burn() -> None:
    while _wanted():
        pass


def _write() -> None:
    data = os.urandom(250_000)  # created once: the load is for the disk, not for a core
    with tempfile.TemporaryFile(dir=ROOT) as local_file, tempfile.TemporaryFile() as system_file:
        while _wanted():
            for file in (local_file, system_file):
                file.seek(0)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            time.sleep(random.uniform(0.0, 0.01))


def _starve() -> None:
    """Repeatedly choose random processes that get almost no processor time."""
    run, ours = os.getppid(), os.getpid()
    while _wanted():
        for process in descendants(run) - {ours}:
            schedule(process, os.SCHED_IDLE if random.random() < STARVED else os.SCHED_OTHER)
        time.sleep(random.uniform(0.05, 0.5))


def schedule(process: int, policy: int) -> None:
    """Set the scheduling policy of all threads of a process."""
    with suppress(OSError):  # the process has ended
        for thread in Path(f"/proc/{process}/task").iterdir():
            with suppress(OSError):
                os.sched_setscheduler(int(thread.name), policy, os.sched_param(0))


def descendants(process: int) -> set[int]:
    """Return all descendants of a process."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has ended
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    observed: set[int] = set()
    new = [process]
    while new:
        new = [child for parent in new for child in children.get(parent, ())]
        observed.update(new)
    return observed


@contextmanager
def beside(work: Callable[[], object], number: int) -> Iterator[list[SpawnProcess]]:
    """Run load processes during the body; yield these processes.

    Raises:
        RuntimeError: A load process ended early, so the load during the run is unknown.
    """
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=work, daemon=True) for _ in range(number)]
    for process in processes:
        process.start()
    try:
        yield processes
    finally:
        lived = [process.is_alive() for process in processes]
        for process in processes:
            process.kill()
            process.join()
    if not all(lived):
        raise RuntimeError(f"{work.__name__} has ended beside what it was to disturb")


@contextmanager
def starving() -> Iterator[None]:
    """Starve some processes of the run at any time, if other processes want the cores.

    Actions of two processes at nearly the same time then happen in another order. The processes are
    not stopped, because some tests stop and continue processes themselves.

    Raises:
        SystemExit: The user is not root, and could not restore the scheduling policy.
    """
    if os.geteuid() != 0:
        raise SystemExit(
            "starve: only root can schedule a process as before; leave it out (--only)"
        )
    with beside(_starve, 1):
        yield


@contextmanager
def ports_taken() -> Iterator[None]:
    """Listen on ports that a test might assume to be free."""
    with ExitStack() as stack:
        for port in USUAL_PORTS:
            taken = stack.enter_context(socket.socket())
            try:
                taken.bind(("127.0.0.1", port))
                taken.listen()
            except OSError:
                continue  # occupied already
        yield


SETTINGS: dict[str, Callable[[], object]] = {
    "crowd": lambda: beside(_burn, 4),
    "disk": lambda: beside(_write, 1),
    "starve": starving,
    "ports": ports_taken,
}
"""Load processes by name; `one core`, `elsewhere` and `mesos` are settings of the run itself."""


@dataclass(frozen=True)
class Run:
    """Result of one run."""

    commit: str
    settings: list[str]
    arguments: list[str]
    """Arguments of pytest."""
    seed: int
    mesos: bool
    """Whether a real Mesos was present."""
    seconds: int
    passed: bool
    said: str
    """Last output of pytest."""

    def tried(self) -> tuple[str, list[str], list[str]]:
        """Return the attributes of runs that are counted together."""
        return self.commit, self.settings, self.arguments


def once(commit: str, seed: int, settings: list[str], arguments: list[str]) -> Run:
    """Run all tests once."""
    environment = {**os.environ, **(ELSEWHERE if "elsewhere" in settings else {})}
    if "mesos" in settings and seed % 2:
        environment.pop(MESOS, None)
    core = ["taskset", "-c", "0"] if "one core" in settings else []
    log = KEPT / f"{seed}.log"
    begun = time.monotonic()
    with ExitStack() as stack:
        for name in settings:
            if name in SETTINGS:
                stack.enter_context(SETTINGS[name]())  # type: ignore[arg-type]
        pytest = [*core, sys.executable, "-m", "pytest", f"--randomly-seed={seed}"]
        with log.open("w") as file:
            status = subprocess.run(
                [*pytest, "-n", "auto", "--dist", "worksteal", *arguments],
                cwd=ROOT,
                env=environment,
                stdout=file,
                check=False,
            ).returncode
    if (failures := ROOT / "build" / "failures").is_dir():
        shutil.copytree(failures, KEPT / str(seed), dirs_exist_ok=True)
    return Run(
        commit,
        settings,
        arguments,
        seed,
        MESOS in environment,
        round(time.monotonic() - begun),
        passed=status == 0,
        said=(log.read_text().splitlines() or ["nothing"])[-1].strip("= "),
    )


def earlier() -> list[Run]:
    """Return the recorded runs."""
    if not RUNS.exists():
        return []
    return [Run(**json.loads(line)) for line in RUNS.read_text().splitlines()]


def in_a_row(runs: list[Run]) -> int:
    """Return the number of passed runs since the last failed run."""
    return next((i for i, run in enumerate(reversed(runs)) if not run.passed), len(runs))


def _commit() -> str:
    """Return the tested commit; uncommitted changes give a unique name."""

    def git(*arguments: str) -> str:
        return subprocess.check_output(["git", *arguments], cwd=ROOT, text=True).strip()

    changed = git("status", "--porcelain")
    return f"{git('rev-parse', 'HEAD')}{f' and changes, {time.time():.0f}' if changed else ''}"


def main() -> int:
    """Run, print a row for each run, and return 0 if enough runs in a row have passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30, help="in a row; no more are begun at once")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    every = [*SETTINGS, "one core", "elsewhere", "mesos"]
    possible = [name for name in every if name != "starve" or os.geteuid() == 0]
    parser.add_argument("--only", nargs="*", choices=every, default=possible, metavar="SETTING")
    parser.add_argument("arguments", nargs="*", help="for pytest, after --")
    options = parser.parse_args()
    if "mesos" in options.only and MESOS in os.environ:
        try:
            MesosHome(Path(os.environ[MESOS]))
        except FileNotFoundError as error:  # all tests that start Mesos would fail
            parser.error(f"{MESOS}: {error}")
    console = Console(soft_wrap=True)
    KEPT.mkdir(parents=True, exist_ok=True)
    commit = _commit()
    trying = commit, options.only, options.arguments
    runs = [run for run in earlier() if run.tried() == trying]
    console.print(f"{commit}: {', '.join(options.only)}; {in_a_row(runs)} in a row have passed")
    for number in range(options.runs):
        if in_a_row(runs) >= options.runs:
            break
        run = once(commit, (options.seed + number) % 2**32, options.only, options.arguments)
        runs.append(run)
        with RUNS.open("a") as file:
            file.write(json.dumps(asdict(run)) + "\n")
        where = "" if run.passed else f", see {KEPT.relative_to(ROOT)}/{run.seed}.log"
        console.print(
            f"seed {run.seed}, {', '.join(run.settings) or 'nothing beside'}, "
            f"{'with' if run.mesos else 'without'} a real Mesos, {run.seconds} s: "
            f"{run.said}{where}; {in_a_row(runs)} in a row",
            highlight=False,
        )
    return int(in_a_row(runs) < options.runs)


if __name__ == "__main__":
    sys.exit(main())
