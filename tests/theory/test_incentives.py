"""Incentives under dynamic demands: the paper's example, its constructions, and its bounds."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.theory.incentives.envy import Envy, envy
from allocator.theory.incentives.mechanism import play
from allocator.theory.incentives.misreport import best_lie, bound
from allocator.theory.incentives.profile import Profile, read_profile
from tests.examples import examples

ROOT_2 = 2**0.5


def users(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def epoch(capacity: Fraction | int, **demands: Fraction | int) -> dict[str, Any]:
    return {"capacity": capacity, "demands": demands}


def total(profile: Profile, name: str, *silent: int) -> Fraction:
    """Return a user's total if it claims nothing in `silent` epochs, and the truth otherwise."""
    truth = next(profile.demands(user) for user in profile.users if user.name == name)
    claims = [Fraction(0) if t in silent else claim for t, claim in enumerate(truth)]
    return sum(play(profile, {name: claims})[name], Fraction(0))


def three_users_three_epochs() -> Profile:
    return read_profile(
        {
            "users": users("1", "2", "3"),
            "epochs": [{"capacity": 1, "demands": {"1": 1, rival: 1}} for rival in ("2", "3", "2")],
        }
    )


def test_three_users_and_three_epochs_are_enough_to_gain_a_ninth() -> None:
    profile = three_users_three_epochs()
    assert play(profile, {})["1"] == [Fraction(1, 2), Fraction(1, 4), Fraction(3, 8)]
    lie = best_lie(profile, profile.users[:1])
    assert lie.truthful == Fraction(9, 8)
    assert lie.gained == Fraction(5, 4)
    assert lie.ratio == Fraction(10, 9)


def test_table_1_user_1_takes_from_user_3_and_recovers_a_part_of_its_waiver_to_user_2() -> None:
    """The wording of Example 1; the available text lacks the numbers of the table."""
    profile = three_users_three_epochs()
    half, quarter, eighth = Fraction(1, 2), Fraction(1, 4), Fraction(1, 8)
    truth = play(profile, {})
    assert truth == {
        "1": [half, quarter, 3 * eighth],
        "2": [half, 0, 5 * eighth],
        "3": [0, 3 * quarter, 0],
    }
    lie = play(profile, {"1": [Fraction(0), Fraction(1), Fraction(1)]})
    assert lie == {"1": [0, half, 3 * quarter], "2": [1, 0, quarter], "3": [0, half, 0]}
    assert lie["3"][1] < truth["3"][1]
    assert sum(lie["1"]) == sum(lie["2"]) == Fraction(5, 4)  # epoch 3 evens out the totals


def under_reporting(steps: int, halvings: int) -> tuple[Profile, range]:
    """Return a game for Theorem 3.2, and the epochs in which Alice claims nothing.

    Phase 1 gives users c a start. In phase 2 Alice either takes as much as each b, or leaves the
    whole allocation to them. In phase 3 each epoch goes to a c if Alice has a large total, and to
    Alice if her total is zero, until both cases are equal. In phase 4 Alice evens out her surplus
    with each b. At best her lead and her total grow by (g, e) -> (g + e, g + 3 e), whose quotient
    tends to √2 - 1.
    """
    had, lead, taken = [1], [0], [1]
    for _ in range(steps - 1):
        taken.append(lead[-1] + 2 * had[-1])
        lead.append(lead[-1] + had[-1])
        had.append(had[-1] + taken[-1])
    alice = Fraction(0)
    phase_2 = []
    for k in reversed(range(steps)):
        capacity = 2 * (alice + taken[k]) - alice
        alice += taken[k]
        phase_2.append(epoch(capacity, alice=capacity, **{f"b{k}": capacity}))
    gaps = [alice / 2**k for k in range(1, halvings + 1)]
    epochs = [
        *(epoch(alice - gap, **{f"c{k}": alice - gap}) for k, gap in enumerate(gaps)),
        *phase_2,
        *(epoch(gap, alice=gap, **{f"c{k}": gap}) for k, gap in enumerate(gaps)),
        *(epoch(had[k - 1], alice=had[k - 1], **{f"b{k}": had[k - 1]}) for k in range(1, steps)),
    ]
    names = [f"b{k}" for k in range(steps)] + [f"c{k}" for k in range(halvings)]
    profile = read_profile({"users": users("alice", *names), "epochs": epochs})
    return profile, range(halvings, halvings + steps)


def test_under_reporting_gains_up_to_the_root_of_2_with_one_resource() -> None:
    ratios = []
    for steps in (2, 3, 4, 6, 9):
        profile, silent = under_reporting(steps, 20)
        ratios.append(float(total(profile, "alice", *silent) / total(profile, "alice")))
    assert ratios == sorted(ratios)
    assert ratios[:3] == pytest.approx([4 / 3, 14 / 10, 48 / 34], abs=1e-5)
    assert ROOT_2 - 1e-5 < ratios[-1] < ROOT_2


def test_the_search_finds_the_lie_of_the_construction() -> None:
    profile, silent = under_reporting(3, 6)
    lie = best_lie(profile, profile.users[:1])
    assert lie.gained >= total(profile, "alice", *silent)
    assert lie.bound == Fraction(3, 2)


def two_resources(rho: int, epsilon: Fraction, weight: int = 1) -> Profile:
    """Return a game for Theorem 4.7: constant positive ratios, user 1 with the given weight.

    In epoch 1 only the first resource is scarce, and user 1 needs more of the first. In epoch 2
    only the second resource is scarce, and user 1 needs hardly any of the second. Groups of users
    use up the resource that would otherwise also be scarce.
    """
    own = Fraction(rho, weight)  # amount of the first resource for 1 / own of the user's need
    x = Fraction(1)  # user 2's allocation in epoch 1
    crowd = 100 * rho * weight
    short_1 = (weight + 1 / own) * x
    short_2 = epsilon * weight * (1 + rho) * x
    there_1 = short_1 + crowd * x
    there_2 = short_2 + crowd * x
    group_3 = {"ratios": {"a": 1, "b": epsilon}}
    group_4 = {"ratios": {"a": 1 / own, "b": 1}}
    return read_profile(
        {
            "users": [
                {"name": "1", "weight": weight, "ratios": {"a": 1, "b": epsilon}},
                {"name": "2", "ratios": {"a": 1 / own, "b": 1}},
                *({"name": f"3-{k}", **group_3} for k in range(crowd)),
                *({"name": f"4-{k}", **group_4} for k in range(crowd)),
            ],
            "epochs": [
                {
                    "capacity": there_1,
                    "demands": {"1": there_1, "2": there_1} | {f"3-{k}": x for k in range(crowd)},
                },
                {
                    "capacity": there_2,
                    "demands": {"1": there_2, "2": there_2} | {f"4-{k}": x for k in range(crowd)},
                },
            ],
        }
    )


@pytest.mark.parametrize(("rho", "weight"), [(2, 1), (3, 1), (4, 2)])
def test_under_reporting_gains_up_to_1_plus_rho_with_two_resources(rho: int, weight: int) -> None:
    ratios = []
    for epsilon in (Fraction(1, 10), Fraction(1, 1000), Fraction(1, 100_000)):
        profile = two_resources(rho, epsilon, weight)
        assert bound(profile, profile.users[:1]) == 1 + rho
        ratios.append(float(total(profile, "1", 0) / total(profile, "1")))
    assert ratios == sorted(ratios)
    assert 1 + rho - 0.001 < ratios[-1] < 1 + rho


@pytest.mark.parametrize("weight", [1, 2])
def test_table_5_allocations_of_both_epochs_match_the_proof_of_theorem_4_7(
    weight: int,
) -> None:
    """Totals are proportional to weights, groups get their demand, a resource is exhausted."""
    rho = 3
    profile = two_resources(rho, Fraction(1, 1000), weight)
    first, second = profile.epochs
    truth = profile.demands(profile.users[0])
    for lie in (False, True):
        got = play(profile, {"1": [Fraction(0), truth[1]] if lie else truth})
        used = [
            {
                q: sum(profile.ratios(u, period)[q] * got[u.name][t] for u in profile.users)
                for q in "ab"
            }
            for t, period in enumerate(profile.epochs)
        ]
        assert used[0]["a"] == first.capacity >= used[0]["b"]
        assert used[1]["b"] == second.capacity >= used[1]["a"]
        assert all(got[f"3-{k}"] == [1, 0] for k in range(len(profile.users) // 2 - 1))
        assert all(got[f"4-{k}"] == [0, 1] for k in range(len(profile.users) // 2 - 1))
        assert got["1"][0] == (0 if lie else weight)
        assert got["2"][0] == (1 + rho if lie else 1)
        assert sum(got["1"]) == weight * sum(got["2"])


AMOUNT = st.integers(0, 6).map(Fraction)


@st.composite
def profiles(draw: st.DrawFn, *, resources: str) -> Profile:
    count = draw(st.integers(2, 3))
    names = [str(i) for i in range(count)]
    alike = resources == "a"
    return read_profile(
        {
            "alpha": draw(st.sampled_from([0, Fraction(1, 2), 1])),
            "users": [
                {
                    "name": name,
                    "weight": 1 if alike else draw(st.integers(1, 3)),
                    "ratios": {
                        q: 1 if alike else Fraction(draw(st.integers(1, 4)), 4) for q in resources
                    },
                }
                for name in names
            ],
            "epochs": [
                {
                    "capacity": draw(st.integers(1, 6)),
                    "demands": {name: draw(AMOUNT) for name in names},
                }
                for _ in range(draw(st.integers(1, 4)))
            ],
        }
    )


@examples(25)
@given(st.data())
def test_no_lie_gains_more_than_the_upper_bounds(data: st.DataObject) -> None:
    profile = data.draw(profiles(resources=data.draw(st.sampled_from(["a", "ab"]))))
    lie = best_lie(profile, profile.users[:1])
    assert lie.bound is not None
    assert 1 <= lie.ratio <= lie.bound


def test_weights_of_10_to_1_leave_a_liar_less_than_twice_as_much() -> None:
    """Theorem 5.3; 1 + ρ, which holds with several resources, would be 11."""
    profile = read_profile(
        {
            "users": [{"name": "1", "weight": 10}, *users("2", "3")],
            "epochs": [epoch(1, **{"1": 1, rival: 1}) for rival in ("2", "3", "2")],
        }
    )
    assert bound(profile, profile.users[:1]) == 1 + Fraction(10, 11)
    assert bound(profile, profile.users[1:2]) == 1 + Fraction(1, 2)
    assert bound(profile, profile.users[:2]) == 2


@st.composite
def weighted(draw: st.DrawFn) -> Profile:
    """A single resource, and two to four users with individual weights."""
    names = [str(i) for i in range(draw(st.integers(2, 4)))]
    return read_profile(
        {
            "alpha": draw(st.sampled_from([0, 0, Fraction(1, 2), 1])),
            "users": [
                {"name": name, "weight": draw(st.sampled_from([1, 1, 2, 10]))} for name in names
            ],
            "epochs": [
                epoch(draw(st.integers(1, 6)), **{name: draw(AMOUNT) for name in names})
                for _ in range(draw(st.integers(2, 5)))
            ],
        }
    )


@examples(50)
@given(weighted(), st.integers(1, 2))
def test_with_weights_and_in_coalitions_no_lie_gains_more_than_theorem_5_3(
    profile: Profile, liars: int
) -> None:
    lie = best_lie(profile, profile.users[:liars])
    assert lie.bound is not None
    assert lie.bound <= 2
    assert 1 <= lie.ratio <= lie.bound


def useful(profile: Profile, names: list[str], claims: dict[str, list[Fraction]]) -> Fraction:
    lying = play(profile, claims)
    truth = {user.name: profile.demands(user) for user in profile.users}
    return sum(
        (
            min(got, wanted)
            for name in names
            for got, wanted in zip(lying[name], truth[name], strict=True)
        ),
        Fraction(0),
    )


@given(weighted(), st.data())
def test_a_coalition_gains_nothing_by_claims_of_more_theorem_5_2(
    profile: Profile, data: st.DataObject
) -> None:
    """For any claims: cutting the excess off does not reduce the total."""
    pair = profile.users[:2]
    claims = {user.name: [data.draw(AMOUNT) for _ in profile.epochs] for user in pair}
    cut = {
        user.name: [
            min(claim, truth)
            for claim, truth in zip(claims[user.name], profile.demands(user), strict=True)
        ]
        for user in pair
    }
    names = [user.name for user in pair]
    assert useful(profile, names, claims) <= useful(profile, names, cut)


@given(st.data())
def test_gains_of_false_ratios_are_also_possible_by_claiming_less_theorem_4_4(
    data: st.DataObject,
) -> None:
    """The construction of the proof: from the last epoch to the first, claim the useful part."""
    names = ["0", "1", "2"]
    whole = st.integers(1, 4).map(lambda k: Fraction(k, 4))

    def shape() -> dict[str, Fraction]:
        """Draw proportions of which the largest is 1."""
        second = data.draw(whole)
        first = Fraction(1)
        return data.draw(st.sampled_from([{"a": first, "b": second}, {"a": second, "b": first}]))

    profile = read_profile(
        {
            "users": [{"name": name, "ratios": shape()} for name in names],
            "epochs": [
                epoch(data.draw(st.integers(1, 4)), **{name: data.draw(AMOUNT) for name in names})
                for _ in range(3)
            ],
        }
    )
    liar = profile.users[0]
    true = [profile.ratios(liar, period) for period in profile.epochs]
    shapes, claims = [shape() for _ in true], [data.draw(AMOUNT) for _ in true]

    def worth(shapes: list[dict[str, Fraction]], claims: list[Fraction]) -> list[Fraction]:
        got = play(profile, {"0": claims}, {"0": shapes})["0"]
        return [
            min(amount * min(claimed[q] / real[q] for q in real), demand)
            for amount, claimed, real, demand in zip(
                got, shapes, true, profile.demands(liar), strict=True
            )
        ]

    lied = sum(worth(shapes, claims))
    for last in reversed(range(len(true))):
        of_use = worth(shapes, claims)[last]
        shapes, claims = [*shapes], [*claims]
        shapes[last], claims[last] = true[last], of_use
    assert shapes == true
    assert all(a <= b for a, b in zip(claims, profile.demands(liar), strict=True))
    assert sum(worth(shapes, claims)) >= lied


@examples(200)
@given(st.data())
def test_no_user_envies_the_past_allocations_of_another_user_theorem_4_8(
    data: st.DataObject,
) -> None:
    kind = data.draw(st.sampled_from(["a", "ab", "zeros"]))
    profile = data.draw(weighted() if kind == "a" else profiles(resources="ab"))
    shapes = [  # the largest is 1, as in the paper: else units of allocation differ
        {q: ratio / max(user.ratios.values()) for q, ratio in user.ratios.items()}
        for user in profile.users
    ]
    if kind == "zeros":  # the theorem needs no positive ratios
        shapes[0] = {"a": Fraction(1), "b": Fraction(0)}
    scaled = [
        user.model_copy(update={"ratios": shape})
        for user, shape in zip(profile.users, shapes, strict=True)
    ]
    assert envy(profile.model_copy(update={"users": tuple(scaled)})) is None


def test_envy_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mechanism that favours the second user with three quarters makes the first envious."""
    profile = read_profile({"users": users("1", "2"), "epochs": [epoch(1, **{"1": 1, "2": 1})]})
    unfair = {"1": [Fraction(1, 4)], "2": [Fraction(3, 4)]}
    monkeypatch.setattr("allocator.theory.incentives.envy.play", lambda *_: unfair)
    assert envy(profile) == Envy("1", "2", 1, Fraction(1, 4), Fraction(3, 4))


@given(st.data())
def test_claiming_more_than_is_needed_gains_nothing(data: st.DataObject) -> None:
    profile = data.draw(profiles(resources=data.draw(st.sampled_from(["a", "ab"]))))
    truth = profile.demands(profile.users[0])
    claims = [claim + data.draw(AMOUNT) for claim in truth]
    lying = play(profile, {"0": claims})["0"]
    useful = sum(min(got, wanted) for got, wanted in zip(lying, truth, strict=True))
    assert useful <= sum(play(profile, {})["0"])


@given(st.data())
def test_every_epoch_is_pareto_optimal_and_keeps_guarantees(data: st.DataObject) -> None:
    profile = data.draw(profiles(resources="ab"))
    allocated = play(profile, {})
    weights = sum(user.weight for user in profile.users)
    for t, epoch_ in enumerate(profile.epochs):
        used = {
            q: sum(profile.ratios(u, epoch_)[q] * allocated[u.name][t] for u in profile.users)
            for q in "ab"
        }
        assert max(used.values()) <= epoch_.capacity
        for user in profile.users:
            got, wanted = allocated[user.name][t], profile.demands(user)[t]
            assert got == wanted or max(used.values()) == epoch_.capacity
            assert got >= min(wanted, profile.alpha * epoch_.capacity * user.weight / weights)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"alpha": 2}, r"alpha: 2.0 is more than 1"),
        ({"users": [{"name": "1", "ratios": {"a": 2}}]}, r"users\[0\]\.ratios\.a: 2.0 is more"),
        ({"users": [{"name": "1", "ratios": {"a": 0}}]}, r"epochs\[0\]: '1' needs nothing"),
        ({"epochs": [epoch(1, bob=1)]}, r"epochs\[0\]\.demands: user 'bob' is unknown"),
        ({"epochs": [epoch(0)]}, r"epochs\[0\]\.capacity"),
        ({"users": users("1", "1")}, r"2 have the name '1'"),
        (
            {
                "users": [{"name": "1", "ratios": {"gpu": 1}}],
                "epochs": [epoch(1, **{"1": 1}) | {"ratios": {"1": {"gpus": 1}}}],
            },
            r"epochs\[0\].ratios.1: 'gpus' is not the resource 'gpu' of users\[0\].ratios",
        ),
    ],
)
def test_an_invalid_profile_is_refused_with_the_path_of_the_fault(
    change: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        read_profile(
            {"users": users("1"), "epochs": [{"capacity": 1, "demands": {"1": 1}}]} | change
        )
