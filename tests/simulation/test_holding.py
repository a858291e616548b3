"""Backfill holds for big tasks: no user waits for ever, and the loss is small."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.simulation.holding import Blocking
from allocator.simulation.outcome import NEVER
from allocator.simulation.reference import simulate
from allocator.simulation.setting import Setting, SettingError
from allocator.simulation.trace import MachineClass, Trace
from tests.simulation.crowded import S, settings_of, trace_of, workloads

HOLDING: list[Blocking] = ["hold", "hold-all"]


def backfilled(seconds: int) -> Trace:
    """Endless half-core tasks on 25 one-core machines, and a user whose tasks need a core."""
    small = [(0.0, 10.0 + number % 7, "small", 0.5, 0.0) for number in range(5 * seconds)]
    big = [(1.0, 10.0, "big", 1.0, 0.0) for _ in range(20)]
    return trace_of(small + big, (MachineClass("one core", 25, (1.0, 1.0)),))


def waits(trace: Trace, blocking: Blocking) -> float:
    """Return for how long the big user's first task waits, in seconds."""
    outcome = simulate(trace, Setting("tsf", blocking=blocking))
    first = np.flatnonzero(trace.user == trace.users.index("big"))[0]
    return float(outcome.started[first] - trace.submitted[first]) / S


@pytest.mark.parametrize("blocking", HOLDING)
def test_tasks_of_whole_cores_are_not_starved_by_tasks_of_half_cores(blocking: Blocking) -> None:
    trace = backfilled(200)
    assert waits(trace, "skip") > 200
    assert waits(trace, blocking) <= 16  # the longest task running at its submission


@pytest.mark.parametrize("blocking", HOLDING)
@pytest.mark.parametrize("policy", ["drf", "tsf", "cdrf", "yarn-fair", "fifo"])
def test_small_tasks_cannot_keep_a_big_task_from_the_only_machine(
    policy: str, blocking: Blocking
) -> None:
    """With the former `hold-all`, the big task waited until all 320 small tasks had ended."""
    small = [
        (0.0, 1.0 + (7 * number) % 10, f"small {number % 4}", 1.0, 0.0) for number in range(320)
    ]
    big = [(0.5, 5.0, "big", 2.0, 0.0)]
    trace = trace_of(small + big, (MachineClass("one", 1, (2.0, 2.0)),))
    outcome = simulate(trace, Setting(policy, blocking=blocking))
    assert outcome.started[-1] - trace.submitted[-1] <= 5 * 10 * S


@pytest.mark.parametrize("blocking", HOLDING)
@pytest.mark.parametrize("users", [2, 3, 6])
def test_the_bound_of_a_turn_for_each_user_is_reached(users: int, blocking: Blocking) -> None:
    """A user's next task arrives as its own turn ends, while all other users already wait."""
    run = 10.0
    rows = [(0.0, run, "1", 1.0, 0.0), *2 * [(0.0, run, "first", 1.0, 0.0)]]
    rows += [(0.0, run, f"{number}", 1.0, 0.0) for _ in range(4) for number in range(1, users)]
    trace = trace_of(rows, (MachineClass("one", 1, (1.0, 1.0)),))
    setting = Setting("sdrf", {"half_life": 1e9}, blocking=blocking, owes={"first": 100.0})
    started = simulate(trace, setting).started[1:3]
    assert (started[1] - started[0]) == users * run * S


@settings(deadline=None)
@given(workloads(), settings_of(blockings=HOLDING))
def test_waits_are_bounded_by_the_longest_task_times_the_number_of_users(
    trace: Trace, setting: Setting
) -> None:
    outcome = simulate(trace, setting)
    user = trace.user if setting.per == "user" else trace.job
    longest = int(trace.runtime.max(initial=0)) * len(set(user.tolist()))
    for number in set(user.tolist()):
        mine = np.flatnonzero((user == number) & (outcome.started != NEVER))
        begun = np.maximum(trace.submitted[mine], np.r_[0, outcome.started[mine][:-1]])
        assert (outcome.started[mine] - begun <= longest).all()


@settings(deadline=None)
@given(workloads(), settings_of(blockings=["skip"]), st.sampled_from(HOLDING))
def test_without_waiting_tasks_holds_change_nothing(
    trace: Trace, setting: Setting, blocking: Blocking
) -> None:
    """If every task starts at its submission, holds change no start."""
    if setting.policy == "per-machine-drf":
        return
    skipped = simulate(trace, setting)
    if (
        skipped.started[skipped.started != NEVER] > trace.submitted[skipped.started != NEVER]
    ).any():
        return
    changed = Setting(
        setting.policy,
        setting.parameters,
        setting.capacity,
        blocking,
        setting.users,
        setting.per,
    )
    held = simulate(trace, changed)
    assert np.array_equal(held.started, skipped.started)
    assert np.array_equal(held.machine, skipped.machine)


def test_tasks_that_end_in_time_run_on_held_machines() -> None:
    machines = (MachineClass("one", 1, (2.0, 2.0)),)
    rows = [
        (0.0, 10.0, "first", 1.0, 0.0),
        (1.0, 5.0, "big", 2.0, 0.0),  # the machine is held for this task until 10
        (2.0, 8.0, "brief", 1.0, 0.0),  # gone at 10
        (2.0, 8.5, "long", 1.0, 0.0),
    ]
    outcome = simulate(trace_of(rows, machines), Setting("drf", blocking="hold"))
    assert (outcome.started / S).tolist() == [0.0, 10.0, 2.0, 15.0]


JOBS = {
    "job-3": (0.0, 140, 21.3, 0.5, 20 / 100),
    "job-2": (1.0, 480, 18.3, 0.5, 30 / 100),
    "job-1": (2.0, 55, 23.2, 1.0, 10 / 75),
    "job-4": (3.0, 150, 55.6, 1.0, 30 / 75),
}
"""The experiment tsf-small-tasks-first: comes at, tasks, run for, cores, weight."""


def lasts(
    blocking: Blocking, machines: tuple[MachineClass, ...], only: Mapping[str, tuple[int, ...]]
) -> dict[str, float]:
    """Return each job's duration in seconds, if the job may use only the given machines."""
    rows = [
        (comes, runs, name, cores, 0.5)
        for name, (comes, tasks, runs, cores, _) in JOBS.items()
        for _ in range(tasks)
    ]
    places = {name: place for place, name in enumerate(only)}
    trace = trace_of(rows, machines, tuple(only.values()), places)
    trace = replace(trace, weights=tuple(JOBS[user][4] for user in trace.users))
    ends = simulate(trace, Setting("tsf", blocking=blocking)).started + trace.runtime
    return {
        name: float(ends[trace.user == user].max()) / S - JOBS[name][0]
        for user, name in enumerate(trace.users)
    }


def test_with_holds_the_big_job_ends_sooner_but_waits_for_running_tasks() -> None:
    single, two = (1.0, 1.0), (2.0, 1.0)
    shares = [("job-1", 10, single), ("job-2", 15, single), ("job-3", 10, two), ("job-4", 15, two)]
    pools = lasts(
        "skip",
        tuple(MachineClass(name, count, size) for name, count, size in shares),
        {name: (place,) for place, (name, _, _) in enumerate(shares)},
    )
    assert pools["job-1"] == pytest.approx(6 * 23.2)  # ten at a time
    nodes = (MachineClass("small", 25, single), MachineClass("large", 25, two))
    allowed = {"job-1": (0,), "job-2": (0,)}
    skipped, held = (lasts(mode, nodes, allowed)["job-1"] for mode in ("skip", "hold-all"))
    # A job's share is its pool's, if capacity is free.
    bound = pools["job-1"] + 21.3 - JOBS["job-1"][0]
    assert bound <= held < skipped - 50


def test_without_holds_the_same_users_overtake_the_big_job() -> None:
    machines = (MachineClass("one", 1, (2.0, 2.0)),)
    rows = [(0.0, 10.0, "a", 1.0, 0.0), (1.0, 5.0, "big", 2.0, 0.0), (2.0, 9.0, "b", 1.0, 0.0)]
    outcome = simulate(trace_of(rows, machines), Setting("drf", blocking="skip"))
    assert (outcome.started / S).tolist() == [0.0, 11.0, 2.0]


@pytest.mark.parametrize("blocking", HOLDING)
def test_a_policy_that_ranks_on_each_machine_apart_can_hold_none(blocking: Blocking) -> None:
    with pytest.raises(SettingError, match="set blocking to 'skip'"):
        Setting("per-machine-drf", blocking=blocking)
