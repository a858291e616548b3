"""The option --policy-file: commands accept a custom policy."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from allocator import plugins
from allocator.cli import app
from allocator.cluster.settings import EngineSettings
from allocator.fairness import policies
from allocator.simulation import store
from allocator.simulation.studies.cells import compute
from allocator.simulation.studies.plan import read_sweep
from allocator.simulation.studies.sources import resolve
from allocator.simulation.studies.sweep import cells_of
from tests.plugins.written import LINE, NORM, file, key
from tests.service.record.test_event_log import RecordedMaster
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


def test_a_trace_is_simulated_under_a_policy_file(folder: Path) -> None:
    result = longshare(
        *("simulate", str(folder / "hog.parquet"), "--policy", "norm", "--set", "power=3"),
        *("--policy-file", str(folder / "mine.py"), "--load", "0.5", "--json"),
    )
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    assert (answer["setting"]["policy"], answer["simulator"]) == ("norm", "reference")


def test_a_changed_policy_file_recomputes_only_its_sweep_cells(folder: Path) -> None:
    command = (
        *("sweep", str(folder / "sweep.toml"), "--out", str(folder / "out"), "--json"),
        *("--policy-file", str(folder / "mine.py"), "--backend", "sequential"),
    )
    assert json.loads(longshare(*command).stdout)["computed"] == 3
    assert json.loads(longshare(*command).stdout)["computed"] == 0
    file(folder, NORM.replace("** (1 / self.power)", "** 1.0"))
    assert json.loads(longshare(*command).stdout)["computed"] == 2


def test_worker_processes_of_a_sweep_read_the_policy_file(folder: Path) -> None:
    plugins.load(folder / "mine.py")
    plan, beside = read_sweep(str(folder / "sweep.toml"))
    cells = cells_of(plan, list(resolve(plan.traces, beside, folder / "traces")))
    policies._POLICIES.pop("norm")
    for cell in cells:
        compute(cell, folder)
    assert all(cell.is_finished(folder) for cell in cells)


def test_a_policy_file_is_searched_for_violations(folder: Path) -> None:
    result = longshare(
        *("properties", "--policy", "norm", "--policy-file", str(folder / "mine.py")),
        *("--property", "single-machine", "--trials", "20", "--json"),
    )
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["properties"]["single-machine"]["violation"] is not None


def test_an_invalid_policy_file_ends_with_exit_code_2(folder: Path) -> None:
    (folder / "mine.py").write_text("x = (\n")
    given = ("--policy", "norm", "--policy-file", str(folder / "mine.py"))
    for command in (
        ("simulate", str(folder / "hog.parquet"), *given),
        ("properties", *given),
        ("experiment", "run", "drf-baseline", *given),
        ("replay", str(folder / "hog.parquet"), *given),
    ):
        result = longshare(*command)
        assert result.exit_code == 2
        assert "mine.py,line1:notvalidPython" in _words(result.stderr)


def test_an_experiment_requires_a_choice_among_several_policies(folder: Path) -> None:
    two = NORM + NORM.replace("class Norm", "class Other").replace('"norm"', '"other"')
    result = longshare("experiment", "run", "drf-baseline", "--policy-file", str(file(folder, two)))
    assert result.exit_code == 2
    assert "definesnorm,other;nameonewith--pol" in _words(result.stderr)
    result = longshare("experiment", "run", "drf-baseline", "--set", "power=2")
    assert result.exit_code == 2
    assert "it needs --policy" in result.stderr


FAILURES = {
    "always": (key("return 1 / 0"), "ZeroDivisionError: division by zero"),
    "by a slip": (key("return account.sharez"), "AttributeError: 'Account' object has no"),
    "for large shares only": (
        key("return 1 / 0 if account.share > 0.4 else account.share"),
        "ZeroDivisionError: division by zero",
    ),
    "in its measure": (
        NORM + "    def measure(self, account):\n        return {'cpus': -1.0}\n",
        "ValueError: -1.0 is less than 0",
    ),
    "in a line": (
        LINE.replace("return account.share\n", "return account.sharez\n"),
        "AttributeError: 'Account' object has no",
    ),
}


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.parametrize("command", ["simulate", "simulate sampled", "compare", "lies", "sweep"])
def test_a_failed_policy_has_no_result(
    folder: Path, command: str, how: str, *, as_json: bool
) -> None:
    source, error = FAILURES[how]
    file(folder, source)
    (name,) = plugins.load(folder / "mine.py")
    trace = str(folder / "hog.parquet")
    (folder / "sweep.toml").write_text(SWEEP.replace("norm", name).replace(", power = [1, 64]", ""))
    result = longshare(
        *{
            "simulate": ("simulate", trace, "--policy", name, "--load", "0.5"),
            "simulate sampled": (
                *("simulate", trace, "--policy", name, "--load", "0.5", "--sampled", "5m"),
            ),
            "compare": (
                *("compare", trace, "--policies", f"drf,{name}", "--load", "0.5"),
                *("--out", str(folder / "compare.png")),
            ),
            "lies": ("lies", trace, "--policy", name, "--load", "0.5", "--liars", "1"),
            "sweep": (
                *("sweep", str(folder / "sweep.toml"), "--out", str(folder / "out")),
                *("--backend", "sequential"),
            ),
        }[command],
        *("--policy-file", str(folder / "mine.py")),
        *(["--json"] if as_json else []),
    )
    assert_no_result(result, name, error, as_json=as_json)
    assert not (folder / "compare.png").exists()


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("how", ["always", "by a slip", "for large shares only"])
@pytest.mark.parametrize("command", ["properties", "optimum"])
def test_a_failed_policy_has_no_properties_and_no_optimum(
    folder: Path, command: str, how: str, *, as_json: bool
) -> None:
    source, error = FAILURES[how]
    (folder / "problem.toml").write_text(PROBLEM)
    result = longshare(
        *{
            "properties": ("properties", "--trials", "20"),
            "optimum": ("optimum", str(folder / "problem.toml")),
        }[command],
        *("--policy", "mine", "--policy-file", str(file(folder, source))),
        *(["--json"] if as_json else []),
    )
    assert_no_result(result, "mine", error, as_json=as_json)


PROBLEM = """
[[machines]]
name = "m"
resources = { cpus = 4, mem = 4 }
[[users]]
name = "a"
demand = { cpus = 1, mem = 1 }
[[users]]
name = "b"
demand = { cpus = 1, mem = 2 }
"""


def test_a_property_is_undecided_if_no_case_was_decided(folder: Path) -> None:
    constant = file(folder, key("return 1 + account.share"))
    result = longshare(
        *("properties", "--policy", "mine", "--policy-file", str(constant)),
        *("--property", "envy-freeness", "--trials", "5"),
    )
    assert (result.exit_code, "undecided" in result.stdout) == (0, True)
    assert "none found" not in result.stdout


@pytest.mark.slow  # the service checks the policy for about a second
@pytest.mark.parametrize("as_json", [False, True])
def test_an_experiment_under_a_failing_policy_has_no_result(folder: Path, *, as_json: bool) -> None:
    result = longshare(
        *("experiment", "run", "drf-baseline", "--out", str(folder / "out")),
        *("--policy-file", str(file(folder, key("return account.sharez")))),
        *(["--json"] if as_json else []),
    )
    assert (result.exit_code, "AttributeError" in result.stderr) == (2, True), result.stderr
    assert not (folder / "out" / "summary.json").exists()
    if as_json:
        failed = json.loads(result.stdout)["failed"]
        assert failed["policy"] == "mine"
        assert "AttributeError: 'Account' object has no attribute 'sharez'" in failed["latest"]


@pytest.mark.parametrize("as_json", [False, True])
def test_a_failed_policy_has_no_result_for_an_event_log(folder: Path, *, as_json: bool) -> None:
    master = RecordedMaster(folder / "log", EngineSettings(policies.create("drf", {})))
    master.add_framework("f1", "a")
    master.add_agent("s1", "cpus:4;mem:4096")
    master.tick(10)
    master.event_log.close()
    failing = file(folder, key("return 1 / 0"))
    result = longshare(
        *("replay", str(folder / "log"), "--policy", "mine", "--policy-file", str(failing)),
        *(["--json"] if as_json else []),
    )
    assert_no_result(result, "mine", "ZeroDivisionError", as_json=as_json)


def assert_no_result(result: Result, name: str, error: str, *, as_json: bool) -> None:
    assert result.exit_code == 2, result.stdout
    assert f"policy'{name}'failed,sothereisnoresult:{_words(error)}" in _words(result.stderr)
    if as_json:
        failed = json.loads(result.stdout)["failed"]
        assert failed["policy"] == name
        assert failed["times"] > 0
        assert error in failed["latest"]
    else:
        assert result.stdout.strip() == ""


def _words(text: str) -> str:
    """Return a message without its frame and blanks, as the frame may break a long path."""
    return "".join(text.replace("│", "").split())
