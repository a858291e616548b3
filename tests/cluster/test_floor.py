"""What tasks count as at least follows the largest agent that is there."""

from allocator.cluster.demands import Floor
from allocator.fairness.quantities import Quantities


def test_the_largest_agent_is_the_largest_of_those_that_are_there() -> None:
    floor = Floor(0.25)
    small, large = Quantities.parse("cpus:4"), Quantities.parse("cpus:16")
    one, five = Quantities.parse("cpus:1"), Quantities.parse("cpus:5")
    for agent in (small, large, large):
        floor.put(agent)
    assert (floor.at_a_time(one), floor.beyond(five)) == (4, "")
    floor.discard(large)
    assert (floor.at_a_time(one), floor.beyond(five)) == (4, ""), "there is another one"
    floor.discard(large)
    assert floor.at_a_time(one) == 1
    assert floor.beyond(five) == "cpus:5, and no agent has more than 4"


def test_tasks_of_what_no_agent_has_count_one_by_one() -> None:
    floor = Floor(0.25)
    floor.put(Quantities.parse("cpus:16"))
    assert floor.at_a_time(Quantities.parse("gpus:1")) == 1
