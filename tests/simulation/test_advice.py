"""Advice: finds the best half-life for a workload, and reports the neighbouring half-lives."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cli.advise import _choice, _show
from allocator.simulation import advice, reference
from allocator.simulation.setting import Setting, capacity_at
from allocator.simulation.trace import Trace
from tests.simulation.crowded import trace_of


def bursts_beside_a_hog(tasks: int = 30, users: str = "abc") -> Trace:
    """A user with a permanent backlog, and users with twelve bursts in all."""
    rows = [(minute, 300, "hog", 1.0, 1.0) for minute in range(0, 6000, 20)]
    for hour, user in enumerate(users * (12 // len(users))):
        rows += [(hour * 500 + 1000, 60, user, 1.0, 1.0)] * tasks
    return trace_of(sorted(rows))


def crowded() -> tuple[Trace, Setting]:
    trace = bursts_beside_a_hog()
    return trace, Setting("drf", capacity=capacity_at(trace, 0.8))


def test_memory_helps_light_users_beside_a_hog_and_the_best_half_life_was_tried() -> None:
    trace, setting = crowded()
    ran: list[None] = []
    advised = advice.advise(
        trace, setting, reference.simulate, coarse=6, fine=3, on_trial=lambda: ran.append(None)
    )
    assert advised.helps
    assert advised.best.light > 0.0
    assert len(ran) == 1 + len(advised.trials) <= 1 + 6 + 3
    assert advised.best.mean_user_wait_s == min(trial.mean_user_wait_s for trial in advised.trials)
    assert advised.flat_from_s <= advised.best.half_life_s <= advised.flat_to_s
    half_lives = [trial.half_life_s for trial in advised.trials]
    assert half_lives == sorted(half_lives)
    assert half_lives[0] == pytest.approx(60.0)
    finish = (trace.submitted + trace.runtime).max() - trace.submitted[0]
    assert half_lives[-1] <= finish / 1e6 * 1.000001, "no longer memory can be tested"
    assert advised.between_bursts_s == pytest.approx(1500.0), "each light user's bursts"
    for trial in advised.trials:
        advised_setting = Setting("sdrf", {"half_life": trial.half_life_s}, setting.capacity)
        waits = reference.simulate(trace, advised_setting).wait
        means = [waits[trace.user == user].mean() for user in range(len(trace.users))]
        assert trial.mean_user_wait_s == pytest.approx(sum(means) / len(means))
        assert trial.reduction == pytest.approx(1 - trial.mean_user_wait_s / advised.drf_wait_s)
        assert trial.delta**trial.half_life_s == pytest.approx(0.5)


def test_confidence_depends_on_the_number_of_users_that_agree() -> None:
    rng = np.random.default_rng(3)
    before = rng.exponential(100.0, 400)
    after = before * 0.8
    after[0] = np.nan  # no task of this user started
    assert advice._interval(before, after) == pytest.approx((0.2, 0.2))
    single = before.copy()
    single[7] += 3000.0  # a single losing user decides
    low, high = advice._interval(before, np.where(np.arange(400) == 7, single, after))
    assert low is not None
    assert high is not None
    assert low < 0.15
    assert high > 0.19
    assert advice._interval(before[:4], after[:4]) == (None, None), "four users are few"


def advised_by(*waits: float) -> advice.Advice:
    """Return the advice after trials with these mean waits, of 1, 2 and more hours.

    The mean wait under DRF is 100 s.
    """
    trials = [
        advice.Trial(3600.0 * hours, 0.5, wait, 1.0 - wait / 100.0, 0.0, 0.0, 1, 0, 0.1, 0.2)
        for hours, wait in enumerate(waits, 1)
    ]
    return advice._advice(100.0, trials, never_started=0)


def test_a_half_life_with_twice_the_wait_is_not_nearly_best() -> None:
    advised = advised_by(19.0, 10.0, 11.0)  # nine tenths of the reduction are 81 %
    assert advised.nearly_best_s == (7200.0, 10800.0)
    assert (advised.flat_from_s, advised.flat_to_s) == (7200.0, 10800.0)


def test_nearly_best_half_lives_beyond_a_worse_half_life_are_named() -> None:
    advised = advised_by(89.0, 90.5, 89.2)
    assert advised.nearly_best_s == (3600.0, 10800.0)
    assert advised.flat_to_s == 3600.0
    assert _choice(advised).startswith("Nearly as good are the simulated half-lives 1h and 3h;")
    assert "from 1h to 3h is nearly as good" in _choice(advised_by(89.0, 89.1, 89.2))
    assert _choice(advised_by(89.0, 99.0)) == "No other simulated half-life is nearly as good."


@pytest.mark.parametrize(
    ("waits", "warned"),
    [
        ((95.0, 89.0, 95.0), True),
        ((95.0, 89.0, 89.0, 89.0, 95.0), True),
        ((89.2, 89.0, 89.1, 89.1), False),
    ],
)
def test_a_narrow_peak_is_said_to_be_perhaps_chance(
    waits: tuple[float, ...], *, warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    _show(advised_by(*waits), "skip")
    shown = " ".join(capsys.readouterr().out.split())
    assert ("perhaps by chance in the order of starts" in shown) == warned


@pytest.mark.parametrize("reduction", [-0.01, 0.05])
@pytest.mark.parametrize("light_low", [-0.1, 0.1])
@pytest.mark.parametrize("longer", [-0.1, 0.1])
def test_sdrf_is_advised_for_light_users_only_if_the_next_half_lives_help_them_too(
    reduction: float, light_low: float, longer: float, capsys: pytest.CaptureFixture[str]
) -> None:
    def trial(hours: float, reduction: float, light: float) -> advice.Trial:
        waits_less, waits_longer = 1, 2
        return advice.Trial(
            *(3600.0 * hours, 0.5, 100.0 * (1.0 - reduction), reduction, light, 0.0),
            *(waits_less, waits_longer, -0.2, 0.2, light_low, 0.4),
        )

    trials = [trial(1, reduction, 0.3), trial(2, -0.02, longer), trial(3, -0.02, -0.1)]
    _show(advice._advice(100.0, trials, never_started=0), "skip")
    shown = " ".join(capsys.readouterr().out.split())
    assert 'half_life = "1h"' in shown
    served = light_low > 0.0 and longer > 0.0
    assert ("choose the policy sdrf with this half-life" in shown) == served


def test_without_waiting_users_no_change_is_advised() -> None:
    trace, _ = crowded()
    roomy = Setting("drf", capacity=(1000.0, 1000.0))
    with pytest.raises(advice.AdviceError, match="lower the load"):
        advice.advise(trace, roomy, reference.simulate)


def test_if_no_half_life_changes_a_wait_no_change_is_advised() -> None:
    trace, setting = crowded()
    drf = reference.simulate(trace, setting)
    with pytest.raises(advice.AdviceError, match="no half-life changes any user's mean wait"):
        advice.advise(trace, setting, lambda *_: drf, coarse=3, fine=2)


def test_the_time_between_bursts_is_of_long_pauses_although_short_ones_are_more_frequent() -> None:
    days = [(86400 * day + 600 * at, 60, "a", 1.0, 1.0) for day in range(4) for at in range(20)]
    once = [(0, 60, "b", 1.0, 1.0)]
    outcome = reference.simulate(trace_of(sorted(days + once)), Setting("drf", capacity=(9.0, 9.0)))
    pause = 86400.0 - 600 * 19
    names = outcome.trace.users
    assert advice.time_between_bursts(outcome, np.array([names.index("a")])) == pause
    assert advice.time_between_bursts(outcome, np.arange(2)) == pause
    assert advice.time_between_bursts(outcome, np.array([names.index("b")])) is None


@given(st.floats(-50, 50), st.floats(0.1, 5.0))
def test_the_search_closes_in_on_the_least(at: float, width: float) -> None:
    seen: dict[float, float] = {}

    def tried(x: float) -> float:
        return seen.setdefault(x, abs(x - at))

    advice._narrow(tried, at - 0.3 * width, at + 0.7 * width, steps=12)
    assert len(seen) == 12
    assert min(seen.values()) <= width * 0.618**10
    assert math.isfinite(min(seen.values()))


def test_half_lives_on_a_plateau_are_not_tried_more_densely() -> None:
    trace, setting = crowded()
    drf = reference.simulate(trace, setting)
    memory = reference.simulate(trace, Setting("sdrf", {"half_life": 600.0}, setting.capacity))
    advised = advice.advise(
        trace, setting, lambda _, tried: drf if tried.policy == "drf" else memory, coarse=6, fine=3
    )
    assert advised.helps
    assert len(advised.trials) == 6
    assert advised.flat_to_s == advised.trials[-1].half_life_s
