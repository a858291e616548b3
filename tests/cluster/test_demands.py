"""The demand of a task, and its lower bound, which follows the largest agent."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.frameworks.demands import DemandFloor, Demands
from allocator.cluster.frameworks.framework import Client, Framework
from allocator.cluster.frameworks.subscription import Subscription
from allocator.cluster.resources import NOTHING, parse_total
from allocator.cluster.settings import EngineSettings
from allocator.fairness import policies
from allocator.fairness.largest import Largest
from allocator.fairness.quantities import Quantities
from tests.cluster.master_side import resources


def test_the_largest_agent_is_the_largest_of_the_present_agents() -> None:
    floor = DemandFloor(0.25)
    small, large = Quantities.parse("cpus:4"), Quantities.parse("cpus:16")
    one_cpu, five = Quantities.parse("cpus:1"), Quantities.parse("cpus:5")
    for agent in (small, large, large):
        floor.put(agent)
    assert (floor.unit_size(one_cpu), floor.beyond(five)) == (4, "")
    floor.discard(large)
    assert (floor.unit_size(one_cpu), floor.beyond(five)) == (4, ""), (
        "another agent of that size remains"
    )
    floor.discard(large)
    assert floor.unit_size(one_cpu) == 1
    assert floor.beyond(five) == "cpus:5, and no agent has more than 4"


def test_tasks_of_a_resource_that_no_agent_has_count_singly() -> None:
    floor = DemandFloor(0.25)
    floor.put(Quantities.parse("cpus:16"))
    assert floor.unit_size(Quantities.parse("gpus:1")) == 1


def test_an_agent_with_a_thousandth_of_a_resource_has_that_resource() -> None:
    floor, least = DemandFloor(0.25), Quantities.parse("gpus:0.001")
    floor.put(least)
    assert floor.beyond(least) == ""
    assert floor.beyond(Quantities.parse("gpus:1")) == "gpus:1, and no agent has more than 0.001"
    floor.discard(least)
    assert floor.beyond(least) == "gpus:0.001, and no agent has more than 0"


def test_a_demand_is_the_operators_else_the_frameworks_else_the_smallest_of_eight_offers() -> None:
    one_cpu, two, three, client = (
        *(Quantities.parse(f"cpus:{n}") for n in (1, 2, 3)),
        Client("a", "f1"),
    )
    framework = Framework("f1", Subscription("f1", demand=two), active=True, suppressed=set())
    silent = Framework("f1", Subscription("f1"), active=True, suppressed=set())
    settings = EngineSettings(policies.create("drf", {}), learn_demands=True)
    for configured, learns in (
        ({}, True),
        ({"f1": one_cpu}, True),
        ({}, False),
        ({"f1": one_cpu}, False),
    ):
        demands = Demands(replace(settings, demands=configured, learn_demands=learns))
        assert demands.of(client, silent) == configured.get("f1")
        for kept in (one_cpu, *[three] * 7):
            demands.note_offer(client, "s1", parse_total(resources(str(kept))))
            demands.forget(Client("a", "f2"))
            demands.note_answer(client, "s1", NOTHING)
        assert demands.of(client, framework) == configured.get("f1", two)
        assert demands.of(client, silent) == configured.get("f1", one_cpu if learns else None)
        demands.note_offer(client, "s1", parse_total(resources(str(three))))
        demands.note_answer(client, "s1", NOTHING)
        assert demands.of(client, silent) == configured.get("f1", three if learns else None)
        demands.forget(client)
        assert demands.of(client, silent) == configured.get("f1")


@given(
    st.lists(
        st.tuples(
            st.booleans(), st.dictionaries(st.sampled_from("abc"), st.integers(1, 3), max_size=2)
        )
    )
)
def test_the_largest_amount_is_that_of_the_present_agents_and_zero_for_an_absent_resource(
    steps: list[tuple[bool, dict[str, int]]],
) -> None:
    largest, totals = Largest(), list[dict[str, int]]()
    for comes, amounts in steps:
        before, version = dict(largest.of), largest.version
        if comes:
            largest.put(Quantities(amounts))
            totals.append(amounts)
        elif amounts in totals:
            largest.discard(Quantities(amounts))
            totals.remove(amounts)
        names = {name for amounts in totals for name in amounts}
        assert largest.of == {n: max(amounts.get(n, 0) for amounts in totals) for n in names}
        assert (largest.version > version) == (largest.of != before)
        assert largest.version >= version
