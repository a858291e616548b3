"""Progressive filling over arbitrary role trees and orders compared with task by task."""

from dataclasses import dataclass, field
from random import Random

import pytest

from allocator.cluster.allocation.progressive_filling import (
    CapacityBudget,
    ClientNode,
    ClientTask,
    InnerNode,
    Name,
    Node,
)
from allocator.cluster.frameworks.framework import Client
from allocator.fairness.quantities import Quantities
from allocator.fairness.sorter_snapshot import SortKey

TOTAL = {"cpus": 4000, "mem": 9000}
ROLES_LIMIT = ("r", "cpus")
TASKS = [
    ClientTask({"cpus": 1000}, Quantities({"cpus": 1000})),
    ClientTask({"cpus": 300, "mem": 100}, Quantities({"cpus": 300, "mem": 100})),
    ClientTask({"mem": 700}, Quantities({"mem": 700})),
    ClientTask({"cpus": 7}, Quantities({"cpus": 7})),
    ClientTask({"mem": 9, "ports": 1000}, Quantities({"mem": 9})),
    ClientTask({"ports": 1000}, Quantities()),
    ClientTask({"cpus": 50, ROLES_LIMIT: 50}, Quantities({"cpus": 50})),
    ClientTask({"ports": 2000, "cpus": 0}, Quantities()),
]


@dataclass
class Pool:
    """A random policy: the rank of a user is its largest share divided by its weight."""

    weights: dict[str, float]
    at_first: dict[str, Quantities]
    ranks: dict[str, int]
    blur: float
    """Largest distance between a priority and its exact value."""

    def sort_key(self, user: str) -> SortKey:
        return self.holding(user, self.held(user), 0)

    def sort_key_after(self, user: str, added: Quantities, times: int) -> SortKey:
        return self.holding(user, self.held(user) + added, times)

    def held(self, user: str) -> Quantities:
        return self.at_first[user]

    def holding(self, user: str, total: Quantities, times: int) -> SortKey:
        share = max((total[name] / much for name, much in TOTAL.items()), default=0.0)
        rank = self.ranks[user] + (times > 0 and self.ranks[user] == 0)
        return SortKey((rank, share / self.weights[user], times, user), self.blur)


@dataclass
class Plain:
    """A node of the role tree, for allocation of one task at a time."""

    name: str
    leaf: ClientNode | None = None
    pool: Pool | None = None
    members: "list[Plain]" = field(default_factory=list)
    scalars: Quantities = field(default_factory=Quantities)
    gifts: int = 0
    served: dict[str, int] = field(default_factory=dict)
    """Number of allocated tasks by child, in the order of each child's first task."""

    def first(self) -> "list[Plain]":
        """Return the path to the client that is next."""
        if self.pool is None:
            return [self]
        pool = self.pool

        def place(member: Plain) -> tuple[object, ...]:
            return pool.sort_key_after(member.name, member.scalars, member.gifts).position

        return [self, *min(self.members, key=place).first()]

    def in_order(self) -> dict[str, int]:
        """Return allocated tasks by client, in the order of each child's first task."""
        if self.pool is None:
            return self.served
        by_name = {member.name: member for member in self.members}
        return {
            leaf: number
            for name in self.served
            for leaf, number in by_name[name].in_order().items()
        }


def one_by_one(tree: Plain, room: dict[Name, int]) -> None:
    """Allocate tasks until the next client has no capacity for another task."""
    while True:
        way = tree.first()
        leaf = way[-1].leaf
        assert leaf is not None
        if leaf.task is None or any(room[name] < much for name, much in leaf.task.needs.items()):
            return
        for name, much in leaf.task.needs.items():
            room[name] -= much
        for number, member in enumerate(way):
            member.scalars += leaf.task.scalars
            member.gifts += bool(leaf.task.scalars)
            below = way[min(number + 1, len(way) - 1)].name
            member.served[below] = member.served.get(below, 0) + 1


def grown(chance: Random, name: str, depth: int, special: float) -> tuple[Plain, Node]:
    """Make a random tree twice: for allocation task by task, and for progressive filling."""
    if not depth or chance.random() < 0.4:
        task = None if chance.random() < special else chance.choice(TASKS)
        leaf = ClientNode(Client("r", name), task)
        return Plain(name, leaf), leaf
    both = [
        grown(chance, f"{name}{number}", depth - 1, special)
        for number in range(chance.randrange(1, 6))
    ]
    names = [plain.name for plain, _node in both]
    pool = Pool(
        {name: chance.choice([0.5, 1.0, 1.0, 3.0]) for name in names},
        {
            name: Quantities(
                {"cpus": chance.choice([0, 0, 70, 1300])} if chance.random() < 0.7 else {}
            )
            for name in names
        },
        {name: chance.choice([0, 1, 1, 1]) for name in names},
        chance.choice([0.0, 1e-12, 1e-4]),
    )
    order = sorted(both, key=lambda pair: pool.sort_key(pair[0].name).position)
    members = iter([(plain.name, node) for plain, node in order])
    return Plain(name, None, pool, [plain for plain, _node in both]), InnerNode(members, pool)


def drawn(seed: int) -> tuple[Plain, InnerNode[str], Random]:
    chance = Random(seed)
    while True:
        plain, node = grown(chance, "u", 3, chance.choice([0.0, 0.0, 0.1]))
        if isinstance(node, InnerNode):
            return plain, node, chance


def unasked(name: Name) -> int:
    assert name == ROLES_LIMIT
    return 300


SEEDS = range(400)


def test_any_role_tree_in_any_order_is_filled_as_task_by_task() -> None:
    for seed in SEEDS:
        plain, tree, chance = drawn(seed)
        free: dict[Name, int] = {
            "cpus": chance.randrange(6000),
            "mem": chance.randrange(9000),
            "ports": 1000 * chance.randrange(40),
        }
        room = CapacityBudget(free.items(), unasked)
        portion = tree.fill(room, chance.choice([0, 1, 2, 40]))
        free[ROLES_LIMIT] = unasked(ROLES_LIMIT)
        before = free.copy()
        one_by_one(plain, free)
        given = {leaf.client.framework: number for leaf, number in portion.counts.items()}
        assert list(given.items()) == list(plain.in_order().items()), seed
        assert portion.number == sum(given.values())
        assert (portion.scalars, portion.allocations) == (plain.scalars, plain.gifts)
        taken = {name: before[name] - rest for name, rest in free.items() if before[name] != rest}
        assert {name: much for name, much in portion.needs.items() if much} == taken
        assert all(room.left[name] == rest for name, rest in free.items())


@pytest.mark.parametrize("name", ["cpus", ROLES_LIMIT])
def test_a_task_that_lacks_a_thousandth_is_not_allocated(name: Name) -> None:
    task = ClientTask({name: 100}, Quantities({"cpus": 100}))
    for amount, number in ((99, 0), (100, 1), (199, 1), (200, 2)):
        pool = Pool({"u": 1.0}, {"u": Quantities()}, {"u": 1}, 0.0)
        tree = InnerNode(iter([("u", ClientNode(Client("r", "u"), task))]), pool)
        assert tree.fill(CapacityBudget([(name, amount)], unasked)).number == number
        assert (
            ClientNode(Client("r", "u"), task)
            .fill(CapacityBudget([(name, amount)], unasked))
            .number
            == number
        )
        assert (
            not ClientNode(Client("r", "u"), None)
            .fill(CapacityBudget([(name, amount)], unasked))
            .number
        )
