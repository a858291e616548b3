"""Make small faults in the engine's rules, one at a time, and list the faults that no test finds.

`make mutation` tries a sample of all places in `allocator/fairness`, `users` and `cluster` at
which an operator, a condition, a number or a call can be replaced. The sample is stable as long as
the code of its faults is. For each fault, a separate process runs the tests that execute the
changed lines, the cheapest first, until a test fails.

Found faults are remembered in `.cache/mutation` until their file changes. A fault that is not found
is open, unless `equivalent` explains why the fault has no visible effect.
"""

import hashlib
import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from allocator.files import whole
from tests.mutation import covering
from tests.mutation.covering import Covered, Recorder
from tests.mutation.explained import equivalents
from tests.mutation.faults import Mutant, described, mutants_of
from tests.mutation.score import Score
from tests.mutation.trial import OPTIONS
from tests.mutation.trials import Trials

ROOT = Path(__file__).parents[2]
WORK = ROOT / ".cache" / "mutation"
ROOMS = ("allocator/fairness", "allocator/users", "allocator/cluster")
TESTS = (
    "tests/fairness",
    "tests/cluster",
    "tests/conformance",
    "tests/plugins",
    "tests/service/record/test_replay_of_old_logs.py",
)


def every(under: str) -> list[Mutant]:
    """Return all faults below a folder, or in a file, of all three packages."""
    return [
        mutant
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if path.is_relative_to(ROOT / under)
        for mutant in mutants_of(str(path.relative_to(ROOT)), path.read_text())
    ]


def sample(mutants: list[Mutant], number: int, seed: int) -> list[Mutant]:
    """Choose a sample by the text of each fault, so that unrelated changes keep the choice."""

    def lot(mutant: Mutant) -> str:
        return hashlib.sha256(repr((seed, *described(mutant))).encode()).hexdigest()

    return sorted(mutants, key=lot)[:number]


def recorded() -> dict[str, Covered]:
    """Return the lines that each test executes; run all tests if sources or tests have changed."""
    path = WORK / f"covered-{_digest(*ROOMS, *TESTS)}.json"
    if not path.exists():
        with whole(path) as part:
            process = os.fork()
            if not process:
                recorder = Recorder(ROOT, part)
                os._exit(pytest.main([*OPTIONS, *TESTS], plugins=[recorder]))
            if os.waitpid(process, 0)[1]:
                raise SystemExit("Tests fail on the sources as they are, so nothing can be told.")
    return covering.read(path)


def found_before(mutant: Mutant) -> Path:
    """Return the file that exists if a test has found this fault in the present file."""
    source = mutant.apply((ROOT / mutant.path).read_text())
    return WORK / "found" / hashlib.sha256(f"{mutant.path} {source}".encode()).hexdigest()


def _digest(*rooms: str) -> str:
    every = hashlib.sha256()
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*.py")):
            every.update(f"{path.relative_to(ROOT)} ".encode() + path.read_bytes())
    return every.hexdigest()[:16]


def main() -> int:
    """Try a sample; the exit status is 1 if more than 5 of 100 faults are open."""
    arguments = _arguments()
    console = Console(soft_wrap=True)
    mutants = every(arguments.under)
    drawn = sample(mutants, arguments.mutants, arguments.seed)
    if not drawn:
        raise SystemExit(f"There is no place for a fault under {arguments.under} in {ROOT}.")
    explained = equivalents()
    os.environ["LONGSHARE_HYPOTHESIS"] = "mutation"
    score = Score()
    new = []
    for mutant in drawn:
        if any(explanation.alone and explanation.explains(mutant) for explanation in explained):
            score.explained += 1
        elif found_before(mutant).exists():
            score.found += 1
        else:
            new.append(mutant)
    (WORK / "found").mkdir(parents=True, exist_ok=True)
    covered = recorded()
    with Progress(console=console, auto_refresh=False) as progress:
        task = progress.add_task("Faults", total=len(new))

        def heard(mutant: Mutant, detected: bool) -> None:  # noqa: FBT001 - it is what is heard
            if detected:
                score.found += 1
                found_before(mutant).touch()
            elif any(explanation.explains(mutant) for explanation in explained):
                score.explained += 1
            else:
                score.open += 1
                place, was, now = described(mutant)
                text = f"not found, line {mutant.line}\n{place=}\n{was=}\n{now=}"
                console.print(text, markup=False, highlight=False)
            progress.update(task, advance=1, refresh=True)

        Trials(ROOT, covered, new, heard).run(TESTS, arguments.processes)
    console.print(f"{arguments.under}, seed {arguments.seed}: {score.of_all(len(mutants))}")
    return int(score.open > 0.05 * len(drawn))


def _arguments() -> Namespace:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--under", default="allocator", help="the folder or file they are in")
    parser.add_argument("--mutants", type=int, default=200, help="how many are tried")
    parser.add_argument("--seed", type=int, default=1, help="which")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="side by side")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
