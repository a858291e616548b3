"""A simulation is filmed during the run, without effect on its results."""

from dataclasses import replace

import pytest

from allocator.simulation import reference
from allocator.simulation.film import film
from allocator.simulation.setting import Setting
from allocator.simulation.trace import MachineClass
from tests.film.reading import film_of, grid_of, lines_of, times_of
from tests.simulation.crowded import trace_of

ROWS = [
    *((0, 10, "heavy", 1, 1), (0, 10, "heavy", 1, 1), (1, 10, "heavy", 1, 1)),
    *((2, 5, "light", 1, 1), (2, 5, "late", 9, 1)),
]
"""Two run at once, in the pool of two CPUs; the last fits nowhere."""
POOL = Setting("sdrf", {"half_life": 10.0}, capacity=(2.0, 8.0))
MACHINES = (MachineClass("one", 2, (1.0, 8.0)),)


def test_frames_show_allocations_commitments_and_waiting_tasks_of_users() -> None:
    trace = trace_of(ROWS)
    outcome, page = film(trace, POOL, "trace.parquet")
    plain = reference.simulate(trace, POOL)
    assert (outcome.started == plain.started).all()
    shown = film_of(page)
    assert shown["about"]["clock"] == "elapsed"
    times = times_of(shown)
    frame = times.index(2.0)
    share, debt, entitlement, turn, waits, held = (
        column[frame] for column in lines_of(shown, "heavy")
    )
    assert (share, entitlement, turn) == (10_000, 3333, 2)
    # Eq. 12: two thirds too much of the CPUs for two seconds.
    assert debt / 10_000 == pytest.approx(2 / 3 * (1 - 0.5 ** (2 / 10)), abs=1e-4)
    assert shown["waits"][waits] == "1 task of its waits for the user's turn"
    assert shown["held"][held] == [2000, 2000]
    *_, waits, _ = (column[frame] for column in lines_of(shown, "light"))
    assert shown["waits"][waits] == "1 task of its waits; the next task does not fit now"
    assert shown["agents"] == ["the pool"]
    light = [column[times.index(10.0)] for column in lines_of(shown, "light")]
    assert light[0] == 5000, "light is first once two tasks of heavy have ended"


def test_machines_are_shown_individually_and_jobs_are_distinguished_on_shared_machines() -> None:
    trace = trace_of(ROWS[:4], MACHINES)
    setting = replace(POOL, capacity=None, blocking="skip", per="job")
    _, page = film(trace, setting, "trace.parquet")
    shown = film_of(page)
    assert shown["agents"] == ["one-0", "one-1"]
    assert {name for name, *_ in shown["users"]} == {"job 0", "job 1"}
    first = [shown["cells"][cell - 1] for cell in grid_of(shown)[0]]
    assert [total for _, total, _ in first] == [[1000, 8000]] * 2
    assert grid_of(shown)[-1][0] == grid_of(shown)[-1][1], "in the end nothing is held anywhere"


def test_an_emulated_scheduler_that_samples_is_filmed_without_commitments() -> None:
    trace = trace_of(ROWS)
    setting = Setting("slurm-fair-tree", {"half_life": 10.0}, capacity=(2.0, 8.0), sampled=1.0)
    outcome, page = film(trace, setting, "trace.parquet")
    assert (outcome.started == reference.simulate(trace, setting).started).all()
    shown = film_of(page)
    assert shown["about"]["policy"] == "slurm-fair-tree, sampled"
    assert any("Commitments" in note for note in shown["about"]["notes"])
    frame = times_of(shown).index(2.0)
    share, debt, entitlement, *_ = (column[frame] for column in lines_of(shown, "heavy"))
    assert (share, debt, entitlement) == (10_000, 0, 3333)
