"""Measure the cost of a scheduling decision under each policy, for 10 to 1,000 users."""

import argparse
import random
import time

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from allocator.fairness import policies
from allocator.fairness.machines import Machines
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities

SIZES = (10, 100, 1000)
CLASSES = 40
TASK = Quantities({"cpus": 1000, "mem": 2000})
PARAMETERS: dict[str, dict[str, object]] = {"sdrf": {"delta": 0.9999}, "stsf": {"delta": 0.9999}}
PATIENCE = 0.5
"""Seconds of processor time for one figure, and at least three operations."""


def pool(policy: str, users: int) -> tuple[Pool[int], Machines[int]]:
    """Return users with unequal holdings, half of them with constraints."""
    rng = random.Random(users)  # noqa: S311 - a workload, not a secret
    machines: Machines[int] = Machines()
    for number in range(CLASSES):
        size = 20 * users // CLASSES + number + 1
        machines.put(str(number), Quantities({"cpus": 1000 * size, "mem": 2000 * size}))
    capacity = Quantities({"cpus": 20_000 * users, "mem": 40_000 * users})
    made: Pool[int] = Pool(
        policies.create(policy, PARAMETERS.get(policy, {})), capacity=capacity, machines=machines
    )
    for user in range(users):
        made.add(user)
        if user % 2:
            machines.restrict(user, lambda name, user=user: int(name) % 4 == user % 4)  # type: ignore[misc]
        made.set_demand(user, TASK)
        held = rng.randrange(1, 20)
        made.allocate(user, Quantities({"cpus": 1000 * held, "mem": 2000 * held}))
        made.set_active(user, True)
    for _ in range(5):  # gives users different histories
        made.advance(made.now + 1000.0)
        for user in range(users):
            made.release(user, made.held(user))
            held = rng.randrange(1, 20)
            made.allocate(user, Quantities({"cpus": 1000 * held, "mem": 2000 * held}))
    made.minimum()
    return made, machines


def per_decision(made: Pool[int], patience: float) -> float:
    """Return the seconds of a decision: time passes, a task begins, and another task ends."""
    rng = random.Random(1)  # noqa: S311 - a workload, not a secret
    machine = Quantities({"cpus": 4000, "mem": 8000})
    begun = time.process_time()
    done = 0
    while done < 3 or time.process_time() - begun < patience:
        made.advance(made.now + 10.0 / len(made))
        made.allocate(next(made.order_on(machine, {done % len(made): TASK})), TASK)
        chosen = rng.randrange(len(made))
        if made.held(chosen).contains(TASK):
            made.release(chosen, TASK)
        done += 1
    return (time.process_time() - begun) / done


def per_machine(made: Pool[int], machines: Machines[int], patience: float) -> float:
    """Return the seconds to rank all users again after a machine has joined."""
    begun = time.process_time()
    done = 0
    while done < 3 or time.process_time() - begun < patience:
        machines.put(str(CLASSES), Quantities({"cpus": 1000 * (done + 1)}))
        made.set_capacity(made.capacity + Quantities({"cpus": 1}))
        made.machines_changed()
        made.minimum()
        done += 1
    return (time.process_time() - begun) / done


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seconds", type=float, default=PATIENCE, help="for each figure")
    arguments = parser.parse_args()
    table = Table(title=f"µs of a decision; and ms after a machine has come, {CLASSES} classes")
    table.add_column("policy")
    for users in arguments.users:
        table.add_column(f"{users:,} users", justify="right")
    with Progress(console=Console(stderr=True)) as progress:
        doing = progress.add_task("policies …", total=len(policies.names()) * len(arguments.users))
        for policy in policies.names():
            cells = []
            for users in arguments.users:
                made, machines = pool(policy, users)
                decision = per_decision(made, arguments.seconds)
                ranking = per_machine(made, machines, arguments.seconds)
                cells.append(f"{decision * 1e6:,.0f}; {ranking * 1e3:,.1f}")
                progress.advance(doing)
            table.add_row(policy, *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
