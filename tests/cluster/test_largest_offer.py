"""The largest offer for a client alone compared with an allocation of task after task."""

import random
from itertools import count

import pytest

from allocator.cluster.frameworks.framework import Client, Framework
from allocator.cluster.frameworks.subscription import Subscription
from allocator.cluster.reasons import _ClientNeeds
from allocator.cluster.resources import NOTHING, Resources, parse_total
from allocator.fairness.quantities import Quantities
from tests.cluster.conformance.quota_side import REVOCABLE, revocable
from tests.cluster.master_side import resources

TASKS = [
    None,
    Quantities.parse("cpus:1"),
    Quantities.parse("cpus:2;mem:3"),
    Quantities({"gpus": 1}),
    Quantities({"cpus": 1000, "ports": 1}),
]
MINIMA = [(), ({"cpus": 2000},), ({"cpus": 4000, "mem": 6000}, {"gpus": 1}), ({"disk": 1},)]
ENTRIES = ["cpus:1", "cpus:5", "mem:7", "ports:[1-3]", "cpus(a):3", "mem(b):9", "gpus:0.001"]


def offered(wants: _ClientNeeds, resources: Resources) -> Resources:
    """Allocate reserved resources, and as many tasks as fit, singly."""
    usable = wants.framework.usable_part(resources, wants.client.role)
    give = usable
    if wants.task is not None:
        tasks = NOTHING
        for number in count(1):
            taken = usable.plain.take_demand(wants.task.times(number))
            if taken is None:
                break
            tasks = taken
        give = usable.where(lambda kind: not kind.plain) + tasks
    enough = [give.quantities.contains(Quantities(minimum)) for minimum in wants.minimum]
    return give if any(enough) or not wants.minimum else NOTHING


@pytest.mark.parametrize("seed", range(2))
def test_the_largest_offer_equals_an_allocation_task_by_task(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(300):
        capabilities = frozenset(c for c in (REVOCABLE,) if chance.random() < 0.5)
        subscription = Subscription("f1", roles=frozenset("a"), capabilities=capabilities)
        framework = Framework("f1", subscription, active=True, suppressed=set())
        text = ";".join(chance.sample(ENTRIES, chance.randint(0, 4)))
        available = parse_total(
            [*resources(text), *revocable("cpus:2" if chance.random() < 0.3 else "")]
        )
        minimum = tuple(Quantities(m) for m in chance.choice(MINIMA))
        wants = _ClientNeeds(Client("a", "f1"), framework, chance.choice(TASKS), minimum)
        assert wants.of(available) == offered(wants, available)
        assert wants.fits(available) == bool(offered(wants, available))
