"""Extensions of the incentives paper: repeated gains (5.4), and ratios of zero (B.1).

The available text lacks the formulas, so the claims are derived here.

Theorem 5.4: with one resource, let the liar lead by a factor of at least 1 + γ at several times,
and lag between each two. Let xₖ be its truthful total at the k-th time, and κ = maxⱼ wᵢ/(wᵢ + wⱼ).
Then γ < κ, and xₖ(κ − γ) ≥ κγ(x₁ + … + xₖ₋₁). The sum of these totals grows each time by a factor
of at least 1 + κγ/(κ − γ). Proof: let D be the sum of all positive differences to the truthful
totals. D grows in an epoch by at most the increase of the liar's lag (Lemma D.1). Between two
times, the liar falls behind by at most xₖ − (1 + γ)xₖ₋₁. So γxₖ ≤ κD ≤ κ(xₖ − γ(x₁ + … + xₖ₋₁)).

Theorem B.1: a user with a need of zero can gain without bound by claiming more. In the instance
with parameter B, the user gets B − 2 instead of 2 − 2^(3 − B).
"""

import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise, permutations
from operator import mul

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from allocator.theory.incentives.mechanism import Claim, play, share_epoch
from allocator.theory.incentives.misreport import bound
from allocator.theory.incentives.profile import Profile, read_profile
from tests.examples import examples

ZERO = Fraction(0)


def drawn(seed: int) -> tuple[Profile, list[Fraction]]:
    """Return a game with a single resource, and reduced claims of its first user."""
    dice = random.Random(seed)
    names = [str(i) for i in range(dice.randint(3, 5))]
    profile = read_profile(
        {
            "alpha": dice.choice([0, 0, 0, Fraction(1, 2)]),
            "users": [{"name": name, "weight": dice.choice([1, 1, 2])} for name in names],
            "epochs": [
                {
                    "capacity": dice.randint(1, 6),
                    "demands": {name: dice.choice([0, 0, 1, 4, 9]) for name in names},
                }
                for _ in range(dice.randint(4, 12))
            ],
        }
    )
    truth = profile.demands(profile.users[0])
    return profile, [Fraction(dice.choice([2, 2, 2, 1, 0]), 2) * demand for demand in truth]


def totals(allocated: dict[str, list[Fraction]]) -> list[dict[str, Fraction]]:
    """Return the total allocation of each user at the end of each epoch."""
    sums = [dict.fromkeys(allocated, ZERO)]
    for now in zip(*allocated.values(), strict=True):
        before = sums[-1]
        sums.append({name: before[name] + got for name, got in zip(before, now, strict=True)})
    return sums


def both(profile: Profile, claims: list[Fraction]) -> list[dict[str, tuple[Fraction, Fraction]]]:
    """Return totals with the truth and with the lie, by epoch and user."""
    true, lied = totals(play(profile, {})), totals(play(profile, {"0": claims}))
    return [{n: (a[n], b[n]) for n in a} for a, b in zip(true, lied, strict=True)]


SEEDS = range(60)


def test_the_sum_of_leads_grows_only_by_the_lag_of_the_liar_lemma_d_1() -> None:
    for seed in SEEDS:
        for before, after in pairwise(both(*drawn(seed))):
            ahead, was_ahead = (
                sum(max(lied - true, ZERO) for true, lied in now.values())
                for now in (after, before)
            )
            behind, was_behind = (max(now["0"][0] - now["0"][1], ZERO) for now in (after, before))
            assert ahead - was_ahead <= max(behind - was_behind, ZERO), f"seed {seed}"


def test_leads_and_lags_of_users_are_within_the_bounds_of_lemmas_3_3_and_c_1() -> None:
    """In an epoch i gets more than with the truth, j less, and both claimed more than they got."""
    seen = 0
    for seed in range(300):
        profile, claims = drawn(seed)
        if profile.alpha:  # guarantees are independent of past allocations
            continue
        weights = {user.name: user.weight for user in profile.users}
        true, lied = play(profile, {}), play(profile, {"0": claims})
        asked = {user.name: profile.demands(user) for user in profile.users} | {"0": claims}
        demand = profile.demands(profile.users[0])
        for t, now in enumerate(both(profile, claims)[1:]):
            for i, j in permutations(weights, 2):
                gains, loses = true[i][t] < lied[i][t], lied[j][t] < true[j][t]
                wants_more = i != "0" or true[i][t] < demand[t]
                if gains and loses and wants_more and lied[j][t] < asked[j][t]:
                    seen += 1
                    (true_i, lied_i), (true_j, lied_j) = now[i], now[j]
                    assert lied_i / weights[i] <= lied_j / weights[j], f"seed {seed}"
                    assert true_j / weights[j] <= true_i / weights[i], f"seed {seed}"
    assert seen > 20


QUARTERS = st.sampled_from([Fraction(n, 4) for n in range(7)])
POSITIVE = st.sampled_from([Fraction(1, 4), Fraction(1, 2), Fraction(1)])
PAIR_OF_OUTCOMES = st.lists(
    st.tuples(
        st.lists(POSITIVE, min_size=3, max_size=3),
        st.integers(1, 3),
        st.tuples(QUARTERS, QUARTERS),
        st.tuples(QUARTERS, QUARTERS),
    ),
    min_size=2,
    max_size=5,
)
"""For each user: ratios, weight, and for two outcomes its demands and its totals so far."""


@given(PAIR_OF_OUTCOMES, st.sampled_from([ZERO, Fraction(1, 2), Fraction(1)]))
@examples(600)
def test_only_the_user_with_the_lower_total_gains_from_the_other_user_lemma_4_2(
    users: list[tuple[list[Fraction], int, tuple[Fraction, Fraction], tuple[Fraction, Fraction]]],
    alpha: Fraction,
) -> None:
    """Outcomes differ in totals so far and demands. User i gets more in the second, j less.

    Each could get more in the outcome with less. All users need all resources.
    """
    weights = sum(weight for _, weight, _, _ in users)
    first, second = (
        [
            Claim(
                {str(q): ratio / max(ratios) for q, ratio in enumerate(ratios)},
                demands[outcome],
                Fraction(weight),
                so_far[outcome],
                min(demands[outcome], alpha * Fraction(weight, weights)),
            )
            for ratios, weight, demands, so_far in users
        ]
        for outcome in (0, 1)
    )
    got, got_then = share_epoch(first, Fraction(1)), share_epoch(second, Fraction(1))
    for i, j in permutations(range(len(users)), 2):
        gains = got[i] < got_then[i] and second[i].demand <= first[i].demand
        loses = got_then[j] < got[j] and first[j].demand <= second[j].demand
        if gains and loses:
            event("a user gains and another loses")
            levels = [
                [
                    (user.before + given) / user.weight
                    for user, given in zip(claims, all_, strict=True)
                ]
                for claims, all_ in ((first, got), (second, got_then))
            ]
            assert levels[0][j] <= levels[0][i]
            assert levels[1][i] <= levels[1][j]


def largest_part(profile: Profile) -> Fraction:
    """Return κ: the largest part of all leads that can be the first user's."""
    liar, *rivals = profile.users
    return max(liar.weight / (liar.weight + rival.weight) for rival in rivals)


def test_a_lead_is_at_most_a_part_of_all_lags_before_corollary_d_4_and_lemma_d_5() -> None:
    """The part is κ. Each interval in which the liar lags counts with its largest lag."""
    leads = 0
    for seed in range(400):
        profile, claims = drawn(seed)
        if profile.alpha:
            continue
        lags, largest_lag = ZERO, ZERO
        for now in both(profile, claims):
            true, lied = now["0"]
            if lied > true:
                lags, largest_lag, leads = lags + largest_lag, ZERO, leads + 1
                assert lied - true <= largest_part(profile) * lags, f"seed {seed}"
            largest_lag = max(largest_lag, true - lied)
    assert leads > 20


def test_all_that_is_ahead_grows_by_no_more_than_the_liar_would_get_lemmas_3_4_and_c_2() -> None:
    grown = 0
    for seed in range(300):
        profile, claims = drawn(seed)
        truth, true = profile.demands(profile.users[0]), play(profile, {})["0"]
        for t, (before, after) in enumerate(pairwise(both(profile, claims))):
            growth = sum(
                max(after[name][1] - after[name][0], ZERO)
                - max(before[name][1] - before[name][0], ZERO)
                for name in after
            )
            assert growth <= (ZERO if claims[t] == truth[t] else true[t]), f"seed {seed}"
            grown += growth > 0
    assert grown > 20


def again_and_again(profile: Profile, claims: list[Fraction]) -> list[tuple[Fraction, Fraction]]:
    """Return the truthful total and the gain factor at the peak of each lead of the liar."""
    best: list[tuple[Fraction, Fraction]] = []
    behind = True
    for now in both(profile, claims):
        true, lied = now["0"]
        if lied > true > 0:
            candidate = (true, lied / true)
            if behind:
                best.append(candidate)
            elif candidate[1] > best[-1][1]:
                best[-1] = candidate
            behind = False
        elif lied < true:
            behind = True
    return best


def cycles(scales: Sequence[int]) -> tuple[Profile, list[Fraction]]:
    """Return a game in which user 0 gains repeatedly, in a cycle of each scale.

    Each cycle is the smallest game in which a lie pays (three users, three epochs): a user that
    claims nothing in the first epoch has more after the third.
    """
    epochs = [
        {"capacity": scale, "demands": {"0": scale, f"{name}{k}": scale}}
        for k, scale in enumerate(scales)
        for name in ("a", "b", "a")
    ]
    names = ["0", *(f"{name}{k}" for k in range(len(scales)) for name in ("a", "b"))]
    profile = read_profile({"users": [{"name": name} for name in names], "epochs": epochs})
    truth = profile.demands(profile.users[0])
    return profile, [claim if t % 3 else ZERO for t, claim in enumerate(truth)]


def test_totals_at_repeated_leads_grow_as_in_lemma_d_6_and_corollaries_d_7_and_d_8() -> None:
    """In cycles of random scales: xₖ(κ − γ) ≥ κγ(x₁ + … + xₖ₋₁), and so these sums grow."""
    dice, repeated = random.Random(7), 0
    for _ in range(60):
        scales = [dice.choice([1, 2, 3, 5, 9, 20]) for _ in range(5)]
        times = again_and_again(*cycles(list(accumulate(scales, mul))))
        gain, half = min(factor for _, factor in times) - 1, Fraction(1, 2)
        assert 0 < gain < half
        before = ZERO
        for total, _factor in times:
            assert total * (half - gain) >= half * gain * before
            growth = 1 + half * gain / (half - gain)
            assert before + total >= growth * before
            before += total
        repeated += len(times) > 2
    assert repeated > 20


@pytest.mark.parametrize("scale", [2, 10, 40])
def test_repeated_leads_need_exponentially_growing_totals_theorem_5_4(
    scale: int,
) -> None:
    times = again_and_again(*cycles([scale**k for k in range(4)]))
    assert len(times) == 4
    gain = min(factor for _total, factor in times) - 1
    half = Fraction(1, 2)
    assert 0 < gain < half
    before = ZERO
    for total, _factor in times:
        assert total * (half - gain) >= half * gain * before
        before += total


def test_in_cycles_of_constant_size_a_liar_is_ahead_only_once() -> None:
    times = again_and_again(*cycles([1] * 4))
    assert times == [(Fraction(9, 8), Fraction(10, 9))]


def zeros(bobs: int) -> Profile:
    """Return a game for Theorem B.1: more users and resources make a claim of more gain more.

    Alice needs nothing in epoch 1. A false claim there would keep many Bobs from the first
    resource, of which Alice needs nothing later. The Bobs then leave more of the second resource to
    users who need hardly any of it. Alice competes with these users one by one in the following
    epochs, when their totals are far above hers.
    """
    count = bobs - 2
    level = Fraction(bobs, bobs * bobs + 1)
    names = [f"bob {k}" for k in range(bobs)]
    met = [f"user {k}" for k in range(count)]
    return read_profile(
        {
            "users": [
                {"name": "alice", "ratios": {"1": 1} | {f"of {name}": 1 for name in met}},
                *({"name": name, "ratios": {"1": 1, "2": 1}} for name in names),
                *(
                    {"name": name, "ratios": {"2": Fraction(1, bobs * count), f"of {name}": 1}}
                    for name in met
                ),
            ],
            "epochs": [
                {"capacity": 1, "demands": dict.fromkeys([*names, *met], 1)},
                *({"capacity": level, "demands": {"alice": 1, name: 1}} for name in met),
            ],
        }
    )


@pytest.mark.parametrize("bobs", [4, 6, 10])
def test_table_4_the_claim_of_alice_in_epoch_1_moves_resources_from_bobs_to_other_users(
    bobs: int,
) -> None:
    profile = zeros(bobs)
    alice = profile.users[0]
    assert set(profile.ratios(alice, profile.epochs[0])) == {"1"} | {
        f"of user {k}" for k in range(bobs - 2)
    }  # every resource but the second
    truth = profile.demands(alice)
    assert truth[0] == 0
    true = play(profile, {})
    lied = play(profile, {"alice": [Fraction(1), *truth[1:]]})
    for k in range(bobs):
        assert lied[f"bob {k}"][0] < true[f"bob {k}"][0]
    for k in range(bobs - 2):
        grown = lied[f"user {k}"][0] / true[f"user {k}"][0]
        assert grown > bobs - 1
    capacities = [period.capacity for period in profile.epochs]
    assert lied["alice"][1:] == capacities[1:]  # from epoch 2 on she gets everything


@pytest.mark.parametrize("bobs", [4, 6, 10])
def test_with_zero_ratios_a_claim_of_more_gains_without_bound_theorem_b_1(bobs: int) -> None:
    profile = zeros(bobs)
    alice = profile.users[0]
    truth = profile.demands(alice)
    got, lied = (
        sum(play(profile, {"alice": [first, *truth[1:]]})["alice"][1:])
        for first in (ZERO, Fraction(1))
    )
    epochs = bobs - 2
    assert got == (2 - Fraction(2, 2**epochs)) * profile.epochs[1].capacity
    assert lied == epochs * profile.epochs[1].capacity
    assert bound(profile, [alice]) is None
