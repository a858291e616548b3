"""The predicted water level is that of an allocation task by task, found with few questions."""

from heapq import heapify, heapreplace
from random import Random

import pytest

from allocator.cluster.allocation.progressive_filling import (
    CapacityBudget,
    ClientNode,
    ClientTask,
    InnerNode,
    Node,
    Trajectory,
    find_water_level,
)
from allocator.cluster.frameworks.framework import Client
from allocator.cooperative import run_to_completion
from allocator.fairness.quantities import Quantities
from allocator.fairness.sorter_snapshot import SortKey

ALL = 1 << 60


class Lines:
    """A policy by the larger of two shares, so that trajectories may bend; counts questions."""

    def __init__(self, held: list[Quantities]) -> None:
        self.at_first = held
        self.asked = 0

    def sort_key(self, user: int) -> SortKey:
        return self.sort_key_after(user, Quantities(), 0)

    def sort_key_after(self, user: int, added: Quantities, times: int) -> SortKey:
        return self.holding(user, self.held(user) + added, times)

    def held(self, user: int) -> Quantities:
        return self.at_first[user]

    def holding(self, user: int, total: Quantities, times: int) -> SortKey:
        self.asked += 1
        share = max(total["cpus"], total["mem"] / 4)
        return SortKey((0, float(share), times, user), 0.0)


def world(seed: int, users: int, *, bent: bool) -> tuple[Lines, list[tuple[int, ClientNode]]]:
    chance = Random(seed)
    held = [
        Quantities({"mem": chance.randrange(1, 200_000)}) if bent else Quantities()
        for _ in range(users)
    ]
    lines = Lines(held)
    leaves = []
    for user in range(users):
        cpus = chance.randrange(500, 10_000)
        task = ClientTask({"": ALL // chance.randrange(100, 4_000)}, Quantities({"cpus": cpus}))
        leaves.append((user, ClientNode(Client("r", f"f{user}"), task)))
    leaves.sort(key=lambda member: lines.sort_key(member[0]).position)
    return lines, leaves


def one_by_one(lines: Lines, leaves: list[tuple[int, ClientNode]]) -> dict[int, int]:
    """Allocate single tasks to the first client until the capacity is exhausted."""
    of, numbers, remaining = dict(leaves), dict.fromkeys(range(len(leaves)), 0), ALL
    heap = [(lines.sort_key(user).position, user) for user in of]
    heapify(heap)
    while True:
        user = heap[0][1]
        portion = of[user].batch(1)
        if portion.needs[""] > remaining:
            return {user: number for user, number in numbers.items() if number}
        remaining -= portion.needs[""]
        numbers[user] += 1
        batch = of[user].batch(numbers[user])
        heapreplace(
            heap, (lines.sort_key_after(user, batch.scalars, batch.allocations).position, user)
        )


@pytest.mark.parametrize("bent", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_predicted_water_level_is_that_of_an_allocation_task_by_task(
    seed: int, *, bent: bool
) -> None:
    lines, leaves = world(seed, 20, bent=bent)
    portion = InnerNode(iter(leaves), lines).fill(CapacityBudget([("", ALL)], lambda _name: 0))
    given = {int(leaf.client.framework[1:]): number for leaf, number in portion.counts.items()}
    assert given == one_by_one(lines, leaves)


def test_the_prediction_asks_few_questions_for_each_receiving_client() -> None:
    lines, leaves = world(1, 400, bent=False)
    lines.asked = 0
    run_to_completion(
        InnerNode(iter(leaves), lines).fill_in_steps(CapacityBudget([("", ALL)], lambda _name: 0))
    )
    assert lines.asked <= 9 * 400


def test_clients_below_the_water_level_are_counted_in_few_steps() -> None:
    """The tree has four users below each of five roles below each of five roles."""
    lines, leaves = world(1, 100, bent=False)
    orders = [lines]

    def branch(members: list[tuple[int, Node]]) -> InnerNode[int]:
        orders.append(Lines([Quantities() for _ in range(100)]))
        return InnerNode(iter(members), orders[-1])

    nodes: list[tuple[int, Node]] = [*leaves]
    for fan in (4, 5, 5):
        nodes = [
            (place, branch(nodes[begin : begin + fan]))
            for place, begin in enumerate(range(0, len(nodes), fan))
        ]
    [(_, top)] = nodes
    assert isinstance(top, InnerNode)
    before = longest = 0
    for _ in top.fill_in_steps(CapacityBudget([("", ALL)], lambda _name: 0)):
        asked = sum(order.asked for order in orders)
        before, longest = asked, max(longest, asked - before)
    assert before > 10_000 > 20 * longest


def test_the_water_level_is_at_most_its_bound_and_exhausts_the_capacity() -> None:
    ways = [Trajectory(0.0, 1.0, 0.1), Trajectory(0.5, 2.0, 0.2)]
    assert run_to_completion(find_water_level(ways, 2.0)) == 2.0
    assert 4.49 <= run_to_completion(find_water_level(ways, 100.0)) <= 4.51
