"""--policy-file at the prompt: a policy of one's own where ours are."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from allocator import plugins
from allocator.cli import app
from allocator.fairness import policies
from allocator.simulation import store
from allocator.simulation.studies.cells import compute
from allocator.simulation.studies.plan import read_sweep
from allocator.simulation.studies.sources import resolve
from allocator.simulation.studies.sweep import cells_of
from tests.plugins.written import NORM, file
from tests.simulation.test_advice import bursts_beside_a_hog

SWEEP = """
title = "Norms"
[[traces]]
path = "hog.parquet"
[[grid]]
loads = [0.5]
engine = "reference"
policies = [{ policy = "norm", power = [1, 64] }, { policy = "drf" }]
"""


@pytest.fixture(autouse=True)
def of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "_POLICIES", dict(policies._POLICIES))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store.write(bursts_beside_a_hog(), tmp_path / "hog.parquet")
    (tmp_path / "sweep.toml").write_text(SWEEP)
    file(tmp_path, NORM)
    return tmp_path


def longshare(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_a_trace_is_simulated_under_it(folder: Path) -> None:
    told = longshare(
        *("simulate", str(folder / "hog.parquet"), "--policy", "norm", "--set", "power=3"),
        *("--policy-file", str(folder / "mine.py"), "--load", "0.5", "--json"),
    )
    assert told.exit_code == 0, told.stderr
    answer = json.loads(told.stdout)
    assert (answer["setting"]["policy"], answer["simulator"]) == ("norm", "reference")


def test_a_sweep_knows_its_cells_by_the_files_content(folder: Path) -> None:
    command = (
        *("sweep", str(folder / "sweep.toml"), "--out", str(folder / "out"), "--json"),
        *("--policy-file", str(folder / "mine.py"), "--backend", "sequential"),
    )
    assert json.loads(longshare(*command).stdout)["computed"] == 3
    assert json.loads(longshare(*command).stdout)["computed"] == 0
    file(folder, NORM.replace("** (1 / self.power)", "** 1.0"))
    assert json.loads(longshare(*command).stdout)["computed"] == 2


def test_another_process_of_a_sweep_reads_the_file(folder: Path) -> None:
    plugins.load(folder / "mine.py")
    plan, beside = read_sweep(str(folder / "sweep.toml"))
    cells = cells_of(plan, list(resolve(plan.traces, beside, folder / "traces")))
    policies._POLICIES.pop("norm")
    for cell in cells:
        compute(cell, folder)
    assert all(cell.is_finished(folder) for cell in cells)


def test_it_is_searched_for_violations(folder: Path) -> None:
    told = longshare(
        *("properties", "--policy", "norm", "--policy-file", str(folder / "mine.py")),
        *("--property", "single-machine", "--trials", "20", "--json"),
    )
    assert told.exit_code == 0, told.stderr
    assert json.loads(told.stdout)["properties"]["single-machine"]["violation"] is not None


def test_a_file_that_is_wrong_ends_the_command_with_2(folder: Path) -> None:
    (folder / "mine.py").write_text("x = (\n")
    given = ("--policy", "norm", "--policy-file", str(folder / "mine.py"))
    for command in (
        ("simulate", str(folder / "hog.parquet"), *given),
        ("properties", *given),
        ("experiment", "run", "drf-baseline", *given),
        ("replay", str(folder / "hog.parquet"), *given),
    ):
        told = longshare(*command)
        assert told.exit_code == 2
        assert "mine.py,line1:notvalidPython" in _words(told.stderr)


def test_an_experiment_says_which_of_several_policies_it_wants(folder: Path) -> None:
    two = NORM + NORM.replace("class Norm", "class Other").replace('"norm"', '"other"')
    told = longshare("experiment", "run", "drf-baseline", "--policy-file", str(file(folder, two)))
    assert told.exit_code == 2
    assert "definesnorm,other;saywhich" in _words(told.stderr)
    told = longshare("experiment", "run", "drf-baseline", "--set", "power=2")
    assert told.exit_code == 2
    assert "it goes with --policy" in told.stderr


def _words(said: str) -> str:
    """Take a message out of its frame, which may cut a long path anywhere."""
    return "".join(said.replace("│", "").split())
