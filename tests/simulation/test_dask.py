"""A sweep on a Dask cluster gives the same results as a sweep on one machine."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from allocator import plugins
from allocator.fairness import policies
from allocator.simulation import store
from allocator.simulation.studies.cells import Cell
from allocator.simulation.studies.plan import read_sweep
from allocator.simulation.studies.sources import resolve
from allocator.simulation.studies.sweep import SimulatorKind, cells_of, run
from tests.plugins.written import NORM, file
from tests.simulation.test_advice import bursts_beside_a_hog

pytest.importorskip("distributed", reason="the extra cluster is not installed")

SWEEP = """
title = "A sweep for several machines"
[[traces]]
path = "hog.parquet"
[[grid]]
loads = [0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
engine = "reference"
keep = "tasks"
policies = [{ policy = "norm" }, { policy = "sdrf", half_life = [60, "10m", "1h"] }]
"""
PATIENCE = 60.0
"""Seconds."""


@contextmanager
def process(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program of Dask in a folder of its own, and kill it at the end."""
    folder.mkdir()
    command = [sys.executable, "-m", *arguments]
    own = os.environ | {"DASK_TEMPORARY_DIRECTORY": str(folder)}
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            command, cwd=folder, env=own, stdout=log, stderr=subprocess.STDOUT
        ) as started,
    ):
        try:
            yield started
        finally:
            started.kill()


def scheduler_address(file: Path) -> str:
    """Wait until a scheduler has written its file, and return its address."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return str(json.loads(file.read_text())["address"]).removeprefix("tcp://")
        except (FileNotFoundError, json.JSONDecodeError):  # the file may be incomplete
            assert time.monotonic() < deadline, "the scheduler has not started"
            time.sleep(0.05)


def cells_in(folder: Path) -> list[Cell]:
    """Write a sweep with a policy file of its own, and return its cells; paths are relative."""
    store.write(bursts_beside_a_hog(), folder / "hog.parquet")
    (folder / "sweep.toml").write_text(SWEEP)
    plugins.load(file(folder, NORM))
    plan, beside = read_sweep(str(folder / "sweep.toml"))
    sources = list(resolve(plan.traces, beside, folder / "traces"))
    relative = [replace(source, path=source.path.relative_to(folder)) for source in sources]
    return cells_of(plan, relative)


@pytest.mark.slow  # starts a scheduler and two workers
@pytest.mark.timeout(240)
def test_a_cluster_without_shared_files_gives_local_results_though_a_worker_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "_POLICIES", dict(policies._POLICIES))
    monkeypatch.chdir(tmp_path)  # the workers' folders do not have the trace
    cells = cells_in(tmp_path)
    run(cells, tmp_path / "here", SimulatorKind("sequential"))

    with ExitStack() as stack:
        place = tmp_path / "scheduler.json"
        stack.enter_context(
            process(
                *(tmp_path / "scheduler", "distributed.cli.dask_scheduler", "--port", "0"),
                *("--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(place)),
            )
        )
        address = scheduler_address(place)
        workers = [
            stack.enter_context(
                process(
                    *(tmp_path / name, "distributed.cli.dask_worker", address, "--no-nanny"),
                    *("--nthreads", "1", "--host", "127.0.0.1", "--no-dashboard"),
                )
            )
            for name in ("first", "second")
        ]
        seen: list[int] = []

        def on_progress(finished: int) -> None:
            if finished:
                (tmp_path / "mine.py").unlink(missing_ok=True)
                workers[0].kill()
            seen.append(finished)

        run(cells, tmp_path / "away", SimulatorKind("dask", scheduler=address), on_progress)
    assert seen[-1] == len(cells)
    assert workers[0].returncode is not None
    for cell in cells:
        here, away = (results(cell, tmp_path / name) for name in ("here", "away"))
        assert here == away


def results(cell: Cell, folder: Path) -> tuple[dict[str, Any], bytes]:
    """Return a cell's results without measured times, and its results for each task."""
    result = json.loads(cell.file(folder).read_text())
    del result["seconds"], result["operations"]["seconds"]
    return result, cell.details(folder).read_bytes()


def test_an_unreachable_scheduler_is_named_before_any_simulation() -> None:
    with pytest.raises(ValueError, match="add --scheduler HOST:PORT"):
        SimulatorKind("dask").check()
    with pytest.raises(ValueError, match=r"scheduler 127\.0\.0\.1:1 does not answer"):
        SimulatorKind("dask", scheduler="127.0.0.1:1").check()
