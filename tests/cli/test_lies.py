"""The command `longshare lies`."""

import csv
import json
from pathlib import Path

import pytest

from allocator.simulation import store
from tests.forks import longshare
from tests.simulation.test_lies import crowded


@pytest.mark.slow
def test_lies_are_reported_with_their_savings_and_written_to_a_file(tmp_path: Path) -> None:
    store.write(crowded(), tmp_path / "t.parquet")
    out = tmp_path / "lies.csv"
    completed = longshare(
        *("lies", str(tmp_path / "t.parquet"), "--policy", "drf", "--capacity", "cpus=6"),
        *("--json", "--out", str(out)),
    )
    assert completed.returncode == 0, completed.stderr
    by_lie = {row["lie"]: row for row in json.loads(completed.stdout)["lies"]}
    assert by_lie["two accounts"]["saved"]["95%"] > 0
    assert by_lie["an hour late"]["saved"]["95%"] < 0
    written = list(csv.DictReader(out.read_text(encoding="utf-8").splitlines()))
    assert len(written) == len(by_lie) * by_lie["two accounts"]["liars"]
    table = longshare(
        *("lies", str(tmp_path / "t.parquet"), "--policy", "drf", "--capacity", "cpus=6")
    )
    assert "two accounts" in table.stdout


def test_a_missing_trace_is_named(tmp_path: Path) -> None:
    completed = longshare("lies", str(tmp_path / "no.parquet"), "--policy", "drf", "--load", "0.5")
    assert completed.returncode == 2
    assert "no.parquet" in completed.stderr
