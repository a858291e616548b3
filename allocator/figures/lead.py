"""Lead of B over A in Fig. 6 of the SDRF paper, as a function of the tasks' run time.

The paper says that B gets "about 50 CPU cores more" on arrival, but not how long its tasks run.
Commitments decay with a time constant of 100 s, and tasks are not preempted: B gets cores as A's
tasks end. The longer tasks run, the more of A's commitment has decayed before B has its full share.
"""

import random
from statistics import fmean

import numpy as np

from allocator.fairness.commitment import time_constant
from allocator.figures.figure import Line, Panel, PaperFigure
from allocator.simulation.reference import simulate
from allocator.simulation.setting import Setting
from allocator.simulation.trace import MICROSECONDS, UNCONSTRAINED, Trace
from allocator.theory.divisible import FluidUser, fluid

CORES = 160
DELTA = 0.99
COMES = 150
"""Seconds between the arrivals of two users."""
RUN_TIMES = (20, 40, 60, 80, 100, 120, 140, 160)
"""Run times of tasks, in seconds."""
JITTER = 0.2
SEEDS = (1, 2)
_USERS = ("A", "B", "C", "D")


def leads(run_time: float, seed: int) -> float:
    """Simulate Fig. 6 of the SDRF paper, and return the largest lead of B over A in cores.

    The lead is measured while only these two users run tasks.

    Args:
        run_time: Mean run time of the tasks in seconds; each task deviates by up to 20 %.
        seed: Seed of the deviations.
    """
    trace = _workload(run_time, seed)
    outcome = simulate(trace, Setting("sdrf", {"delta": DELTA}, capacity=(float(CORES),)))
    running = np.zeros((2, 2 * COMES), dtype=np.int64)
    for user in (0, 1):
        own_tasks = (trace.user == user) & (outcome.started >= 0)
        starts = np.sort(outcome.started[own_tasks])
        ends = np.sort(outcome.finished[own_tasks])
        seconds = np.arange(2 * COMES) * MICROSECONDS
        running[user] = np.searchsorted(starts, seconds, "right") - np.searchsorted(
            ends, seconds, "right"
        )
    return float((running[1] - running[0])[COMES:].max())


def divisible() -> float:
    """Return the largest lead of B over A in cores, in Fig. 6 with arbitrarily divisible tasks.

    With divisible tasks, B gets its share at once, without waiting for A's tasks to end.
    """
    users = [FluidUser((1.0,), start=COMES * number) for number in range(len(_USERS))]
    result = fluid(users, tau=time_constant(DELTA), end=2.0 * COMES, step=1.0)
    return max(CORES * (held[1][0] - held[0][0]) for held in result.allocations[COMES:])


def fig_6() -> PaperFigure:
    """Compute Fig. 6 of the SDRF paper: B's lead over A as a function of the tasks' run time.

    The figure shows the mean and the range over several seeds.
    """
    leads_by_run_time = [[leads(run_time, seed) for seed in SEEDS] for run_time in RUN_TIMES]
    ends = [
        (fmean(seed_leads), min(seed_leads), max(seed_leads)) for seed_leads in leads_by_run_time
    ]
    divisible_lead = divisible()
    return PaperFigure(
        name="sdrf-6",
        source="Stateful DRF, Fig. 6: 'about 50 CPU cores more'",
        title="B's largest lead over A, by how long tasks run",
        columns=("run time, s", "lead, cores", "least", "most"),
        rows=tuple(
            (run_time, *seed_leads) for run_time, seed_leads in zip(RUN_TIMES, ends, strict=True)
        ),
        panels=(
            Panel(
                "δ = 0.99 per second, 160 cores",
                "run time of a task, s (± 20 %)",
                "cores",
                (
                    Line.banded("whole tasks", RUN_TIMES, ends),
                    Line("divisible", RUN_TIMES, (divisible_lead,) * len(RUN_TIMES)),
                ),
            ),
        ),
        ours="the tasks' run time, which the paper does not say. `longshare experiment run "
        "sdrf-adaptive` has 20 s",
        facts={"divisible": divisible_lead},
    )


def _workload(run_time: float, seed: int) -> Trace:
    """Return a trace for Fig. 6 of the SDRF paper: tasks of one core, A's from 0 s, B's from 150 s.

    A and B submit more tasks than can run. C and D exist only so that the policy counts four users.
    They submit one task each, after the time in which the lead is measured.
    """
    draw = random.Random(seed)  # noqa: S311 - a reproducible draw
    task_count = CORES * (1 + int(2 * COMES / (run_time * (1 - JITTER))))
    arrivals = [0] * task_count + [COMES] * task_count + [2 * COMES] * 2
    user = [0] * task_count + [1] * task_count + [2, 3]
    run_times = [
        round(run_time * (1 + draw.uniform(-JITTER, JITTER)) * MICROSECONDS) for _task in arrivals
    ]
    return Trace(
        resources=("cpus",),
        users=_USERS,
        submitted=np.array(arrivals, dtype=np.int64) * MICROSECONDS,
        runtime=np.array(run_times, dtype=np.int64),
        user=np.array(user, dtype=np.int32),
        job=np.array(user, dtype=np.int64),
        demand=np.ones((len(arrivals), 1)),
        constraint=np.full(len(arrivals), UNCONSTRAINED, dtype=np.int32),
    )
