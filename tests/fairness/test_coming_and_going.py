"""If users count by their use, short visits of users cost other users nothing."""

import random

import pytest

from allocator.fairness import policies
from allocator.fairness.metering import Meter
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from tests.counted import counted

POLICIES = {"sdrf": {"half_life": 60.0}, "drf": {}, "karma": {}, "stsf": {"half_life": 60.0}}
CAPACITY = Quantities({"cpus": 100_000, "mem": 100_000})


def pool_of(policy: str, users: int, counts_for: float = 4.0) -> Pool[str]:
    made: Pool[str] = Pool(
        policies.create(policy, POLICIES[policy]), capacity=CAPACITY, counts_for=counts_for
    )
    for number in range(users):
        made.add(f"u{number}")
        made.set_active(f"u{number}", True)
        made.allocate(f"u{number}", Quantities({"cpus": 1000 + number % 7}))
    made.look()
    made.count_users()
    made.advance(10.0)
    list(made)
    return made


@pytest.mark.parametrize("policy", ["sdrf", "drf", "stsf"])
def test_a_user_that_comes_and_goes_costs_the_same_beside_any_number(policy: str) -> None:
    def cost(users: int) -> int:
        pool = pool_of(policy, users)

        def come_and_go() -> None:
            pool.advance(20.0)
            pool.add("new")
            pool.set_active("new", True)
            pool.set_active("new", False)
            pool.remove("new")
            pool.advance(30.0)

        return counted(come_and_go)

    assert cost(400) < cost(50) + 100


@pytest.mark.parametrize("policy", POLICIES)
def test_the_order_is_as_if_all_users_had_been_rated_again(policy: str) -> None:
    rng = random.Random(policy)
    ours, reference = pool_of(policy, 12), pool_of(policy, 12)
    ours.attach(Meter())
    reference.attach(Meter())
    known, now = [f"u{number}" for number in range(12)], 10.0
    for number in range(300):
        now += rng.choice([0.0, 0.3, 5.0])
        user, kind = rng.choice(known), rng.random()
        for pool in (ours, reference):
            pool.advance(now)
            if kind < 0.3:
                pool.add(f"new{number}", 1.0)
                pool.set_active(f"new{number}", kind < 0.2)
            elif kind < 0.5 and len(known) > 3:
                pool.release(user, pool.holding(user)[0])
                pool.remove(user)
            elif kind < 0.8:
                pool.allocate(user, Quantities({"cpus": 1000, "mem": 10 * number}))
            elif kind < 0.9:
                pool.look()
                pool.count_users()
        reference._accrue_all()
        if kind < 0.3:
            known.append(f"new{number}")
        elif kind < 0.5 and len(known) > 3:
            known.remove(user)
        assert list(ours) == list(reference)
        for name in known:
            mine, theirs = ours.standing(name), reference.standing(name)
            assert mine.entitlement == pytest.approx(theirs.entitlement)
            assert mine.commitments == pytest.approx(theirs.commitments)
