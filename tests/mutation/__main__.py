"""Puts small faults into the engine's rules, one at a time, and tells which of them no test finds.

`make mutation`: of all places in `allocator/fairness` and `allocator/cluster` where an operator, a
condition, a number or a call can be another one, a sample is tried, which stays the same as long as
what it is of does. A copy of the sources is changed, and the tests that call the changed function
are run on it, the cheapest first, until one fails. What was found is remembered in
`.cache/mutation` for as long as its file is as it was; faults that change nothing that anybody
could see are in `equivalent.toml`, with the reason.
"""

import hashlib
import json
import os
import queue
import resource
import shutil
import subprocess
import sys
import tomllib
from argparse import ArgumentParser, Namespace
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import track
from scipy.stats import binomtest

from tests.mutation import covering
from tests.mutation.covering import Covered
from tests.mutation.faults import Mutant, mutants_of

ROOT = Path(__file__).parents[2]
WORK = ROOT / ".cache" / "mutation"
ROOMS = ("allocator/fairness", "allocator/cluster")
TESTS = ("tests/fairness", "tests/cluster", "tests/conformance", "tests/plugins", "tests/bench")
COPIED = ("allocator", "frameworks", "bench", "tests", "docs", "proto", "pyproject.toml")
MEMORY = 8 * 2**30
"""Bytes; with more, or several times the processor's time, something does not end any more."""


@dataclass(frozen=True)
class Equivalent:
    """A fault that changes nothing that anybody could see."""

    place: str
    """File and function."""
    was: str
    now: str
    why: str


def equivalents() -> list[Equivalent]:
    """Return those that somebody has explained."""
    text = (Path(__file__).parent / "equivalent.toml").read_text()
    return [Equivalent(**each) for each in tomllib.loads(text)["equivalent"]]


def every() -> list[Mutant]:
    """Return all faults of both rooms."""
    return [
        mutant
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        for mutant in mutants_of(str(path.relative_to(ROOT)), path.read_text())
    ]


def sample(mutants: list[Mutant], number: int, seed: int) -> list[Mutant]:
    """Choose some by what they change: other changes of the sources choose no others."""

    def lot(mutant: Mutant) -> str:
        return hashlib.sha256(repr((seed, *described(mutant))).encode()).hexdigest()

    return sorted(mutants, key=lot)[:number]


def described(mutant: Mutant) -> tuple[str, str, str]:
    """Return its place, its lines as they are, and as they become."""
    place = f"{mutant.path} {mutant.function}".strip()
    return place, mutant.was, mutant.now


class Trials:
    """Copies of the sources, each of which takes one fault at a time."""

    def __init__(self, number: int) -> None:
        self._free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for i in range(number):
            folder = WORK / f"copy-{i}"
            shutil.rmtree(folder, ignore_errors=True)
            for name in COPIED:
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, folder / name)
                else:
                    shutil.copy2(ROOT / name, folder / name)
            self._free.put(folder)
        self.covered = self._record()

    def _record(self) -> dict[str, Covered]:
        """Run all tests once, and note what each calls."""
        path = WORK / f"covered-{_digest(*ROOMS, *TESTS)}.json"
        if not path.exists():
            folder = self._free.get()
            part = path.with_suffix(".part")
            if _fails(folder, list(TESTS), {"LONGSHARE_COVERED": str(part)}, None):
                raise SystemExit("Tests fail on the sources as they are, so nothing can be told.")
            part.rename(path)
            self._free.put(folder)
        return covering.read(path)

    def found(self, mutant: Mutant) -> bool:
        """Return whether a test fails with the fault; remember it."""
        folder = self._free.get()
        path = folder / mutant.path
        source, stat = path.read_text(), path.stat()
        fault = mutant.apply(source)
        known = WORK / "found" / hashlib.sha256(f"{mutant.path} {fault}".encode()).hexdigest()
        was_found = known.exists()
        if not was_found:
            path.write_text(fault)
            was_found = self._tests_find(mutant, folder)
            path.write_text(source)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        self._free.put(folder)
        if was_found:
            known.parent.mkdir(parents=True, exist_ok=True)
            known.touch()
        return was_found

    def _tests_find(self, mutant: Mutant, folder: Path) -> bool:
        path = mutant.path.removeprefix("allocator/")
        reached = range(mutant.first, mutant.last + 1)
        seconds = {
            test: covered.seconds
            for test, covered in self.covered.items()
            if not mutant.function or any(line in reached for line in covered.calls.get(path, ()))
        }
        if not seconds:
            return False
        chosen = sorted(seconds, key=seconds.__getitem__)
        (folder / "chosen.json").write_text(json.dumps(chosen))
        files = sorted({test.partition("::")[0] for test in chosen})
        most = 30 + 3 * sum(seconds.values())
        return _fails(folder, files, {"LONGSHARE_CHOSEN": str(folder / "chosen.json")}, most)


def _fails(folder: Path, tests: list[str], told: dict[str, str], seconds: float | None) -> bool:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--timeout", "0", "-p"]
    options = ["no:cacheprovider", "-p", "no:randomly", "-p", "tests.mutation.covering"]
    done = subprocess.run(
        [*command, *options, *tests],
        cwd=folder,
        env={
            **os.environ,
            **told,
            "PYTHONPATH": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "LONGSHARE_HYPOTHESIS": "mutation",
            "TMPDIR": str(folder),
        },
        capture_output=True,
        check=False,
        preexec_fn=partial(_limit, seconds),
    )
    return done.returncode != 0


def _limit(seconds: float | None) -> None:
    if seconds is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _digest(*rooms: str) -> str:
    every = hashlib.sha256()
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*.py")):
            every.update(f"{path} ".encode() + path.read_bytes())
    return every.hexdigest()[:16]


def main() -> int:
    """Try a sample; the exit status is 1 if tests find fewer than 95 of 100."""
    arguments = _arguments()
    console = Console(soft_wrap=True)
    mutants = every()
    drawn = sample(mutants, arguments.mutants, arguments.seed)
    explained = {(each.place, each.was, each.now) for each in equivalents()}
    chosen = [mutant for mutant in drawn if described(mutant) not in explained]
    WORK.mkdir(parents=True, exist_ok=True)
    trials = Trials(arguments.processes)
    score = 0
    with ThreadPoolExecutor(arguments.processes) as pool:
        outcomes = zip(chosen, pool.map(trials.found, chosen), strict=True)
        for mutant, was_found in track(outcomes, "Faults", len(chosen), console=console):
            score += was_found
            if not was_found:
                place, was, now = described(mutant)
                text = f"not found, line {mutant.line}\n{place=}\n{was=}\n{now=}"
                console.print(text, markup=False, highlight=False)
    low, high = binomtest(score, len(chosen)).proportion_ci(method="wilson")
    console.print(
        f"{score} of {len(chosen)} found ({low:.0%} to {high:.0%} of all {len(mutants)}), "
        f"{len(drawn) - len(chosen)} equivalent, seed {arguments.seed}"
    )
    return int(score < 0.95 * len(chosen))


def _arguments() -> Namespace:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=200, help="how many are tried")
    parser.add_argument("--seed", type=int, default=1, help="which")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="side by side")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
