"""Fixed-point quantities behave as Mesos's scalars (docs/explanation/mesos-semantics.md §2.1)."""

import doctest
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.fairness import quantities
from allocator.fairness.quantities import Quantities, to_milli

bags = st.dictionaries(
    st.sampled_from(["cpus", "mem", "disk", "gpus"]), st.integers(0, 10**9), max_size=4
).map(Quantities)


def test_the_examples_in_the_documentation_are_true() -> None:
    assert doctest.testmod(quantities).failed == 0


@pytest.mark.parametrize(
    ("value", "milli"),
    [(1.5011, 1501), (1.5015, 1502), (1.0005, 1001), (0.0005, 1), (0.0004, 0), (-1.0005, -1001)],
)
def test_doubles_are_rounded_half_away_from_zero(value: float, milli: int) -> None:
    assert to_milli(value) == milli


def thousandths(value: float) -> int:
    """Round the double nearest to 1,000 · value half away from zero, in exact fractions."""
    scaled = Fraction(float(abs(Fraction(value)) * 1000))
    rounded = math.floor(scaled + Fraction(1, 2))
    return rounded if value >= 0 else -rounded


def test_rounding_is_exact_where_adding_a_half_in_doubles_is_not() -> None:
    """The sum 2^52 + 1.5 has no double of its own, so a naive rounding adds one too many."""
    largest_odd = 2**52 + 1
    assert math.floor(largest_odd + 0.5) == largest_odd + 1, "the naive rounding"
    assert to_milli(largest_odd / 1000) == thousandths(largest_odd / 1000) == largest_odd
    below_half = math.nextafter(0.5, 0.0) / 1000
    assert Fraction(below_half) * 1000 < Fraction(1, 2)
    assert to_milli(below_half) == thousandths(below_half) == 0


@given(st.floats(-1e9, 1e9) | st.integers(-(10**9), 10**9).map(lambda half: (half + 0.5) / 1000))
def test_doubles_are_rounded_as_exact_fractions_are(value: float) -> None:
    assert to_milli(value) == thousandths(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e306, -1e17])
def test_a_value_that_is_not_a_finite_number_is_rejected(value: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        to_milli(value)


@given(st.integers(-(10**12), 10**12))
def test_thousandths_survive_conversion_to_a_double_and_back(milli: int) -> None:
    assert to_milli(milli / 1000) == milli


@given(bags, bags)
def test_addition_and_subtraction_are_inverse_and_exact(a: Quantities, b: Quantities) -> None:
    assert (a + b) - b == a
    assert a + b == b + a
    assert (a + b).contains(a)
    assert a.contains(b) == all(a[name] >= b[name] for name in b)
    assert not a.contains(Quantities({"ports": 1})), "a thousandth of an absent resource"


@given(bags, bags)
def test_subtracting_more_than_the_amount_is_rejected_with_the_resource_name(
    a: Quantities, b: Quantities
) -> None:
    if a.contains(b):
        assert (a - b) + b == a
    else:
        short = next(name for name in b if a[name] < b[name])
        with pytest.raises(ValueError, match=short):
            a - b


@given(bags)
def test_text_and_doubles_can_be_read_back(a: Quantities) -> None:
    assert Quantities.from_doubles(a.to_doubles()) == a
    exact = Quantities.parse(";".join(f"{n}:{v!r}" for n, v in a.to_doubles().items()))
    assert exact == a


def test_zero_is_the_same_as_absent() -> None:
    assert Quantities({"cpus": 0}) == Quantities()
    assert not Quantities({"cpus": 0})
    assert "cpus" not in Quantities({"cpus": 0})


def test_equal_fractions_are_equal_shares() -> None:
    capacity = Quantities({"cpus": 6000, "mem": 9_000_000, "gpus": 7000})
    shares = Quantities({"cpus": 2000, "mem": 3_000_000}).shares(capacity)
    assert shares == {"cpus": 1 / 3, "mem": 1 / 3, "gpus": 0.0}
    assert shares["cpus"] == shares["mem"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("cpus", "'cpus' is not of the form NAME:NUMBER"),
        ("cpus:4,mem:64", "'cpus:4,mem:64' is not .*, such as cpus:4;mem:64"),
        ("cpus:many", "'cpus:many' is not of the form"),
        (":4", "is not of the form"),
        ("cpus:1;cpus:2", "named twice"),
        ("cpus:-1", "cpus: -1.0 is negative"),
        ("cpus:inf", "cpus: inf is not a finite number"),
    ],
)
def test_malformed_text_is_rejected_with_a_reason(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Quantities.parse(text)


def test_thousandths_are_counted_from_zero_to_the_largest_64_bit_number() -> None:
    one_cpu = Quantities({"cpus": 1})
    assert (one_cpu + one_cpu) - one_cpu == one_cpu
    with pytest.raises(ValueError, match=r"cannot take 0\.001 of 'mem' from 0"):
        _ = one_cpu - Quantities({"mem": 1})
    assert to_milli(math.nextafter(2.0**63 / 1000, 0.0)) < 2**63
    for too_large in (2.0**63 / 1000, 2.0**63):
        with pytest.raises(ValueError, match="below 2\\^63"):
            to_milli(too_large)
