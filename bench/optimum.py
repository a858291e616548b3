"""The divisible optimum of TSF for 50 to 1,000 users of 1,000 machines, in 4 to 40 classes.

The reference is the same engine without merging: a variable for each user and machine. It solves
the problem with the first numbers of users and classes.
"""

import argparse
import random
import time
from fractions import Fraction

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from allocator.theory.divisible.optimum import create, optimum
from allocator.theory.divisible.problem import Problem, read_problem
from allocator.theory.divisible.progressive_filling import Tank, fill

USERS = (50, 200, 1000)
CLASSES = (4, 10, 40)
MACHINES = 1000


def problem(users: int, classes: int, machines: int) -> Problem:
    """Return users with tasks of many shapes, half of them with constraints."""
    rng = random.Random(users * classes)  # noqa: S311 - a workload, not a secret
    names = [f"class {number}" for number in range(classes)]
    return read_problem(
        {
            "machines": [
                {
                    "name": name,
                    "resources": {"cpu": rng.choice((8, 16, 32, 64)), "mem": 16 * number + 16},
                    "count": machines // classes,
                }
                for number, name in enumerate(names)
            ],
            "users": [
                {
                    "name": f"user {number}",
                    "demand": {"cpu": rng.randint(1, 8), "mem": rng.randint(1, 32)},
                    "weight": rng.choice((1, 2)),
                    **(
                        {"machines": rng.sample(names, rng.randint(1, classes // 4))}
                        if number % 2
                        else {}
                    ),
                }
                for number in range(users)
            ],
        }
    )


def unmerged(shared: Problem) -> float:
    """Return the seconds of the computation with each machine and user separate."""
    boxes = [machine for machine in shared.machines for _ in range(machine.count)]
    tanks = [
        Tank(
            share=1 / (shared.monopoly(user) * user.weight),
            base=Fraction(0),
            limit=None,
            takes={
                place: {name: need / box.resources[name] for name, need in user.demand.items()}
                for place, box in enumerate(boxes)
                if user.may_use(box)
            },
        )
        for user in shared.users
    ]
    begun = time.process_time()
    fill(tanks)
    return time.process_time() - begun


def merged(shared: Problem) -> tuple[float, int]:
    """Return the seconds and rounds of the computation with equal machines and users merged."""
    rounds = 0

    def count(_done: int, _of: int) -> None:
        nonlocal rounds
        rounds += 1

    begun = time.process_time()
    optimum(shared, create("tsf", {}), count)
    return time.process_time() - begun, rounds


def main() -> None:
    """Print a table: rounds, processor seconds, and their ratio to the reference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, nargs="+", default=USERS)
    parser.add_argument("--classes", type=int, nargs="+", default=CLASSES)
    parser.add_argument("--machines", type=int, default=MACHINES)
    arguments = parser.parse_args()
    users, classes, machines = arguments.users[0], arguments.classes[0], arguments.machines
    small = problem(users, classes, machines)
    reference = unmerged(small)
    table = Table(title=f"{users} users × {machines} machines unmerged: {reference:.2f} s")
    for heading in ("users", "classes", "machines", "rounds", "seconds", "of unmerged"):
        table.add_column(heading, justify="right")
    sizes = [(u, c, machines) for u in arguments.users for c in arguments.classes]
    with Progress(transient=True) as progress:
        for users, classes, machines in progress.track(sizes):
            spent, rounds = merged(problem(users, classes, machines))
            table.add_row(
                f"{users:,}",
                str(classes),
                f"{machines:,}",
                str(rounds),
                f"{spent:.2f}",
                f"{spent / reference:.3f}",
            )
    Console().print(table)


if __name__ == "__main__":
    main()
