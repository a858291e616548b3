"""Help, versions, configuration checks and errors of the command line."""

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from allocator import __version__, build
from allocator.cli import app
from allocator.service.config import load
from frameworks import experiment
from tests.forks import longshare


def test_version_prints_the_version_of_the_distribution() -> None:
    assert longshare("--version").stdout == f"longshare {__version__} ({build()})\n"


@pytest.mark.parametrize(
    "command",
    [[], ["serve"], ["local-mesos"], ["framework"], ["experiment"], ["experiment", "run"]],
)
def test_help_of_each_command_has_usage_and_description(command: list[str]) -> None:
    completed = longshare(*command, "--help")
    assert completed.returncode == 0
    assert "Usage:" in completed.stdout
    assert len(completed.stdout.splitlines()) > 8


def test_help_paragraphs_are_wrapped_at_the_terminal_width(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line.strip() for line in longshare("serve", "--help").stdout.splitlines()]
    begin = next(place for place, line in enumerate(lines) if line.startswith("The service stops"))
    paragraph = lines[begin : lines.index("", begin)]
    assert len(paragraph) > 1
    for line, after in pairwise(paragraph):
        assert len(f"{line} {after.split()[0]}") > 78, "each line is as long as the width allows"


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:  # noqa: ANN401 - typer's
    """Yield the path of a command and the paths of all its subcommands."""
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


def test_help_is_not_truncated_on_80_columns() -> None:
    cut = []
    for command in commands(get_command(app)):
        output = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "80"}).output
        assert "Usage:" in output
        if "…" in output:
            cut.append(command)
    assert cut == []


def test_an_invalid_address_is_named() -> None:
    for address in ("foo", "127.0.0.1:99999", "unix:here"):
        completed = longshare("shares", "--address", address)
        assert completed.returncode == 2
        assert f"--address: '{address}'" in completed.stderr


def test_help_loads_no_large_library() -> None:
    code = (
        "import sys, allocator.cli\n"
        "heavy = {'grpc', 'matplotlib', 'pymesos', 'aiohttp', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_valid_configuration_is_reported_as_valid(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("")
    completed = longshare("serve", "--config", str(tmp_path / "c.toml"), "--check")
    assert (completed.returncode, completed.stdout) == (0, f"{tmp_path}/c.toml: valid\n")


def test_an_invalid_configuration_ends_with_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[policy]\nname = 'lottery'\n")
    completed = longshare("serve", "--config", str(tmp_path / "c.toml"))
    assert completed.returncode == 2
    assert "there are: cdrf, cmmf" in completed.stderr
    assert "Traceback" not in completed.stderr


def test_unreadable_resources_are_named() -> None:
    completed = longshare("local-mesos", "--resources", "cpus=4")
    assert completed.returncode == 2
    assert "cpus=4" in completed.stderr


def test_experiments_are_listed_for_people_and_for_scripts() -> None:
    assert set(experiment.names()) == {
        "drf-baseline",
        "fair-tree",
        "sdrf-adaptive",
        "sdrf-initial-commitments",
        "tsf-elephants-and-mice",
        "tsf-micro",
        "tsf-small-tasks-first",
        "tsf-vs-static-pools",
    }
    table = longshare("experiment", "list").stdout
    for name in experiment.names():
        assert name in table
    listed = json.loads(longshare("experiment", "list", "--json").stdout)
    assert [e["name"] for e in listed] == experiment.names()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fair-tree",), "add --slurm"),
        (("tsf-small-tasks-first", "--slurm"), "Slurm holds no nodes for a user"),
        (("drf-baseline", "--slurm", "--policy", "cdrf"), "cdrf needs one task size"),
        (("fair-tree", "--slurm", "--speed", "7"), "half-life is a number of minutes"),
        (("drf-baseline", "--slurm", "--master", "127.0.0.1:1"), "cannot be combined"),
        (("drf-baseline", "--mesos-home", "/", "--speed", "0.5"), "which run in real time"),
    ],
)
def test_an_experiment_that_its_scheduler_cannot_run_ends_with_exit_code_2(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    completed = longshare("experiment", "run", *arguments, "--out", str(tmp_path / "out"))
    assert completed.returncode == 2
    assert message in " ".join(completed.stderr.replace("│", " ").split())
    assert not (tmp_path / "out").exists()


def test_an_unknown_experiment_ends_with_exit_code_2_and_lists_experiments() -> None:
    completed = longshare("experiment", "run", "fig-99")
    assert completed.returncode == 2
    assert "drf-baseline" in completed.stderr


def test_an_experiment_without_a_folder_for_its_results_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    out = str(file / "out")
    completed = longshare("experiment", "run", "drf-baseline", "--out", out, env={"COLUMNS": "300"})
    assert completed.returncode == 2
    assert f"{out}: Not a directory; check the path" in completed.stderr


def test_printed_settings_of_an_experiment_are_a_valid_configuration(
    tmp_path: Path,
) -> None:
    settings = tmp_path / "longshare.toml"
    settings.write_text(longshare("experiment", "settings", "sdrf-initial-commitments").stdout)
    config = load(settings)
    assert config.policy.name == "sdrf"
    assert [user.commitment for user in config.users.declared] == [0.5, 0.4, 0.3, 0.2]
    assert longshare("experiment", "settings", "fig-99").returncode == 2


@pytest.mark.parametrize("master", ["foo", "http://127.0.0.1:1", "127.0.0.1:65536"])
def test_a_framework_with_an_invalid_address_ends_with_a_message(master: str) -> None:
    completed = longshare("framework", "--name", "a", "--master", master)
    assert completed.returncode == 1
    assert "give HOST:PORT" in completed.stderr
    assert "Traceback" not in completed.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("usage", "--by", "nope"), "'nope' is not one of 'user', 'role', 'day'"),
        (("forecast", "eng", "--tasks", "1.5"), "'1.5' is not a whole number"),
        (("simulate", "t.csv", "--policy", "drf", "--load", "abc"), "'abc' is not a number"),
    ],
)
def test_a_value_of_the_wrong_type_is_reported_in_plain_words(
    command: tuple[str, ...], said: str
) -> None:
    completed = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert completed.exit_code == 2
    assert f"Invalid value for '{command[-2]}': {said}" in completed.output
