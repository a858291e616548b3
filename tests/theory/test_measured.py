"""The quantities that a policy counts are read from its code, and match the records of ours."""

from pathlib import Path
from random import Random

import pytest

from allocator import plugins
from allocator.api import violation
from allocator.fairness import policies
from allocator.theory.divisible import optimum as divisible
from allocator.theory.divisible.measured import measured
from allocator.theory.properties.drawing import Size, draw_problem
from allocator.theory.properties.search import PROPERTIES, search
from tests.plugins.written import LINE, NORM, file, key


@pytest.fixture(autouse=True)
def of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "_POLICIES", dict(policies._POLICIES))


@pytest.mark.parametrize("name", ["tsf", "cdrf", "drfh", "drf", "sdrf", "stsf"])
def test_a_policy_of_ours_measures_as_its_divisible_optimum_does(name: str) -> None:
    random = Random(3)
    parameters = {"half_life": 60} if name in {"sdrf", "stsf"} else {}
    written, read = divisible.create(name, {}), measured(policies.create(name, parameters))
    assert written.remembers == read.remembers
    for trial in range(12):
        problem = draw_problem(random, Size.of(trial / 12), commitments=False)
        for user in problem.users:
            if problem.constrained_monopoly(user):
                assert written.share(problem, user) == read.share(problem, user)


def test_powers_of_a_measure_are_the_same_measure(tmp_path: Path) -> None:
    plugins.load(file(tmp_path, key("return (account.share / account.weight) ** 3")))
    cubed, drf = measured(plugins.create("mine", {})), divisible.create("drf", {})
    problem = draw_problem(Random(5), Size.of(1.0), commitments=False)
    for user in problem.users:
        assert cubed.share(problem, user) == drf.share(problem, user)


def test_a_user_defined_policy_is_searched_for_violations(tmp_path: Path) -> None:
    plugins.load(file(tmp_path, NORM))
    counterexample = violation("norm", "single-machine", trials=30)
    assert counterexample is not None
    assert "under DRF" in counterexample.text
    assert violation("norm", "pareto-optimality", trials=30) is None


def test_a_small_difference_is_no_violation_where_measures_are_rounded(tmp_path: Path) -> None:
    rounded = "return 1.001 ** ((account.demand or {}).get('cpu', 0) / 1000 % 2)"
    plugins.load(file(tmp_path, key(f"{rounded} * account.share / account.weight")))
    wanted = next(checked for checked in PROPERTIES if checked.name == "single-machine")
    outcome = search(measured(plugins.create("mine", {})), wanted, trials=40, seed=1)
    assert outcome.violation is None


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        (LINE, "has priorities that change over time"),
        (key("return float(account.turn)", more="    queues = True\n"), "no divisible optimum"),
        (key("return 1 + account.share"), r"do not begin at 0 .* 0: 1, 1: "),
        (key("return max(account.share - account.entitlement, 0.0)"), "no divisible optimum"),
        (key("return 1 / 0"), "'mine' failed, .*: ZeroDivisionError"),
        (key("return 0.0", more="    per_machine = True\n"), "each machine separately"),
    ],
)
def test_a_policy_without_the_measure_is_refused_with_a_reason(
    tmp_path: Path, source: str, complaint: str
) -> None:
    (name,) = plugins.load(file(tmp_path, source))
    problem = draw_problem(Random(5), Size.of(0.5), commitments=False)
    with pytest.raises(ValueError, match=complaint):
        divisible.optimum(problem, measured(plugins.create(name, {})))
