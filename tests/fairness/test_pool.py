"""A pool ranks its users by policy and accrues their commitments exactly (paper §3.4, §5.1)."""

import math
import random
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from typing_extensions import override

from allocator.fairness import policies
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.fairness.ranking import KeyRanking, ScanRanking
from tests.examples import examples, scaled

CLUSTER = Quantities.parse("cpus:160;mem:245760")
TASK = Quantities.parse("cpus:1;mem:1024")


def pool(policy: str = "sdrf", users: str = "ABCD", **parameters: object) -> Pool[str]:
    made: Pool[str] = Pool(policies.create(policy, parameters), capacity=CLUSTER)
    for user in users:
        made.add(user)
        made.set_active(user, True)
    return made


def hold(made: Pool[str], user: str, tasks: int) -> None:
    made.allocate(user, Quantities({name: tasks * amount for name, amount in TASK.items()}))


def test_the_user_with_the_smallest_dominant_share_is_next() -> None:
    made = pool("drf")
    hold(made, "A", 2)
    made.allocate("B", Quantities.parse("mem:2000"))
    assert list(made) == ["C", "D", "B", "A"]


@pytest.mark.parametrize("policy", ["cmmf", "yarn-fair"])
def test_users_have_equal_shares_of_a_resource_that_the_cluster_does_not_have(policy: str) -> None:
    made = pool(policy, "AB", resource="gpus")
    made.set_weight("B", 2.0)
    assert list(made) == ["A", "B"]


def test_a_new_user_has_no_allocation_activity_commitment_or_use() -> None:
    for policy, parameters in (("sdrf", {"half_life": 5}), ("dynamic-drf", {}), ("fifo", {})):
        made: Pool[str] = Pool(policies.create(policy, parameters), capacity=CLUSTER)
        made.add("A")
        standing = made.standing("A")
        assert not standing.active
        assert made.holding("A") == (Quantities(), 0)
        assert (standing.priority, standing.commitment, standing.inherited) == (0.0, 0.0, 0.0)
    made = Pool(policies.create("fifo", {}))
    for place, user in enumerate("AB", 1):
        made.add(user)
        made.set_active(user, True)
        assert made.standing(user).priority == place
        assert made.standing(user).share == 0.0, "the capacity is empty"


def test_on_a_machine_without_counted_resources_no_user_has_a_share() -> None:
    made = pool("per-machine-drf", "AB")
    assert list(made) == ["A", "B"]
    gpus = Quantities.parse("gpus:1")
    assert made.local_share("A", gpus, gpus) == 0.0
    assert made.local_share("A", TASK, TASK.times(4)) == 0.25


def test_the_count_of_crossings_continues_after_a_complete_reranking() -> None:
    made = pool(users="AB", delta=0.99)
    assert made.events == 0
    for times in (1, 2):
        hold(made, "A", 160)
        made.advance(made.now + 100.0)
        made.release("A", TASK.times(160))
        hold(made, "B", 16)
        assert made.minimum() == "B"
        made.set_capacity(CLUSTER + Quantities({"disk": times}))
        assert list(made) == ["B", "A"]
        made.advance(made.now + 1000.0)
        assert made.minimum() == "A"
        assert made.events == times
        made.release("B", TASK.times(16))
        made.set_capacity(CLUSTER)
        assert list(made)
        assert made.events == times
    assert pool("drf").events == pool(delta=0.99, ranking="scan").events == 0, (
        "neither policy has crossings"
    )


@pytest.mark.parametrize("looked", [False, True])
def test_commitments_are_those_of_now_whether_or_not_they_were_read_before(*, looked: bool) -> None:
    made, second = pool(users="AB", delta=0.99), pool(users="AB", delta=0.99)
    for tested in (made, second):
        if looked:
            assert tested.minimum() == "A"
        hold(tested, "A", 160)
        tested.advance(tested.now + 50.0)
    owed, inherited = made.debts("A")
    standing = second.standing("A")
    assert (owed, inherited) == (standing.commitments, standing.inherited)
    assert max(owed.values()) > 0.1
    made.set_weight("A", 3.0)
    assert made.debts("A") == (owed, inherited), "the new weight has not applied for any time yet"


def test_weights_divide_priorities() -> None:
    made = pool("drf", "AB")
    made.set_weight("A", 3.0)
    hold(made, "A", 5)
    hold(made, "B", 2)
    assert made.minimum() == "A"
    assert made.standing("A").entitlement == 0.75


def test_of_equal_users_the_one_with_fewer_allocations_is_next() -> None:
    made = pool("drf", "AB")
    hold(made, "A", 1)
    made.release("A", TASK)
    assert list(made) == ["B", "A"]
    made.allocate("B", Quantities(), times=0)
    assert list(made) == ["B", "A"]


def test_only_active_users_are_ranked_but_all_users_count() -> None:
    made = pool("drf")
    made.set_active("B", False)
    assert list(made) == ["A", "C", "D"]
    assert (len(made), made.active) == (4, 3)
    assert made.standing("A").entitlement == 0.25


def test_a_user_alone_among_four_declared_has_a_commitment_of_58_percent_after_150_seconds() -> (
    None
):
    made = pool(delta=0.99)
    hold(made, "A", 160)
    made.advance(150.0)
    assert made.standing("A").commitment == pytest.approx(0.75 * (1 - 0.99**150))


def test_a_user_alone_among_registered_users_has_no_commitment() -> None:
    made = pool(users="A", delta=0.99)
    hold(made, "A", 160)
    made.advance(150.0)
    assert made.standing("A").commitment == 0.0


def test_light_users_come_first_until_the_heavy_users_commitment_has_decayed() -> None:
    made = pool(users="AB", delta=0.99)
    hold(made, "A", 160)
    made.advance(100.0)
    made.release("A", Quantities({name: 160 * amount for name, amount in TASK.items()}))
    hold(made, "B", 16)
    owed = made.standing("A").commitment
    assert made.minimum() == "B", "B's share of 10 % is less than A's commitment"
    [crossing] = made.crossings()
    assert (crossing.left, crossing.right) == ("B", "A")
    assert crossing.when == pytest.approx(100.0 + math.log(owed / 0.1) / -math.log(0.99))
    made.advance(crossing.when - 1e-3)
    assert made.minimum() == "B"
    made.advance(crossing.when + 1e-3)
    assert made.minimum() == "A"


@pytest.mark.parametrize("change", ["capacity", "weight", "user"])
def test_commitments_accrue_under_the_old_values_until_values_change(change: str) -> None:
    made = pool(delta=0.99)
    hold(made, "A", 160)
    made.advance(50.0)
    if change == "capacity":
        made.set_capacity(CLUSTER + CLUSTER)
        over = 0.25
    elif change == "weight":
        made.set_weight("A", 5.0)
        over = 1 - 5 / 8
    else:
        for extra in "EFGH":
            made.add(extra)
        over = 1 - 1 / 8
    owed = 0.75 * (1 - 0.99**50)
    assert made.standing("A").commitment == pytest.approx(owed)
    made.advance(80.0)
    assert made.standing("A").commitment == pytest.approx(over * (1 - 0.99**30) + owed * 0.99**30)


def test_a_reading_in_between_changes_nothing() -> None:
    looked, left_alone = pool(delta=0.9), pool(delta=0.9)
    for made in (looked, left_alone):
        hold(made, "A", 100)
    for instant in range(1, 40):
        looked.advance(instant / 10)
        assert list(looked)
        assert looked.standings()
    for made in (looked, left_alone):
        made.advance(4.0)
    assert looked.standings() == left_alone.standings(), "equal to the last bit"


def test_standings_of_a_later_instant_can_be_read_without_advancing() -> None:
    made = pool(delta=0.9)
    hold(made, "A", 100)
    ahead = made.standings_at(7.0)
    assert made.now == 0.0
    made.advance(7.0)
    assert made.standings() == ahead


def test_commitments_of_another_policy_decay_while_a_time_constant_is_set() -> None:
    made: Pool[str] = Pool(policies.create("drf", {}), capacity=CLUSTER)
    made.add("A", commitment=0.5)
    made.set_fading(10.0)
    made.advance(10.0)
    made.set_fading(None)
    made.advance(100.0)
    assert made.standing("A").inherited == pytest.approx(0.5 / math.e)


def test_initial_commitments_apply_to_every_resource_or_by_name() -> None:
    made: Pool[str] = Pool(policies.create("sdrf", {"delta": 1 - 1e-7}))
    made.add("A", commitment=0.5)
    made.add("B", commitment={"cpus": 0.4})
    made.set_capacity(CLUSTER)
    assert made.standing("A").commitments == {"cpus": 0.5, "mem": 0.5}
    assert made.standing("B").commitments == {"cpus": 0.4, "mem": 0.0}
    made.set_commitment("B", 0.1)
    assert made.standing("B").commitment == 0.1


def test_the_thesis_adds_share_and_commitment_of_the_same_resource() -> None:
    for form, priority in {"journal": 0.5 + 0.4, "thesis": 0.5}.items():
        made = pool(users="AB", delta=0.9, form=form)
        made.set_commitment("A", {"cpus": 0.0, "mem": 0.4})
        made.allocate("A", Quantities.parse("cpus:80"))
        assert made.standing("A").priority == pytest.approx(priority)


@pytest.mark.parametrize("form", ["journal", "thesis"])
def test_times_that_would_overflow_the_exponential_give_finite_priorities(form: str) -> None:
    made = pool(users="AB", delta=0.5, form=form)
    scan = pool(users="AB", delta=0.5, form=form, ranking="scan")
    rng = random.Random(1)
    for _ in range(300):
        for both in (made, scan):
            state = rng.getstate()
            hold(both, rng.choice("AB"), 1)
            both.advance(both.now + rng.choice([0.1, 5.0, 1e3, 1e9]))
            if both is made:
                rng.setstate(state)
        assert list(made) == list(scan)
        assert all(math.isfinite(standing.priority) for standing in made.standings())


def test_excluded_resources_count_for_nothing() -> None:
    made: Pool[str] = Pool(
        policies.create("sdrf", {"delta": 0.9}), capacity=CLUSTER, excluded=["mem"]
    )
    made.add("A")
    made.allocate("A", Quantities.parse("cpus:16;mem:245760"))
    made.advance(100.0)
    assert made.standing("A").share == 0.1
    assert made.standing("A").commitment == 0.0


@pytest.mark.parametrize("form", ["journal", "thesis"])
def test_commitments_of_uncounted_resources_are_kept_but_do_not_count(form: str) -> None:
    policy = policies.create("sdrf", {"delta": 0.9, "form": form})
    made: Pool[int] = Pool(policy, capacity=CLUSTER, excluded=["mem"])
    made.add(1, commitment={"mem": 0.9, "disk": 0.8, "cpus": 0.1})
    made.add(2, commitment={"cpus": 0.2})
    for user in (1, 2):
        made.set_active(user, True)
    assert list(made) == [1, 2]
    standing = made.standing(1)
    assert standing.commitment == 0.1
    assert standing.priority == pytest.approx(0.1)
    assert standing.commitments == {"mem": 0.9, "disk": 0.8, "cpus": 0.1}


def test_standings_of_equal_users_are_ordered_by_user() -> None:
    made: Pool[int] = Pool(policies.create("sdrf", {"delta": 0.9}), capacity=CLUSTER)
    for user in (10, 2, 1):
        made.add(user)
        made.set_active(user, True)
    assert [standing.user for standing in made.standings()] == list(made) == [1, 2, 10]


@pytest.mark.parametrize(
    ("action", "complaint"),
    [
        (lambda p: p.add("A"), "user 'A' is known already"),
        (lambda p: p.add("E", weight=0.0), "user 'E': weight 0.0"),
        (lambda p: p.add("E", commitment=math.inf), "commitment inf"),
        (lambda p: p.set_weight("A", math.nan), "weight nan"),
        (lambda p: p.set_commitment("A", {"cpus": -0.1}), "commitment -0.1 of cpus"),
        (lambda p: p.remove("A"), "user 'A' still holds cpus:1;mem:1024"),
        (lambda p: p.release("A", CLUSTER), "user 'A': cannot take 160 of 'cpus' from 1"),
        (lambda p: p.remove("Z"), "user 'Z' is not known"),
        (lambda p: p.allocate("Z", TASK), "user 'Z' is not known"),
        (lambda p: p.standing("Z"), "user 'Z' is not known"),
    ],
)
def test_an_invalid_call_names_the_user_and_changes_nothing(action: object, complaint: str) -> None:
    made = pool(delta=0.9)
    hold(made, "A", 1)
    before = made.standings()
    with pytest.raises((ValueError, KeyError), match=complaint):
        action(made)  # type: ignore[operator]
    assert made.standings() == before


def test_a_commitment_above_one_after_a_shrunken_capacity_can_be_inherited() -> None:
    made = pool(users="AB", delta=0.9)
    hold(made, "A", 160)
    made.set_capacity(Quantities.parse("cpus:40;mem:61440"))
    made.advance(100.0)
    owed = made.standing("A").commitments
    assert owed["cpus"] > 3
    heir = pool(users="", delta=0.9)
    heir.add("A", commitment=owed)
    assert heir.standing("A").commitments == owed


def test_an_instant_that_is_not_a_number_is_ignored() -> None:
    made = pool(delta=0.9)
    made.advance(1.0)
    made.advance(math.nan)
    assert made.now == 1.0


def test_an_empty_pool_has_no_next_user() -> None:
    with pytest.raises(KeyError, match="no user is active"):
        pool(users="", delta=0.9).minimum()


POLICIES = [
    {"delta": 0.99},
    {"delta": 0.9, "form": "thesis"},
    {"half_life": 3, "ranking": "scan"},
]


class PoolMachine(RuleBasedStateMachine):
    """Any calls in any order, compared with plain piecewise integration of commitments."""

    @initialize(parameters=st.sampled_from(POLICIES))
    def start(self, parameters: dict[str, object]) -> None:
        policy = policies.create("sdrf", parameters)
        assert policy.tau is not None
        self.tau = policy.tau
        self.thesis = parameters.get("form") == "thesis"
        self.pool: Pool[int] = Pool(policy, capacity=CLUSTER)
        self.capacity = CLUSTER
        self.held: dict[int, Quantities] = {}
        self.weights: dict[int, float] = {}
        self.owed: dict[int, dict[str, float]] = {}
        self.ready = True
        for user in range(3):
            self.user_comes(user, 1.0, 0.0)
            self.user_gets_tasks(user, 30 * user)

    def share(self, user: int, name: str) -> float:
        return self.held[user][name] / self.capacity[name]

    @rule(user=st.integers(0, 6), weight=st.sampled_from([1.0, 2.0, 0.5]), owed=st.floats(0, 1))
    def user_comes(self, user: int, weight: float, owed: float) -> None:
        if user in self.held:
            return
        self.pool.add(user, weight=weight, commitment=owed)
        self.pool.set_active(user, True)
        self.held[user] = Quantities()
        self.weights[user] = weight
        self.owed[user] = dict.fromkeys(self.capacity, owed)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def user_goes(self, data: st.DataObject) -> None:
        user = data.draw(st.sampled_from(sorted(self.held)))
        if self.held[user]:
            return
        self.pool.remove(user)
        del self.held[user], self.weights[user], self.owed[user]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), tasks=st.integers(1, 20))
    def user_gets(self, data: st.DataObject, tasks: int) -> None:
        self.user_gets_tasks(data.draw(st.sampled_from(sorted(self.held))), tasks)

    def user_gets_tasks(self, user: int, tasks: int) -> None:
        added = Quantities({"cpus": tasks * 1000, "mem": tasks * 512_000})
        self.pool.allocate(user, added)
        self.held[user] = self.held[user] + added

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def user_gives_back(self, data: st.DataObject) -> None:
        user = data.draw(st.sampled_from(sorted(self.held)))
        half = Quantities({name: amount // 2 for name, amount in self.held[user].items()})
        self.pool.release(user, half)
        self.held[user] = self.held[user] - half

    @precondition(lambda self: self.held)
    @rule(data=st.data(), weight=st.sampled_from([1.0, 3.0]))
    def weight_changes(self, data: st.DataObject, weight: float) -> None:
        user = data.draw(st.sampled_from(sorted(self.held)))
        self.pool.set_weight(user, weight)
        self.weights[user] = weight

    @rule(cpus=st.sampled_from([160, 80, 200]))
    def capacity_changes(self, cpus: int) -> None:
        self.capacity = Quantities({"cpus": cpus * 1000, "mem": 245_760_000})
        self.pool.set_capacity(self.capacity)

    @rule(seconds=st.sampled_from([0.0, 0.25, 1.0, 10.0, 2000.0]))
    def time_passes(self, seconds: float) -> None:
        self.pool.advance(self.pool.now + seconds)
        total = sum(self.weights.values())
        fade = math.exp(-seconds / self.tau)
        for user in self.held:
            for name in self.capacity:
                over = max(self.share(user, name) - self.weights[user] / total, 0.0)
                self.owed[user][name] = (1 - fade) * over + fade * self.owed[user][name]

    def priority(self, user: int) -> float:
        shares = {name: self.share(user, name) for name in self.capacity}
        owed = self.owed[user]
        value = (
            max(shares[name] + owed[name] for name in shares)
            if self.thesis
            else max(shares.values()) + max(owed.values())
        )
        return value / self.weights[user]

    @invariant()
    def everybody_stands_where_the_equations_say(self) -> None:
        if not hasattr(self, "ready"):
            return
        for user in self.held:
            standing = self.pool.standing(user)
            assert standing.allocation == self.held[user]
            for name, owed in standing.commitments.items():
                assert owed == pytest.approx(self.owed[user][name], abs=1e-9)
            assert standing.priority == pytest.approx(self.priority(user), abs=1e-9)

    @invariant()
    def the_order_is_that_of_priorities(self) -> None:
        if not hasattr(self, "ready"):
            return
        order = list(self.pool)
        assert sorted(order) == sorted(self.held)
        values = [self.priority(user) for user in order]
        assert all(a <= b + 1e-9 for a, b in pairwise(values))


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = examples(80, stateful_step_count=40)


@pytest.mark.slow
@pytest.mark.parametrize(
    "parameters", [{"delta": 0.99}, {"delta": 0.9, "form": "thesis"}], ids=["journal", "thesis"]
)
def test_thousands_of_operations_of_hundreds_of_users_agree_with_a_scan(
    parameters: dict[str, object],
) -> None:
    rng = random.Random(7)
    capacity = Quantities({"cpus": 1_000_000, "mem": 4_000_000, "gpus": 64_000})
    live: Pool[int] = Pool(policies.create("sdrf", parameters), capacity=capacity)
    scan: Pool[int] = Pool(
        policies.create("sdrf", {**parameters, "ranking": "scan"}), capacity=capacity
    )
    held: dict[int, list[Quantities]] = {user: [] for user in range(200)}
    for user in held:
        weight, owed = rng.choice([1.0, 1.0, 3.0]), rng.choice([0.0, 0.0, 0.25, 0.5])
        for both in (live, scan):
            both.add(user, weight=weight, commitment=owed)
            both.set_active(user, True)
    now = 0.0
    for step in range(scaled(30_000)):
        now += rng.choice([0.0, 0.0, 0.01, 0.5, 3.0, rng.random()])
        user = rng.randrange(200)
        grow = rng.random() < 0.5 or not held[user]
        amount = (
            Quantities(
                {"cpus": rng.choice([1000, 2000]), "mem": 1000, "gpus": rng.choice([0, 500])}
            )
            if grow
            else held[user].pop()
        )
        for both in (live, scan):
            both.advance(now)
            (both.allocate if grow else both.release)(user, amount)
        if grow:
            held[user].append(amount)
        first = live.minimum()
        scan._update_order()
        assert isinstance(scan._ranking, ScanRanking)
        envelopes, s = scan._ranking._attributes, -scan._ranking._now
        least = min(envelope.at(s) for envelope in envelopes.values())
        assert envelopes[first].at(s) <= least + 1e-12, "the next user is right at every instant"
        if step % 250 == 0:
            assert list(live) == list(scan), "the whole order is right, including ties"


@pytest.mark.parametrize("half_life", [0.01, 1.0, 1e6])
@pytest.mark.parametrize("ranking", ["live-tree", "scan"])
def test_commitments_are_still_exact_after_thousands_of_half_lives(
    half_life: float, ranking: str
) -> None:
    policy = policies.create("sdrf", {"half_life": half_life, "ranking": ranking})
    pool: Pool[str] = Pool(policy, capacity=CLUSTER)
    for user in "ab":
        pool.add(user)
        pool.set_active(user, True)
    for _ in range(3):
        pool.allocate("a", CLUSTER)
        pool.advance(pool.now + 20 * half_life)
        pool.release("a", CLUSTER)
        assert pool.standing("a").commitment == pytest.approx(0.5, abs=1e-6)
        assert pool.minimum() == "b"
        pool.advance(pool.now + 5000 * half_life)
        assert pool.standing("a").commitment == pytest.approx(0.0, abs=1e-9)


def test_an_observed_ranking_gets_each_change_at_once_or_before_time_advances() -> None:
    seen: list[str] = []

    class Seen(KeyRanking[str, object]):
        @override
        def fill(self, elements: Iterable[tuple[str, object]]) -> None:
            seen.append("fill")
            super().fill(elements)

        @override
        def replace(self, element: str, attribute: object) -> None:
            seen.append(f"replace {element}")
            super().replace(element, attribute)

    made: Pool[str] = Pool(policies.create("drf", {}), capacity=CLUSTER, watch=lambda _: Seen())
    for user in "AB":
        made.add(user)
        made.set_active(user, True)
    made.advance(1.0)
    made.allocate("A", TASK)
    made.set_weight("A", 2.0)
    assert seen == ["fill", "replace A"]
    made.advance(2.0)
    assert seen == ["fill", "replace A", "fill"]


def test_the_first_reading_of_crossings_names_both_users() -> None:
    made = pool(users="AB", delta=0.99)
    hold(made, "A", 160)
    made.advance(100.0)
    assert made.minimum() == "B"
    made.release("A", TASK.times(160))
    hold(made, "B", 16)
    [crossing] = made.crossings()
    assert crossing[1:] == ("B", "A")


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("policy", ["fifo", "drf", "cmmf", "tsf", "sdrf", "stsf"])
def test_an_observed_pool_ranks_like_an_unobserved_pool(policy: str, seed: int) -> None:
    chance = random.Random(seed)
    parameters = {"half_life": 5.0} if policy in {"sdrf", "stsf"} else {}
    chosen = policies.create(policy, parameters)
    watched: Pool[int] = Pool(chosen, capacity=CLUSTER, watch=lambda ranking: ranking)
    plain: Pool[int] = Pool(chosen, capacity=CLUSTER)
    held = [0] * 6
    for now in range(40):
        user, growing = chance.randrange(6), chance.random() < 0.6
        active = chance.random() < 0.7
        for both in (watched, plain):
            both.advance(float(now))
            if user not in both:
                both.add(user, weight=1 / (1 + user % 3))
                both.set_demand(user, TASK)
            if growing:
                both.allocate(user, TASK)
            elif held[user]:
                both.release(user, TASK)
            both.set_active(user, active)
        held[user] = held[user] + 1 if growing else max(held[user] - 1, 0)
        if chance.random() < 0.3:
            assert list(watched) == list(plain)
