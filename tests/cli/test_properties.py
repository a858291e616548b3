"""The command `longshare properties`."""

import json
import tomllib
from pathlib import Path

from tests.forks import longshare


def test_a_violated_property_is_shown_by_files_that_reproduce_it(tmp_path: Path) -> None:
    asked = ("properties", "--policy", "cdrf", "--property", "strategy-proofness")
    out = tmp_path / "case.toml"
    completed = longshare(*asked, "--trials", "100", "--json", "--out", str(out))
    assert completed.returncode == 0, completed.stderr
    violation = json.loads(completed.stdout)["properties"]["strategy-proofness"]["violation"]
    lie = tmp_path / "case-lie.toml"
    assert tomllib.loads(out.read_text()) == violation["problem"]
    assert tomllib.loads(lie.read_text()) == violation["lie"]
    truth, lied = (
        json.loads(longshare("optimum", str(file), "--policy", "cdrf", "--json").stdout)
        for file in (out, lie)
    )
    assert truth["users"][violation["user"]]["tasks"] == violation["has"]
    assert lied["users"][violation["user"]]["tasks"] >= violation["instead"] > violation["has"]
    assert sum(violation["placement"][violation["user"]].values()) >= violation["instead"]


def test_violations_are_described_in_words_with_exit_code_0() -> None:
    completed = longshare("properties", "--policy", "per-machine-drf", "--trials", "20")
    assert completed.returncode == 0, completed.stderr
    assert "none found" in completed.stdout
    assert "# per-machine-drf lacks single-resource: " in completed.stdout
    assert "# longshare optimum THIS.toml --policy per-machine-drf" in completed.stdout


def test_wrong_arguments_are_refused_with_valid_alternatives() -> None:
    unknown = longshare("properties", "--policy", "tsf", "--property", "beauty")
    assert unknown.returncode == 2
    assert "envy-freeness" in unknown.stderr
    several = longshare("properties", "--policy", "tsf", "--out", "case.toml")
    assert several.returncode == 2
    assert "--property" in several.stderr
    assert longshare("properties", "--policy", "fifo").returncode == 2


def test_an_unwritable_output_file_is_named(tmp_path: Path) -> None:
    asked = ("properties", "--policy", "cdrf", "--property", "single-resource", "--trials", "50")
    completed = longshare(*asked, "--out", str(tmp_path / "absent" / "case.toml"))
    assert completed.returncode == 2
    assert "case.toml" in completed.stderr


def test_policies_of_other_systems_are_measured_or_refused_with_a_reason() -> None:
    asked = ("--property", "single-resource", "--trials", "3", "--json")
    completed = longshare("properties", "--policy", "yarn-fair", "--set", "resource=cpu", *asked)
    assert json.loads(completed.stdout)["properties"]["single-resource"]["violation"] is None
    completed = longshare("properties", "--policy", "volcano", *asked)
    assert completed.returncode == 2
    assert "no optimum at an instant" in " ".join(completed.stderr.replace("│", " ").split())
