"""Remains of a run: the folder of each failed test, and a table of skipped tests.

A plugin of pytest, loaded by tests/conftest.py.
"""

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_LARGEST = 5_000_000
"""Number of bytes of a file that are kept, from its end."""
_LINES = 12
"""Number of bytes of a log that the report quotes, from its end."""
_LOG = re.compile(r"(^|[._-])(log|stderr|stdout|out|err)([._-]|$)")


@dataclass(frozen=True)
class Elsewhere:
    """A reason to skip tests, and the place where their claims are checked instead."""

    reason: str
    """A pattern of the reason that the test states."""
    instead: str


SKIPS = [
    Elsewhere(
        "LONGSHARE_MESOS_HOME",
        "by hand on real masters of 1.8 to 1.11, see docs/lab/real-mesos.md",
    ),
    Elsewhere(r"this Mesos has no|Mesos [\d.]+ has no such", "on a Mesos that has it"),
    Elsewhere("adapter_(stress|mirror_check)", "where the module is built with MESOS_LIBRARY"),
    Elsewhere("sanitizers", "make sanitize; .ci/run tests everything with AddressSanitizer"),
    Elsewhere("make operations", "make release-check, or make operations and then make test"),
    Elsewhere("LONGSHARE_PACKAGES|systemd-nspawn", "make packages-check"),
    Elsewhere("LONGSHARE_DEBIAN|Debian in a folder|Debian's Python", "make roles"),
    Elsewhere(
        "not installed|not built|no ZooKeeper|openssl|no doctest|needs PostgreSQL",
        ".ci/run, which installs it from Debian's packages",
    ),
    Elsewhere("make slurm-adaptive", "make slurm-adaptive, as root"),
    Elsewhere("compiled module", "make test, on interpreted modules"),
    Elsewhere("no fast path", ".ci/run, which installs the extra fast"),
    Elsewhere("older than Linux", ".ci/run, on a newer kernel"),
    Elsewhere("without their history", ".ci/run, in a clone"),
    Elsewhere("only root|does not run as root", ".ci/run as root"),
    Elsewhere(
        "LONGSHARE_DATA|LONGSHARE_ORACLE", ".ci/run, where ../shared lies beside the checkout"
    ),
]


class Folders:
    """Temporary folders of each module's tests."""

    def __init__(self) -> None:
        self._made: dict[str, list[Path]] = {}
        self._now = ""

    def begin(self, item: pytest.Item) -> None:
        """Assign folders that are made from now on to this test's module."""
        self._now = item.nodeid.partition("::")[0]

    def made(self, folder: Path) -> None:
        self._made.setdefault(self._now, []).append(folder)

    def of(self, item: pytest.Item) -> list[Path]:
        """Return the folders of a test: its own, and the folders that its module shares."""
        mine = getattr(item, "funcargs", {}).get("tmp_path")
        shared = [
            folder
            for folder in self._made.get(item.nodeid.partition("::")[0], [])
            if folder.parent.is_dir() and not _of_another_test(folder, mine)
        ]
        return [folder for folder in (mine, *shared) if folder is not None and folder.is_dir()]


def _of_another_test(folder: Path, mine: Path | None) -> bool:
    """Return whether a folder belongs to a single other test; pytest names folders after tests."""
    return folder == mine or folder.name.startswith("test_")


_FOLDERS = pytest.StashKey[Folders]()


def kept(config: pytest.Config) -> Path:
    """Return the folder for files of failed tests; the next run empties it."""
    return config.rootpath / os.environ.get("LONGSHARE_FAILURES", "build/failures")


def pytest_configure(config: pytest.Config) -> None:
    """Track temporary folders; delete the failures of the former run."""
    folders = config.stash[_FOLDERS] = Folders()
    if not hasattr(config, "workerinput"):
        shutil.rmtree(kept(config), ignore_errors=True)
    make = pytest.TempPathFactory.mktemp

    def remembered(self: pytest.TempPathFactory, basename: str, numbered: bool = True) -> Path:  # noqa: FBT001, FBT002 - as pytest has it
        folder = make(self, basename, numbered)
        folders.made(folder)
        return folder

    pytest.TempPathFactory.mktemp = remembered  # type: ignore[method-assign]
    config.add_cleanup(lambda: setattr(pytest.TempPathFactory, "mktemp", make))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Assign the following folders to this test's module."""
    item.config.stash[_FOLDERS].begin(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[None]:  # the value of the yield is a report
    """Keep the files of a failing test, and report their place."""
    report: pytest.TestReport = yield  # type: ignore[assignment]
    if report.failed:
        name = re.sub(r"[^\w.-]+", "-", item.nodeid.removeprefix("tests/"))[:150]
        destination = kept(item.config) / name
        for folder in item.config.stash[_FOLDERS].of(item):
            _keep(folder, destination / folder.name)
            for log in _logs(folder):
                report.sections.append((f"last words in {log.relative_to(folder)}", _tail(log)))
        destination.mkdir(parents=True, exist_ok=True)
        report.sections.append(("kept", str(destination)))
        (destination / "report.txt").write_text(_told(item, report), encoding="utf-8")
    return report  # type: ignore[return-value]


def _told(item: pytest.Item, report: pytest.TestReport) -> str:
    """Return the command that repeats a failure, and the messages of the failure."""
    seed = getattr(item.config.option, "randomly_seed", None)
    file = item.nodeid.partition("::")[0]
    rerun = f"pytest --randomly-seed={seed} {file}  # in the same order; or '{item.nodeid}' alone"
    captured = "".join(f"\n--- {name}\n{text}\n" for name, text in report.sections)
    return f"{rerun}\n\n{report.longreprtext}\n{captured}"


def _keep(folder: Path, where: Path) -> None:
    """Copy files, or the ends of long files; sockets and similar files are left out."""
    for file in _files(folder):
        if not file.is_symlink():
            copy = where / file.relative_to(folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(_end(file, _LARGEST))


def _end(file: Path, most: int) -> bytes:
    """Return the end of a file, or nothing if a process of the test has removed the file since."""
    try:
        with file.open("rb") as data:
            data.seek(max(0, data.seek(0, os.SEEK_END) - most))
            return data.read()
    except FileNotFoundError:
        return b""


def _logs(folder: Path) -> list[Path]:
    return sorted(file for file in _files(folder) if _LOG.search(file.name) and _end(file, 1))


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder, without installed packages."""
    for within, _, names in os.walk(folder):  # tolerates folders that are removed meanwhile
        for file in map(Path(within).joinpath, names):
            if file.is_file() and "site-packages" not in file.parts:
                yield file


def _tail(log: Path) -> str:
    return "\n".join(_end(log, 20_000).decode(errors="replace").splitlines()[-_LINES:])


def instead(reason: str) -> str | None:
    """Return the place where a skipped test's claim is checked instead; None: nowhere."""
    return next((skip.instead for skip in SKIPS if re.search(skip.reason, reason)), None)


def skipped(reports: list[pytest.TestReport]) -> list[tuple[int, str, str | None]]:
    """Return the number of skipped tests by reason, with the place where they run instead."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in reports
        if isinstance(report.longrepr, tuple)
    )
    return [(number, reason, instead(reason)) for reason, number in reasons.most_common()]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the places of failures, and the skipped tests with their reasons and places."""
    rows = skipped(terminalreporter.getreports("skipped"))
    if rows:
        terminalreporter.section("skipped, and where it is run instead")
        for number, reason, where in rows:
            terminalreporter.line(f"{number:4}  {reason}\n      {where or 'NOWHERE'}")
        if not all(where for *_, where in rows):
            terminalreporter.line(
                "A skip needs its line in SKIPS of tests/afterwards.py.", red=True
            )
    folder = kept(terminalreporter.config)
    if folder.is_dir():
        terminalreporter.section("what failed has left its files")
        for file in sorted(folder.iterdir()):
            terminalreporter.line(str(file))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a run with skipped tests that run nowhere: nothing would check their claims."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    decides = exitstatus == 0 and not hasattr(session.config, "workerinput")
    if decides and reporter is not None:
        rows = skipped(reporter.stats.get("skipped", []))
        if not all(where for *_, where in rows):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
