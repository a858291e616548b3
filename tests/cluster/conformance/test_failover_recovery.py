"""Failover recovery: no offer before 80 % of the agents are back, or ten minutes have passed."""

import pytest

from allocator.cluster.input.errors import InvalidEvent
from allocator.contract import allocator_pb2 as contract
from tests.cluster.conformance.quota_side import (
    BatchMaster,
    add_agent,
    freed,
    reserve,
    set_quota,
    told,
    unavailability,
)
from tests.cluster.master_side import SECOND, START_NS, Offered, agent_call, resources

TEN_MINUTES = 600


def elected(expected: int, *quotas: contract.SetQuota) -> BatchMaster:
    """Start with a newly elected master; one framework is registered again."""
    master = BatchMaster()
    master.send(contract.Recover(expected_agents=expected, quotas=quotas))
    master.add_framework("f1", "a")
    return master


def come_back(master: BatchMaster, *numbers: int) -> list[Offered]:
    offers: list[Offered] = []
    for number in numbers:
        offers += master.add_agent(f"s{number}", "cpus:1;mem:512")
    return offers


@pytest.mark.parametrize(
    ("expected", "needed"), [(10, 8), (9, 7), (4, 3), (2, 1)], ids=lambda n: f"{n}"
)
def test_offers_begin_when_four_fifths_of_the_agents_rounded_down_are_back(
    expected: int, needed: int
) -> None:
    master = elected(expected)
    assert come_back(master, *range(needed - 1)) == []
    assert master.tick() == []
    come_back(master, needed)
    assert len(master.engine.allocations()) + len(master.tick()) == needed, "all agents are offered"


def test_offers_begin_after_ten_minutes_however_few_agents_are_back() -> None:
    master = elected(10)
    assert come_back(master, 1) == []
    assert master.tick(TEN_MINUTES - 0.001) == []
    assert told(master.tick(0.001)) == {("f1", "s1", "cpus:1;mem:512")}


def flagged(**options: float) -> BatchMaster:
    """Start with a master that expects four agents, with flags that only Mesos 1.11 has."""
    master = BatchMaster()
    for name, value in options.items():
        setattr(master.options, name, value)
    master.restore(contract.Snapshot(time_ns=START_NS))
    master.send(contract.Recover(expected_agents=4))
    master.add_framework("f1", "a")
    return master


def test_the_masters_flag_sets_the_fraction_of_agents_that_ends_recovery() -> None:
    master = flagged(recovery_factor=0.5)
    assert come_back(master, 1) == []
    assert master.tick() == []
    come_back(master, 2)
    assert len(master.engine.allocations()) + len(master.tick()) == 2


def test_the_masters_flag_sets_the_timeout_of_recovery() -> None:
    master = flagged(recovery_timeout_ns=60 * SECOND)
    assert come_back(master, 1) == []
    assert master.tick(59.999) == []
    assert len(master.tick(0.001)) == 1


@pytest.mark.parametrize("factor", [-0.1, 1.1, float("nan")])
def test_a_factor_outside_0_to_1_is_rejected(factor: float) -> None:
    master = BatchMaster()
    master.options.recovery_factor = factor
    with pytest.raises(InvalidEvent, match="recovery_factor"):
        master.restore(contract.Snapshot(time_ns=START_NS))


@pytest.mark.parametrize("expected", [0, 1])
def test_recovery_without_expected_agents_ends_at_once(expected: int) -> None:
    assert len(come_back(elected(expected), 1)) == 1


def test_recovery_needs_no_quotas_and_quotas_apply_at_its_end() -> None:
    master = elected(2, set_quota("quota", "cpus:2;mem:1024"))
    master.add_framework("f2", "quota")
    assert told(come_back(master, 1)) == {("f2", "s1", "cpus:1;mem:512")}
    assert told(come_back(master, 2)) == {("f2", "s2", "cpus:1;mem:512")}
    assert told(come_back(master, 3)) == {("f1", "s3", "cpus:1;mem:512")}


def test_resume_does_not_end_recovery() -> None:
    master = elected(10)
    come_back(master, 1)
    assert master.send(contract.Pause()) == []
    assert master.send(contract.Resume()) == []
    assert master.tick() == []


def test_the_end_of_recovery_does_not_resume_a_paused_allocator() -> None:
    master = elected(2)
    master.send(contract.Pause())
    assert come_back(master, 1, 2) == []
    assert master.tick(TEN_MINUTES) == []
    assert len(master.send(contract.Resume(), contract.Tick())) == 2


def test_recovery_does_not_start_again_when_agents_leave() -> None:
    master = elected(2)
    assert len(come_back(master, 1)) == 1
    master.remove_agent("s1")
    assert len(come_back(master, 2)) == 1


def test_an_agent_that_comes_twice_counts_once() -> None:
    master = elected(3)
    assert come_back(master, 1) == []
    master.remove_agent("s1")
    assert come_back(master, 1) == []
    assert len(come_back(master, 2)) + len(master.tick()) == 2


def test_agents_that_lost_contact_count_as_being_back() -> None:
    master = elected(3)
    come_back(master, 1)
    master.send(contract.DeactivateAgent(agent_id="s1"))
    assert told(come_back(master, 2)) == {("f1", "s2", "cpus:1;mem:512")}


def test_agents_that_come_back_in_one_message_are_offered_in_one_cycle() -> None:
    master = elected(4)
    calls = [agent_call(f"s{number}", "cpus:1;mem:512") for number in range(3)]
    assert len(master.send(*calls)) == 3


def test_operators_calls_are_answered_during_recovery() -> None:
    master = elected(10)
    come_back(master, 1)
    operation = reserve(resources("cpus(a):1"))
    assert master.send(contract.UpdateAvailable(agent_id="s1", operations=[operation])) == []
    assert master.reply.error == ""


def test_recovery_sends_no_inverse_offers() -> None:
    master = elected(2)
    used = {"f1": resources("cpus:1;mem:512", "a")}
    call = add_agent("s0", resources("cpus:1;mem:512"), used)
    call.unavailability = unavailability(START_NS)
    held_off = elected(10)
    for side in (master, held_off):
        side.send(call)
    assert (master.inverse_offers, held_off.inverse_offers) == ([("f1", "s0")], [])


def test_resources_of_returning_tasks_are_not_offered_at_the_end_of_recovery() -> None:
    master = elected(2)
    used = {"f1": resources("cpus:1;mem:512", "a")}
    assert told(master.add_agent("s1", "cpus:2;mem:1024", used)) == {("f1", "s1", "cpus:1;mem:512")}


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (contract.Recover(expected_agents=-1), "the number of expected agents, -1, is negative"),
        (contract.Recover(expected_agents=5, quotas=[set_quota("a/b", "cpus:1")]), "a/b"),
        (
            contract.Recover(
                expected_agents=5, quotas=[set_quota("a", "cpus:1"), set_quota("a", "cpus:2")]
            ),
            "two quotas",
        ),
    ],
    ids=["negative", "a bad quota", "a role twice"],
)
def test_an_invalid_recover_call_is_rejected_and_starts_no_recovery(
    call: contract.Recover, reason: str
) -> None:
    master = BatchMaster()
    with pytest.raises(InvalidEvent, match=reason):
        master.send(call)
    assert master.engine.quotas() == {}
    master.add_framework("f1", "a")
    assert len(come_back(master, 1)) == 1


def test_recover_comes_before_any_agent() -> None:
    master = BatchMaster()
    master.add_agent("s1", "cpus:1")
    with pytest.raises(InvalidEvent, match="agents are known"):
        master.send(contract.Recover(expected_agents=5))


def restored(agents_needed: int, seconds: float) -> BatchMaster:
    """Start with a snapshot of a master in failover recovery, with one agent back."""
    master = BatchMaster()
    master.add_framework("f1", "a")
    master.restore(
        contract.Snapshot(
            time_ns=START_NS,
            sequence=master.sequence,
            agents=[agent_call("s1", "cpus:1;mem:512")],
            frameworks=[event.add_framework for events, _ in master.log for event in events.events],
            hold_off=contract.RecoveryHoldOff(
                agents_needed=agents_needed, until_ns=START_NS + round(seconds * SECOND)
            ),
        )
    )
    return master


def test_recovery_in_a_snapshot_continues_until_enough_agents_are_back() -> None:
    master = restored(agents_needed=2, seconds=300)
    assert master.tick() == []
    assert len(come_back(master, 2)) + len(master.tick()) == 2


def test_recovery_in_a_snapshot_continues_until_its_timeout() -> None:
    master = restored(agents_needed=2, seconds=300)
    assert master.tick(299) == []
    assert len(master.tick(1)) == 1


def test_resources_recovered_between_pause_and_resume_form_one_offer() -> None:
    master = BatchMaster()
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:4;mem:2048")
    master.send(contract.Pause())
    master.send(freed(offer, "cpus:3;mem:1024"))
    assert master.tick() == []
    master.send(freed(offer, "cpus:1;mem:1024"))
    offers = master.send(contract.Resume()) + master.tick()
    assert told(offers) == {("f1", "s1", "cpus:4;mem:2048")}
