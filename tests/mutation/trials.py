"""Try faults in parallel, each in a fork of a process that has imported and collected all tests."""

import contextlib
import gc
import json
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FunctionType
from typing import TypeAlias

import pytest

from tests.mutation.covering import IMPORTED, Covered
from tests.mutation.faults import Mutant
from tests.mutation.trial import OPTIONS, put, until_one_fails

_NOT_TRIED = 3
"""Exit status of a process in which an unrelated error occurred."""

Heard: TypeAlias = Callable[[Mutant, bool], object]


class Trials:
    """A plugin of pytest that tries faults, and reports for each whether a test has found it."""

    def __init__(
        self, root: Path, covered: dict[str, Covered], mutants: Iterable[Mutant], heard: Heard
    ) -> None:
        self._root = root
        self._covered = dict(sorted(covered.items(), key=lambda item: item[1].seconds))
        self._mutants = mutants
        self._heard = heard
        self._running: dict[int, tuple[Mutant, Path]] = {}
        self._functions: defaultdict[str, list[FunctionType]] = defaultdict(list)

    def run(self, tests: Iterable[str], processes: int) -> None:
        """Collect the tests and try all faults, with a number of processes at a time."""
        self._processes = processes
        if pytest.main([*OPTIONS, *tests], plugins=[self]):
            raise SystemExit("Not all faults could be tried.")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for candidate in gc.get_objects():
            if isinstance(candidate, FunctionType):
                self._functions[candidate.__code__.co_filename].append(candidate)
        gc.freeze()
        for mutant in self._mutants:
            seconds = self._tests_of(mutant)
            if not seconds:
                self._heard(mutant, False)
                continue
            if len(self._running) == self._processes:
                self._wait()
            folder = Path(tempfile.mkdtemp())
            process = os.fork()
            if not process:
                try:
                    os._exit(self._found(mutant, session, seconds, folder))
                except BaseException:  # noqa: BLE001 - whatever it is, this process must not go on
                    traceback.print_exc()
                    os._exit(_NOT_TRIED)
            self._running[process] = mutant, folder
        while self._running:
            self._wait()
        return True

    def _imported(self, mutant: Mutant) -> bool:
        """Return whether the fault is in import-time code, which may affect every test."""
        return self._covered[IMPORTED].runs(mutant.path, mutant.lines)

    def _tests_of(self, mutant: Mutant) -> dict[str, float]:
        """Return the tests that can find the fault, the cheapest first, with their costs."""
        imported = self._imported(mutant)
        return {
            test: coverage.seconds
            for test, coverage in self._covered.items()
            if test != IMPORTED and (imported or coverage.runs(mutant.path, mutant.lines))
        }

    def _found(
        self, mutant: Mutant, session: pytest.Session, seconds: dict[str, float], folder: Path
    ) -> bool:
        """Try the fault in this process."""
        os.setsid()
        os.environ.update(TMPDIR=str(folder), LONGSHARE_FAILURES=str(folder / "failures"))
        tempfile.tempdir = None
        path = self._root / mutant.path
        before = path.read_text()
        after = mutant.apply(before)
        changed = not self._imported(mutant) and put(
            str(path), before, after, self._functions[str(path)]
        )
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(silent, stream)
        if not changed:
            file = folder / "fault.json"
            file.write_text(json.dumps({"path": str(path), "source": after, "seconds": seconds}))
            os.execv(sys.executable, [sys.executable, "-m", "tests.mutation.trial", str(file)])
        return until_one_fails(session, seconds)

    def _wait(self) -> None:
        process, status = os.wait()
        mutant, folder = self._running.pop(process)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
        if os.waitstatus_to_exitcode(status) == _NOT_TRIED:
            raise RuntimeError(f"could not be tried: {mutant}")
        self._heard(mutant, status != 0)
