"""Checks of the requirements on policies, each on one random cluster.

Each check draws its cluster and users from `random`. It returns a description of a violation, or
None if the policy passes.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from random import Random
from typing import Any

from allocator.conformance.worlds import World, draw
from allocator.fairness.account import Account
from allocator.fairness.policies import Policy, create
from allocator.fairness.policies.lines import LinePolicy
from allocator.fairness.policies.policy import KeyPolicy
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities

_LATER = (0.0, 1e-3, 1.0, 60.0, 3600.0, 3e5)
"""Durations by which the checks advance a pool's time, in seconds."""


def priorities_are_numbers(policy: Policy, random: Random) -> str | None:
    """Check that every user's priority is a valid number, at the start and at several later times.

    The result describes a violation; None if there is none.
    """
    world = draw(random)
    pool = world.pool(policy)
    for instant in _LATER:
        pool.advance(instant)
        pool.standings()
        list(pool)
    return f"{policy.faults.latest}, {world.told()}" if policy.faults.count else None


def leaves_accounts(policy: Policy, random: Random) -> str | None:
    """Check that the policy's methods do not change the account that they read.

    The result describes a violation; None if there is none.
    """
    world = draw(random)
    for account in _accounts(
        world.pool(create("tsf", {}))
    ):  # no policy has read these accounts yet
        for question in _questions(policy):
            before = _seen(account)
            question(account)
            after = _seen(account)
            changed = [name for name, value in before.items() if after[name] != value]
            if changed:
                return f"the policy changed {', '.join(changed)}, {world.told()}"
    return None


def is_repeatable(policy: Policy, random: Random) -> str | None:
    """Check that a method called twice returns the same, and that equal pools rank users equally.

    The result describes a violation; None if there is none.
    """
    world = draw(random)
    pool = world.pool(policy)
    for account in _accounts(pool):
        for question in _questions(policy):
            first, second = question(account), question(account)
            if first != second:
                return f"the policy returned {first}, then {second}, {world.told()}"
    if list(pool) != list(world.pool(policy)):
        return f"the order was {list(pool)}, then {list(world.pool(policy))}, {world.told()}"
    return None


def goes_by_holdings(policy: Policy, random: Random) -> str | None:
    """Check that priorities ignore the attributes of an account that a policy must not use.

    Such attributes are, for example, whether a user is active and how often it was served. The
    result describes a violation; None if there is none.
    """
    world = draw(random)
    ignored: dict[str, Any] = {"count": random.randint(1, 99)}
    if not policy.queues:
        ignored["turn"] = random.randint(1, 99)
    if isinstance(policy, KeyPolicy):
        ignored["settled_at"] = random.uniform(1.0, 1e6)
        ignored["cumulative"] = random.uniform(1.0, 1e6)
    for account in _accounts(world.pool(policy)):
        for name, value in ignored.items():
            changed = account.copy()
            setattr(changed, name, value)
            changed.active = not account.active
            for question in _questions(policy):
                before, after = question(account), question(changed)
                if before != after:
                    return (
                        f"the policy returned {before}, and {after} with another {name} or active, "
                        f"{world.told()}"
                    )
    return None


def more_is_not_sooner(policy: Policy, random: Random) -> str | None:
    """Check that a larger allocation never ranks a user earlier.

    The result describes a violation; None if there is none.
    """
    world = draw(random)
    pool = world.pool(policy)
    for number, user in enumerate(world.users):
        prospect = pool.prospect(number)
        extra = Quantities({"cpus": 1000 * random.choice((1, 10)), "mem": random.choice((0, 1000))})
        (before, tolerance), (after, tolerance_after) = (
            prospect.rank,
            prospect.rank_of(user.holds + extra),
        )
        beyond_rounding = (after[0], after[1] + tolerance + tolerance_after) < (
            before[0],
            before[1],
        )
        if beyond_rounding or (after[:3] == before[:3] and after[3] < before[3]):
            return (
                f"user {number} has priority {before[1]:g}, and {after[1]:g} with {extra} more, "
                f"{world.told()}"
            )
    return None


def weight_is_not_later(policy: Policy, random: Random) -> str | None:
    """Check that doubling a user's weight never ranks the user later.

    The result describes a violation; None if there is none.
    """
    world = draw(random)
    number = random.randrange(len(world.users))
    user = world.users[number]
    heavier = replace(user, weight=min(2 * user.weight, 1e6))
    users = [heavier if other_user is user else other_user for other_user in world.users]
    before = world.pool(policy).standing(number).priority
    after = World(world.machines, users).pool(policy).standing(number).priority
    if after > before + 1e-9 * abs(before):
        return f"user {number} has priority {before:g}, and {after:g} with twice the weight, " + (
            world.told()
        )
    return None


def orders(policy: Policy, random: Random) -> str | None:
    """Check that a pool orders users by priority, while allocations change and time passes.

    If priorities change with time, a Live Tree keeps the order. The order must then equal that of
    a second pool, which computes all priorities anew and sorts them. The result describes a
    violation; None if there is none.
    """
    world = draw(random)
    pools = [world.pool(variant) for variant in _ways_to_rank(policy)]
    now = 0.0
    for _step in range(12):
        now += random.choice(_LATER)
        number = random.randrange(len(world.users))
        amounts = Quantities({"cpus": 1000 * random.randint(0, 20)})
        for pool in pools:
            pool.advance(now)
            if random.random() < 0.5 and pool is pools[0]:
                pool.standings()  # a read must not change the result
            held = pool.held(number)
            pool.release(number, held or Quantities())
            pool.allocate(number, amounts)
        rankings = [list(pool) for pool in pools]
        if rankings[0] != rankings[-1]:
            return (
                f"the Live Tree's order is {rankings[0]}, a scan's {rankings[-1]}, {world.told()}"
            )
        wrong = _out_of_order(pools[0], rankings[0])
        if wrong is not None:
            return f"{wrong}, {world.told()}"
    return None


def _ways_to_rank(policy: Policy) -> Iterator[Policy]:
    yield policy
    if not isinstance(policy, KeyPolicy):
        yield policy.model_copy(update={"ranking": "scan"})


def _out_of_order(pool: Pool[int], order: list[int]) -> str | None:
    before, last = -float("inf"), None
    for user in order:
        priority = pool.standing(user).priority
        if priority < before - 1e-9 * max(abs(before), 1.0):
            return (
                f"after {pool.now:g} s user {user} comes after {last}, though its priority "
                f"{priority:g} is less than {before:g}"
            )
        before, last = max(priority, before), user
    return None


def _accounts(pool: Pool[int]) -> Iterator[Account]:
    for account in pool.still().accounts.values():
        account.measured = dict(account.measured)
        yield account


def _questions(policy: Policy) -> Iterator[Callable[[Account], object]]:
    """Yield the methods that compute a policy's values from one user's account.

    The checks call each of them.
    """
    yield policy.measure
    yield policy.rate_of_use
    if isinstance(policy, KeyPolicy):
        yield policy.key
    if isinstance(policy, LinePolicy):
        yield policy.line


def _seen(account: Account) -> dict[str, object]:
    values = {field.name: getattr(account, field.name) for field in fields(Account)}
    return {
        name: dict(value) if isinstance(value, dict) else value for name, value in values.items()
    }
