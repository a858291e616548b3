"""Values that no command can use are refused with the option's name, before any work."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from allocator.cli import app
from allocator.simulation import store
from tests.simulation.test_advice import bursts_beside_a_hog

SERVICE = ("--address", "127.0.0.1:1")
"""Address of no service; the commands refuse the values before they connect."""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("traces") / "hog.parquet"
    store.write(bursts_beside_a_hog(), path)
    return str(path)


def refused(*command: str) -> str:
    """Run a command that exits with 2; return its message as one line without a frame."""
    completed = CliRunner().invoke(app, command)
    assert completed.exit_code == 2, completed.output
    return " ".join(completed.stderr.replace("│", " ").split())


STUDIES = {
    "simulate": ("--policy", "drf"),
    "compare": ("--policies", "drf,tsf"),
    "lies": ("--policy", "drf"),
    "advise": (),
}


@pytest.mark.parametrize("study", STUDIES)
@pytest.mark.parametrize(
    ("capacity", "complaint"),
    [
        ("cpus=0", "tasks of the trace need some; give a positive amount"),
        ("cpus=-1", "is not of finite numbers from 0 to 1e+18"),
        ("cpus=nan", "is not of finite numbers from 0 to 1e+18"),
        ("cpus=inf", "is not of finite numbers from 0 to 1e+18"),
        ("cpus=1e300", "is not of finite numbers from 0 to 1e+18"),
    ],
)
def test_a_capacity_that_no_task_can_use_is_refused(
    trace: str, study: str, capacity: str, complaint: str
) -> None:
    assert complaint in refused(study, trace, *STUDIES[study], "--capacity", f"{capacity},mem=9")


@pytest.mark.parametrize("study", STUDIES)
@pytest.mark.parametrize("load", ["1e300", "0", "-1", "1e-300", "nan", "inf"])
def test_a_load_outside_a_millionth_to_a_million_is_refused(
    trace: str, study: str, load: str
) -> None:
    message = refused(study, trace, *STUDIES[study], f"--load={load}")
    assert f"the load {float(load):g} is not a number from 1e-06 to 1e+06" in message or (
        f"{load} is not a finite number" in message
    )


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(
    ("command", "option"),
    [
        (("games", "search", "--policy", "sdrf"), "--patience"),
        (("games", "gains", "--policy", "sdrf"), "--delta"),
        (("experiment", "run", "drf-baseline"), "--speed"),
        (("local-mesos",), "--speed"),
        (("framework", "--name", "x"), "--run-time"),
        (("framework", "--name", "x"), "--jitter"),
        (("forecast", "a", *SERVICE), "--weight"),
        (("forecast", "a", *SERVICE), "--below"),
        (("shares", *SERVICE), "--timeout"),
    ],
)
def test_options_refuse_numbers_that_are_not_finite(
    command: tuple[str, ...], option: str, value: str
) -> None:
    assert f"Invalid value for '{option}'" in refused(*command, f"{option}={value}")


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (("forecast", "a", *SERVICE, "--tasks", "9" * 20), "Invalid value for '--tasks'"),
        (("shares", *SERVICE, "--timeout", "1e300"), "Invalid value for '--timeout'"),
        (("sweep", "sdrf", "--jobs", "9" * 20), "Invalid value for '--jobs'"),
        (
            ("framework", "--name", "x", "--demand", ""),
            "a task must need more than 0 of some resource",
        ),
    ],
)
def test_options_refuse_numbers_beyond_their_limits(
    command: tuple[str, ...], complaint: str
) -> None:
    assert complaint in refused(*command)


@pytest.mark.parametrize(
    "twice",
    [
        ("--weight", "hog=1", "--weight", "hog=2"),
        ("--owes", "hog=0.1", "--owes", "hog=0.2"),
        ("--set", "half_life=60", "--set", "half_life=90"),
    ],
)
def test_an_option_given_twice_with_different_values_is_refused(
    trace: str, twice: tuple[str, ...]
) -> None:
    message = refused("simulate", trace, "--policy", "sdrf", "--load", "0.5", *twice)
    assert f"Invalid value for {twice[0]}: give each" in message


@pytest.mark.parametrize("load", ["1e300", "1e-300", "nan", "0.0", "-1.0"])
def test_invalid_loads_of_a_sweep_are_refused_before_any_simulation(
    tmp_path: Path, load: str
) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(
        f'title = "x"\n[[traces]]\npath = "x.parquet"\n'
        f'[[grid]]\nloads = [{load}]\npolicies = [{{ policy = "drf" }}]\n'
    )
    message = refused("sweep", str(file), "--out", str(tmp_path / "out"))
    assert "grid[0].loads[0]: it must be" in message
    assert "at least 1 entry" not in message, "the entry exists but is invalid"


def test_a_pool_may_lack_resources_that_no_task_needs(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("submitted_s,runtime_s,user,cpus,gpus\n0,60,a,1,0\n")
    path = str(tmp_path / "trace.parquet")
    runner = CliRunner()
    converted = runner.invoke(
        app, ["trace", "convert", str(tmp_path / "trace.csv"), path, "--from", "csv"]
    )
    assert converted.exit_code == 0, converted.stderr
    completed = runner.invoke(
        app, ["simulate", path, "--policy", "drf", "--capacity", "cpus=1,gpus=0"]
    )
    assert completed.exit_code == 0, completed.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("weight", "set", "alice", "-1"),
        ("weight", "set", "alice", "-1e3", "--for", "2h"),
        ("commitments", "set", "alice", "-0.5"),
        ("forecast", "alice", "--below", "-1"),
    ],
    ids=" ".join,
)
def test_a_negative_number_is_a_value_and_not_an_option(command: tuple[str, ...]) -> None:
    completed = CliRunner().invoke(app, [*command, *SERVICE])
    assert "no allocator service answers" in completed.stderr
    assert completed.exit_code == 3
