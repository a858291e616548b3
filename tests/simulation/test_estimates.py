"""Confidence in the figures of papers, and workloads fitted to them."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.simulation import fast, reference
from allocator.simulation.generator import google_month
from allocator.simulation.setting import Setting
from allocator.simulation.statistics import statistics
from allocator.simulation.studies import fitting, sdrf_findings, tsf_findings
from allocator.simulation.studies.estimates import (
    all_of,
    estimate,
    ratio_estimate,
    resampled_ends,
)
from allocator.simulation.studies.fingerprints import Fingerprint, Months, miss
from allocator.simulation.studies.results import Result
from allocator.simulation.studies.waiting import users_at_starts
from tests.examples import examples
from tests.simulation.crowded import trace_of


def test_an_interval_is_students() -> None:
    estimated = estimate([1.0, 2.0, 3.0])
    assert (estimated.mean, estimated.draws) == (2.0, 3)
    reach = 2.919986 / math.sqrt(3.0)  # t distribution with two degrees of freedom, 95 %
    assert [estimated.low, estimated.high] == pytest.approx([2.0 - reach, 2.0 + reach], rel=1e-6)
    assert [estimated.exceeds(bound) for bound in (0.0, 2.0, 5.0)] == [True, None, False]


def test_a_single_draw_has_no_confidence_interval() -> None:
    estimated = estimate([0.94])
    assert math.isnan(estimated.low)
    assert estimated.exceeds(0.1) is None
    assert estimated.percent == "+94.0 %"


def test_eight_draws_tell_their_standard_deviation_by_a_factor_of_two_only() -> None:
    """Fig. 8 at 100 %: 2.6 points for eight months, 5.2 for fourteen fresh months."""
    eight = estimate([9.1, 12.9, 13.2, 9.0, 7.6, 7.8, 9.0, 14.0])
    assert eight.spread == pytest.approx(2.6, abs=0.05)
    low, high = eight.spread_ends
    quantiles = 14.067, 2.167  # χ² with seven degrees of freedom, 5 % on each side
    assert [low, high] == pytest.approx(
        [eight.spread * math.sqrt(7 / quantile) for quantile in quantiles], rel=1e-3
    )
    assert low < 3.5 < high  # the standard deviation of many months is within
    assert eight.written_spread("{:.1f}".format) == "2.6 [1.8, 4.7]"
    assert estimate([1.0]).written_spread() == ""


def coverage(values: list[list[float]], mean: float) -> float:
    estimates = [estimate(value) for value in values]
    return sum(interval.low <= mean <= interval.high for interval in estimates) / len(values)


def test_an_interval_of_eight_draws_contains_the_mean_in_nine_of_ten_cases() -> None:
    generator = np.random.default_rng(1)
    assert coverage(generator.normal(10.0, 5.0, (4000, 8)).tolist(), 10.0) == pytest.approx(
        0.9, abs=0.015
    )
    skewed = generator.gamma(4.0, 2.5, (4000, 8)).tolist()  # mean 10 and deviation 5
    assert coverage(skewed, 10.0) == pytest.approx(0.9, abs=0.04)


def test_a_ratio_over_samples_is_that_of_the_sums_and_its_interval_holds_in_nine_of_ten_cases() -> (
    None
):
    exact = ratio_estimate([1.0, 20.0, 3.0], [2.0, 40.0, 6.0])
    assert (exact.mean, exact.low, exact.high) == pytest.approx((0.5, 0.5, 0.5))
    quiet = ratio_estimate([1.0, 20.0, -0.5], [2.0, 40.0, 0.1])
    assert quiet.mean == pytest.approx(20.5 / 42.1), "a quiet month hardly counts"
    generator = np.random.default_rng(3)
    below = generator.gamma(4.0, 2.5, (4000, 12))
    above = 0.2 * below + generator.normal(0.0, 2.0, below.shape)
    drawn = [ratio_estimate(*pair) for pair in zip(above.tolist(), below.tolist(), strict=True)]
    held = sum(interval.low <= 0.2 <= interval.high for interval in drawn) / len(drawn)
    assert held == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("users", [6, 20])
def test_resampling_few_users_gives_an_interval_with_the_mean_in_nine_of_ten_cases(
    users: int,
) -> None:
    generator = np.random.default_rng(2)
    held = plainly = 0
    for _ in range(1000):
        values = generator.normal(10.0, 5.0, users)
        drawn = values[generator.integers(users, size=(400, users))].mean(axis=1)
        low, high = resampled_ends(drawn, users)
        held += low <= 10.0 <= high
        plain = np.quantile(drawn, (0.05, 0.95))
        plainly += plain[0] <= 10.0 <= plain[1]
    assert held / 1000 == pytest.approx(0.9, abs=0.03)
    assert plainly < held


@pytest.mark.parametrize(
    ("verdicts", "together"),
    [([True, True], True), ([True, None], None), ([None, False], False), ([], True)],
)
def test_all_hold_only_if_each_is_sure_to(
    verdicts: list[bool | None], *, together: bool | None
) -> None:
    assert all_of(verdicts) is together


@examples(30)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 20), st.integers(1, 9), st.sampled_from("abc")),
        min_size=1,
        max_size=25,
    )
)
def test_users_wait_if_they_have_a_submitted_task_that_has_not_started(
    rows: list[tuple[int, int, str]],
) -> None:
    trace = trace_of([(t, run, user, 1.0, 1.0) for t, run, user in sorted(rows)])
    outcome = reference.simulate(trace, Setting("drf", capacity=(1.0, 1.0)))
    waiting = [
        len(set(trace.user[(trace.submitted <= at) & (outcome.started >= at)].tolist()))
        for at in outcome.started.tolist()
    ]
    assert users_at_starts(outcome) == pytest.approx(np.mean(waiting))


def fared(policy: str, trace: int, wait: list[float], completion: list[float]) -> Result:
    users = {"name": list("abcd"), "tasks": [10] * 4, "usage": [1.0, 2.0, 3.0, 4.0]}
    same = {"name": "months", "blocking": "head-of-line", "users": "known", "per": "user"}
    raw = same | {
        "policy": policy,
        "parameters": {} if policy == "drf" else {"delta": 1.0 - 1e-6},
        "trace": str(trace),
        "load": 0.5,
        "engine": "fast",
        "tasks": 40,
        "span_s": 1e6,
        "events": False,
        "mean_user_wait_s": float(np.mean(wait)),
        "users_measured": users | {"wait_s": wait, "completion": completion},
    }
    return Result(raw, Path("none"))


def verdicts(before: list[float], after: list[list[float]], shift: float) -> list[bool | None]:
    """Return the verdicts on Fig. 9 and 10 for traces with these waits of four users."""
    all_ = [0.5] * 4
    results = [fared("drf", trace, before, all_) for trace in range(len(after))]
    results += [
        fared("sdrf", trace, wait, [0.5 + shift, *all_[1:]]) for trace, wait in enumerate(after)
    ]
    nine, ten = sdrf_findings.sections(results)
    return [claim.agrees for claim in (*nine.claims, *ten.claims)]


def test_light_users_must_gain_most_seconds_regardless_of_relative_gains() -> None:
    before = [10.0, 10.0, 1000.0, 1000.0]
    heavy = verdicts(before, [[1.0, 1.0, 900.0, 900.0], [1.0, 2.0, 900.0, 901.0]], 0.0)
    assert heavy == [False, False, False, True]
    light = verdicts(before, [[1.0, 1.0, 1000.0, 999.0], [1.0, 2.0, 1001.0, 1000.0]], 0.0)
    assert light == [True, True, False, True]
    torn = verdicts(before, [[1.0, 1.0, 1000.0, 1000.0], [9.0, 9.0, 500.0, 500.0]], 0.0)
    assert torn[0] is None


@pytest.mark.parametrize(
    ("speedups", "agree"),
    [
        ((-0.002, 0.009, 0.005, 0.008), [False, False]),
        ((0.005, 0.009, 0.008, 0.002), [False, False]),
        ((0.1, 0.1, 0.1, 0.1), [True, False]),
        ((0.01, 0.08, 0.12, 0.2), [True, True]),
        ((0.01, 0.3, 0.4, 0.5), [False, True]),
    ],
)
def test_the_bigger_jobs_gain_the_more_only_if_each_size_gains_more_than_the_smaller(
    speedups: tuple[float, ...], agree: list[bool]
) -> None:
    sizes = ("small", "medium", "big", "huge")
    faster = {
        "DRF": {name: np.full(3, speedup) for name, speedup in zip(sizes, speedups, strict=True)}
    }
    tenth, bigger, _ = tsf_findings._speedup_claims(faster)
    assert bigger.published == "Small jobs gain little; the bigger, the more."
    assert [tenth.agrees, bigger.agrees] == agree


@pytest.mark.parametrize(
    ("saved", "agrees"),
    [
        ({"DRF": 1.0, "CDRF": 5.0, "CPU": 1.5}, True),
        ({"DRF": 1.0, "CDRF": 5.0, "CPU": 4.0}, False),
        ({"DRF": -0.1, "CDRF": -0.05, "CPU": -0.1}, False),
    ],
)
def test_cdrf_does_worst_only_if_drf_and_cpu_are_close(
    saved: dict[str, float], *, agrees: bool
) -> None:
    waits = {name: np.ones(2) for name in ("TSF", "FIFO", *saved)}
    _, worst = tsf_findings._task_claims(waits, {n: np.full(2, s) for n, s in saved.items()})
    assert worst.agrees is agrees


def test_most_users_means_more_than_half_of_all_users() -> None:
    same = [[1.0] * 4] * 2
    assert verdicts([2.0] * 4, same, 0.1)[2] is False, (
        "one of four users completes more tasks, no user fewer"
    )
    assert verdicts([2.0] * 4, same, -0.1)[3] is False, "one of four users completes fewer tasks"


def test_concurrent_tasks_are_measured_by_the_size_of_the_largest_consumers() -> None:
    # A core for 300 s and three cores for 100 s: each size has half of the use, so 2 on average.
    trace = trace_of([(0, 300, "a", 1.0, 0.0), (0, 100, "b", 3.0, 0.0)])
    measured = statistics(trace)
    assert measured.mean_use["cpus"] == pytest.approx(2.0)
    assert measured.at_once == {"cpus": pytest.approx(1.0)}


def figure(relation: str, got: float) -> Fingerprint:
    ratio = relation == "="
    return Fingerprint("f", 10.0, relation, got, (got,), "s", 2.0, ratio)  # type: ignore[arg-type]


def test_a_miss_counts_ratios_of_equal_targets_and_excesses_over_bounds() -> None:
    assert figure("=", 10.0).miss == 0.0
    assert figure("=", 40.0).miss == pytest.approx(2.0)
    assert figure("=", 5.0).miss == pytest.approx(1.0)
    assert [figure("≥", got).miss for got in (11.0, 6.0)] == [0.0, 2.0]
    assert [figure("≤", got).miss for got in (9.0, 14.0)] == [0.0, 2.0]
    several = Fingerprint("f", 10.0, "≥", 10.0, (16.0, 4.0), "s", 2.0, ratio=False)
    assert several.miss == pytest.approx(math.sqrt(9.0 / 2.0)), "each month counts, not their mean"
    assert miss([figure("=", 40.0), figure("≥", 11.0)]) == pytest.approx(math.sqrt(2.0))


@pytest.mark.slow  # simulates
def test_a_search_compares_knobs_on_the_same_months_and_later_draws_are_near_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fitting, "SEARCHED", (0.5,))
    months = Months(google_month.FEWEST, (1,))
    steps: list[None] = []
    tried = list(fitting.search(2, 3, months, lambda: steps.append(None)))
    assert len(steps) == 2 * 8
    first, second = (trial.knobs.job_spread for trial in tried)
    assert 0.0 < abs(first - second) < 0.9
    measures = {measure.name: measure for measure in tried[0].found}
    trace = google_month.generate(1, months.tasks, knobs=tried[0].knobs)
    setting = Setting(
        "sdrf", {"delta": 1.0 - 1e-6}, capacity=tuple((0.5 * trace.mean_use()).tolist())
    )
    events = fast.simulate(trace, setting).operations.events
    assert (
        measures["events per 1,000 tasks, 50 %, 1 − 10⁻⁶"].measured
        == 1000.0 * events / months.tasks
    )
