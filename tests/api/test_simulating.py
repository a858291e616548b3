"""Traces are built from tasks; simulation results are available as tables and arrays."""

import numpy as np
import pytest

from allocator.api import MachineClass, Task, make_trace, optimum, simulate, violation

TASKS = [
    Task("b", 5.0, 10.0, {"cpus": 1.0, "gpus": 1.0}, machines=["gpu"]),
    Task("a", 0.0, 10.0, {"cpus": 2.0}, job=7),
]
MACHINES = [MachineClass("plain", 1, (2.0, 0.0)), MachineClass("gpu", 1, (2.0, 1.0))]


def test_tasks_in_any_order_make_a_trace() -> None:
    trace = make_trace(TASKS, MACHINES)
    assert (trace.resources, trace.users) == (("cpus", "gpus"), ("a", "b"))
    assert trace.submitted.tolist() == [0, 5_000_000]
    assert trace.job.tolist() == [7, 9]
    assert trace.demand.tolist() == [[2.0, 0.0], [1.0, 1.0]]
    assert (trace.constraints, trace.constraint.tolist()) == (((1,),), [-1, 0])


def test_no_tasks_make_an_empty_trace() -> None:
    assert len(make_trace([])) == 0


@pytest.mark.parametrize(
    ("task", "complaint"),
    [
        (
            Task("a", 0.0, 1.0, {"cpus": 1.0}, machines=["tpu"]),
            "may run on 'tpu'.* there are: plain",
        ),
        (Task("a", 0.0, -1.0, {"cpus": 1.0}), "a negative run time"),
        (Task("a", 0.0, 1.0, {"cpus": float("nan")}), "a demand that is not a number"),
    ],
)
def test_an_invalid_task_is_refused_with_the_reason(task: Task, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        make_trace([*TASKS, task], MACHINES)


def test_result_tables_and_arrays_agree() -> None:
    trace = make_trace(TASKS, MACHINES)
    done = simulate(trace, "sdrf", {"half_life": "1m"}, blocking="skip", over_time=True)
    tasks, users = done.tasks_table(), done.users_table()
    assert tasks.column("started_us").to_pylist() == done.outcome.started.tolist()
    assert users.column("mean_wait_s").to_pylist() == done.users.mean_wait_s.tolist() == [0.0, 0.0]
    assert done.series is not None
    assert done.series_table().num_rows == done.series.shares.size
    assert done.summary["tasks"] == len(trace) == tasks.num_rows


def test_without_over_time_there_is_no_series_table() -> None:
    done = simulate(make_trace(TASKS, MACHINES), "drf", blocking="skip")
    with pytest.raises(ValueError, match="simulate with over_time=True"):
        done.series_table()


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"load": 1.0, "capacity": {"cpus": 1.0}}, "either a load or a capacity"),
        ({"capacity": {"cpus": 1.0}}, "the trace's resources are cpus, gpus"),
        ({"per": "job", "over_time": True, "load": 1.0}, "each job is one"),
    ],
)
def test_invalid_settings_are_refused_with_the_reason(
    given: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        simulate(make_trace(TASKS, MACHINES), "drf", **given)  # type: ignore[arg-type]


def test_optimum_and_violation_take_a_single_call_each() -> None:
    problem = {
        "machines": [{"name": "m", "resources": {"cpus": 4}}],
        "users": [{"name": name, "demand": {"cpus": 1}} for name in "ab"],
    }
    assert optimum(problem, "tsf").users["a"].tasks == 2
    counterexample = violation("drfh", "sharing-incentive", trials=60)
    assert counterexample is not None
    assert counterexample.has < counterexample.instead
    with pytest.raises(ValueError, match="property 'honesty' is unknown; there are: sharing"):
        violation("drf", "honesty")


def test_a_larger_weight_shortens_waits() -> None:
    tasks = [Task(user, 0.0, 10.0, {"cpus": 1.0}) for user in "ab" for _ in range(30)]
    done = simulate(make_trace(tasks), "drf", weights={"b": 5.0}, capacity={"cpus": 6.0})
    waits = done.users.mean_wait_s
    assert waits[1] < waits[0]
    assert not np.isnan(waits).any()
