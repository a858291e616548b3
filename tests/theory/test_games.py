"""Games over time: the papers' claims, whether they hold, and the deciding examples."""

from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.theory.games.drawing import GameLimits, draw
from allocator.theory.games.game import Game, file_of, read_game
from allocator.theory.games.mechanism import play, worth
from allocator.theory.games.policies import POLICIES
from allocator.theory.games.properties import PROPERTIES
from allocator.theory.games.search import Effort, climb, search, smallest
from allocator.theory.games.shrinking import extent, simpler

SDRF, STSF = POLICIES["sdrf"], POLICIES["stsf"]
STRATEGY_PROOFNESS = PROPERTIES["strategy-proofness"]


def cpu(*amounts: float | Fraction) -> list[dict[str, Any]]:
    return [{"cpu": amount} if amount else {} for amount in amounts]


def worths(policy: str, game: Game) -> tuple[Fraction, Fraction]:
    """Return the first user's useful allocation with its true needs, and with its claims."""
    chosen = POLICIES[policy]
    return (
        worth(game, 0, play(chosen, game, game.truth)),
        worth(game, 0, play(chosen, game, game.claimed)),
    )


def proposition_3() -> Game:
    first = {"cpu": 1, "mem": 0.01}
    return read_game(
        {
            "idle": 8,
            "delta": 0.5,
            "patience": 0.9,
            "users": [
                {
                    "name": "1",
                    "needs": [first, first],
                    "claims": [{"cpu": 0.9, "mem": 0.009}, first],
                },
                {"name": "2", "needs": [{"cpu": 0.1, "mem": 1}, first]},
            ],
        }
    )


@pytest.mark.parametrize("policy", ["sdrf", "stsf"])
def test_proposition_3_of_the_sdrf_paper_does_not_hold_with_two_resources(policy: str) -> None:
    truthful, lying = worths(policy, proposition_3())
    assert truthful == Fraction(299, 220)  # 1.3590909…
    assert lying == Fraction("1.370475")


def test_the_gain_comes_from_the_commitment_of_the_other_user() -> None:
    """User 1's waiver lets user 2 over-use ten times as much, which then lowers user 2's rank."""
    game = proposition_3()
    truth, lie = play(SDRF, game, game.truth)[0], play(SDRF, game, game.claimed)[0]
    assert truth[0][0] - lie[0][0] == Fraction(10, 11) - Fraction(9, 10)
    assert lie[1][1] - truth[1][1] > 9 * (truth[0][0] - lie[0][0])


def test_with_short_memory_proposition_3_does_not_hold_with_one_resource_either() -> None:
    """δ = 0: user 1's waiver in favour of j returns from j at once, and again by way of k."""
    reduction = Fraction(1, 50)
    game = read_game(
        {
            "idle": 1,
            "delta": 0,
            "patience": 0.99,
            "users": [
                {
                    "name": "1",
                    "needs": cpu(0, 1, 1, 1, 1),
                    "claims": cpu(0, Fraction(7, 10) - reduction, 1, 1, 1),
                },
                {"name": "j", "needs": cpu(0.65, 1, 1, 1, 1)},
                {"name": "k", "needs": cpu(0, 0, 0.5, 1, 0)},
            ],
        }
    )
    truthful, lying = worths("sdrf", game)
    gaps = [-reduction, reduction, -reduction / 3, reduction / 2]
    stages = range(1, 5)
    assert lying - truthful == sum(
        game.patience**t * gap for t, gap in zip(stages, gaps, strict=True)
    )
    assert lying > truthful


def test_an_absent_user_can_gain_a_sixth_by_claiming_a_resource_with_little_need() -> None:
    """The worst game found by hill climbing with three users, n = 9, three stages and δ = ½."""
    last = {"cpu": 0.95, "mem": 0.1}
    game = read_game(
        {
            "idle": 6,
            "users": [
                {
                    "name": "1",
                    "needs": [{}, {"cpu": 0.01, "mem": 0.02}, last],
                    "claims": [{}, {}, last],
                },
                {
                    "name": "2",
                    "needs": [
                        {"cpu": 0.405, "mem": 1},
                        {"cpu": 1, "mem": 0.04},
                        {"cpu": 0.5, "mem": 0.5},
                    ],
                },
                {
                    "name": "3",
                    "needs": [{}, {"cpu": 0.001, "mem": 0.96}, {"cpu": 0.142, "mem": 0.095}],
                },
            ],
        }
    )
    truthful, lying = worths("sdrf", game)
    assert lying == Fraction("0.55704375")
    assert lying / truthful > 1 + Fraction(1, 6)


def long_absence(*lengths: int, delta: float) -> Game:
    """User 1 is absent in stage 1; its small allocation there would block user 2."""
    little, last = {"cpu": 0.0001, "mem": 0.0002}, {"cpu": 1, "mem": 0.0004}
    return read_game(
        {
            "idle": 5,
            "delta": delta,
            "patience": 1,
            "lengths": list(lengths),
            "users": [
                {"name": "1", "needs": [little, last], "claims": [{}, last]},
                {"name": "2", "needs": [last, last]},
                {"name": "3", "weight": 3, "needs": [{"cpu": 0.0001, "mem": 0.9996}, {}]},
            ],
        }
    )


@pytest.mark.parametrize("policy", ["sdrf", "stsf"])
@pytest.mark.parametrize(
    ("times", "delta", "gain"), [(20, 0.9, 0.317), (20, 0.5, 0.349), (1, 0.5, 0.208)]
)
def test_a_long_absence_gains_a_third_although_memory_is_long(
    policy: str, times: int, delta: float, gain: float
) -> None:
    truthful, lying = worths(policy, long_absence(times, 1, delta=delta))
    assert float(lying / truthful) == pytest.approx(1 + gain, abs=5e-4)


def test_the_gain_of_an_absence_grows_with_its_length_in_half_lives() -> None:
    """At δ = 0.9 a half-life is 6.6 stages; the gain is 5 % after one stage, 21 % after seven."""
    gains = []
    for times in (1, 3, 7, 20):
        truthful, lying = worths("sdrf", long_absence(times, 1, delta=0.9))
        gains.append(round(float(lying / truthful - 1), 2))
    assert gains == [0.05, 0.12, 0.21, 0.32]


def test_a_stage_that_is_played_several_times_equals_as_many_stages() -> None:
    game = long_absence(3, 1, delta=0.9)
    written_out = read_game(
        {
            "idle": 5,
            "delta": 0.9,
            "patience": 1,
            "users": [
                {
                    "name": user.name,
                    "weight": user.weight,
                    "needs": [*user.needs[:1] * 3, user.needs[1]],
                    **({"claims": [*user.claims[:1] * 3, user.claims[1]]} if user.claims else {}),
                }
                for user in game.users
            ],
        }
    )
    assert game.duration == written_out.duration == 4
    for policy in POLICIES.values():
        assert play(policy, game, game.claimed) == play(policy, written_out, written_out.claimed)
        for checked in PROPERTIES.values():
            if not checked.one_resource:
                assert checked.complaint(policy, game) == checked.complaint(policy, written_out)


def test_games_with_long_stages_are_drawn() -> None:
    rng, limits = Random(1), GameLimits(longest=50)
    lengths = [draw(rng, 1.0, limits).times for _ in range(200)]
    assert {1, 2} < {times for row in lengths for times in row} <= set(range(1, 51))
    assert max(max(row) for row in lengths) > 40
    assert sum(set(row) == {1} for row in lengths) > 80  # and games without long stages as well


def test_hill_climbing_finds_a_gain_of_a_third_by_long_stages() -> None:
    limits = GameLimits(
        resources=2,
        users=3,
        stages=2,
        idle=5,
        delta=Fraction(9, 10),
        patience=Fraction(1),
    )
    worst = climb(SDRF, Effort(steps=1, restarts=2), limits)
    assert worst.ratio > Fraction(131, 100)


@pytest.mark.slow
def test_hill_climbing_from_a_random_game_finds_gains_by_long_stages_at_delta_0_9(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Known games are left out: the climb starts from a random game."""
    monkeypatch.setattr("allocator.theory.games.search._KNOWN", ())
    limits = GameLimits(
        resources=2,
        users=3,
        stages=2,
        idle=6,
        delta=Fraction(9, 10),
        patience=Fraction(1),
        longest=10,
    )
    worst = climb(SDRF, Effort(steps=400, restarts=1, seed=4), limits)
    assert worst.ratio > Fraction(108, 100)
    assert worst.game.duration > worst.game.stages


def test_games_with_shorter_stages_are_simpler() -> None:
    game = long_absence(20, 1, delta=0.9)
    shorter = [candidate for candidate in simpler(game) if candidate.times != game.times]
    lengths = [candidate.times for candidate in shorter]
    assert all(extent(candidate) < extent(game) for candidate in shorter)
    assert lengths == [(1,), (20,), (1, 1), (10, 1), (19, 1)]


@pytest.mark.parametrize("policy", ["sdrf", "stsf"])
def test_with_short_memory_and_one_resource_claiming_unusable_resources_pays(
    policy: str,
) -> None:
    """User 2, limited once, then has a smaller commitment than 3, and at last a larger one."""
    game = read_game(
        {
            "delta": 0,
            "users": [
                {"name": "1", "needs": cpu(0, 0, 1), "claims": cpu(1, 0, 1)},
                {"name": "2", "needs": cpu(1, 1, 1)},
                {"name": "3", "needs": cpu(0, 1, 0)},
            ],
        }
    )
    assert worths(policy, game) == (Fraction(81, 200), Fraction(351, 800))


PARTS = st.integers(1, 20).map(lambda k: Fraction(k, 20))


@st.composite
def games(draw: st.DrawFn, *, resources: int, deltas: tuple[str, ...], lies: bool = True) -> Game:
    """Games of 2 to 4 users in 2 to 5 stages, in which the first claims anything at all."""
    names = ("cpu", "mem", "gpu")[:resources]
    stages = draw(st.integers(2, 5))
    needs = st.fixed_dictionaries(dict.fromkeys(names, PARTS))
    stage: st.SearchStrategy[dict[str, Fraction]] = st.one_of(st.just({}), needs)
    plan = st.lists(stage, min_size=stages, max_size=stages)
    users: list[dict[str, Any]] = [
        {"name": str(i), "needs": draw(plan), "weight": draw(st.integers(1, 3))}
        for i in range(draw(st.integers(2, 4)))
    ]
    if lies:
        users[0]["claims"] = draw(plan)
    return read_game(
        {
            "users": users,
            "lengths": draw(st.lists(st.integers(1, 8), min_size=stages, max_size=stages)),
            "idle": draw(st.integers(0, 6)),
            "delta": Fraction(draw(st.sampled_from(deltas))),
            "patience": draw(st.sampled_from([Fraction(1), Fraction(9, 10), Fraction(1, 2)])),
        }
    )


LONG = ("1/2", "3/4", "9/10", "99/100")


@settings(deadline=None)
@given(games(resources=1, deltas=LONG))
def test_with_one_resource_and_commitments_decaying_by_half_no_lie_pays(game: Game) -> None:
    truthful, lying = worths("sdrf", game)
    assert lying <= truthful


@settings(deadline=None)
@given(games(resources=2, deltas=LONG))
def test_under_stsf_no_lie_gains_more_than_the_bound_of_ratios(game: Game) -> None:
    truthful, lying = worths("stsf", game)
    assert lying <= rho(game) * truthful


def rho(game: Game) -> Fraction:
    """Return the most of its dominant share that a user may gain from another's waiver."""
    best = Fraction(1)
    for stage, mine in enumerate(game.truth[0]):
        for theirs in game.truth[1:]:
            if any(mine) and any(theirs[stage]):
                for r, amount in enumerate(mine):
                    ours = amount / max(mine)
                    best = max(best, ours / (theirs[stage][r] / max(theirs[stage])))
    return best


@settings(deadline=None)
@given(
    games(resources=2, deltas=("0", "1/2", "9/10"), lies=False), st.sampled_from(["sdrf", "stsf"])
)
def test_over_time_no_user_would_get_more_on_a_partition_of_its_own(
    game: Game, policy: str
) -> None:
    assert PROPERTIES["sharing-incentive"].complaint(POLICIES[policy], game) is None


@settings(deadline=None)
@given(games(resources=1, deltas=("1/2",), lies=False), st.sampled_from([0, 1]))
def test_equalising_totals_is_credit_fair_with_a_single_resource(game: Game, alpha: int) -> None:
    guaranteed = game.model_copy(update={"alpha": Fraction(alpha)})
    credit = PROPERTIES["credit-fairness"]
    assert credit.complaint(POLICIES["dynamic-mmf"], guaranteed) is None


def test_credit_is_not_repaid_by_policies_that_forget() -> None:
    game = read_game(
        {
            "users": [
                {"name": "lender", "needs": cpu(0, 1)},
                {"name": "borrower", "needs": cpu(1, 1)},
            ],
            "idle": 1,
            "delta": 0.75,
        }
    )
    credit = PROPERTIES["credit-fairness"]
    for policy in ("drf", "sdrf", "stsf"):
        complaint = credit.complaint(POLICIES[policy], game)
        assert complaint is not None
        assert complaint.user == "lender"


def test_under_kueues_decayed_use_a_user_can_envy_another_that_used_nothing_before() -> None:
    full, little = {"cpu": 1, "mem": 0.2}, {"cpu": 0.2, "mem": 0.2}
    game = read_game(
        {
            "delta": 0.9,
            "users": [{"name": "1", "needs": [{}, full]}, {"name": "2", "needs": [little, full]}],
        }
    )
    complaint = PROPERTIES["envy-freeness"].complaint(POLICIES["kueue-afs"], game)
    assert complaint is not None
    assert (complaint.user, complaint.has, complaint.instead) == (
        "2",
        Fraction(103, 200),
        Fraction(117, 200),
    )


@settings(deadline=None)
@given(games(resources=2, deltas=LONG), st.sampled_from(["drf", "cmmf"]))
def test_policies_without_memory_are_strategy_proof(game: Game, policy: str) -> None:
    truthful, lying = worths(policy, game)
    assert lying <= truthful


@settings(deadline=None)
@given(games(resources=2, deltas=LONG), st.sampled_from(sorted(POLICIES)))
def test_a_game_gives_out_no_more_than_there_is(game: Game, policy: str) -> None:
    for now in play(POLICIES[policy], game, game.claimed):
        for column in zip(*now, strict=True):
            assert sum(column) <= 1


def test_decayed_use_is_level_when_a_stage_is_over() -> None:
    """b had no allocation before: at δ = ½ a's past use counts ½, so b now gets ½ more than a."""
    needs = {"a": [{"cpu": 1}, {"cpu": 1}], "b": [{}, {"cpu": 1}]}
    users = [{"name": name, "needs": stages} for name, stages in needs.items()]
    game = read_game({"delta": 0.5, "users": users})
    for policy in ("volcano", "kueue-afs"):
        first, second = play(POLICIES[policy], game, game.claimed)
        assert first == ((Fraction(1),), (Fraction(0),))
        assert second == ((Fraction(1, 4),), (Fraction(3, 4),))


@pytest.mark.slow
def test_the_search_finds_a_profitable_lie_that_has_no_simpler_neighbour() -> None:
    outcome = search(SDRF, STRATEGY_PROOFNESS, trials=300, seed=1, limits=GameLimits())
    assert outcome.found is not None
    game, complaint = outcome.found.game, outcome.found.complaint
    assert (len(game.users), game.stages, len(game.resources)) == (2, 2, 2)
    truthful, lying = worths("sdrf", game)
    assert (complaint.has, complaint.instead) == (truthful, lying)
    assert smallest(SDRF, STRATEGY_PROOFNESS, outcome.found) == outcome.found


def test_the_search_is_reproducible_with_the_same_seed() -> None:
    limits = GameLimits(resources=1)
    property_ = PROPERTIES["credit-fairness"]
    first = search(SDRF, property_, trials=50, seed=3, limits=limits)
    assert first == search(SDRF, property_, trials=50, seed=3, limits=limits)
    assert first.found is not None


@pytest.mark.slow
def test_hill_climbing_finds_more_profitable_lies() -> None:
    limits = GameLimits(resources=2, users=3, stages=3, idle=6, delta=Fraction(1, 2))
    worst = climb(SDRF, Effort(steps=300, restarts=2), limits)
    assert worst.ratio > Fraction(105, 100)
    assert worths("sdrf", worst.game) == (worst.truthful, worst.gained)


@given(games(resources=2, deltas=LONG))
def test_simpler_games_are_games(game: Game) -> None:
    for candidate in list(simpler(game))[:40]:
        rebuilt = Game(
            users=candidate.users,
            idle=candidate.idle,
            delta=candidate.delta,
            patience=candidate.patience,
            lengths=candidate.lengths,
        )
        assert extent(rebuilt) == extent(candidate)


@given(games(resources=2, deltas=("1/2",)))
def test_a_game_file_contains_the_game(game: Game) -> None:
    reread = read_game(file_of(game))
    for policy in POLICIES.values():
        assert play(policy, reread, reread.claimed) == play(policy, game, game.claimed)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"users": []}, "users"),
        ({"users": [{"name": "a", "needs": [{"cpu": 2}]}]}, "more than 1"),
        ({"delta": 1, "users": [{"name": "a", "needs": [{"cpu": 1}]}]}, "delta: 1.0 is not less"),
        (
            {"users": [{"name": "a", "needs": [{"cpu": 1}], "claims": [{}, {}]}]},
            r"users\[0\].claims: 2 stages",
        ),
        (
            {"lengths": [1, 2], "users": [{"name": "a", "needs": [{"cpu": 1}]}]},
            "lengths: 2 numbers, and 'a' needs something in 1 stages",
        ),
        ({"lengths": [0], "users": [{"name": "a", "needs": [{"cpu": 1}]}]}, "lengths"),
        ({"users": [{"name": "a", "needs": [{}]}] * 2}, "2 have the name 'a'"),
        (
            {
                "users": [
                    {"name": "a", "needs": [{"cpu": 1}]},
                    {"name": "b", "needs": [{"cpus": 1}]},
                ]
            },
            r"users\[1\].needs\[0\]: 'cpus' is not the resource 'cpu' .* did you mean cpu\?",
        ),
        (
            {"users": [{"name": "a", "needs": [{"MEM": 1}], "claims": [{"mem": 1}]}]},
            r"users\[0\].claims\[0\]: 'mem' is not the resource 'MEM'",
        ),
    ],
)
def test_an_invalid_game_is_refused_with_the_path_of_the_fault(
    content: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        read_game(content)
