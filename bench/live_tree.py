"""The Live Tree against a plain scan, per scheduling decision, for 10 to 10⁵ users."""

import argparse
import random
import time

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from allocator.fairness import policies
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities

TASK = Quantities({"cpus": 1000, "mem": 2000})
SIZES = (10, 100, 1000, 10_000, 100_000)
DELTA = 0.9999
"""Per second: slow enough to matter for hours, fast enough to make users change places."""
TASK_SECONDS = 100.0
"""With about ten tasks a user, n users make n / 10 decisions in a second."""
PATIENCE = 2.0
"""Seconds per figure; each figure takes at least three operations."""


def pool(users: int, ranking: str) -> Pool[int]:
    """Return users with unequal allocations and commitments."""
    rng = random.Random(users)  # noqa: S311 - a workload, not a secret
    policy = policies.create("sdrf", {"delta": DELTA, "ranking": ranking})
    capacity = Quantities({"cpus": 20_000 * users, "mem": 40_000 * users})
    made: Pool[int] = Pool(policy, capacity=capacity)
    for user in range(users):
        made.add(user, commitment=rng.random() / users)
        held = rng.randrange(1, 20)
        made.allocate(user, Quantities({"cpus": 1000 * held, "mem": 2000 * held}))
        made.set_active(user, True)
    made.minimum()
    return made


def per_decision(made: Pool[int], patience: float = PATIENCE) -> tuple[float, int]:
    """Return seconds per decision and how many were made.

    A decision: time goes on, the next user gets a task, and another one's task ends.
    """
    rng = random.Random(1)  # noqa: S311 - a workload, not a secret
    users = range(len(made))
    begun = time.perf_counter()
    done = 0
    while done < 3 or time.perf_counter() - begun < patience:
        made.advance(made.now + TASK_SECONDS / (10 * len(made)))
        made.allocate(made.minimum(), TASK)
        chosen = rng.choice(users)
        if made.standing(chosen).allocation.contains(TASK):
            made.release(chosen, TASK)
        done += 1
    return (time.perf_counter() - begun) / done, done


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seconds", type=float, default=PATIENCE, help="for each figure")
    arguments = parser.parse_args()
    table = Table(title=f"SDRF, δ = {DELTA} per second: time of one scheduling decision")
    for column in ("users", "scan", "Live Tree", "scan / Live Tree", "events per decision"):
        table.add_column(column, justify="right")
    with Progress(console=Console(stderr=True)) as progress:
        doing = progress.add_task("Live Tree against scan …", total=2 * len(arguments.users))
        for users in arguments.users:
            scanned, _ = per_decision(pool(users, "scan"), arguments.seconds)
            progress.advance(doing)
            live = pool(users, "live-tree")
            before = live.events
            kept, decisions = per_decision(live, arguments.seconds)
            progress.advance(doing)
            table.add_row(
                f"{users:,}",
                f"{scanned * 1e6:,.0f} µs",
                f"{kept * 1e6:,.0f} µs",
                f"{scanned / kept:,.1f}",
                f"{(live.events - before) / decisions:.3f}",
            )
    Console().print(table)


if __name__ == "__main__":
    main()
