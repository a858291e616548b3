"""Typical operations execute no more lines than recorded.

Timing is too imprecise for this check.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from allocator.fairness.quantities import Quantities
from bench.counts import OPERATIONS, PYTHON, lines_of, recorded

ROOT = Path(__file__).parents[2]
GROWTH = 1.05
"""Largest growth of an operation without a new record."""


def test_lines_are_counted_in_loops_and_in_called_functions() -> None:
    few = Quantities({"cpus": 1})
    many = Quantities({f"r{i}": 1 for i in range(100)})
    assert lines_of(lambda: many.contains(many)) > lines_of(lambda: few.contains(few)) + 100
    assert lines_of(lambda: sorted(range(100))) == 0, "lines outside the project do not count"


@pytest.mark.slow
def test_no_operation_executes_more_lines_than_recorded() -> None:
    known = recorded().get(PYTHON)
    assert known is not None, f"no record for Python {PYTHON}: run `make counts`"
    assert set(known) == set(OPERATIONS), "the record has other operations: run `make counts`"
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
    assert not grown, "if the change is worth the cost, `make counts` records the new numbers"
