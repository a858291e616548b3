"""Backfill holds, and the run times that decide when a held agent will be ready."""

import pytest

from allocator.cluster.backfill.holds import BackfillHolds, HoldMode, HoldStatistics
from allocator.cluster.backfill.runtime_estimates import RuntimeEstimates
from allocator.cluster.frameworks.framework import Client
from allocator.fairness.quantities import Quantities

ONE, OTHER = Client("a", "f1"), Client("b", "f2")
TASK = Quantities.parse("cpus:1")
LONGEST = 100


def held(holding: HoldMode = "one") -> BackfillHolds:
    """Return holds in which client ONE holds s1 from instant 0 on."""
    holds = BackfillHolds(holding, LONGEST, HoldStatistics())
    holds.begin(ONE, "s1", TASK, 0, 10)
    return holds


def paused() -> BackfillHolds:
    holds = held()
    assert holds.expire(LONGEST) == ["s1"]
    assert not holds.may_have_more(ONE)
    return holds


def served() -> BackfillHolds:
    holds = held()
    assert holds.end_served(ONE, "s1") == "s1"
    return holds


@pytest.mark.parametrize("before", [held, paused, served])
def test_a_client_that_left_and_comes_back_may_begin_a_hold_at_once(before: object) -> None:
    holds = before()  # type: ignore[operator]
    assert holds.forget(ONE) == (["s1"] if before is held else [])
    assert not list(holds)
    holds.declined(ONE, "s1", 0)
    assert holds.may_begin(ONE)


def test_a_client_that_leaves_ends_only_its_own_holds() -> None:
    holds = held("all")
    holds.begin(OTHER, "s2", TASK, 0, 10)
    assert holds.forget(OTHER) == ["s2"]
    assert [hold.client for hold in holds] == [ONE]


def test_removing_an_agent_ends_its_hold() -> None:
    holds = held("all")
    holds.begin(OTHER, "s2", TASK, 0, 10)
    holds.forget_agent("s1")
    assert holds.on("s1") is None
    assert [hold.agent for hold in holds] == ["s2"]
    assert not holds.may_begin(ONE), "the client has had its turn"


def test_a_hold_has_a_longest_duration_and_is_followed_by_a_pause_of_the_same_duration() -> None:
    holds = held()
    assert holds.expire(LONGEST - 1) == []
    assert holds.expire(LONGEST) == ["s1"]
    assert holds.expire(2 * LONGEST - 1) == []
    assert not holds.may_have_more(ONE)
    assert holds.expire(2 * LONGEST) == []
    assert holds.may_have_more(ONE)
    assert not holds.may_begin(ONE)
    assert holds.next_round()
    assert holds.may_begin(ONE)
    assert not holds.next_round(), "another round would help no client"


def test_only_a_client_that_declines_its_held_agent_has_to_wait() -> None:
    holds = served()
    holds.declined(ONE, "s2", 0)
    assert holds.may_have_more(ONE)
    holds.declined(ONE, "s1", 0)
    assert holds.may_have_more(ONE), "a later decline does not count against the client"
    holds = served()
    holds.declined(ONE, "s1", 0)
    assert not holds.may_have_more(ONE)


def test_an_offer_on_another_agent_ends_the_hold_that_would_be_ready_last() -> None:
    holds = held("all")
    holds.begin(ONE, "s2", TASK, 0, 30)
    holds.begin(ONE, "s3", TASK, 0, 20)
    assert holds.end_served(ONE, "s9") == "s2"
    assert holds.end_served(OTHER, "s1") is None
    assert holds.end_served(ONE, "s1") == "s1"
    assert [hold.agent for hold in holds] == ["s3"]


def test_with_backfill_off_no_client_may_begin_a_hold() -> None:
    holds = BackfillHolds("off", LONGEST, HoldStatistics())
    assert (holds.enabled, holds.full, bool(holds)) == (False, True, False)
    assert not holds.may_begin(ONE)
    assert held().full
    assert not held("all").full


def test_begun_served_and_vain_holds_count_once_each() -> None:
    statistics = HoldStatistics()
    holds = BackfillHolds("all", LONGEST, statistics)
    holds.begin(ONE, "s1", TASK, 0, 1)
    holds.begin(OTHER, "s2", TASK, 0, 1)
    holds.end_served(ONE, "s1")
    holds.expire(LONGEST)
    assert statistics == HoldStatistics(begun=2, served=1, in_vain=1)


def test_a_recovery_ends_the_oldest_task_run_and_a_decline_removes_the_newest() -> None:
    times = RuntimeEstimates()
    times.record_offer(ONE, "s1", Quantities.parse("cpus:2"), 0)
    times.record_offer(ONE, "s1", Quantities.parse("cpus:2"), 50)
    times.record_decline(ONE, "s1", Quantities.parse("cpus:1"))
    assert times.longest_ns("f1") is None, "a declined offer is no task run"
    times.record_end(ONE, "s1", Quantities.parse("cpus:3"), 60)
    assert times.longest_ns("f1") == 60
    assert times.clients("s1") == frozenset()
    times.record_end(ONE, "s1", TASK, 99)
    assert list(times.known()) == [("f1", 60)]


def test_a_partial_recovery_keeps_the_rest_of_the_task_run() -> None:
    times = RuntimeEstimates()
    times.record_offer(ONE, "s1", Quantities.parse("cpus:2;mem:1"), 0)
    times.record_offer(OTHER, "s1", Quantities.parse("cpus:2"), 5)
    times.record_end(ONE, "s1", TASK, 10)
    assert [(when, str(stay.amounts)) for when, stay in times.ends("s1", 12)] == [
        (19, "cpus:2"),
        (24, "cpus:1;mem:1"),
    ]
    times.record_end(ONE, "s1", TASK, 30)
    assert [when for when, _ in times.ends("s1", 12)] == [19, 30]


def test_the_longest_of_the_latest_eight_run_times_counts_until_the_framework_is_removed() -> None:
    times = RuntimeEstimates()
    for number, lasted in enumerate([90, 10, 20, 10, 10, 10, 10, 10, 10]):
        assert times.longest_ns("f1") == (None if number == 0 else 90)
        times.record_offer(ONE, "s1", TASK, 0)
        times.record_end(ONE, "s1", TASK, lasted)
    assert times.longest_ns("f1") == 20
    times.record_offer(ONE, "s1", TASK, 0)
    times.record_offer(OTHER, "s1", TASK, 0)
    times.forget_framework("f1", ["s1"])
    assert times.longest_ns("f1") is None
    assert times.clients("s1") == {OTHER}
    times.forget_agent("s1")
    assert times.clients("s1") == frozenset()


def test_a_client_with_a_hold_may_get_further_holds_without_a_turn() -> None:
    holds = held("all")
    assert (holds.has(ONE), holds.has(OTHER)) == (True, False)
    assert (holds.may_begin(ONE), holds.may_begin(OTHER)) == (False, True)
    assert holds.may_have_more(ONE), "if the order of clients permits"


def test_declining_an_offer_removes_the_newest_task_runs_first() -> None:
    times = RuntimeEstimates()
    for begun in (0, 50):
        times.record_offer(ONE, "s1", Quantities.parse("cpus:2"), begun)
    times.record_decline(ONE, "s1", Quantities.parse("cpus:3"))
    assert [str(stay.amounts) for _when, stay in times.ends("s1", 60)] == ["cpus:1"]
    assert [when for when, _stay in times.ends("s1", 60)] == [120], (
        "the remaining task run is the oldest"
    )


def test_a_task_that_outlasts_its_estimate_is_expected_to_run_as_long_again() -> None:
    times = RuntimeEstimates()
    times.record_offer(ONE, "s1", TASK, 0)
    times.record_end(ONE, "s1", TASK, 10)
    times.record_offer(ONE, "s1", TASK, 100)
    ends = {now: [when for when, _stay in times.ends("s1", now)] for now in (109, 110, 111)}
    assert ends == {109: [110], 110: [120], 111: [122]}
