"""Allocations are accounted to the right client in any order of calls (§1.4, §1.5, §1.6)."""

import pytest

from allocator.cluster.engine import Engine
from allocator.cluster.input.errors import InvalidEvent
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.metering import Meter
from allocator.users.settings import DeclaredUser
from tests.cluster.master_side import START_NS, MasterSide, agent_call, framework_info, resources


def test_used_resources_count_once_whether_agent_or_framework_comes_first() -> None:
    used = {"f1": resources("cpus:1;mem:512", "a")}
    agent_first, framework_first = MasterSide(), MasterSide()
    agent_first.add_agent("s1", "cpus:2;mem:1024", used)
    agent_first.add_framework("f1", "a", active=False)
    framework_first.add_framework("f1", "a", active=False)
    framework_first.add_agent("s1", "cpus:2;mem:1024", used)
    for master in (agent_first, framework_first):
        [standing] = master.engine.pool.standings()
        assert standing.allocation.to_doubles() == {"cpus": 1.0, "mem": 512.0}
        [offer] = master.add_framework("f2", "b")
        assert offer.resources == "cpus:1;mem:512"


def test_removing_a_framework_frees_its_allocation_and_late_recoveries_are_ignored() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:2;mem:1024")
    master.send(contract.RemoveFramework(framework_id="f1"))
    assert master.recover(offer) == []
    [next_offer] = master.add_framework("f2", "b")
    assert next_offer.resources == offer.resources


def test_removing_an_agent_frees_its_allocations_and_late_recoveries_are_ignored() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:2;mem:1024")
    master.remove_agent("s1")
    assert not master.engine.pool.standing("a").allocation
    assert master.recover(offer, refuse_seconds=5) == []
    assert master.engine.filters == 0
    assert master.engine.statistics.ignored == 1
    assert len(master.add_agent("s1", "cpus:2;mem:1024")) == 1, "the same id may come back"


def test_allocations_that_an_agent_reports_in_several_parts_add_up() -> None:
    master = MasterSide()
    call = agent_call("s1", "cpus:4;mem:1024")
    for _ in range(2):
        call.used.add(framework_id="f1", resources=resources("cpus:1;mem:256", "a"))
    master.send(call)
    [offer] = master.add_framework("f2", "b")
    assert offer.resources == "cpus:2;mem:512"


def test_a_recovery_of_more_than_the_allocation_offers_the_allocated_part_at_once() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:2;mem:1024")
    assert [next_offer.resources for next_offer in master.recover(offer, "cpus:7;mem:512")] == [
        "cpus:2;mem:512"
    ]


def test_recovering_more_than_was_allocated_is_clamped_and_counted() -> None:
    master = MasterSide()
    master.add_framework("f1", "a", suppressed=["a"])
    master.add_agent("s1", "cpus:2;mem:1024", {"f1": resources("cpus:1;mem:512", "a")})
    master.send(
        contract.RecoverResources(
            framework_id="f1", agent_id="s1", resources=resources("cpus:7;mem:512", "a")
        )
    )
    assert master.engine.statistics.clamped == 1
    assert not master.engine.pool.standing("a").allocation


def test_resources_of_an_unknown_framework_can_be_recovered() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    assert (
        master.add_agent("s1", "cpus:2;mem:1024", {"gone": resources("cpus:2;mem:1024", "x")}) == []
    )
    [offer] = master.send(
        contract.RecoverResources(
            framework_id="gone", agent_id="s1", resources=resources("cpus:2;mem:1024", "x")
        )
    )
    assert offer.resources == "cpus:2;mem:1024"


def test_an_agent_may_be_over_allocated_and_then_offers_nothing() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    assert master.add_agent("s1", "cpus:1;mem:512", {"f1": resources("cpus:2;mem:512", "a")}) == []
    assert master.engine.pool.standing("a").allocation["cpus"] == 2000


def test_a_rejected_offer_is_free_again() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:2;mem:1024")
    [next_offer] = master.send(
        contract.RejectOffer(
            framework_id="f1", agent_id="s1", resources=offer.messages, reason="test"
        )
    )
    assert next_offer.resources == offer.resources
    assert master.engine.statistics.rejected == 1


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (contract.RemoveAgent(agent_id="nobody"), "agent 'nobody' is not known"),
        (contract.ActivateFramework(framework_id="nobody"), "framework 'nobody' is not known"),
        (agent_call("s1", "cpus:1"), "agent s1 is known already"),
        (
            contract.AddFramework(framework_id="f1", info=framework_info("f1", "a")),
            "framework f1 is known already",
        ),
        (
            contract.RecoverResources(
                framework_id="f1",
                agent_id="s1",
                resources=resources("cpus:1", "a") + resources("mem:1", "b"),
            ),
            "allocated to role 'b'",
        ),
        (
            contract.UpdateAllocation(
                framework_id="f1",
                agent_id="s1",
                offered=resources("cpus:1", "a"),
                conversions=[contract.Conversion(consumed=resources("cpus:1", "b"))],
            ),
            "a conversion is for role 'b', the offers for 'a'",
        ),
    ],
)
def test_a_call_that_contradicts_the_known_state_changes_nothing(
    call: object, complaint: str
) -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:2;mem:1024")
    before = master.engine.pool.standings()
    with pytest.raises(InvalidEvent, match=complaint):
        master.send(call)
    assert master.engine.pool.standings() == before
    assert (master.engine.agents, master.engine.frameworks) == (1, 1)
    assert len(master.recover(offer)) == 1, "the session continues"


@pytest.mark.parametrize("sequence", [2, 4])
def test_repeated_and_missing_events_are_detected(sequence: int) -> None:
    master = MasterSide()
    master.tick()
    master.tick()
    events = contract.Events()
    events.events.add(sequence=sequence, time_ns=master.now_ns).tick.SetInParent()
    with pytest.raises(InvalidEvent, match="missing or came twice"):
        master.engine.apply(events)


def test_an_event_of_a_newer_contract_is_rejected_with_a_hint() -> None:
    master = MasterSide()
    events = contract.Events()
    events.events.add(sequence=1, time_ns=master.now_ns)
    with pytest.raises(InvalidEvent, match="upgrade the allocator first"):
        master.engine.apply(events)


def test_an_earlier_timestamp_is_read_as_the_latest_one_seen_and_counted() -> None:
    master = MasterSide()
    master.tick(10)
    master.tick(-5)
    assert master.engine.now == START_NS / 1e9 + 10
    assert master.engine.statistics.early_stamps == 1


def test_messages_are_counted_and_a_snapshot_counts_as_one_message() -> None:
    master = MasterSide()
    assert master.engine.statistics.messages == 1
    master.send(contract.Tick(), contract.Tick())
    assert master.engine.statistics.messages == 2


def test_queued_ticks_count_as_one_tick() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:2;mem:1024")
    master.recover(offer, refuse_seconds=0)
    runs, messages = master.engine.statistics.runs, master.engine.statistics.messages
    offers = master.send(contract.Tick(), contract.Tick(), contract.Tick())
    assert len(offers) == 1
    assert master.engine.statistics.runs == runs + 1
    assert master.engine.statistics.messages == messages + 1


def test_a_snapshot_replaces_the_cluster_and_keeps_commitments() -> None:
    master = MasterSide("sdrf", {"delta": 0.99})
    master.add_framework("f1", "a")
    master.add_framework("f2", "b")
    [offer] = master.add_agent("s1", "cpus:4;mem:4096")
    master.tick(50)
    owed = master.engine.pool.standing(offer.role).commitment
    assert owed > 0.1
    master.restore(
        contract.Snapshot(
            sequence=900,
            time_ns=master.now_ns + 10 * 10**9,
            agents=[agent_call("s9", "cpus:4;mem:4096")],
            inactive_agents=["s9"],
            frameworks=[
                contract.AddFramework(
                    framework_id="f9", info=framework_info("f9", offer.role), active=True
                )
            ],
        )
    )
    assert master.engine.sequence == 900
    assert (master.engine.agents, master.engine.frameworks) == (1, 1)
    after = master.engine.pool.standing(offer.role).commitment
    assert after == pytest.approx(owed * 0.99**10)


def test_an_error_in_the_meter_is_counted_and_affects_the_meter_only() -> None:
    class Broken(Meter):
        def bridge(self, *_: object) -> None:
            raise ZeroDivisionError

    master = MasterSide()
    master.engine = Engine(master.settings, meter=Broken())
    for _ in range(2):  # Before the first snapshot there is nothing to bridge.
        assert master.engine.statistics.faults == 0
        master.restore(contract.Snapshot(time_ns=master.now_ns))
    assert master.engine.statistics.faults == 1
    master.add_framework("f1", "a")
    assert len(master.add_agent("s1", "cpus:2;mem:1024")) == 1


def test_initial_commitments_apply_from_the_first_snapshot_on() -> None:
    users = (DeclaredUser("a", commitment=0.5), DeclaredUser("b", commitment={"cpus": 0.25}))
    master = MasterSide("sdrf", {"delta": 0.99}, users=users)
    master.add_agent("s1", "cpus:4;mem:4096")
    assert master.engine.pool.standing("a").commitments == {"cpus": 0.5, "mem": 0.5}
    assert master.engine.pool.standing("b").commitments == {"cpus": 0.25, "mem": 0.0}


def test_commitments_survive_a_master_that_comes_back_before_its_agents() -> None:
    users = (DeclaredUser("a", commitment=0.5),)
    master = MasterSide("sdrf", {"delta": 0.99}, users=users)
    empty = contract.Snapshot(time_ns=START_NS)
    master.restore(empty)  # No user has an allocation yet.
    master.add_agent("s1", "cpus:4;mem:4096")
    assert master.engine.pool.standing("a").commitment == 0.5
    for _ in range(2):
        master.restore(empty)
    master.sequence = 0
    master.add_agent("s1", "cpus:4;mem:4096")
    assert master.engine.pool.standing("a").commitments == {"cpus": 0.5, "mem": 0.5}


def test_a_snapshot_of_a_paused_master_offers_nothing_until_it_resumes() -> None:
    master = MasterSide()
    snapshot = contract.Snapshot(
        time_ns=START_NS,
        agents=[agent_call("s1", "cpus:2;mem:1024")],
        frameworks=[
            contract.AddFramework(framework_id="f1", info=framework_info("f1", "a"), active=True)
        ],
        paused=True,
    )
    assert master.restore(snapshot) == []
    assert len(master.send(contract.Resume())) == 1


def test_a_user_that_left_is_known_while_it_has_a_commitment_and_forgotten_afterwards() -> None:
    master = MasterSide("sdrf", {"half_life": 3600})
    master.add_framework("f1", "a")
    master.add_framework("f2", "b", suppressed=["b"])
    master.add_agent("s1", "cpus:4;mem:4096")
    for _ in range(3):
        master.tick(3600)
    master.send(contract.RemoveFramework(framework_id="f1"))
    for _ in range(23):
        master.tick(3600)
    master.tick(3599)
    assert "a" in master.engine.pool
    master.tick(2)
    assert "a" not in master.engine.pool
    assert "b" in master.engine.pool


def test_a_request_is_accepted_and_ignored_as_stock_mesos_does() -> None:
    master = MasterSide()
    master.add_framework("f1", "a")
    wish = mesos.Request(slave_id=mesos.SlaveID(value="s1")).SerializeToString()
    assert master.send(contract.RequestResources(framework_id="f1", requests=[wish])) == []
