"""The simulator: the reference against the fast path, and the growth of the fast path's time.

Figures are processor time of a core; for the fast path, the best of three runs. Traces and kernels
are prepared before.
"""

import argparse
import resource
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from allocator.simulation import fast, reference
from allocator.simulation.generator import google_month, google_month_plain
from allocator.simulation.outcome import Outcome
from allocator.simulation.setting import Setting, capacity_at
from allocator.simulation.trace import MICROSECONDS, UNCONSTRAINED, Trace

DELTA = 0.9999
COLUMNS: tuple[tuple[str, str, dict[str, float | str], bool], ...] = (
    ("DRF", "drf", {}, False),
    ("SDRF", "sdrf", {"delta": DELTA}, False),
    ("SDRF, events counted", "sdrf", {"delta": DELTA}, True),
)
"""Title, policy, parameters, and whether operations and events are counted."""
LOAD = 0.5
TASKS = (100_000, 1_000_000, 10_000_000)
USERS = (10, 100, 627, 1000, 10_000)
PER_USERS = 1_000_000
"""Tasks, however many users."""


def workload(tasks: int, users: int) -> Trace:
    """Return a workload of unequal users, which all have tasks from the start."""
    rng = np.random.default_rng(users)
    user = rng.zipf(1.2, tasks) % users
    user[:users] = np.arange(users)
    return Trace(
        resources=("cpus", "mem"),
        users=tuple(map(str, range(users))),
        submitted=np.sort(rng.integers(0, tasks * MICROSECONDS, tasks)),
        runtime=(rng.lognormal(5.0, 1.5, tasks) * MICROSECONDS).astype(np.int64),
        user=user.astype(np.int32),
        job=user.astype(np.int64),
        demand=np.array([0.25, 0.5, 1.0, 2.0])[rng.integers(0, 4, (tasks, 2))],
        constraint=np.full(tasks, UNCONSTRAINED, np.int32),
    )


def generated(tasks: int) -> Trace:
    """Return a generated month; with too few tasks for a month, a workload of ten users."""
    if tasks < google_month.FEWEST:
        return workload(tasks, 10)
    return google_month_plain.generate(seed=0, tasks=tasks)


def rate(
    trace: Trace,
    column: tuple[str, str, dict[str, float | str], bool],
    plain: Callable[[Trace, Setting], Outcome] | None = None,
) -> float:
    """Return tasks per second of processor time, of the fast path unless another is given."""
    _title, policy, parameters, events = column
    setting = Setting(policy, parameters, capacity_at(trace, LOAD))
    best = float("inf")
    for _ in range(3 if plain is None else 1):
        begun = time.process_time()
        if plain is None:
            fast.simulate(trace, setting, events=events)
        else:
            plain(trace, setting)
        best = min(best, time.process_time() - begun)
    return len(trace) / best


def main() -> None:
    """Print three tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, nargs="+", default=TASKS)
    parser.add_argument("--users", type=int, nargs="+", default=USERS)
    parser.add_argument("--tasks-of-users", type=int, default=PER_USERS, help="of all users")
    arguments = parser.parse_args()
    console = Console()
    small = workload(1000, 10)
    begun = time.process_time()
    fast.simulate(small, Setting("drf", {}, capacity_at(small, LOAD)))
    console.print(f"Kernels compiled, or loaded, in {time.process_time() - begun:.1f} s.")

    titles = [title for title, *_ in COLUMNS]
    against = Table("simulator", *titles, title=f"Tasks/s, {arguments.tasks[0]:,} tasks of a month")
    growth = Table("tasks", *titles, "memory so far", title="Tasks/s, fast path, 627 users")
    by_users = Table(
        "users", *titles, title=f"ns/task, fast path, {arguments.tasks_of_users:,} tasks"
    )
    with Progress(console=console, transient=True) as progress:
        job = progress.add_task("measuring", total=2 + len(arguments.tasks) + len(arguments.users))
        trace = generated(arguments.tasks[0])
        for simulator in (reference.simulate, None):
            rates = [rate(trace, column, simulator) for column in COLUMNS]
            name = "fast path" if simulator is None else "reference"
            against.add_row(name, *(f"{r:,.0f}" for r in rates))
            progress.advance(job)
        for users in arguments.users:
            trace = workload(arguments.tasks_of_users, users)
            rates = [rate(trace, column) for column in COLUMNS]
            by_users.add_row(f"{users:,}", *(f"{1e9 / r:,.0f}" for r in rates))
            progress.advance(job)
        for tasks in arguments.tasks:
            trace = generated(tasks)
            rates = [rate(trace, column) for column in COLUMNS]
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            growth.add_row(f"{tasks:,}", *(f"{r:,.0f}" for r in rates), f"{peak:.2f} GiB")
            progress.advance(job)
    for table in (against, by_users, growth):
        console.print(table)


if __name__ == "__main__":
    main()
