"""Invariants of the reference simulator for every workload, and its results in small cases."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.simulation.order import Exact
from allocator.simulation.outcome import NEVER, Outcome
from allocator.simulation.reference import ReferenceSimulation, simulate
from allocator.simulation.setting import Setting, SettingError, capacity_at
from allocator.simulation.trace import MachineClass, Trace
from tests.simulation.crowded import POLICIES, S, Seen, settings_of, trace_of, workloads

ROUNDING = 1e-9


def seconds(outcome: Outcome) -> list[float]:
    return [start / S for start in outcome.started.tolist()]


@settings(deadline=None)
@given(workloads(), settings_of())
def test_exactly_the_tasks_that_fit_somewhere_run_and_none_before_submission(
    trace: Trace, setting: Setting
) -> None:
    outcome = simulate(trace, setting)
    seen = Seen(outcome, setting)
    for task in range(len(trace)):
        could = any(
            seen.allows(task, machine) and (trace.demand[task] <= capacity).all()
            for machine, capacity in enumerate(seen.machines)
        )
        started = int(outcome.started[task])
        assert (started != NEVER) == could
        assert (outcome.machine[task] != NEVER) == could
        if could:
            assert started >= trace.submitted[task]


@settings(deadline=None)
@given(workloads(), settings_of())
def test_no_machine_is_overfull_or_runs_a_task_that_may_not_use_the_machine(
    trace: Trace, setting: Setting
) -> None:
    outcome = simulate(trace, setting)
    seen = Seen(outcome, setting)
    for when in seen.instants:
        assert (seen.free(when) >= -ROUNDING).all()
    for task in np.flatnonzero(outcome.started != NEVER).tolist():
        assert seen.allows(task, int(outcome.machine[task]))


@settings(deadline=None)
@given(workloads(), settings_of(blockings=["skip"]))
def test_with_skipping_no_next_task_of_a_waiting_user_fits_into_the_free_resources(
    trace: Trace, setting: Setting
) -> None:
    seen = Seen(simulate(trace, setting), setting)
    for when in seen.instants:
        free = seen.free(when)
        for task in seen.heads(when):
            for machine, remaining in enumerate(free):
                fits = (trace.demand[task] <= remaining - ROUNDING * (remaining > 0)).all()
                assert not (fits and seen.allows(task, machine))


@settings(deadline=None)
@given(workloads(), settings_of(blockings=["head-of-line"]))
def test_with_blocking_some_task_runs_while_any_task_waits(trace: Trace, setting: Setting) -> None:
    seen = Seen(simulate(trace, setting), setting)
    for when in seen.instants:
        if seen.heads(when):
            assert (seen.free(when) < seen.machines).any()


@settings(deadline=None)
@given(workloads(), settings_of())
def test_a_users_tasks_start_in_order_of_submission(trace: Trace, setting: Setting) -> None:
    outcome = simulate(trace, setting)
    user = trace.user if setting.per == "user" else trace.job
    for number in set(user.tolist()):
        started = outcome.started[(user == number) & (outcome.started != NEVER)]
        assert (np.diff(started) >= 0).all()


@settings(deadline=None)
@given(workloads(), settings_of())
def test_the_same_input_gives_the_same_starts(trace: Trace, setting: Setting) -> None:
    first, second = simulate(trace, setting), simulate(trace, setting)
    assert np.array_equal(first.started, second.started)
    assert np.array_equal(first.machine, second.machine)
    assert first.operations.count == second.operations.count
    assert first.operations.events == second.operations.events


@settings(deadline=None)
@given(workloads(), settings_of(pers=["user"]), st.data())
def test_later_tasks_do_not_change_earlier_starts(
    trace: Trace, setting: Setting, data: st.DataObject
) -> None:
    tasks = data.draw(st.integers(0, len(trace)))
    columns = ("submitted", "runtime", "user", "job", "demand", "constraint")
    prefix = dataclasses.replace(trace, **{name: getattr(trace, name)[:tasks] for name in columns})
    until = trace.submitted[tasks] if tasks < len(trace) else np.iinfo(np.int64).max
    whole, part = simulate(trace, setting), simulate(prefix, setting)
    for all_of_it in (whole.started[:tasks], part.started):
        all_of_it[all_of_it >= until] = until
    assert np.array_equal(whole.started[:tasks], part.started)


@settings(deadline=None)
@given(workloads(), settings_of())
def test_the_live_tree_and_a_plain_scan_start_the_same(trace: Trace, setting: Setting) -> None:
    tree, scan = (
        simulate(
            trace,
            dataclasses.replace(
                setting, policy="sdrf", parameters={"delta": 0.9, "ranking": ranking}
            ),
        )
        for ranking in ("live-tree", "scan")
    )
    assert np.array_equal(tree.started, scan.started)
    assert np.array_equal(tree.machine, scan.machine)


@settings(deadline=None)
@given(workloads(), settings_of(users=["known"]))
def test_with_a_single_user_every_policy_equals_fifo(trace: Trace, setting: Setting) -> None:
    alone = dataclasses.replace(trace, user=np.zeros_like(trace.user), job=np.zeros_like(trace.job))
    outcome = simulate(alone, setting)
    fifo = simulate(alone, dataclasses.replace(setting, policy="fifo", parameters={}))
    assert np.array_equal(outcome.started, fifo.started)


def test_a_task_that_does_not_fit_blocks_all_later_users_or_is_skipped() -> None:
    trace = trace_of([(0, 10, "a", 3, 0), (1, 10, "b", 2, 0), (2, 10, "c", 1, 0)])
    assert seconds(simulate(trace, Setting("drf", capacity=(4.0, 4.0)))) == [0, 10, 10]
    skipping = Setting("drf", capacity=(4.0, 4.0), blocking="skip")
    assert seconds(simulate(trace, skipping)) == [0, 10, 2]


def test_resources_freed_at_an_instant_go_to_waiting_tasks_before_new_tasks() -> None:
    rows = [(0, 5, "a", 2, 0), (0, 20, "c", 2, 0), (1, 5, "c", 2, 0), (5, 5, "b", 2, 0)]
    outcome = simulate(trace_of(rows), Setting("drf", capacity=(4.0, 4.0)))
    assert seconds(outcome) == [0, 0, 5, 10]


def test_of_tasks_submitted_at_the_same_instant_the_first_in_the_trace_starts_first() -> None:
    # The second task of b comes before c's, but b holds more by then.
    trace = trace_of([(0, 9, "b", 1, 0), (0, 9, "b", 1, 0), (0, 9, "c", 1, 0)])
    assert seconds(simulate(trace, Setting("drf", capacity=(2.0, 1.0)))) == [0, 0, 9]


def test_ties_go_to_the_user_that_came_first_regardless_of_its_past_tasks() -> None:
    rows = [(0, 5, "x", 1, 0)] + [(1, 1, user, 1, 0) for user in "ababab"]
    # Whenever the single CPU is free, no user has a running task.
    outcome = simulate(trace_of(rows), Setting("drf", capacity=(1.0, 1.0)))
    assert seconds(outcome) == [0, 5, 8, 6, 9, 7, 10]


def test_a_task_of_zero_duration_frees_its_resources_before_the_next_arrival() -> None:
    trace = trace_of([(1, 0, "a", 4, 0), (1, 3, "b", 4, 0)])
    assert seconds(simulate(trace, Setting("drf", capacity=(4.0, 4.0)))) == [1, 1]


def test_a_task_larger_than_every_machine_is_skipped_and_blocks_no_user() -> None:
    trace = trace_of([(0, 1, "a", 5, 0), (0, 1, "a", 1, 0), (1, 1, "b", 0, 9)])
    outcome = simulate(trace, Setting("drf", capacity=(4.0, 4.0)))
    assert outcome.started.tolist() == [NEVER, 0, NEVER]


def test_a_sole_user_among_four_known_users_has_a_commitment_of_58_percent() -> None:
    trace = dataclasses.replace(trace_of([(0, 150, "a", 160, 0)]), users=("a", "b", "c", "d"))
    setting = Setting("sdrf", {"delta": 0.99}, (160.0, 1.0))
    known = ReferenceSimulation(trace, setting)
    appearing = ReferenceSimulation(trace, dataclasses.replace(setting, users="appearing"))
    known.run()
    appearing.run()
    assert isinstance(known.pool, Exact)
    assert isinstance(appearing.pool, Exact)
    assert known.pool.standing(0).commitment == pytest.approx(0.75 * (1 - 0.99**150))
    assert appearing.pool.standing(0).commitment == 0.0


def test_heavy_past_use_lowers_the_rank_under_sdrf_but_not_under_drf() -> None:
    heavy = [(0, 100, "heavy", 1, 0)] * 4
    both = [(50, 100, user, 1, 0) for user in ("heavy", "light") * 4]
    trace = trace_of(heavy + both)
    drf = simulate(trace, Setting("drf", capacity=(4.0, 1.0)))
    sdrf = simulate(trace, Setting("sdrf", {"delta": 0.98}, (4.0, 1.0)))
    assert seconds(drf)[4:] == [100, 100, 100, 100, 200, 200, 200, 200]
    # At the third end `heavy` holds 1/4 and owes 0.43, `light` holds 1/2 and owes nothing.
    assert seconds(sdrf)[4:] == [100, 100, 200, 100, 200, 100, 200, 200]


TWO = (MachineClass("m1", 1, (18.0, 18.0)), MachineClass("m2", 1, (18.0, 18.0)))


def held_after_filling(policy: str) -> dict[str, int]:
    """Fill the two machines of the TSF paper's Fig. 2, both free at once, with endless tasks."""
    blockers = [(0, 10, "blocker", 18, 18)] * 2
    waiting = [(1, 100, "u1", 1, 2)] * 18 + [(1, 100, "u2", 1, 3)] * 12
    trace = trace_of([*blockers, *waiting], machines=TWO, constraints=((1,),), constraint={"u2": 0})
    outcome = simulate(trace, Setting(policy, blocking="skip"))
    running = outcome.started == 10 * S
    return {
        name: int(running[trace.user == trace.users.index(name)].sum()) for name in ("u1", "u2")
    }


def test_cdrf_shares_the_two_machines_of_figure_2_as_in_the_paper() -> None:
    assert held_after_filling("cdrf") == {"u1": 12, "u2": 4}


def test_tsf_gives_a_constrained_user_the_same_as_without_constraints() -> None:
    assert held_after_filling("tsf") == {"u1": 9, "u2": 6}


def test_a_task_starts_on_the_first_eligible_machine_with_enough_free_resources() -> None:
    machines = (
        MachineClass("small", 2, (1.0, 1.0)),
        MachineClass("large", 1, (4.0, 4.0)),
    )
    rows = [(0, 9, "a", 1, 1)] * 3 + [(0, 9, "b", 1, 1), (0, 9, "c", 2, 1), (0, 9, "b", 1, 1)]
    trace = trace_of(rows, machines, constraints=((0,), (1,)), constraint={"b": 0})
    outcome = simulate(trace, Setting("drf", blocking="skip"))
    assert outcome.machine.tolist() == [0, 1, 2, 0, 2, 1]
    assert seconds(outcome) == [0, 0, 0, 9, 0, 9]


def test_per_machine_drf_considers_only_allocations_on_the_machine() -> None:
    machines = (MachineClass("one", 2, (2.0, 2.0)),)
    rows = [
        (0, 20, "a", 1, 1),  # machine 0, stays
        (0, 10, "b", 1, 1),  # machine 0
        (0, 20, "b", 1, 1),  # machine 1, stays
        (0, 20, "b", 1, 1),  # machine 1, stays
        (1, 20, "a", 1, 1),
        (1, 20, "b", 1, 1),
    ]
    trace = trace_of(rows, machines)
    by_cluster = simulate(trace, Setting("drf", blocking="skip"))
    by_machine = simulate(trace, Setting("per-machine-drf", blocking="skip"))
    assert seconds(by_cluster)[4:] == [10, 20]
    assert seconds(by_machine)[4:] == [20, 10]


def test_per_machine_drf_fills_machines_in_order_of_their_numbers() -> None:
    machines = tuple(
        MachineClass(name, 1, (cpus, 0.0))
        for name, cpus in zip("abc", (1.0, 5.0, 1.0), strict=True)
    )
    rows = [
        *((0, 5, "x", 1, 0), (0, 10, "x", 5, 0), (0, 100, "v", 1, 0)),
        *((6, 20, "v", 2, 0), (6, 20, "v", 1, 0)),
        *((6, 20, "u", 3, 0), (6, 20, "u", 1, 0)),
    ]
    outcome = simulate(trace_of(rows, machines), Setting("per-machine-drf", blocking="skip"))
    # At 10 the first task of u goes to machine 1. Then the second task of u fits on 0, and the
    # first of v on 1. If the latter came first, the second task of v would be next on 0, since v
    # precedes u in a tie.
    assert seconds(outcome) == [0, 0, 0, 10, 30, 10, 10]
    assert outcome.machine.tolist() == [0, 1, 2, 1, 1, 1, 0]


def test_each_job_may_be_a_separate_user() -> None:
    rows = [(0, 10, "x", 1, 0)] + [(1, 10, user, 1, 0) for user in "aab"]
    trace = dataclasses.replace(trace_of(rows), job=np.array([7, 5, 3, 9]))
    setting = Setting("drf", capacity=(2.0, 1.0))
    assert seconds(simulate(trace, setting)) == [0, 1, 11, 10]
    assert seconds(simulate(trace, dataclasses.replace(setting, per="job"))) == [0, 1, 10, 11]


@pytest.mark.parametrize(("policy", "parameters"), POLICIES)
def test_operations_are_counted_and_timed_under_every_policy(
    policy: str, parameters: dict[str, float | str]
) -> None:
    trace = trace_of([(when, 3, user, 1, 1) for when in range(5) for user in "ab"])
    operations = simulate(trace, Setting(policy, parameters, (2.0, 2.0))).operations
    assert operations.count.keys() == operations.seconds.keys() == {"minimum", "insert", "delete"}
    assert operations.count["insert"] == operations.count["delete"] > 0


def test_progress_ends_with_all_tasks_dealt_with() -> None:
    trace = trace_of([(when, 1, "a", 1, 1) for when in range(2500)] + [(2500, 1, "a", 9, 9)])
    reports: list[int] = []
    simulate(trace, Setting("drf", capacity=(1.0, 1.0)), reports.append)
    assert reports[-1] == 2501
    assert len(reports) == 3
    assert reports == sorted(reports)


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ({"policy": "lottery"}, "'lottery' is unknown"),
        ({"policy": "sdrf"}, "either 'delta'"),
        ({"policy": "sdrf", "parameters": {"delta": 1.0}}, "delta"),
        ({"policy": "drf", "capacity": (-1.0, 1.0)}, "not of finite numbers"),
        ({"policy": "drf", "capacity": (float("nan"), 1.0)}, "not of finite numbers"),
        ({"policy": "drf", "blocking": "never"}, "head-of-line, skip"),
        ({"policy": "drf", "users": "all"}, "known, appearing"),
        ({"policy": "drf", "per": "task"}, "user, job"),
        ({"policy": "per-machine-drf"}, "set blocking to 'skip'"),
    ],
)
def test_an_invalid_setting_is_refused(setting: dict[str, object], complaint: str) -> None:
    with pytest.raises(SettingError, match=complaint):
        Setting(**setting)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("policy", "parameters", "complaint"),
    [
        ("htcondor", {"resource": "cpu"}, "names the resource cpu, .*; did you mean cpus[?]"),
        ("cmmf", {"resource": "gpus"}, "names the resource gpus, which the trace does not have"),
        ("slurm-fair-tree", {"billing": "cpu=1"}, "names the resource cpu"),
        ("slurm-fair-tree", {"billing": "cpus=1,memory=1"}, "names the resource memory"),
        ("kueue-afs", {"resource_weights": "Mem=2"}, "names the resource Mem"),
        ("slurm-fair-tree", {"billing": "cpus=1,gpus=4"}, ""),
        ("kueue-afs", {}, ""),
    ],
)
def test_a_parameter_that_names_no_resource_of_the_trace_is_refused(
    policy: str, parameters: dict[str, float | str], complaint: str
) -> None:
    trace = trace_of([(0, 1, "a", 1, 1)])
    setting = Setting(policy, parameters, capacity=(1.0, 1.0))
    if not complaint:
        simulate(trace, setting)
        return
    with pytest.raises(SettingError, match=complaint):
        simulate(trace, setting)


def test_a_setting_must_fit_the_trace() -> None:
    trace = trace_of([(0, 1, "a", 1, 1)])
    with pytest.raises(SettingError, match="no machines"):
        simulate(trace, Setting("drf"))
    with pytest.raises(SettingError, match="cpus, mem"):
        simulate(trace, Setting("drf", capacity=(1.0,)))


def test_a_load_is_a_fraction_of_the_average_use_of_the_trace() -> None:
    trace = trace_of([(0, 10, "a", 1, 4), (10, 30, "b", 2, 0)])
    assert capacity_at(trace, 0.5) == (70 / 40 / 2, 40 / 40 / 2)
    with pytest.raises(SettingError, match="load 0"):
        capacity_at(trace, 0.0)
    with pytest.raises(SettingError, match="uses nothing"):
        capacity_at(trace_of([(0, 0, "a", 1, 1)]), 0.5)
