"""Amounts are counted in whole parts, so that fits and equal shares are exact."""

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from allocator.simulation.parts import Parts
from tests.simulation.crowded import trace_of

AMOUNTS = st.floats(1e-6, 1e12)


def parts_of(demand: float, *capacities: float) -> Parts:
    return Parts.of(trace_of([(0, 1, "a", demand, 0)]), np.array([[c, 0.0] for c in capacities]))


def whole(parts: Parts, amount: float) -> int:
    return int(parts.whole(np.array([[amount, 0.0]]))[0, 0])


def test_decimal_amounts_are_counted_in_thousandths_as_mesos_does() -> None:
    parts = parts_of(0.1, 1.0, 0.3)
    assert parts.per_unit[0] == 1000.0
    assert 3 * whole(parts, 0.1) == whole(parts, 0.3)


def test_amounts_with_more_digits_are_counted_in_smaller_parts() -> None:
    assert parts_of(0.01587, 1.0).per_unit[0] == 1e6
    assert parts_of(0.00000123, 1.0).per_unit[0] == 1e9


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 40))
def test_the_number_of_decimal_tasks_that_fit_is_free_of_rounding_errors(
    demand: int, times: int, machines: int
) -> None:
    parts = parts_of(demand / 1000, *[times * demand / 1000] * machines)
    assert whole(parts, times * demand / 1000) == times * whole(parts, demand / 1000)


@given(AMOUNTS, AMOUNTS)
def test_any_capacity_of_a_pool_is_exact(demand: float, capacity: float) -> None:
    parts = parts_of(demand, capacity)
    counted = whole(parts, capacity)
    assert counted < 2**53
    assert counted / parts.per_unit[0] == capacity


@given(AMOUNTS, AMOUNTS)
def test_demands_relative_to_the_capacity_keep_their_order(demand: float, capacity: float) -> None:
    parts = parts_of(demand, capacity)
    assert (whole(parts, demand) <= whole(parts, capacity)) == (demand <= capacity)


@given(st.floats(1e-300, 1e300), st.lists(st.floats(0, 1e15), min_size=1, max_size=9))
def test_no_positive_demand_becomes_zero_and_all_capacities_are_exact_as_doubles(
    demand: float, capacities: list[float]
) -> None:
    assume(sum(capacities))
    parts = parts_of(demand, *capacities)
    assert whole(parts, demand) > 0
    assert sum(whole(parts, capacity) for capacity in capacities) < 2**53
