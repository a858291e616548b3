"""The commands `longshare sweep` and `longshare report`."""

import json
from pathlib import Path

import pytest

from allocator import provenance
from allocator.simulation import store
from tests.forks import longshare
from tests.simulation.test_advice import bursts_beside_a_hog
from tests.simulation.test_studies import SWEEP


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store.write(bursts_beside_a_hog(), tmp_path / "hog.parquet")
    (tmp_path / "sweep.toml").write_text(SWEEP)
    return tmp_path


def test_a_sweep_is_resumed_and_reported(folder: Path) -> None:
    command = ("sweep", str(folder / "sweep.toml"), "--out", str(folder / "out"))
    first = longshare(*command, "--backend", "sequential")
    assert first.returncode == 0, first.stderr
    assert "6 simulations, 6 of them run now" in first.stdout
    second_report = json.loads(longshare(*command, "--json").stdout)
    assert second_report == {"folder": str(folder / "out"), "cells": 6, "computed": 0}
    completed = longshare("report", str(folder / "out"))
    assert completed.returncode == 0, completed.stderr
    assert "Fig." not in completed.stdout
    assert (folder / "out" / "report.html").exists()
    report = json.loads(longshare("report", str(folder / "out"), "--papers", "--json").stdout)
    assert "sdrf-fig-11" in report["sections"]
    told = longshare("report", str(folder / "out"), "--papers").stdout
    assert "  cannot be told (one trace): " in told
    index = json.loads((folder / "out" / "sweep.json").read_text())
    assert index["longshare"] == provenance()
    assert index["seeds"] == {"hog": []}


def test_the_trace_option_replaces_the_traces_of_the_sweep_file(folder: Path) -> None:
    (folder / "hog.parquet").rename(folder / "mine.parquet")
    completed = longshare(
        *("sweep", str(folder / "sweep.toml"), "--trace", str(folder / "mine.parquet")),
        *("--out", str(folder / "out"), "--backend", "sequential", "--json"),
    )
    assert json.loads(completed.stdout)["computed"] == 6


def test_invalid_sweeps_and_reports_end_with_exit_code_2(folder: Path) -> None:
    out = ("--out", str(folder / "out"))
    done = folder / "done"
    sweep = ("sweep", str(folder / "sweep.toml"), "--backend", "sequential")
    assert longshare(*sweep, "--out", str(done)).returncode == 0
    for command, complaint in (
        (("sweep", str(folder / "nowhere.toml"), *out), "sdrf-small"),
        (("sweep", str(folder / "sweep.toml"), "--backend", "abacus", *out), "abacus"),
        (("report", str(folder)), "longshare sweep"),
        (("report", str(done), "--baseline", "nope"), "'nope'; there are: drf"),
    ):
        completed = longshare(*command)
        assert (completed.returncode, completed.stdout) == (2, "")
        assert complaint in completed.stderr
