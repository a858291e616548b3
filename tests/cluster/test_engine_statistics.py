"""The engine's statistics count each event once."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace

import pytest

from allocator.cluster.calls import PREPARE
from allocator.cluster.engine import Engine
from allocator.cluster.input.errors import InvalidEvent
from allocator.contract import allocator_pb2 as contract
from allocator.contract import operator_pb2 as operator
from tests.cluster.conformance.quota_side import BatchMaster, freed, unavailability
from tests.cluster.master_side import (
    SECOND,
    START_NS,
    MasterSide,
    agent_call,
    framework_info,
    resources,
)


def counted(engine: Engine) -> Counter[str]:
    """Return the statistics by name; each part of a statistic as `holds.begun`."""
    numbers = Counter[str]()
    for name, statistic in asdict(engine.statistics).items():
        if isinstance(statistic, dict):
            numbers.update({f"{name}.{part}": number for part, number in statistic.items()})
        else:
            numbers[name] = statistic
    return numbers


def grown(master: MasterSide, before: Counter[str]) -> dict[str, int]:
    """Return the statistics that have changed, with their increase."""
    increases = counted(master.engine)
    increases.subtract(before)
    return {name: increase for name, increase in increases.items() if increase}


def test_a_message_its_events_its_cycle_and_each_offer_count_once() -> None:
    master = BatchMaster()
    master.add_framework("f1", "a")
    master.add_framework("f2", "b")
    before = counted(master.engine)
    assert len(master.add_agent("s1", "cpus:2;mem:64")) == 1
    assert grown(master, before) == dict.fromkeys(
        ("messages", "events", "runs", "candidates", "offers"), 1
    )
    before = counted(master.engine)
    master.send(contract.Tick(), contract.Tick())
    assert grown(master, before) == {"messages": 1, "events": 2, "runs": 1}
    before = counted(master.engine)
    master.send(contract.UpdateUnavailability(agent_id="s1", unavailability=unavailability(1)))
    assert grown(master, before)["inverse_offers"] == 1
    before = counted(master.engine)
    master.restore(contract.Snapshot(time_ns=master.now_ns, sequence=master.sequence))
    assert grown(master, before) == {"messages": 1, "snapshots": 1}


def test_an_agent_without_eligible_clients_is_examined_once() -> None:
    master = MasterSide()
    before = counted(master.engine)
    master.add_agent("s1", "cpus:2;mem:64")
    assert grown(master, before)["candidates"] == 1
    before = counted(master.engine)
    master.tick()
    assert "candidates" not in grown(master, before)


def test_a_recovery_that_does_not_fit_the_state_counts_once_under_its_reason() -> None:
    master = BatchMaster()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:2;mem:64")
    for counter, call in {
        "clamped": contract.RecoverResources(
            framework_id="f1", agent_id="s1", resources=resources("cpus:3", "a")
        ),
        "ignored": contract.RecoverResources(
            framework_id="gone", agent_id="s1", resources=resources("cpus:1", "a")
        ),
        "rejected": contract.RejectOffer(
            framework_id="f1", agent_id="s1", resources=resources("mem:64", "a")
        ),
    }.items():
        before = counted(master.engine)
        master.send(call)
        assert grown(master, before) == {"messages": 1, "events": 1, counter: 1}
    for late in (
        freed(offer),
        contract.UpdateInverseOffer(agent_id="gone", framework_id="f1"),
        contract.UpdateInverseOffer(agent_id="s1", framework_id="gone"),
        contract.TransitionOfferedToAllocated(
            framework_id="f1", agent_id="gone", resources=resources("cpus:1", "a")
        ),
    ):
        if isinstance(late, contract.RecoverResources):
            late.agent_id = "gone"
        before = counted(master.engine)
        master.send(late)
        assert grown(master, before) == {"messages": 1, "events": 1, "ignored": 1}
    before = counted(master.engine)
    master.now_ns -= SECOND
    master.send(contract.Pause())
    assert grown(master, before) == {"messages": 1, "events": 1, "early_stamps": 1}


def test_a_rejected_message_counts_as_one_and_its_calls_do_not_count() -> None:
    master = MasterSide()
    before = counted(master.engine)
    wrong = contract.RemoveAgent(agent_id="nobody")
    with pytest.raises(InvalidEvent):
        master.send(wrong)
    assert grown(master, before) == {"messages": 1}
    before = counted(master.engine)
    master.send(wrong)
    assert grown(master, before) == {"messages": 1, "passed_over": 1}


def test_agents_are_visited_in_a_random_order_given_by_the_seed() -> None:
    orders = []
    for seed in (0, 0, 1):
        engine = Engine(replace(MasterSide().settings, seed=seed))
        snapshot = contract.Snapshot(time_ns=START_NS)
        snapshot.agents.extend(agent_call(f"s{number}", "cpus:1") for number in range(20))
        snapshot.frameworks.add(framework_id="f1", info=framework_info("f1", "a"), active=True)
        [offers] = engine.restore(contract.Options(), snapshot).offers
        orders.append([offer.agent_id for offer in offers.offers])
    came = [f"s{number}" for number in range(20)]
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in (came, *orders)}) == 3


def test_a_later_timestamp_advances_the_clock_and_is_not_counted_as_early() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:2;mem:64")
    master.recover(offer, refuse_seconds=10)
    assert len(master.tick(10)) == 1
    assert master.engine.now == START_NS / SECOND + 10
    assert counted(master.engine)["early_stamps"] == 0


def test_an_observer_is_called_before_and_after_each_cycle() -> None:
    records: list[object] = []

    class Watching:
        def before_run(self, engine: Engine) -> None:
            records.append(dict(engine.allocations()))

        def after_run(self, _engine: Engine, decisions: Sequence[contract.Decisions]) -> None:
            records.append([[offer.framework_id for offer in part.offers] for part in decisions])

    master = BatchMaster()
    master.add_framework("f1", "a")
    master.engine.watch(Watching())
    master.add_agent("s1", "cpus:2;mem:64")
    assert records == [{}, [["f1"]]]


def test_an_agent_added_and_removed_in_one_message_causes_no_cycle() -> None:
    master = MasterSide()
    before = counted(master.engine)
    master.send(agent_call("s1", "cpus:1"), contract.RemoveAgent(agent_id="s1"))
    assert grown(master, before) == {"messages": 1, "events": 2}
    before = counted(master.engine)
    master.tick()
    assert grown(master, before) == {"messages": 1, "events": 1, "runs": 1}


def test_an_engine_without_a_snapshot_has_nothing_to_offer() -> None:
    engine = Engine(MasterSide().settings)
    events = contract.Events()
    events.events.add(sequence=1, time_ns=START_NS).tick.SetInParent()
    with pytest.raises(InvalidEvent, match="later than the event before"):
        engine.apply(events)
    events.events[0].time_ns = 0
    assert not engine.apply(events).offers
    assert (engine.statistics.runs, engine.statistics.early_stamps) == (1, 0)
    assert (engine.agents, engine.frameworks) == (0, 0)
    assert engine.agent_name("s1") == "s1"
    assert engine.framework_name("f1") == "f1"
    assert engine.user("a", "f1") is None


def test_an_order_counts_as_a_message() -> None:
    master = MasterSide()
    before = counted(master.engine)
    master.engine.order(operator.Order(reset_commitments=operator.ResetCommitments()))
    assert grown(master, before) == {"messages": 1}


def test_a_snapshot_part_that_breaks_the_allocator_while_it_is_read_is_one_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master = MasterSide()
    monkeypatch.setitem(PREPARE, "add_agent", broken)
    before = counted(master.engine)
    agents = [agent_call("s1", "cpus:1"), agent_call("s2", "cpus:1")]
    master.restore(contract.Snapshot(time_ns=START_NS, agents=agents))
    assert grown(master, before) == {"messages": 1, "snapshots": 1, "faults": 2}
    assert {rejected_input.flaw.reason for rejected_input in master.engine.rejected_inputs()} == {
        "fault"
    }


def broken(*_: object) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("what", ["carry_over", "note_skipped"])
@pytest.mark.interpreted
def test_an_error_in_the_resync_of_filters_is_one_fault_and_loses_filters_only(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:2;mem:64")
    assert master.recover(offer, refuse_seconds=3600) == []
    before = counted(master.engine)
    monkeypatch.setattr(f"allocator.cluster.engine.engine.{what}", broken)
    tick = contract.Event(sequence=master.sequence + 1, time_ns=master.now_ns)
    tick.tick.SetInParent()
    master.engine.note_skipped_events([tick])
    snapshot = contract.Snapshot(time_ns=master.now_ns, sequence=master.sequence + 1)
    snapshot.agents.append(agent_call("s1", "cpus:2;mem:64"))
    snapshot.frameworks.add(framework_id="f1", info=framework_info("f1", "a"), active=True)
    assert master.restore(snapshot) == [offer]
    assert grown(master, before)["faults"] == 1
