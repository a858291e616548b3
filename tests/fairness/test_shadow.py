"""A shadow ranks users by its policy and real allocations, and does not change the pool."""

import functools
import math
import random
from typing import Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cooperative import run_to_completion
from allocator.fairness import policies
from allocator.fairness.machines import Machines
from allocator.fairness.pool import JournalEntry, Pool
from allocator.fairness.quantities import Quantities
from allocator.fairness.shadow import MOST_CLAIMANTS, Claims, Shadow

CPUS = Quantities.parse("cpus:10")
ONE = Quantities.parse("cpus:1")
HALF_LIFE = 100.0
DRF = policies.create("drf", {})


def sdrf(half_life: float = HALF_LIFE) -> policies.Policy:
    return policies.create("sdrf", {"half_life": half_life})


def pool_of(policy: policies.Policy, users: str = "ab") -> Pool[str]:
    pool: Pool[str] = Pool(policy, capacity=CPUS)
    for user in users:
        pool.add(user)
        pool.set_active(user, True)
    return pool


steps = st.lists(
    st.tuples(
        st.sampled_from(["give", "take", "idle", "wake", "wait", "weigh", "come", "go", "resize"]),
        st.sampled_from("abcd"),
        st.integers(1, 3),
    ),
    max_size=40,
)


def take(pool: Pool[str], step: str, user: str, number: int) -> None:
    if step == "wait":
        pool.advance(pool.now + 10.0 * number)
    elif step == "come" and user not in pool:
        pool.add(user)
    elif step == "resize" and not pool.held():
        pool.set_capacity(CPUS.times(number - 1))
    elif user in pool:
        if step == "give" and pool.capacity.contains(pool.held() + ONE.times(number)):
            pool.allocate(user, ONE.times(number), times=number)
        elif step == "take" and pool.held(user).contains(ONE.times(number)):
            pool.release(user, ONE.times(number))
        elif step in {"idle", "wake"}:
            pool.set_active(user, step == "wake")
        elif step == "weigh":
            pool.set_weight(user, float(number))
        elif step == "go" and not pool.held(user):
            pool.remove(user)


class Follow(Protocol):
    def __call__(self, *, run: bool = False) -> None: ...


def followed(pool: Pool[str], policy: policies.Policy) -> tuple[Shadow[str], Follow]:
    """Return a shadow of a pool, and a function that lets the shadow follow the pool."""
    shadow, journal = Shadow(policy, pool), pool.keep_journal()

    def follow(*, run: bool = False) -> None:
        (shadow.follow_cycle if run else shadow.follow)(list(journal))
        journal.clear()
        shadow.pool.advance(pool.now)

    return shadow, follow


@given(steps)
def test_a_shadow_with_the_same_policy_has_the_commitments_and_order_of_its_pool(
    history: list[tuple[str, str, int]],
) -> None:
    pool, alone = pool_of(sdrf()), pool_of(sdrf())
    shadow, follow = followed(pool, sdrf())
    alone.standings()  # The pool was read once when the shadow began to follow.
    for step in history:
        follow()
        take(pool, *step)
        take(alone, *step)
        follow()
        for user in pool.users():
            real, own = pool.standing(user), shadow.pool.standing(user)
            assert real == alone.standing(user), "a follower changes nothing"
            assert own.commitment == pytest.approx(real.commitment, abs=1e-9)
            assert own.priority == pytest.approx(real.priority, abs=1e-9)
            assert (own.active, own.weight, own.allocation) == (
                real.active,
                real.weight,
                real.allocation,
            )
        assert list(pool) == list(alone)


@given(steps, st.sampled_from([DRF, sdrf(10.0)]), st.integers(1, 9))
def test_following_late_gives_exactly_the_same_results_as_following_at_once(
    history: list[tuple[str, str, int]], policy: policies.Policy, every: int
) -> None:
    pool = pool_of(sdrf(), "abcd")
    prompt, late = Shadow(policy, pool), Shadow(policy, pool)
    journal, waiting = pool.keep_journal(), list[tuple[bool, list[JournalEntry]]]()

    def catch_up() -> None:
        for run, deeds in waiting:
            (late.follow_cycle if run else late.follow)(deeds)
        waiting.clear()

    for number, step in enumerate(history):
        take(pool, *step)
        run, deeds = step[0] == "give", list(journal)
        journal.clear()
        (prompt.follow_cycle if run else prompt.follow)(deeds)
        waiting.append((run, deeds))
        if number % every == 0 and every < 9:  # with `every` = 9, everything waits until the end
            catch_up()
    catch_up()
    for shadow in (prompt, late):
        shadow.pool.advance(pool.now)
    assert run_to_completion(prompt.gains_in_steps()) == run_to_completion(late.gains_in_steps())
    assert list(prompt.pool) == list(late.pool)
    assert prompt.pool.standings() == late.pool.standings()


def test_a_shadow_with_another_half_life_has_other_commitments_and_another_order() -> None:
    pool = pool_of(DRF)
    shadow, follow = followed(pool, sdrf())
    pool.allocate("a", CPUS)
    follow()
    pool.advance(HALF_LIFE)
    pool.release("a", CPUS)
    pool.allocate("b", ONE)
    follow()
    assert list(pool) == ["a", "b"], "DRF has no memory"
    assert list(shadow.pool) == ["b", "a"]
    assert shadow.pool.standing("a").commitment == pytest.approx(0.5 * 0.5)


def test_a_shadow_that_counts_tasks_knows_the_demands_from_before_its_start() -> None:
    machines: Machines[str] = Machines()
    for name in "wxyz":
        machines.put(name, Quantities.parse("cpus:1.5"))
    pool: Pool[str] = Pool(DRF, capacity=Quantities.parse("cpus:6"), machines=machines)
    for user, task, number in (("a", "cpus:1", 1), ("b", "cpus:0.5", 2)):
        pool.add(user)
        pool.set_active(user, True)
        pool.set_demand(user, Quantities.parse(task))
        pool.allocate(user, Quantities.parse(task).times(number), times=number)
    shadow = Shadow(policies.create("tsf", {}), pool)
    assert list(pool) == ["a", "b"]
    assert list(shadow.pool) == ["b", "a"], "a runs one of four tasks that fit, b two of twelve"
    assert shadow.pool.standing("a").task_share == 0.25


def test_an_allocation_that_the_shadow_would_give_another_user_counts_while_it_is_held() -> None:
    pool = pool_of(sdrf())
    pool.set_commitment("b", 1.0)
    shadow, follow = followed(pool, DRF)
    for _ in range(4):  # SDRF allocates all to a, which has no commitment; DRF would alternate.
        pool.allocate("a", ONE)
    follow(run=True)
    pool.advance(100.0)
    follow()
    assert run_to_completion(shadow.gains_in_steps()) == pytest.approx(
        {"a": -0.2 * 100, "b": 0.2 * 100}
    )
    pool.release("a", ONE.times(2))
    follow()
    pool.advance(200.0)
    follow()
    assert run_to_completion(shadow.gains_in_steps())["b"] == pytest.approx(
        0.2 * 100 + 0.1 * 100
    ), "half of the difference remains"
    pool.release("a", ONE.times(2))
    follow()
    pool.advance(1000.0)
    follow()
    assert run_to_completion(shadow.gains_in_steps())["b"] == pytest.approx(30.0), (
        "released resources are no loss any more"
    )


def test_a_cycle_with_the_shadows_own_allocations_causes_no_gains() -> None:
    pool = pool_of(sdrf())
    shadow, follow = followed(pool, DRF)
    for user in "abab":
        pool.allocate(user, ONE)
    follow(run=True)
    pool.advance(100.0)
    follow()
    assert not any(run_to_completion(shadow.gains_in_steps()).values())


def test_no_claim_is_kept_for_users_with_the_shadows_own_allocation() -> None:
    pool = pool_of(sdrf(), "abcd")
    pool.set_capacity(Quantities.parse("cpus:8"))
    pool.set_commitment("c", 1.0)
    shadow, follow = followed(pool, DRF)
    for user in "aabd":  # DRF would allocate one of them to c.
        pool.allocate(user, ONE)
    follow(run=True)
    assert names_in(shadow._claims) == 2, "a claim of a, and c as its beneficiary"


def test_a_successor_pool_is_followed_with_the_former_commitments() -> None:
    pool = pool_of(DRF)
    shadow, follow = followed(pool, sdrf())
    pool.allocate("a", CPUS)
    follow()
    successor: Pool[str] = Pool(DRF, capacity=CPUS, now=HALF_LIFE)
    for user in "ac":
        successor.add(user)
        successor.set_active(user, True)
    successor.allocate("a", ONE)
    shadow.attach(successor)
    assert shadow.pool.standing("a").commitment == pytest.approx(0.25)
    assert "b" not in shadow.pool
    assert shadow.pool.held("a") == ONE


def names_in(claims: Claims[str]) -> int:
    """Return the number of names in claims, counted each time."""
    return len(claims._seconds) + sum(
        1 + len(kept.named) for kept in claims._claims_by_user.values()
    )


def test_only_the_largest_gains_keep_their_user_names_and_losses_stay_exact() -> None:
    claims: Claims[str] = Claims()
    shares = {f"u{number}": 1e-6 * (1 + number * 7919 % 1000) for number in range(1000)}
    for user, share in shares.items():
        claims.give("a", user, share, 0.0)
        assert len(claims._claims_by_user["a"].named) < 2 * MOST_CLAIMANTS
    gains = run_to_completion(claims.gains_in_steps(lambda: 100.0))
    assert gains["a"] == pytest.approx(-100.0 * sum(shares.values()))
    largest = sorted(shares, key=lambda user: -shares[user])[:MOST_CLAIMANTS]
    assert {user: gains[user] for user in largest} == pytest.approx(
        {user: 100.0 * shares[user] for user in largest}
    )
    # Users that lose their entry keep their gains so far; further gains belong to no user.
    first = {user: gains[user] for user in claims._claims_by_user["a"].named}
    for number in range(2 * MOST_CLAIMANTS):
        claims.give("a", f"larger{number}", 0.1, 100.0)
    gains = run_to_completion(claims.gains_in_steps(lambda: 200.0))
    assert {user: gains[user] for user in first} == pytest.approx(first)


def test_removed_users_have_no_names_in_claims_and_losses_of_other_users_continue() -> None:
    claims: Claims[str] = Claims()
    for number in range(3 * MOST_CLAIMANTS):
        claims.give("a", f"u{number}", 1e-3, 0.0)
        claims.give(f"u{number}", "b", 1e-3, 0.0)
        claims.forget({f"u{number}"}, 0.0)
        assert names_in(claims) <= 5
    gains = run_to_completion(claims.gains_in_steps(lambda: 10.0))
    assert gains == pytest.approx({"a": -3 * MOST_CLAIMANTS * 1e-2, "b": 0.0}, abs=1e-12)
    claims.keep("a", 0.0, 10.0)
    assert run_to_completion(claims.gains_in_steps(lambda: 99.0)).keys() == {"a", "b"}
    assert names_in(claims) <= 5


def test_users_that_leave_the_pool_leave_the_shadow() -> None:
    pool = pool_of(sdrf(), "abc")
    pool.set_commitment("b", 1.0)
    pool.set_commitment("c", 1.0)
    shadow, follow = followed(pool, DRF)
    for _ in range(6):  # all to a; DRF would allocate a third each to b and c
        pool.allocate("a", ONE)
    follow(run=True)
    pool.advance(100.0)
    follow()
    assert run_to_completion(shadow.gains_in_steps()).keys() == {"a", "b", "c"}
    pool.remove("c")
    follow()
    successor: Pool[str] = Pool(DRF, capacity=CPUS, now=200.0)
    successor.add("a")
    successor.allocate("a", ONE.times(6))
    shadow.attach(successor)
    assert run_to_completion(shadow.gains_in_steps()) == pytest.approx({"a": -0.4 * 200.0})


def test_few_gaining_users_all_keep_their_names() -> None:
    claims: Claims[str] = Claims()
    for number in range(2 * MOST_CLAIMANTS - 1):
        claims.give("a", f"u{number}", 1e-3 * number, 0.0)
    gains = run_to_completion(claims.gains_in_steps(lambda: 100.0))
    assert all(gains[f"u{number}"] == pytest.approx(0.1 * number) for number in range(127))


class Plain:
    """Each differing allocation with its remaining part, added up for each second."""

    def __init__(self) -> None:
        self.gifts: list[tuple[str, str, float]] = []
        self.gains: dict[str, float] = {}

    def wait(self, seconds: float) -> None:
        for user, receiver, share in self.gifts:
            for party, sign in ((user, -1.0), (receiver, 1.0)):
                self.gains[party] = self.gains.get(party, 0.0) + sign * share * seconds
        self.gains.pop("", None)

    def keep(self, user: str, fraction: float) -> None:
        self.gifts = [(u, o, share * (fraction if u == user else 1)) for u, o, share in self.gifts]

    def forget(self, gone: set[str]) -> None:
        self.gifts = [(u, "" if o in gone else o, s) for u, o, s in self.gifts if u not in gone]
        self.gains = {user: gain for user, gain in self.gains.items() if user not in gone}


@pytest.mark.parametrize("seed", range(3))
def test_gains_equal_those_of_each_allocation_counted_separately(seed: int) -> None:
    chance, now = random.Random(seed), 5.0
    claims, plain = Claims[str](), Plain()
    for _ in range(150):
        wait = chance.choice([0.0, 1.0, 60.0])
        now += wait
        plain.wait(wait)
        user, receiver = chance.sample("abcd", 2)
        match chance.randrange(8):
            case 0:
                claims.forget({user, receiver}, now)
                plain.forget({user, receiver})
            case 1 | 2:
                fraction = chance.choice([0.0, 0.5, 0.9])
                claims.keep(user, fraction, now)
                plain.keep(user, fraction)
            case _:
                share = chance.random()
                claims.give(user, receiver, share, now)
                plain.gifts.append((user, receiver, share))
        gains = run_to_completion(claims.gains_in_steps(functools.partial(float, now + 7.0)))
        later = Plain()
        later.gifts, later.gains = plain.gifts, dict(plain.gains)
        later.wait(7.0)
        users = gains.keys() | later.gains.keys()
        assert {user: gains.get(user, 0.0) for user in users} == pytest.approx(
            {user: later.gains.get(user, 0.0) for user in users}, abs=1e-6
        )


def debtors() -> tuple[Pool[str], Shadow[str], Follow]:
    """Return a pool of a, and of b and c with commitments, and its shadow under DRF."""
    pool = pool_of(sdrf(), "abc")
    for user in "bc":
        pool.set_commitment(user, 1.0)
    shadow, follow = followed(pool, DRF)
    return pool, shadow, follow


def gained(pool: Pool[str], shadow: Shadow[str], follow: Follow) -> dict[str, object]:
    """Return the users' additional gains of the next 100 s, as fractions of the cluster."""
    before = run_to_completion(shadow.gains_in_steps())
    pool.advance(pool.now + 100.0)
    follow()
    gains = {
        user: gain - before.get(user, 0.0)
        for user, gain in run_to_completion(shadow.gains_in_steps()).items()
    }
    return {user: pytest.approx(gain / 100.0) for user, gain in gains.items() if abs(gain) > 1e-9}


def test_each_cycle_is_compared_in_as_many_parts_as_it_allocated() -> None:
    pool, shadow, follow = debtors()
    pool.allocate("a", ONE)  # the same allocation as DRF
    follow(run=True)
    assert gained(pool, shadow, follow) == {}
    pool.allocate("a", ONE)
    follow(run=True)
    assert gained(pool, shadow, follow) == {"a": -0.1, "b": 0.1}
    pool.allocate("a", ONE.times(2), times=2)
    follow(run=True)
    assert gained(pool, shadow, follow) == {"a": -0.3, "b": 0.2, "c": 0.1}
    pool.allocate("c", ONE.times(4), times=1)  # one offer, which DRF would give b
    follow(run=True)
    assert gained(pool, shadow, follow) == {"a": -0.3, "b": 0.6, "c": -0.3}
    assert [shadow.pool.holding(user) for user in "abc"] == [pool.holding(user) for user in "abc"]


def test_a_user_that_is_added_in_a_cycle_is_compared_with_nothing_before() -> None:
    pool, shadow, follow = debtors()
    pool.add("d")
    pool.allocate("d", ONE.times(3), times=3)  # DRF would give one to each of a, b and c
    pool.add("e")
    pool.remove("e")
    follow(run=True)
    assert gained(pool, shadow, follow) == {"a": 0.1, "b": 0.1, "c": 0.1, "d": -0.3}
    assert shadow.pool.holding("d") == pool.holding("d")


def test_a_cycle_that_is_followed_late_counts_from_its_own_time() -> None:
    pool, shadow, _ = debtors()
    journal = pool.keep_journal()
    pool.advance(50.0)
    pool.allocate("a", ONE.times(2), times=2)
    shadow.follow_cycle(list(journal))
    shadow.pool.advance(150.0)
    assert run_to_completion(shadow.gains_in_steps()) == pytest.approx(
        {"a": -0.1 * 100, "b": 0.1 * 100}
    )


def test_uncounted_resources_are_no_gain_and_no_loss() -> None:
    pool: Pool[str] = Pool(sdrf(), capacity=Quantities.parse("cpus:10;disk:10"), excluded=("disk",))
    for user in "ab":
        pool.add(user, commitment=float(user == "b"))
        pool.set_active(user, True)
    shadow, follow = followed(pool, DRF)
    pool.allocate("a", ONE, times=1)
    pool.allocate("a", ONE + Quantities.parse("disk:9"), times=1)
    follow(run=True)
    assert gained(pool, shadow, follow) == {"a": -0.1, "b": 0.1}
    pool.release("a", Quantities.parse("disk:9"))
    pool.allocate("b", Quantities.parse("disk:1"))
    follow()
    pool.release("b", Quantities.parse("disk:1"))
    follow()
    assert gained(pool, shadow, follow) == {"a": -0.1, "b": 0.1}
    pool.set_capacity(Quantities())
    follow()
    pool.allocate("a", ONE)
    follow(run=True)
    assert gained(pool, shadow, follow) == {"a": -0.1, "b": 0.1}


def test_after_a_change_of_pool_only_the_remaining_allocation_counts() -> None:
    pool, shadow, follow = debtors()
    pool.allocate("a", ONE.times(4), times=4)
    follow(run=True)
    assert gained(pool, shadow, follow) == {"a": -0.2, "b": 0.1, "c": 0.1}
    successor = pool_of(sdrf(), "abc")
    successor.advance(pool.now)
    successor.allocate("a", ONE.times(2))
    shadow.attach(successor)
    before = run_to_completion(shadow.gains_in_steps())
    shadow.pool.advance(pool.now + 100.0)
    gains = run_to_completion(shadow.gains_in_steps())
    assert {user: gains[user] - before[user] for user in "abc"} == pytest.approx(
        {"a": -10.0, "b": 5.0, "c": 5.0}
    )


@given(st.lists(st.tuples(st.booleans(), st.floats(0.01, 0.99), st.floats(0.0, 10.0)), max_size=30))
def test_gains_and_losses_add_up_to_zero(history: list[tuple[bool, float, float]]) -> None:
    claims: Claims[str] = Claims()
    now = 0.0
    for gift, amount, wait in history:
        now += wait
        if gift:
            claims.give("a", "b", amount, now)
        else:
            claims.keep("a", amount, now)
    gains = run_to_completion(claims.gains_in_steps(lambda: now))
    assert math.fsum(gains.values()) == pytest.approx(0.0, abs=1e-6)
    assert gains.get("b", 0.0) >= -1e-9
