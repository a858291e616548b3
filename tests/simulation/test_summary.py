"""The summary of an outcome, for a case computed by hand."""

import dataclasses

import numpy as np
import pytest

from allocator.simulation.outcome import NEVER, Operations, Outcome
from allocator.simulation.setting import Setting
from allocator.simulation.summary import (
    completion_s,
    slowdowns,
    summary,
    users_of,
    utilization_while_waiting,
)
from tests.simulation.crowded import S, trace_of

ROWS = [(0, 20, "a", 1, 0), (5, 4, "a", 1, 0), (10, 20, "b", 1, 2), (12, 1, "c", 9, 0)]
TRACE = trace_of(ROWS)
OUTCOME = Outcome(
    TRACE,
    started=np.array([0, 20 * S, 30 * S, NEVER]),
    machine=np.array([0, 0, 0, NEVER], np.int32),
    operations=Operations({"minimum": 3}, {"minimum": 0.5}, events=2),
)
SETTING = Setting("drf", capacity=(1.0, 4.0))


def test_users_means_are_of_the_tasks_that_started() -> None:
    users = users_of(OUTCOME)
    assert users.names == ("a", "b", "c")
    assert users.tasks.tolist() == [2, 1, 1]
    assert users.started.tolist() == [2, 1, 0]
    assert users.mean_wait_s.tolist()[:2] == [7.5, 20.0]
    assert np.isnan(users.mean_wait_s[2])


def test_a_task_is_completed_if_it_finishes_before_the_trace_would_at_its_own_pace() -> None:
    # The trace would end at 30.
    assert users_of(OUTCOME).completed.tolist() == [2, 0, 0]
    assert users_of(OUTCOME).completion_ratio.tolist() == [1.0, 0.0, 0.0]


def test_slowdowns_take_short_tasks_for_tasks_of_ten_seconds() -> None:
    assert slowdowns(OUTCOME)[:3].tolist() == [1.0, 1.9, 2.0]
    assert np.isnan(slowdowns(OUTCOME)[3])


def test_a_job_takes_from_its_first_submission_to_its_last_finish() -> None:
    assert completion_s(OUTCOME)[:2].tolist() == [24.0, 40.0]
    assert np.isnan(completion_s(OUTCOME)[2])


def test_a_jobs_tasks_need_not_lie_together() -> None:
    mixed = dataclasses.replace(TRACE, job=np.array([7, 3, 7, 3]))
    outcome = dataclasses.replace(OUTCOME, trace=mixed)
    in_order = completion_s(outcome)
    assert np.isnan(in_order[0])
    assert in_order[1] == 50.0


def test_the_summary_counts_users_alike_however_many_tasks_they_have() -> None:
    report = summary(OUTCOME, users_of(OUTCOME), SETTING)
    assert report["mean_user_wait_s"] == (7.5 + 20.0) / 2
    assert report["mean_user_slowdown"] == pytest.approx((1.45 + 2.0) / 2)
    assert report["mean_user_completion_ratio"] == 1 / 3
    assert report["completion_ratio"] == 0.5
    assert report["wait_s"]["mean"] == pytest.approx(35 / 3)
    assert report["utilization"] == {"cpus": 44 / 50, "mem": 40 / 200}
    # Tasks wait from 5 to 30: the pool is full until 24.
    assert report["utilization_while_waiting"] == {"cpus": 19 / 25, "mem": 0.0}
    assert report["live_tree_events"] == 2
    assert report["operations"] == {"minimum": {"count": 3, "seconds": 0.5}}


def test_an_empty_sample_has_no_mean() -> None:
    nothing = Outcome(trace_of([]), np.zeros(0, np.int64), np.zeros(0, np.int32), Operations())
    report = summary(nothing, users_of(nothing), SETTING)
    assert report["tasks"] == report["started"] == 0
    assert report["mean_user_wait_s"] is report["wait_s"] is report["live_tree_events"] is None


def test_utilization_while_waiting_leaves_out_pauses_between_waits() -> None:
    rows = [(0, 4, "a", 1, 1), (0, 2, "b", 1, 1), (50, 1, "a", 1, 1), (60, 4, "a", 2, 1)]
    rows += [(61, 2, "b", 2, 1)]
    outcome = dataclasses.replace(
        OUTCOME,
        trace=trace_of(rows),
        started=np.array([0, 1, 50, 60, 64]) * S,
        machine=np.zeros(5, np.int32),
    )
    # Tasks wait from 0 to 1, and from 61 to 64.
    setting = Setting("drf", capacity=(2.0, 4.0))
    assert utilization_while_waiting(outcome, setting) == {
        "cpus": pytest.approx((1 + 6) / 8),
        "mem": pytest.approx((1 + 3) / 16),
    }
