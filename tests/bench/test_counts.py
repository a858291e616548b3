"""Typical operations take no more steps than they took, which timing could not tell."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from allocator.fairness.quantities import Quantities
from bench.counts import OPERATIONS, PYTHON, lines_of, recorded

ROOT = Path(__file__).parents[2]
GROWTH = 1.05
"""What an operation may grow by before somebody has to say that it is worth it."""


def test_lines_are_counted_in_loops_and_in_what_is_called() -> None:
    few = Quantities({"cpus": 1})
    many = Quantities({f"r{i}": 1 for i in range(100)})
    assert lines_of(lambda: many.contains(many)) > lines_of(lambda: few.contains(few)) + 100
    assert lines_of(lambda: sorted(range(100))) == 0, "what is not ours does not count"


@pytest.mark.slow
def test_no_operation_takes_more_steps_than_are_recorded() -> None:
    known = recorded().get(PYTHON)
    assert known is not None, f"nothing is recorded for Python {PYTHON}: run `make counts`"
    assert set(known) == set(OPERATIONS), "the operations are others than recorded: `make counts`"
    counted: dict[str, int] = json.loads(
        subprocess.run(
            [sys.executable, "-m", "bench.counts", "--json"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        ).stdout
    )
    grown = {
        name: f"{known[name]:,} → {number:,}"
        for name, number in counted.items()
        if number > GROWTH * known[name]
    }
    assert not grown, "if that is worth it, `make counts` records the new numbers"
