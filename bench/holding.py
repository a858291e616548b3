"""Measure benefit and cost of backfill holds for large tasks: waits and idle machines.

All figures come from simulations and counts; no clock is involved.
"""

import argparse
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from allocator.simulation.holding import Blocking
from allocator.simulation.outcome import NEVER, Outcome
from allocator.simulation.reference import simulate
from allocator.simulation.setting import Setting
from allocator.simulation.store import read
from allocator.simulation.trace import MICROSECONDS, UNCONSTRAINED, MachineClass, Trace

BLOCKINGS: tuple[Blocking, ...] = ("skip", "hold", "hold-all")
MACHINES = 25
USERS = ("half a core", "a core", "two cores", "a machine")
NEEDS = (0.5, 1.0, 2.0, 4.0)


def workload(seed: int, tasks: int, load: float) -> Trace:
    """Make tasks of four sizes, an equal part of the work each, for machines of four cores.

    Run times are log-normal with a mean of 10 minutes, arrivals Poisson, at a load of all cores.
    """
    rng = np.random.default_rng(seed)
    weight = 1.0 / np.array(NEEDS)
    user = rng.choice(len(USERS), tasks, p=weight / weight.sum()).astype(np.int32)
    need = np.array(NEEDS)[user]
    runtime = rng.lognormal(np.log(600.0) - 0.5, 1.0, tasks)
    rate = load * MACHINES * max(NEEDS) / (need * runtime).mean()
    submitted = np.cumsum(rng.exponential(1.0 / rate, tasks))
    return Trace(
        resources=("cpus",),
        users=USERS,
        submitted=np.round(submitted * MICROSECONDS).astype(np.int64),
        runtime=np.round(runtime * MICROSECONDS).astype(np.int64),
        user=user,
        job=user.astype(np.int64),
        demand=need.reshape(-1, 1),
        constraint=np.full(tasks, UNCONSTRAINED, np.int32),
        machines=(MachineClass("four cores", MACHINES, (max(NEEDS),)),),
    )


def waits(outcome: Outcome, chosen: np.ndarray) -> np.ndarray:
    """Return for how many minutes each of the chosen tasks waited."""
    of = chosen & (outcome.started != NEVER)
    waited: np.ndarray = outcome.started[of] - outcome.trace.submitted[of]
    return waited / MICROSECONDS / 60


def busy(outcome: Outcome, cores: float) -> float:
    """Return the fraction of all cores that work between the first and the last submission."""
    trace = outcome.trace
    begin, end = int(trace.submitted[0]), int(trace.submitted[-1])
    ran = np.minimum(outcome.started + trace.runtime, end) - np.minimum(outcome.started, end)
    work = float((ran * trace.demand[:, 0]).sum())
    return work / ((end - begin) * cores)


def recorded(trace: Trace, cores: float, pace: float) -> Table:
    """Return the effect of backfill holds on a trace in one pool.

    Args:
        trace: A trace whose first resource is cores.
        cores: The number of cores in the pool.
        pace: The factor by which tasks arrive faster than recorded.
    """
    trace = replace(trace, submitted=(trace.submitted / pace).astype(np.int64))
    need = trace.demand[:, 0]
    sizes = [0.0, cores / 8, cores / 4, cores / 2, cores]
    table = Table(title=f"TSF, one pool of {cores:g} cores; minutes of waiting")
    table.add_column("blocking")
    for least, most in pairwise(sizes):
        table.add_column(f"{least:g} to {most:g} cores: mean, longest")
    for heading in ("all: mean, longest", "cores busy"):
        table.add_column(heading)
    for blocking in track(BLOCKINGS, console=Console(stderr=True)):
        setting = Setting("tsf", capacity=(cores,), blocking=blocking)
        outcome = simulate(trace, setting)
        groups = [(need > least) & (need <= most) for least, most in pairwise(sizes)]
        cells = []
        for group in (*groups, need > 0):
            waited = waits(outcome, group)
            cells.append(f"{waited.mean():,.0f}, {waited.max():,.0f}" if len(waited) else "")
        table.add_row(blocking, *cells, f"{busy(outcome, cores):.1%}")
    return table


def main() -> None:
    """Print the table of a trace, or of means and ranges over seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, help="1,500, or all of a trace")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--loads", type=float, nargs="+", default=[0.8, 0.95, 1.1])
    parser.add_argument("--trace", type=Path, help="a Parquet file instead")
    parser.add_argument("--cores", type=float, default=128.0, help="of that trace's pool")
    parser.add_argument("--pace", type=float, default=1.0, help="how much faster its tasks come")
    arguments = parser.parse_args()
    if arguments.trace is not None:
        Console(width=160).print(
            recorded(read(arguments.trace, arguments.tasks), arguments.cores, arguments.pace)
        )
        return
    table = Table(title=f"TSF, {MACHINES} machines of 4 cores; minutes of waiting")
    for column in ("load", "blocking", *(f"{user}: mean, longest" for user in USERS), "cores busy"):
        table.add_column(column)
    cases = [(load, blocking) for load in arguments.loads for blocking in BLOCKINGS]
    for load, blocking in track(cases, console=Console(stderr=True)):
        outcomes = [
            simulate(
                workload(seed, arguments.tasks or 1500, load), Setting("tsf", blocking=blocking)
            )
            for seed in range(arguments.seeds)
        ]
        cells = []
        for user in range(len(USERS)):
            means = [waits(outcome, outcome.trace.user == user).mean() for outcome in outcomes]
            longest = max(waits(outcome, outcome.trace.user == user).max() for outcome in outcomes)
            cells.append(f"{np.mean(means):.1f} ({min(means):.1f}-{max(means):.1f}), {longest:.0f}")
        parts = [busy(outcome, MACHINES * max(NEEDS)) for outcome in outcomes]
        table.add_row(
            f"{load:g}",
            blocking,
            *cells,
            f"{np.mean(parts):.1%} ({min(parts):.1%}-{max(parts):.1%})",
        )
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
