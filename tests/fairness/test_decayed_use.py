"""Policies of other schedulers: priorities compared with definitions and published examples."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given

from allocator.fairness import policies
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from tests.examples import examples
from tests.fairness.test_rivals import CAPACITY, STEPS, carry_out, users_of

WEIGHTS = (1.0, 2.0, 3.0)
H = 10.0
"""Half-life in seconds; steps wait from a quarter of a second to a day."""


@dataclass
class Definition:
    """Decayed use by definition: every interval of an allocation is kept as it was."""

    least: float = 0.0
    stretches: list[tuple[float, float, float]] = field(default_factory=list)

    def held(self, since: float, until: float, rate: float) -> None:
        self.stretches.append((since, until, rate))

    def use(self, now: float) -> float:
        """Return Σ rate · (part of the decay weight that falls into the interval)."""
        return float(
            sum(
                rate * (0.5 ** ((now - until) / H) - 0.5 ** ((now - since) / H))
                for since, until, rate in self.stretches
            )
        )


@dataclass
class Accountant(Definition):
    """HTCondor's recurrence, from one change to the next, with a lower bound."""

    priority: float = 0.0
    """Priority at the end of the last interval, which is always now."""

    def held(self, since: float, until: float, rate: float) -> None:
        beta = 0.5 ** ((until - since) / H)
        self.priority = max(self.priority, self.least) * beta + rate * (1 - beta)
        self.priority = max(self.priority, self.least)

    def use(self, now: float) -> float:  # noqa: ARG002 - its base asks for one
        return max(self.priority, self.least)


RATES: dict[str, tuple[dict[str, object], dict[str, float]]] = {
    "slurm-fair-tree": ({"billing": "cpus=1,mem=3"}, {"cpus": 1.0, "mem": 3.0}),
    "kueue-afs": ({"resource_weights": "mem=0.5"}, {"cpus": 1.0, "mem": 0.5}),
    "volcano": ({"resource": "mem"}, {"mem": 1.0}),
    "htcondor": ({"slots": 12.0}, {"cpus": 1.0}),
}


def rate_of(pool: Pool[int], user: int, weights: dict[str, float]) -> float:
    return sum(weight * pool.held(user)[r] / CAPACITY[r] for r, weight in weights.items())


@pytest.mark.parametrize("policy", RATES)
@pytest.mark.parametrize("ranking", ["live-tree", "scan"])
@given(steps=STEPS)
@examples(30)
def test_the_user_with_the_least_decayed_use_over_weight_is_first(
    policy: str, ranking: str, steps: list[tuple[str, int, float]]
) -> None:
    parameters, weights = RATES[policy]
    pool = users_of(policy, {**parameters, "half_life": H, "ranking": ranking}, weights=True)
    least = 0.5 / 12 if policy == "htcondor" else 0.0
    kind = Accountant if policy == "htcondor" else Definition
    past = [kind(least) for _ in WEIGHTS]
    for step, user, seconds in steps:
        rates, before = [rate_of(pool, u, weights) for u in range(3)], pool.now
        carry_out(pool, step, user, seconds)
        if pool.now > before:
            for of_one, rate in zip(past, rates, strict=True):
                of_one.held(before, pool.now, rate)
        keys = [max(past[u].use(pool.now), least) / WEIGHTS[u] for u in range(3)]
        for u in range(3):
            assert pool.standing(u).priority == pytest.approx(keys[u], rel=1e-9, abs=1e-12)
        for first, second in pairwise(pool):
            assert keys[first] <= keys[second] * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("policy", RATES)
@given(steps=STEPS)
@examples(30)
def test_live_tree_and_scan_give_other_schedulers_policies_the_same_order(
    policy: str, steps: list[tuple[str, int, float]]
) -> None:
    live = users_of(policy, {"half_life": H})
    scanned = users_of(policy, {"half_life": H, "ranking": "scan"})
    for step in steps:
        carry_out(live, *step)
        carry_out(scanned, *step)
        assert list(live) == list(scanned)


def one(policy: str, capacity: str = "cpus:1", **parameters: object) -> Pool[str]:
    made: Pool[str] = Pool(policies.create(policy, parameters), capacity=Quantities.parse(capacity))
    for user in "ab":
        made.add(user)
        made.set_active(user, True)
    return made


def halvings(pool: Pool[str], half_life: float, times: int) -> Iterator[float]:
    for number in range(1, times + 1):
        pool.advance(number * half_life)
        yield pool.standing("a").priority


def test_the_use_of_two_cpus_is_1_then_1500m_then_1750m_after_half_lives_like_in_kueues_tests() -> (
    None
):
    pool = one("kueue-afs", half_life="168h")
    pool.allocate("a", Quantities.parse("cpus:2"))
    priorities = list(halvings(pool, 168 * 3600.0, 3))
    assert priorities == pytest.approx([1.0, 1.5, 1.75])


@pytest.mark.parametrize(
    ("held", "weights", "weight", "usage"),
    [
        ("cpus:4;gpu-logical:2", "cpus=1,gpu-logical=5", 1.0, 14.0),
        ("gpu-logical:3", "gpu-logical=4", 2.0, 6.0),
        ("gpu-logical:10;cpus:1", "gpu-logical=0,cpus=1", 1.0, 1.0),
        ("gpu-logical:2", None, 1.0, 2.0),
    ],
)
def test_use_is_the_weighted_sum_over_the_weight_like_in_kueues_tests(
    held: str, weights: str | None, weight: float, usage: float
) -> None:
    pool = one("kueue-afs", "cpus:1;gpu-logical:1", half_life=1.0, resource_weights=weights)
    pool.set_weight("a", weight)
    pool.allocate("a", Quantities.parse(held))
    pool.advance(200.0)  # After this time, the decayed use equals the allocation.
    assert pool.standing("a").priority == pytest.approx(usage)


def test_ten_gpu_hours_decay_to_five_after_volcanos_half_life_of_four_hours() -> None:
    pool = one("volcano", "gpus:1", resource="gpus")
    assert pool.policy.tau is not None
    pool.set_commitment("a", {"use": 10 * 3600 / pool.policy.tau})
    [halving] = halvings(pool, 4 * 3600.0, 1)
    assert halving * pool.policy.tau == pytest.approx(5 * 3600)


def test_the_priority_of_a_hundred_slots_is_half_reached_after_htcondors_half_life_of_a_day() -> (
    None
):
    pool = one("htcondor", "cpus:1000")
    assert pool.standing("b").priority == pytest.approx(0.5 / 1000)
    assert pool.standing("b").commitment == 0.0, "user b has used nothing"
    pool.allocate("a", Quantities.parse("cpus:100"))
    priorities = [priority * 1000 for priority in halvings(pool, 86400.0, 3)]
    assert priorities == pytest.approx([50.25, 75.125, 87.5625])  # from half a slot, not from zero
    pool.release("a", Quantities.parse("cpus:100"))
    pool.advance(100 * 86400.0)
    assert pool.standing("a").priority == pool.standing("b").priority == 0.5 / 1000


def test_a_user_that_returns_after_a_long_time_begins_at_htcondors_lower_bound() -> None:
    pool = one("htcondor", "cpus:1000")
    pool.advance(50 * 86400.0)
    pool.allocate("a", Quantities.parse("cpus:1"))
    pool.advance(51 * 86400.0)
    assert pool.standing("a").priority * 1000 == pytest.approx(0.75)


def test_of_htcondors_lower_bound_and_decayed_use_only_possible_maxima_are_kept() -> None:
    """Otherwise rounding would decide which of two equal values is larger."""
    pool = one("htcondor", "cpus:100")
    least = 0.5 / 1000
    for user, cpus in (("much", 10), ("least", 0.05), ("little", 0.01)):
        pool.add(user)
        pool.set_active(user, active=True)
        pool.allocate(user, Quantities.parse(f"cpus:{cpus}"))
    assert pool.attribute("much").lines == ((0.1, least - 0.1),)
    for user in ("least", "little"):
        assert pool.attribute(user).lines == ((least, 0.0),)
    pool.advance(86400.0)
    pool.release("much", Quantities.parse("cpus:10"))
    assert len(pool.attribute("much").lines) == 2, "the use decays to the lower bound"


def test_level_fairshare_is_shares_over_use_among_siblings_as_slurm_defines_it() -> None:
    pool = one("slurm-fair-tree", "cpus:10")
    pool.set_weight("a", 3.0)
    pool.allocate("a", Quantities.parse("cpus:6"))
    pool.allocate("b", Quantities.parse("cpus:4"))
    pool.advance(3600.0)
    use = {user: pool.standing(user).commitments["use"] for user in "ab"}
    level = {u: (w / 4) / (use[u] / sum(use.values())) for u, w in (("a", 3.0), ("b", 1.0))}
    assert level == pytest.approx({"a": 0.75 / 0.6, "b": 0.25 / 0.4})
    assert list(pool) == sorted(level, key=lambda user: -level[user]) == ["a", "b"]


def test_a_user_with_half_of_its_minimum_comes_before_a_user_with_four_fifths_as_in_yarn() -> None:
    """YARN's own example: 8 tasks of a minimum of 10, and 50 of a minimum of 100."""
    pool = one("yarn-fair", "cpus:1;mem:110", minimum=1.0)
    pool.set_weight("b", 10.0)
    pool.allocate("a", Quantities.parse("mem:8"))
    pool.allocate("b", Quantities.parse("mem:50"))
    assert list(pool) == ["b", "a"]
    assert [pool.standing(user).priority for user in "ab"] == pytest.approx([-0.2, -0.5])
    pool.allocate("b", Quantities.parse("mem:50"))
    assert list(pool) == ["a", "b"], "a user below its minimum comes first"
    pool.allocate("a", Quantities.parse("mem:3"))
    assert list(pool) == ["b", "a"], "above the minimum, use over weight decides"


def test_a_new_user_of_karma_begins_with_the_mean_of_the_other_users_credits() -> None:
    pool = one("karma", "cpus:8", alpha=0.0)
    pool.allocate("a", Quantities.parse("cpus:6"))
    pool.allocate("b", Quantities.parse("cpus:2"))
    pool.advance(100.0)
    pool.add("c", weight=1.0)
    pool.set_active("c", True)
    assert list(pool) == ["b", "c", "a"]
    used = [pool.standing(user).priority for user in "abc"]
    assert used == pytest.approx([75.0, 25.0, 50.0])


def test_a_new_user_of_karma_begins_with_the_weighted_mean_of_credits() -> None:
    pool = one("karma", "cpus:8", alpha=0.0)
    pool.set_weight("a", 2.0)
    pool.allocate("a", Quantities.parse("cpus:6"))
    pool.allocate("b", Quantities.parse("cpus:2"))
    pool.advance(100.0)
    pool.add("c", weight=4.0)
    used = [pool.standing(user).priority for user in "abc"]
    assert used == pytest.approx([37.5, 25.0, 31.25])


@given(steps=STEPS)
@examples(20)
def test_with_constant_users_karma_equals_dynamic_mmf(steps: list[tuple[str, int, float]]) -> None:
    karma, mmf = (users_of(name, {"alpha": 0.5}, weights=True) for name in ("karma", "dynamic-mmf"))
    for step in steps:
        carry_out(karma, *step)
        carry_out(mmf, *step)
        assert list(karma) == list(mmf)
