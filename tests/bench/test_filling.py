"""The number of offers of an allocation task by task, and its lower bound."""

import pytest

from bench.filling import filled, least, offers_in

SIZES = [f"cpus:{0.5 + number / 10:.1f}" for number in range(20)]


@pytest.mark.parametrize(
    ("world", "demands", "at_least", "made"),
    [
        ((120, 20, 64), SIZES, 172, 255),
        ((120, 300, 16), ["cpus:1;mem:1024"], 300, 390),
        ((120, 10, 64), ["cpus:0.5"], 120, 120),
    ],
)
def test_the_number_of_offers_is_close_to_its_lower_bound(
    world: tuple[int, int, float], demands: list[str], at_least: int, made: int
) -> None:
    agents, users, cpus = world
    _, decisions = filled(agents, users, cpus, demands, 100)
    assert least(decisions, agents, cpus, demands) == at_least
    assert at_least <= offers_in(decisions) <= made
