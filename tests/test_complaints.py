"""Messages about unknown and misspelt names."""

import pytest

from allocator.complaints import alternatives, other_spelling, require_one_spelling, unknown
from allocator.simulation.setting import Setting, SettingError
from allocator.theory.divisible.optimum import create
from allocator.theory.games.gains import cells
from allocator.theory.games.policies import policy_of
from tests.simulation.crowded import trace_of


def test_a_similar_name_comes_before_all_names() -> None:
    assert unknown("policy", "sdfr", ["drf", "sdrf"]) == (
        "policy 'sdfr' is unknown; did you mean sdrf? There are: drf, sdrf"
    )
    assert alternatives("lottery", ["drf", "sdrf"]) == "; there are: drf, sdrf"


def test_messages_about_names_are_sentences() -> None:
    with pytest.raises(ValueError, match=r"'sdrrf' has no games; did you mean sdrf\? There are: c"):
        policy_of("sdrrf")
    with pytest.raises(ValueError, match=r"has no games here; did you mean sdrf\? There are: "):
        cells(["sdrrf"], [1], [3], [], 1)
    with pytest.raises(ValueError, match=r"has no exact optimum here; did you mean sdrf\? There "):
        create("sdrrf", {})
    setting = Setting("cmmf", {"resource": "billing"})
    with pytest.raises(SettingError, match="which the trace does not have; there are: cpus, mem"):
        setting.check(trace_of([(0, 1, "a", 1.0, 1.0)]))


def test_upper_case_and_a_plural_make_no_other_resource() -> None:
    assert other_spelling("CPU", ["mem", "cpus"]) == "cpus"
    assert other_spelling("cpus", ["cpus", "cpu_num", "gpus"]) is None
    assert other_spelling("s", ["S"]) is None, "single letters are names of their own"
    require_one_spelling([("a", "cpus"), ("b", "cpus"), ("c", "gpus")])
    with pytest.raises(
        ValueError, match=r"^b: 'cpu' is not the resource 'cpus' of a; did you mean"
    ):
        require_one_spelling([("a", "cpus"), ("b", "cpu")])
