"""By how much B leads A in Fig. 6 of the SDRF paper, which hangs on how long a task runs.

The paper says that B gets "about 50 CPU cores more" when it comes, and not how long its tasks run.
Debts fade with a time constant of 100 s, and nobody is preempted: B gets cores as A's tasks end. So
the longer tasks run, the more of A's debt has faded before B has what it is due.
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
"""Seconds from one user to the next."""
RUN_TIMES = (20, 40, 60, 80, 100, 120, 140, 160)
"""Seconds."""
JITTER = 0.2
SEEDS = (1, 2)
_USERS = ("A", "B", "C", "D")


def leads(run_time: float, seed: int) -> float:
    """Return the largest lead of B over A while these two are alone, in cores.

    Args:
        run_time: Of A's and B's tasks, seconds, 20 % more or less.
        seed: Of how much more or less.
    """
    trace = _workload(run_time, seed)
    outcome = simulate(trace, Setting("sdrf", {"delta": DELTA}, capacity=(float(CORES),)))
    running = np.zeros((2, 2 * COMES), dtype=np.int64)
    for user in (0, 1):
        mine = (trace.user == user) & (outcome.started >= 0)
        starts = np.sort(outcome.started[mine])
        ends = np.sort(outcome.finished[mine])
        seconds = np.arange(2 * COMES) * MICROSECONDS
        running[user] = np.searchsorted(starts, seconds, "right") - np.searchsorted(
            ends, seconds, "right"
        )
    return float((running[1] - running[0])[COMES:].max())


def divisible() -> float:
    """Return the lead if tasks could be divided and moved at will, in cores."""
    users = [FluidUser((1.0,), start=COMES * i) for i in range(len(_USERS))]
    run = fluid(users, tau=time_constant(DELTA), end=2.0 * COMES, step=1.0)
    return max(CORES * (held[1][0] - held[0][0]) for held in run.allocations[COMES:])


def fig_6() -> PaperFigure:
    """Return B's lead over run times: the mean and the range of some seeds."""
    found = [[leads(run_time, seed) for seed in SEEDS] for run_time in RUN_TIMES]
    ends = [(fmean(some), min(some), max(some)) for some in found]
    at_will = divisible()
    return PaperFigure(
        name="sdrf-6",
        source="Stateful DRF, Fig. 6: 'about 50 CPU cores more'",
        title="B's largest lead over A, by how long tasks run",
        columns=("run time, s", "lead, cores", "least", "most"),
        rows=tuple((at, *some) for at, some in zip(RUN_TIMES, ends, strict=True)),
        panels=(
            Panel(
                "δ = 0.99 per second, 160 cores",
                "run time of a task, s (± 20 %)",
                "cores",
                (
                    Line.banded("whole tasks", RUN_TIMES, ends),
                    Line("divisible", RUN_TIMES, (at_will,) * len(RUN_TIMES)),
                ),
            ),
        ),
        ours="the tasks' run time, which the paper does not say. `longshare experiment run "
        "sdrf-adaptive` has 20 s",
        facts={"divisible": at_will},
    )


def _workload(run_time: float, seed: int) -> Trace:
    """Return four users' tasks of one core: A's from 0 and B's from 150 s on, more than can run.

    C and D have one each that comes when all is over: they count in n.
    """
    draw = random.Random(seed)  # noqa: S311 - to be repeated
    many = CORES * (1 + int(2 * COMES / (run_time * (1 - JITTER))))
    comes = [0] * many + [COMES] * many + [2 * COMES] * 2
    user = [0] * many + [1] * many + [2, 3]
    runs = [round(run_time * (1 + draw.uniform(-JITTER, JITTER)) * MICROSECONDS) for _task in comes]
    return Trace(
        resources=("cpus",),
        users=_USERS,
        submitted=np.array(comes, dtype=np.int64) * MICROSECONDS,
        runtime=np.array(runs, dtype=np.int64),
        user=np.array(user, dtype=np.int32),
        job=np.array(user, dtype=np.int64),
        demand=np.ones((len(comes), 1)),
        constraint=np.full(len(comes), UNCONSTRAINED, dtype=np.int32),
    )
