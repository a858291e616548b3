"""Free resources of an agent, now and after expected recoveries."""

import random

import pytest

from allocator.cluster.agents import agent as agent_module
from allocator.cluster.agents.agent import Agent
from allocator.cluster.resources import NOTHING, Resources, parse_total
from allocator.contract import mesos_pb2 as mesos
from tests.cluster.master_side import resource, resources


def agent(total: Resources) -> Agent:
    return Agent("s1", mesos.SlaveInfo(hostname="s1"), frozenset(), total)


@pytest.mark.parametrize(("gpus", "has"), [("0", False), ("0.001", True), ("1", True)])
def test_any_fraction_of_a_gpu_makes_an_agent_a_gpu_agent(gpus: str, *, has: bool) -> None:
    assert agent(parse_total(resources(f"cpus:4;gpus:{gpus}"))).has_gpus == has


def volume(*, shared: bool) -> list[bytes]:
    message = resource("disk", "64", reserved=["a"])
    message.disk.persistence.id = "v"
    if shared:
        message.shared.SetInParent()
    return [message.SerializeToString()]


@pytest.mark.parametrize("few", [0, 16])
@pytest.mark.parametrize("more", [[], volume(shared=False), volume(shared=True)])
def test_predicted_free_resources_equal_the_free_resources_after_the_recovery(
    more: list[bytes], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Covers random histories. Without shared resources the prediction adds nothing up."""
    monkeypatch.setattr(agent_module, "_FEW_ALLOCATIONS", few)
    parts = [parse_total(resources(text)) for text in ("cpus:1", "mem:64", "cpus:1;ports:[1-2]")]
    parts += [parse_total(more)]
    count = 0
    for seed in range(50):
        lot = random.Random(seed)
        books = agent(parse_total([*resources("cpus:3;mem:128;ports:[1-4]"), *more]))
        held: dict[tuple[str, str], Resources] = {}
        for _ in range(20):
            holder = lot.choice("fg"), lot.choice("ab")
            part, mine = lot.choice(parts), held.get(holder, NOTHING)
            if lot.random() < 0.5:
                if part not in books.available and lot.random() < 0.9:
                    continue
                held[holder] = mine + part
            elif part in mine:
                released = books.available_after_release(part)
                held[holder] = mine - part
                books.set_held(*holder, held[holder])
                if released is not None:
                    assert released == books.available, seed
                    count += 1
            books.set_held(*holder, held.get(holder, NOTHING))
            assert books.available_for_display == books.available
            free = books.total
            for bag in held.values():
                free = free - bag
            free = free.with_shared_of(books.total)
            assert books.available == free
            if books.total.has_shared:
                assert [*books.available.items()] == [*free.items()], "in the order of the total"
        assert {(f, r): bag for f, r, bag in books.allocations()} == {
            holder: bag for holder, bag in held.items() if bag
        }
    assert bool(count) == (more != volume(shared=True))
