"""The command `longshare games`."""

import csv
import json
from pathlib import Path

import pytest

from tests.forks import longshare

GAME = """
idle = 8
delta = 0.5
patience = 0.9

[[users]]
name = "1"
needs = [{ cpu = 1, mem = 0.01 }, { cpu = 1, mem = 0.01 }]
claims = [{ cpu = 0.9, mem = 0.009 }, { cpu = 1, mem = 0.01 }]

[[users]]
name = "2"
needs = [{ cpu = 0.1, mem = 1 }, { cpu = 1, mem = 0.01 }]
"""


def test_a_game_is_played_truthfully_and_with_the_lie(tmp_path: Path) -> None:
    (tmp_path / "g.toml").write_text(GAME)
    completed = longshare("games", "play", str(tmp_path / "g.toml"), "--policy", "sdrf", "--json")
    assert completed.returncode == 0, completed.stderr
    played = json.loads(completed.stdout)
    assert played["users"]["1"] == {"truthful": 299 / 220, "lying": 1.370475}
    assert played["complaints"]["strategy-proofness"]["user"] == "1"
    assert played["complaints"]["sharing-incentive"] is None
    table = longshare("games", "play", str(tmp_path / "g.toml"), "--policy", "sdrf").stdout
    assert "1.35909" in table
    assert "1 gets 299/220 with the truth" in table


def test_a_game_found_by_a_search_can_be_played(tmp_path: Path) -> None:
    out = tmp_path / "found.toml"
    completed = longshare(
        *("games", "search", "--policy", "drf", "--property", "credit-fairness"),
        *("--trials", "100", "--json", "--out", str(out)),
    )
    assert completed.returncode == 0, completed.stderr
    violation = json.loads(completed.stdout)["properties"]["credit-fairness"]["found"]
    played = longshare("games", "play", str(out), "--policy", "drf", "--json")
    complaint = json.loads(played.stdout)["complaints"]["credit-fairness"]
    assert complaint["text"] == violation["text"]


def test_the_worst_lie_is_searched_in_games_with_long_stages(tmp_path: Path) -> None:
    out = tmp_path / "worst.toml"
    completed = longshare(
        *("games", "worst", "--policy", "sdrf", "--delta", "0.9", "--patience", "1"),
        *("--steps", "1", "--restarts", "2", "--json", "--out", str(out)),
    )
    assert completed.returncode == 0, completed.stderr
    worst = json.loads(completed.stdout)
    assert worst["ratio"] > 1.3
    assert max(worst["game"]["lengths"]) > 10
    shown = longshare("games", "play", str(out), "--policy", "sdrf").stdout
    assert f"1 to {worst['game']['lengths'][0]}" in shown


@pytest.mark.slow
def test_gains_are_written_as_a_table_and_a_figure(tmp_path: Path) -> None:
    completed = longshare(
        *("games", "gains", "--policy", "sdrf", "--resources", "2", "--members", "3"),
        *("--delta", "0", "--steps", "20", "--restarts", "1", "--out", str(tmp_path)),
    )
    assert completed.returncode == 0, completed.stderr
    written = (tmp_path / "gains.csv").read_text(encoding="utf-8")
    (row,) = csv.DictReader(written.splitlines())
    assert (row["policy"], row["members"], row["delta"]) == ("sdrf", "3", "0")
    assert (tmp_path / "gains.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("search", "--policy", "fifo"), "policy 'fifo' has no games"),
        (("search", "--policy", "drf", "--property", "x"), "'x' is unknown"),
        (("search", "--policy", "drf", "--delta", "1"), "is not below 1"),
        (("worst", "--policy", "drf", "--members", "2"), "3 play"),
    ],
)
def test_wrong_arguments_are_refused_with_the_valid_choices(
    arguments: tuple[str, ...], complaint: str
) -> None:
    completed = longshare("games", *arguments)
    assert completed.returncode == 2
    assert complaint in completed.stderr.replace("\n", " ").replace("│", "")


def test_an_invalid_game_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "g.toml").write_text("users = []")
    completed = longshare("games", "play", str(tmp_path / "g.toml"), "--policy", "sdrf")
    assert completed.returncode == 2
    assert "g.toml: users" in completed.stderr
