"""Policies by name, with parameters that say what is wrong with them."""

import math

import pytest

from allocator.fairness import policies


def test_every_policy_has_a_name_it_is_found_by() -> None:
    assert {"drf", "sdrf", "tsf", "stsf"} <= set(policies.names())
    assert policies.create("drf", {}).name == "drf"


def test_delta_and_half_life_are_two_ways_to_say_one_thing() -> None:
    by_delta = policies.create("sdrf", {"delta": 0.5})
    for half_life in (1, "1s"):
        assert policies.create("sdrf", {"half_life": half_life}).tau == pytest.approx(by_delta.tau)
    assert policies.create("sdrf", {"half_life": "10m"}).tau == pytest.approx(600 / math.log(2))
    assert policies.create("drf", {}).tau is None


@pytest.mark.parametrize(
    ("name", "parameters", "complaint"),
    [
        ("lottery", {}, "policy 'lottery' is unknown; there are: cdrf, cmmf, drf"),
        ("drf", {"delta": 0.9}, "policy 'drf': delta: there is no such setting"),
        ("sdrf", {}, "give either 'delta' \\(per second\\) or 'half_life'"),
        ("sdrf", {"delta": 0.9, "half_life": 5}, "give either"),
        ("sdrf", {"delta": 1.0}, "switch long-term fairness off"),
        ("sdrf", {"delta": math.nan}, "switch long-term fairness off"),
        ("sdrf", {"half_life": "soon"}, "'soon' is not a duration"),
        ("sdrf", {"delta": 0.9, "form": "book"}, "'journal' or 'thesis'"),
        ("sdrf", {"detla": 0.9}, "parameters: ranking, delta, half_life, form"),
    ],
)
def test_a_wrong_parameter_is_named_with_what_would_do(
    name: str, parameters: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        policies.create(name, parameters)
