"""The simulator: the reference against the fast path, and how the fast path grows.

Processor time of one core, best of three; traces are made and kernels compiled before.
"""

import resource
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from allocator.simulation import fast, reference
from allocator.simulation.generator import google_month
from allocator.simulation.outcome import Outcome
from allocator.simulation.setting import Setting, capacity_at
from allocator.simulation.trace import MICROSECONDS, UNCONSTRAINED, Trace

POLICIES: tuple[tuple[str, dict[str, float | str]], ...] = (
    ("drf", {}),
    ("sdrf", {"delta": 0.9999}),
)
LOAD = 0.5
TASKS = (100_000, 1_000_000, 10_000_000)
USERS = (10, 100, 627, 1000, 10_000)
PER_USERS = 1_000_000
"""Tasks, however many users."""


def workload(tasks: int, users: int) -> Trace:
    """Return a workload of unequal users, all of whom have tasks from the beginning on."""
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


def rate(
    simulate: Callable[[Trace, Setting], Outcome], trace: Trace, setting: Setting, times: int = 3
) -> float:
    """Return tasks per second of processor time."""
    best = float("inf")
    for _ in range(times):
        begun = time.process_time()
        simulate(trace, setting)
        best = min(best, time.process_time() - begun)
    return len(trace) / best


def main() -> None:
    """Print three tables."""
    console = Console()
    small = workload(1000, 10)
    begun = time.process_time()
    fast.simulate(small, Setting("drf", {}, capacity_at(small, LOAD)))
    console.print(f"Kernels compiled, or loaded, in {time.process_time() - begun:.1f} s.")

    against = Table(
        "policy", "reference", "fast path", "times", title="Tasks/s, 10⁵ tasks, 627 users"
    )
    growth = Table(
        "tasks",
        *(name for name, _ in POLICIES),
        "memory so far",
        title="Tasks/s, fast path, 627 users",
    )
    by_users = Table(
        "users", *(name for name, _ in POLICIES), title="ns/task, fast path, 10⁶ tasks"
    )
    with Progress(console=console, transient=True) as progress:
        job = progress.add_task("measuring", total=len(POLICIES) + len(TASKS) + len(USERS))
        trace = google_month.generate(seed=0, tasks=TASKS[0])
        for name, parameters in POLICIES:
            setting = Setting(name, parameters, capacity_at(trace, LOAD))
            slow = rate(reference.simulate, trace, setting, times=1)
            quick = rate(fast.simulate, trace, setting)
            against.add_row(name, f"{slow:,.0f}", f"{quick:,.0f}", f"{quick / slow:,.0f}")
            progress.advance(job)
        for users in USERS:
            trace = workload(PER_USERS, users)
            capacity = capacity_at(trace, LOAD)
            rates = [rate(fast.simulate, trace, Setting(n, p, capacity)) for n, p in POLICIES]
            by_users.add_row(f"{users:,}", *(f"{1e9 / r:,.0f}" for r in rates))
            progress.advance(job)
        for tasks in TASKS:
            trace = google_month.generate(seed=0, tasks=tasks)
            capacity = capacity_at(trace, LOAD)
            rates = [rate(fast.simulate, trace, Setting(n, p, capacity)) for n, p in POLICIES]
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            growth.add_row(f"{tasks:,}", *(f"{r:,.0f}" for r in rates), f"{peak:.2f} GiB")
            progress.advance(job)
    for table in (against, by_users, growth):
        console.print(table)


if __name__ == "__main__":
    main()
