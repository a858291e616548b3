"""Packing tasks on many agents at once compared with packing agent by agent."""

from collections.abc import Callable, Iterable, Mapping
from itertools import combinations
from random import Random

import pytest

from allocator.cluster.allocation.bulk_allocation import PackingTable, max_tasks, partition
from allocator.cluster.allocation.client_index import ones
from allocator.cluster.allocation.progressive_filling import Needs
from allocator.cluster.frameworks.framework import Client
from allocator.cooperative import run_to_completion
from tests.cluster.test_hopeless_clients import lines
from tests.examples import scaled

LEFT = [{"mem": 4, "cpus": 6}, {"cpus": 6}, {"cpus": 3, "mem": 9}, {"cpus": 0, "mem": 1}]
SIZES: list[Needs] = [{"cpus": 1}, {"cpus": 2, "mem": 1}, {"mem": 3}, {"cpus": 4}, {"disk": 1}]
BY_BIT = {1 << number: needs for number, needs in enumerate(SIZES)}
ALL = sum(BY_BIT)
ALL_LOOKS = 1000


def fitting(free: Mapping[str, int]) -> int:
    """Return a bit for each task shape that fits."""
    return sum(
        bit
        for bit, needs in BY_BIT.items()
        if all(free.get(str(name), 0) >= much for name, much in needs.items())
    )


def anybody(_free: object) -> int:
    return 1


class Plain:
    """The packing table with each agent in a separate entry."""

    def __init__(self, free: Iterable[Mapping[str, int]], on: Iterable[int]) -> None:
        self.left = [{"cpus": 0, "mem": 0, **amounts} for amounts in free]
        self.on = list(on)
        self.order = list(range(len(self.left)))
        self.laid: list[tuple[int, Client, int]] = []

    def max_tasks(self, agent: int, needs: Needs) -> int:
        return min(self.left[agent].get(str(name), 0) // much for name, much in needs.items())

    def room(self, needs: Needs, bit: int) -> int:
        return sum(self.max_tasks(agent, needs) for agent in self.order if self.on[agent] & bit)

    def gather(self, mask: int, useful: Callable[[int], bool]) -> int:
        def first_the_fewest(agent: int) -> tuple[object, ...]:
            on = self.on[agent] & mask
            return -on.bit_count(), on, tuple(sorted(self.left[agent].items()))

        self.order.sort(key=first_the_fewest, reverse=True)
        for agent in self.order:
            self.on[agent] &= mask
        self.order = [agent for agent in self.order if useful(agent)]
        return len(self.order)

    def lay(self, needs: Needs, bit: int, tasks: Iterable[tuple[Client, int]], times: int) -> bool:
        full: list[int] = []
        rest: list[int] = []
        ahead = self.order.copy()
        for client, number in tasks:
            wanted = number
            while wanted:
                if not ahead:
                    return False
                agent = ahead[0]
                if not self.on[agent] & bit:
                    rest.append(ahead.pop(0))
                    continue
                count = min(wanted, self.max_tasks(agent, needs))
                if count:
                    self.laid.append((agent, client, count * times))
                    for name, much in needs.items():
                        self.left[agent][str(name)] -= count * much
                wanted -= count
                if wanted or not self.max_tasks(agent, needs):
                    full.append(ahead.pop(0))
        self.order = [*full, *rest, *ahead]
        return True


def test_packing_at_once_equals_packing_agent_by_agent() -> None:
    for seed in range(scaled(300)):
        chance = Random(seed)
        free = [chance.choice(LEFT) for _ in range(chance.randrange(1, 12))]
        on = [chance.choice([ALL, ALL, 0b10011, 0b01100]) for _ in free]
        table, plain = PackingTable(free, on, fitting), Plain(free, on)
        for _ in range(3):
            mask, subset = chance.choice([ALL, ALL, 0b11011]), chance.choice([ALL, 0b00111])
            different = {
                (plain.on[agent] & mask, *sorted(plain.left[agent].items()))
                for agent in plain.order
            }
            seen: list[int] = []

            def useful(mask: int, subset: int = subset, seen: list[int] = seen) -> bool:
                seen.append(mask)
                return bool(mask & subset)

            def of_use(agent: int, mask: int = mask & subset, plain: Plain = plain) -> bool:
                return bool(fitting(plain.left[agent]) & plain.on[agent] & mask)

            assert table.regroup(mask, useful) == plain.gather(mask, of_use)
            assert len(seen) == len(different), "agents with the same rest are one run"
            sizes = [(needs, bit) for bit, needs in BY_BIT.items()]
            chance.shuffle(sizes)
            rooms = [plain.room(*size) for size in sizes]
            assert run_to_completion(table.capacities(sizes, 1)) == rooms
            for (needs, bit), room in zip(sizes[: chance.randrange(5)], rooms, strict=False):
                tasks = [
                    (Client("r", f"f{index}"), chance.randrange(1, 2 + room // 2))
                    for index in range(chance.randrange(1, 4))
                ]
                before, times = table.copy(), chance.randrange(1, 3)
                done = table.pack(needs, bit, tasks, times, ALL_LOOKS)
                assert done == (plain.room(needs, bit) >= sum(number for _, number in tasks))
                if not done:
                    table = before
                    continue
                assert plain.lay(needs, bit, tasks, times)
                assert table.placements == plain.laid


def test_a_shape_examines_a_bounded_number_of_agents_until_all_agents_are_regrouped() -> None:
    client = Client("r", "f1")
    table = PackingTable([{"cpus": size} for size in range(10, 20)], [1] * 10, anybody)
    table.regroup(1, lambda _run: True)
    assert table.pack({"cpus": 10}, 1, [(client, 10)], 1, 3)
    assert run_to_completion(table.capacities([({"cpus": 1}, 1)], 1)) == [2 + 1 + 0], (
        "capacity of the last three agents"
    )
    assert table.regroup(1, lambda _run: True) == 10
    assert run_to_completion(table.capacities([({"cpus": 1}, 1)], 1)) == [sum(range(10))]


def test_fewer_shapes_permit_more_probes_of_unlike_agents() -> None:
    table = PackingTable([{"cpus": 1 + size} for size in range(100)], [1] * 100, anybody)
    table.regroup(1, lambda _run: True)
    assert table.probe_limit(1) == 800
    assert table.probe_limit(10) == 80
    assert table.probe_limit(100) == 64


def test_capacity_for_many_shapes_is_sampled_unless_it_is_small() -> None:
    sizes: list[tuple[Needs, int]] = [({"cpus": 1}, 1)] * 30
    free = [{"cpus": 10 + size} for size in range(100)]
    free[98] = {"cpus": 108, "mem": 1}
    table = PackingTable(free, [1] * 100, anybody)
    table.regroup(1, lambda _run: True)
    capacities = run_to_completion(
        table.capacities([*sizes, ({"cpus": 109}, 1), ({"mem": 1}, 1)], 4)
    )
    assert capacities[:30] == pytest.approx([5950] * 30, rel=0.03)
    assert capacities[0] != 5950
    assert capacities[30:] == [4, 1], "a fourth of the agents has one, all agents have one"


def test_clients_that_share_all_agents_form_one_part() -> None:
    for seed in range(scaled(100)):
        chance = Random(seed)
        on = [chance.randrange(1 << 8) for _ in range(chance.randrange(1, 400))]
        on = [chance.choice(on[: chance.choice([1, 3, 5, 400])]) for _ in on]
        where = {1 << n: tuple(bool(mask & 1 << n) for mask in on) for n in range(8)}
        classes = run_to_completion(partition(on))
        assert set(classes) == {bit for bit, agents in where.items() if any(agents)}
        for one, other in combinations(classes, 2):
            assert (classes[one] == classes[other]) == (where[one] == where[other])


@pytest.mark.interpreted
def test_classes_of_clients_cost_in_proportion_to_clients_however_many_classes() -> None:
    chance = Random(1)
    masks = [chance.getrandbits(400) for _ in range(80)]
    classes = run_to_completion(partition(masks))
    assert len(set(classes.values())) == 400
    assert lines(lambda: run_to_completion(partition(masks))) < 400 * 20


@pytest.mark.interpreted
def test_shapes_that_fit_nowhere_cost_no_examination_of_each_agent() -> None:
    def cost(shapes: int) -> int:
        needs: list[tuple[Needs, int]] = [({"cpus": 999}, 2 << n) for n in range(shapes)]
        free = [{"cpus": 10 + size} for size in range(200)]
        table = PackingTable(free, [(2 << shapes) - 1] * 200, lambda _: 1)
        table.regroup((2 << shapes) - 1, lambda _run: True)
        needs.append(({"cpus": 9}, 1))
        return lines(lambda: run_to_completion(table.capacities(needs, 4)))

    few, many = cost(100), cost(400)
    assert many - few < 300 * 30


def test_each_bit_of_a_mask_is_visited_once() -> None:
    for bits in (0, 1, 0b1011000, (1 << 200) + 5):
        parts = list(ones(bits))
        assert sum(parts) == bits
        assert parts == sorted({1 << bit.bit_length() - 1 for bit in parts})


def test_an_absent_resource_leaves_no_capacity_for_tasks_that_need_it() -> None:
    assert max_tasks({"cpus": 9}, {"cpus": 2}) == 4
    assert max_tasks({"cpus": 9}, {"cpus": 2, "disk": 1}) == 0
