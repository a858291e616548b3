"""What holding machines for big tasks brings and costs: waits, and machines that stand idle.

Everything is simulated and counted; the clock plays no part.
"""

import argparse

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from allocator.simulation.holding import Blocking
from allocator.simulation.outcome import NEVER, Outcome
from allocator.simulation.reference import simulate
from allocator.simulation.setting import Setting
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


def waits(outcome: Outcome, user: int) -> np.ndarray:
    """Return for how many minutes each task of a user waited."""
    of = (outcome.trace.user == user) & (outcome.started != NEVER)
    waited: np.ndarray = outcome.started[of] - outcome.trace.submitted[of]
    return waited / MICROSECONDS / 60


def busy(outcome: Outcome) -> float:
    """Return what part of all cores works from the first submission to the last one."""
    trace = outcome.trace
    begin, end = int(trace.submitted[0]), int(trace.submitted[-1])
    ran = np.minimum(outcome.started + trace.runtime, end) - np.minimum(outcome.started, end)
    work = float((ran * trace.demand[:, 0]).sum())
    return work / ((end - begin) * MACHINES * max(NEEDS))


def main() -> None:
    """Print the table: means over seeds, and their range."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--loads", type=float, nargs="+", default=[0.8, 0.95, 1.1])
    arguments = parser.parse_args()
    table = Table(title=f"TSF, {MACHINES} machines of 4 cores; minutes of waiting")
    for column in ("load", "blocking", *(f"{user}: mean, longest" for user in USERS), "cores busy"):
        table.add_column(column)
    cases = [(load, blocking) for load in arguments.loads for blocking in BLOCKINGS]
    for load, blocking in track(cases, console=Console(stderr=True)):
        outcomes = [
            simulate(workload(seed, arguments.tasks, load), Setting("tsf", blocking=blocking))
            for seed in range(arguments.seeds)
        ]
        cells = []
        for user in range(len(USERS)):
            means = [waits(outcome, user).mean() for outcome in outcomes]
            longest = max(waits(outcome, user).max() for outcome in outcomes)
            cells.append(f"{np.mean(means):.1f} ({min(means):.1f}-{max(means):.1f}), {longest:.0f}")
        parts = [busy(outcome) for outcome in outcomes]
        table.add_row(
            f"{load:g}",
            blocking,
            *cells,
            f"{np.mean(parts):.1%} ({min(parts):.1%}-{max(parts):.1%})",
        )
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
