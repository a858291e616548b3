"""Lies online: the substitute submissions, and the waits of the real tasks."""

from dataclasses import replace

import numpy as np
import pytest

from allocator.simulation import reference
from allocator.simulation.setting import Setting
from allocator.simulation.studies.lies import LIES, delayed, held, nothing, padded, split
from allocator.simulation.studies.online_truth import LieGain, gains, rows
from allocator.simulation.trace import MICROSECONDS, UNCONSTRAINED, Trace


def trace_of(*tasks: tuple[int, int, int]) -> Trace:
    """Return a trace of tasks (second of submission, user, seconds to run), each of one CPU."""
    count = len(tasks)
    columns = np.array(tasks, np.int64)
    return Trace(
        resources=("cpus",),
        users=("a", "b"),
        submitted=columns[:, 0] * MICROSECONDS,
        runtime=columns[:, 2] * MICROSECONDS,
        user=columns[:, 1].astype(np.int32),
        job=np.arange(count),
        demand=np.ones((count, 1)),
        constraint=np.full(count, UNCONSTRAINED, np.int32),
    )


TRACE = trace_of((0, 0, 5), (0, 1, 5), (1, 0, 5), (4, 1, 5), (6, 0, 5), (30, 0, 1))
DRF = Setting(policy="drf", capacity=(1.0,))


def test_the_wait_of_a_delayed_submission_starts_when_the_task_was_ready() -> None:
    altered = delayed(2.0)(TRACE, 1)
    assert (np.diff(altered.trace.submitted) >= 0).all()
    started = altered.trace.submitted  # a run without any waiting
    assert altered.waits(TRACE, started).tolist() == [2.0, 2.0]


def test_accounts_take_turns_and_users_keep_their_order_in_ties() -> None:
    altered = split(3)(TRACE, 0)
    assert altered.trace.users == ("a", "a~1", "a~2", "b")
    assert altered.trace.user.tolist() == [0, 3, 1, 3, 2, 0]


def test_padding_raises_the_demands_of_the_liar_only() -> None:
    altered = padded(2.0)(TRACE, 0)
    assert altered.trace.demand[:, 0].tolist() == [2, 1, 2, 1, 2, 2]


def test_a_user_that_holds_on_runs_its_next_tasks_in_the_place_of_the_first() -> None:
    """The third task exists when the second ends, the fourth does not; two is the maximum."""
    altered = held(3)(TRACE, 0)
    assert altered.trace.runtime.tolist() == [15e6, 5e6, 5e6, 1e6]
    assert altered.carrier.tolist() == [0, 0, 0, 3]
    assert altered.offset.tolist() == [0, 5e6, 10e6, 0]
    pairs = held(2)(TRACE, 0)
    assert pairs.trace.runtime.tolist() == [10e6, 5e6, 5e6, 5e6, 1e6]


@pytest.mark.parametrize("lie", [nothing, *LIES.values()], ids=["the truth", *LIES])
def test_every_lie_runs_all_real_tasks_with_all_their_work(lie: object) -> None:
    altered = lie(TRACE, 0)  # type: ignore[operator]
    mine = np.flatnonzero(TRACE.user == 0)
    assert altered.mine.tolist() == mine.tolist()
    unaltered = ~np.isin(np.arange(len(altered.trace)), altered.carrier)
    assert unaltered.sum() == (TRACE.user == 1).sum()
    work = altered.trace.runtime[np.unique(altered.carrier)].sum()
    assert work == TRACE.runtime[mine].sum()
    room = replace(DRF, capacity=(2.0,))
    outcome = reference.simulate(altered.trace, room)
    assert (altered.waits(TRACE, outcome.started) >= 0).all()


def crowded() -> Trace:
    """Return a workload of two users; the second user has far more work."""
    tasks = [(k, k % 3 > 0, 9) for k in range(60)]
    return trace_of(*((when, int(user), runs) for when, user, runs in tasks))


def test_two_accounts_save_some_wait_under_drf_and_padding_costs_some() -> None:
    setting = Setting(policy="drf", capacity=(6.0,))
    results = list(gains(crowded(), setting, 2, lambda _done, _of: None))
    heavy = {gain.lie: gain for gain in results if gain.user == "b"}
    assert heavy["two accounts"].saved > 0
    assert heavy["two accounts"].harm > 0
    assert heavy["demand × 2"].saved < 0
    assert heavy["an hour late"].saved < 0


def test_rows_tell_how_liars_fare_and_never_running_is_the_worst() -> None:
    def gain(lying: float) -> LieGain:
        return LieGain("u", "demand × 2", 10.0, lying, 5.0, 6.0)

    (row,) = rows([gain(5.0), gain(20.0), gain(float("inf"))])
    assert (row.lie, row.liars) == ("demand × 2", 3)
    assert row.saved == (-float("inf"), -1.0, 0.5)
    assert row.gaining == pytest.approx(1 / 3)
    assert row.harm == pytest.approx(0.2)
