"""Remains of a run with failed or skipped tests."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.afterwards import instead

ROOT = Path(__file__).parents[1]
FAILING = """
def test_of_a_service(tmp_path):
    (tmp_path / "service.log").write_text("began" + 30 * chr(10) + "its last words")
    (tmp_path / "events.bin").write_bytes(bytes(6_000_000))
    assert False

def test_that_passes(tmp_path):
    (tmp_path / "other.log").write_text("nothing to see")
"""
SHARING = """
import pytest

@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("master")
    (folder / "stderr").write_text("the master was ended by signal 9")
    return folder

def test_of_what_is_shared(shared):
    assert False
"""
TELLING = """
from pathlib import Path

def test_of_a_folder(tmp_path):
    Path(__file__).with_name("where").write_text(str(tmp_path))
"""
SKIPPING = """
import pytest

def test_that_is_skipped():
    pytest.skip("{reason}")
"""


def run(
    folder: Path, source: str, *options: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder, with another place for failures than that of the outer run."""
    ours = {name: value for name, value in os.environ.items() if name != "LONGSHARE_FAILURES"}
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_made.py").write_text(source)
    return subprocess.run(
        [*(sys.executable, "-m", "pytest", "-p", "tests.afterwards"), *options, folder],
        cwd=ROOT,
        env=ours | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_a_failed_test_leaves_its_files_and_the_end_of_its_log(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    ended = run(tmp_path, FAILING, *options)
    (kept,) = (tmp_path / "build" / "failures").iterdir()
    assert str(kept) in ended.stdout
    assert "its last words" in ended.stdout
    assert "nothing to see" not in ended.stdout
    report = (kept / "report.txt").read_text()
    assert "its last words" in report
    assert "--randomly-seed=" in report
    (log,) = kept.rglob("service.log")
    assert log.read_text().startswith("began")
    assert next(kept.rglob("events.bin")).stat().st_size == 5_000_000


def test_a_failed_test_leaves_the_files_of_its_module_in_the_configured_folder(
    tmp_path: Path,
) -> None:
    ended = run(tmp_path, SHARING, LONGSHARE_FAILURES="elsewhere")
    assert "the master was ended by signal 9" in ended.stdout
    assert list((tmp_path / "elsewhere").rglob("stderr"))


def test_the_next_run_removes_the_files_of_former_failures(tmp_path: Path) -> None:
    run(tmp_path, SHARING)
    assert run(tmp_path, "def test_good(): pass").returncode == 0
    assert not (tmp_path / "build" / "failures").exists()


def test_a_run_inside_a_test_has_its_folders_below_the_outer_run(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert run(tmp_path, TELLING).returncode == 0
    assert tmp_path_factory.getbasetemp() in Path((tmp_path / "where").read_text()).parents


@pytest.mark.parametrize(
    ("reason", "code", "said"),
    [
        ("LONGSHARE_DATA names no folder", 0, ".ci/run"),
        ("it is Sunday", 1, "NOWHERE"),
    ],
)
def test_a_skipped_test_names_the_place_where_it_runs_instead_and_fails_without_such_a_place(
    reason: str, code: int, said: str, tmp_path: Path
) -> None:
    ended = run(tmp_path, SKIPPING.format(reason=reason))
    assert ended.returncode == code
    assert said in ended.stdout


def reasons(file: Path) -> Iterator[str]:
    """Yield the literal reasons to skip a test in a file."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "skip":
                yield from map(text, node.args)
            elif node.func.attr == "skipif":
                yield from (
                    text(keyword.value) for keyword in node.keywords if keyword.arg == "reason"
                )
        elif isinstance(node, ast.FunctionDef) and node.name in {"why_not", "reason_to_skip"}:
            returned = (
                statement.value for statement in ast.walk(node) if isinstance(statement, ast.Return)
            )
            yield from (text(value) for value in returned if value is not None)


def text(node: ast.expr) -> str:
    """Return the literal parts of a text, or nothing if the text is made in another place."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "1" for part in parts)


def test_every_reason_to_skip_a_test_has_a_place_where_the_test_runs_instead() -> None:
    ours = (file for file in (ROOT / "tests").rglob("*.py") if file != Path(__file__))
    used_reasons = {reason for file in ours for reason in reasons(file)} - {"", "1", "None"}
    assert len(used_reasons) > 20
    assert {reason for reason in used_reasons if instead(reason) is None} == set()
