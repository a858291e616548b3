"""Each command names the extra to install, before it does any work, if a library is missing."""

import subprocess
import sys
from pathlib import Path

import pytest

from allocator.simulation import store
from tests.simulation.crowded import trace_of

SIMULATION_ONLY = """
import sys
for extra in ("numba", "scipy", "matplotlib"):
    sys.modules[extra] = None  # as if it were not installed: its import fails
sys.argv = ["longshare", *sys.argv[1:]]
from allocator.cli import main
main()
"""


def with_the_extra_simulation(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    store.write(trace_of([(0, 10, "heavy", 1, 1), (0, 5, "light", 1, 1)]), folder / "a.parquet")
    command = [sys.executable, "-c", SIMULATION_ONLY, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_extra_simulation_suffices_to_simulate(tmp_path: Path) -> None:
    completed = with_the_extra_simulation(
        tmp_path, "simulate", "a.parquet", "--policy", "drf", "--load", "0.9"
    )
    assert completed.returncode == 0, completed.stderr
    assert "2 tasks of 2 users" in completed.stdout


@pytest.mark.parametrize(
    "command",
    [
        "simulate a.parquet --policy drf --load 0.9 --out results",
        "advise a.parquet --load 0.9",
        "compare a.parquet --policies drf,tsf --load 0.9",
        "figure sdrf-1",
        "report .",
        "trace generate google-month b.parquet --tasks 100000",
    ],
)
def test_a_command_that_needs_the_extra_analysis_names_it(tmp_path: Path, command: str) -> None:
    completed = with_the_extra_simulation(tmp_path, *command.split())
    assert completed.returncode == 2, completed.stdout
    assert "pip install 'longshare[analysis]'" in completed.stderr
    assert "Traceback" not in completed.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet"]
