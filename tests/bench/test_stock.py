"""The comparison with the stock allocator: what it takes from Mesos's sources, and its tables."""

import pytest

from bench.stock import BEGIN, END, PAGE, ROUND, Run, excerpt, milliseconds, tables

TESTS = """// A licence.
#include <atomic>
#include <gmock/gmock.h>
#include "tests/mesos.hpp"
namespace mesos {
namespace internal {
namespace tests {
class HierarchicalAllocatorTestBase : public ::testing::Test
{
  HierarchicalAllocatorTestBase() : allocator(createAllocator<HierarchicalDRFAllocator>()) {}
};

class HierarchicalAllocatorTest : public HierarchicalAllocatorTestBase {};

class HierarchicalAllocator_BENCHMARK_Test
  : public HierarchicalAllocatorTestBase {};

TEST_P(HierarchicalAllocator_BENCHMARK_Test, AddAndUpdateSlave)
{
}

TEST_P(HierarchicalAllocator_BENCHMARK_Test, DeclineOffers)
{
  rounds();
}

TEST_P(HierarchicalAllocator_BENCHMARK_Test, Other)
{
}
"""


def test_the_excerpt_is_the_benchmark_with_a_replaced_allocator() -> None:
    text = excerpt(TESTS)
    assert "rounds();" in text
    assert "allocator(longshare::bench::create_allocator())" in text
    for other in (
        "gmock",
        "tests/mesos.hpp",
        "AddAndUpdateSlave",
        "Other",
        "HierarchicalAllocatorTest :",
    ):
        assert other not in text
    assert text.count("{") == text.count("}")


def test_tests_of_another_release_are_refused() -> None:
    with pytest.raises(ValueError, match="DeclineOffers"):
        excerpt(TESTS.replace("DeclineOffers", "DeclineAll"))
    with pytest.raises(ValueError, match="createAllocator"):
        excerpt(TESTS.replace("createAllocator", "create"))


def test_durations_of_mesos_become_milliseconds() -> None:
    line = "round 3 allocate() took {} to make 1000 offers after filtering 4000 offers"
    for text, time in (
        ("21.5ms", 21.5),
        ("1.5secs", 1500.0),
        ("912us", 0.912),
        ("2mins", 120_000.0),
    ):
        found = ROUND.search(line.format(text))
        assert found is not None
        assert milliseconds(*found.groups()[:2]) == pytest.approx(time)


def test_tables_compare_the_first_round_with_the_stock_allocator_of_the_same_pass() -> None:
    stock = Run(
        [20.0, 30.0],
        [1000, 1000],
        [(0.0, 0.0, 0.0, 0.0), (0.02, 0.02, 0.0, 0.0)] * 2 + [(0.1,) * 4],
    )
    ours = Run(
        [10.0, 10.0],
        [1000, 1000],
        [(0.0, 0.0, 0.0, 0.0), (0.01, 0.001, 0.002, 0.007)] * 2 + [(0.1,) * 4],
    )
    text = tables(
        {((1000, 50), True): {"stock": [stock, stock], "plain": [ours, ours]}}, ["stock", "plain"]
    )
    size = "| 1,000 | 50 |"
    elapsed = ("waits", "20 (20–20)", "10 (10–10)", "25 (25–25)", "10 (10–10)", "0.50 (0.50–0.50)")
    assert f"{size} {' | '.join(elapsed)} |" in text
    spent = ("first", "batch", "20.0 (20.0–20.0)", "1.0 (1.0–1.0)", "2.0 (2.0–2.0)")
    assert f"{size} {' | '.join(spent)} | 7.0 (7.0–7.0) |" in text


def test_the_page_has_a_place_for_the_tables() -> None:
    page = PAGE.read_text("utf-8")
    assert 0 < page.index(BEGIN) < page.index(END)
