"""A generator of workloads with many ties: many users submit at the same instant, repeatedly.

Written from the description alone, independently of the workload on which the simulator of the SDRF
paper's authors was recorded. Amounts are small integers, many of them zero, so that shares and
commitments are often exactly equal. Each burst is larger than the cluster, so that all users wait.
"""

import random

from tests.simulation.rational import Task, Workload

_SHAPES = ((1, 1), (1, 0), (0, 1), (2, 1), (1, 3), (0, 2), (4, 0), (3, 3))


def draw(seed: int) -> Workload:
    """Return a workload of 4 to 16 users with tasks in 2 to 4 bursts."""
    dice = random.Random(seed)
    users = dice.choice([4, 6, 8, 16])
    shapes = dice.sample(_SHAPES, dice.randint(1, 4))
    capacity = (dice.choice([4, 8, 12]), dice.choice([4, 8, 10]))
    weights = (
        [1] * users if dice.random() < 0.7 else [dice.choice([1, 1, 2, 5]) for _ in range(users)]
    )
    own = [dice.choice(shapes) for _ in range(users)]
    tasks: list[Task] = []
    instant = 0
    for _burst in range(dice.randint(2, 4)):
        present = dice.sample(range(users), dice.randint(users // 2, users))
        queue = [user for user in present for _ in range(dice.randint(1, 3))]
        if dice.random() < 0.5:
            dice.shuffle(queue)
        runs = dice.choice([(1,), (2, 2, 5), (0, 1, 3), (4,), (1, 2, 3, 4, 5, 6)])
        for user in queue:
            needs = own[user] if dice.random() < 0.8 else dice.choice(shapes)
            tasks.append(Task(instant, dice.choice(runs), user, needs))
        instant += dice.choice([1, 2, 3, 8])
    if dice.random() < 0.3:  # a task that never fits
        tasks.append(Task(instant, 1, 0, (capacity[0] + 1, 1)))
    return Workload(tuple(tasks), capacity, tuple(weights))
