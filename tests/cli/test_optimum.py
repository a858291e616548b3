"""The command `longshare optimum`."""

import json
from pathlib import Path

from tests.forks import longshare

PROBLEM = """
[[machines]]
name = "small"
resources = { cpus = 4, mem = 8 }
count = 3

[[machines]]
name = "large"
resources = { cpus = 16, mem = 16 }

[[users]]
name = "a"
demand = { cpus = 1, mem = 2 }
machines = ["small"]

[[users]]
name = "b"
demand = { cpus = 1, mem = 1 }
weight = 2
tasks = 5
"""


def test_the_optimum_is_printed_as_json_or_a_table(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(PROBLEM)
    completed = longshare("optimum", str(tmp_path / "p.toml"), "--policy", "tsf", "--json")
    assert completed.returncode == 0, completed.stderr
    answer = json.loads(completed.stdout)
    assert answer["policy"] == "tsf"
    assert answer["users"]["a"] == {"tasks": 12.0, "share": 0.6, "machines": {"small": 12.0}}
    assert answer["users"]["b"]["tasks"] == 5.0
    table = longshare("optimum", str(tmp_path / "p.toml"), "--policy", "tsf").stdout
    assert "60.00%" in table
    assert "small: 12" in table


def test_cmmf_takes_its_resource_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(PROBLEM)
    command = ("optimum", str(tmp_path / "p.toml"), "--json", "--policy", "cmmf")
    completed = longshare(*command, "--set", "resource=mem")
    assert json.loads(completed.stdout)["users"]["a"]["share"] == 0.6
    refused = longshare(*command, "--set", "memory=mem")
    assert refused.returncode == 2
    assert "memory" in refused.stderr


def test_an_invalid_problem_ends_with_exit_code_2_and_the_place(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(PROBLEM.replace('["small"]', '["smal"]'))
    completed = longshare("optimum", str(tmp_path / "p.toml"), "--policy", "tsf")
    assert completed.returncode == 2
    assert "users[0].machines: 'a' may use 'smal'" in completed.stderr
    assert longshare("optimum", str(tmp_path / "none.toml"), "--policy", "tsf").returncode == 2
    assert longshare("optimum", str(tmp_path / "p.toml"), "--policy", "fifo").returncode == 2
