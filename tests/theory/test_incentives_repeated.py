"""Extensions of the incentives paper: repeated gains (5.4), and ratios of zero (B.1).

The available text lacks the formulas. docs/research/optimum.md derives the claims
that are checked here.
"""

import random
from fractions import Fraction
from itertools import pairwise, permutations

import pytest

from allocator.theory.incentives.mechanism import play
from allocator.theory.incentives.misreport import bound
from allocator.theory.incentives.profile import Profile, read_profile

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


def cycles(scale: int, count: int) -> tuple[Profile, list[Fraction]]:
    """Return a game in which user 0 gains repeatedly, in cycles of growing scale.

    Each cycle is the smallest game in which a lie pays (three users, three epochs): a user that
    claims nothing in the first epoch has more after the third.
    """
    epochs = [
        {"capacity": scale**k, "demands": {"0": scale**k, f"{name}{k}": scale**k}}
        for k in range(count)
        for name in ("a", "b", "a")
    ]
    names = ["0", *(f"{name}{k}" for k in range(count) for name in ("a", "b"))]
    profile = read_profile({"users": [{"name": name} for name in names], "epochs": epochs})
    truth = profile.demands(profile.users[0])
    return profile, [claim if t % 3 else ZERO for t, claim in enumerate(truth)]


@pytest.mark.parametrize("scale", [2, 10, 40])
def test_repeated_leads_need_exponentially_growing_totals_theorem_5_4(
    scale: int,
) -> None:
    times = again_and_again(*cycles(scale, 4))
    assert len(times) == 4
    gain = min(factor for _total, factor in times) - 1
    half = Fraction(1, 2)
    assert 0 < gain < half
    before = ZERO
    for total, _factor in times:
        assert total * (half - gain) >= half * gain * before
        before += total


def test_in_cycles_of_constant_size_a_liar_is_ahead_only_once() -> None:
    times = again_and_again(*cycles(1, 4))
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
