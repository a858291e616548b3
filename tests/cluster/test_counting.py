"""What has happened is counted, each thing once."""

from dataclasses import asdict

import pytest

from allocator.cluster.calls import PREPARE
from allocator.cluster.engine import Engine
from allocator.cluster.errors import InvalidEvent
from allocator.contract import allocator_pb2 as contract
from allocator.contract import operator_pb2 as operator
from tests.cluster.conformance.quota_side import BatchMaster, freed, unavailability
from tests.cluster.master_side import SECOND, START_NS, MasterSide, agent_call, resources


def counted(engine: Engine) -> dict[str, int]:
    return {what: number for what, number in asdict(engine.statistics).items() if what != "holds"}


def grown(master: MasterSide, before: dict[str, int]) -> dict[str, int]:
    """What has become more, by how much."""
    after = counted(master.engine)
    return {what: after[what] - before[what] for what in after if after[what] != before[what]}


def test_a_message_its_events_its_run_and_each_offer_count_once() -> None:
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


def test_what_does_not_fit_counts_once_as_what_it_is() -> None:
    master = BatchMaster()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:2;mem:64")
    for what, call in {
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
        assert grown(master, before) == {"messages": 1, "events": 1, what: 1}
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


def test_a_refused_message_counts_as_one_and_none_of_what_it_says() -> None:
    master = MasterSide()
    before = counted(master.engine)
    wrong = contract.RemoveAgent(agent_id="nobody")
    with pytest.raises(InvalidEvent):
        master.send(wrong)
    assert grown(master, before) == {"messages": 1}
    before = counted(master.engine)
    master.send(wrong)
    assert grown(master, before) == {"messages": 1, "passed_over": 1}


def test_what_ends_an_earlier_stamp_is_a_later_one() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:2;mem:64")
    master.recover(offer, refuse_seconds=10)
    assert len(master.tick(10)) == 1
    assert master.engine.now == START_NS / SECOND + 10
    assert counted(master.engine)["early_stamps"] == 0


def test_whoever_watches_is_told_of_each_run_before_and_after() -> None:
    told: list[object] = []

    class Watching:
        def before_run(self, engine: Engine) -> None:
            told.append(dict(engine.holdings()))

        def after_run(self, _engine: Engine, decisions: contract.Decisions) -> None:
            told.append([each.framework_id for each in decisions.offers])

    master = BatchMaster()
    master.add_framework("f1", "a")
    master.engine.watch(Watching())
    master.add_agent("s1", "cpus:2;mem:64")
    assert told == [{}, ["f1"]]


def test_who_has_not_been_told_of_any_cluster_has_nothing_to_offer() -> None:
    engine = Engine(MasterSide().settings)
    events = contract.Events()
    events.events.add(sequence=1, time_ns=START_NS).tick.SetInParent()
    with pytest.raises(InvalidEvent, match="after the one before"):
        engine.apply(events)
    events.events[0].time_ns = 0
    assert not engine.apply(events).offers
    assert (engine.agents, engine.frameworks) == (0, 0)
    assert engine.agent_name("s1") == "s1"
    assert engine.framework_name("f1") == "f1"
    assert engine.user("a", "f1") is None


def test_an_order_counts_as_a_message() -> None:
    master = MasterSide()
    before = counted(master.engine)
    master.engine.order(operator.Order(reset_commitments=operator.ResetCommitments()))
    assert grown(master, before) == {"messages": 1}


def test_a_part_of_a_snapshot_that_breaks_the_allocator_while_it_is_read_is_one_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    master = MasterSide()
    monkeypatch.setitem(PREPARE, "add_agent", broken)
    before = counted(master.engine)
    agents = [agent_call("s1", "cpus:1"), agent_call("s2", "cpus:1")]
    master.restore(contract.Snapshot(time_ns=START_NS, agents=agents))
    assert grown(master, before) == {"messages": 1, "snapshots": 1, "faults": 2}
    assert {each.flaw.reason for each in master.engine.set_aside()} == {"fault"}
