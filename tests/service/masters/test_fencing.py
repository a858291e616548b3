"""With several masters connected, only the leading master is served; the others wait."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from allocator.contract import allocator_pb2 as contract
from tests.cluster.master_side import SECOND, agent_call, framework_info
from tests.service.served import Service, Stream, service, wait_for
from tests.service.show.test_metrics import scrape

AGENT = agent_call("s1", "cpus:4;mem:4096")
OTHER = agent_call("s2", "cpus:2;mem:512")
FRAMEWORK = contract.AddFramework(framework_id="f1", info=framework_info("f1", "a"), active=True)
ELECTED = 1_500_000_000 * SECOND
RARELY = 20 * SECOND
"""Tick interval in ns of a master that may be silent for a minute; no test takes as long."""


@pytest.fixture(name="running")
def _running(tmp_path: Path) -> Iterator[Service]:
    with service(tmp_path) as started:
        yield started


def master(running: Service, name: str, elected: int, interval: int = RARELY) -> Stream:
    stream = Stream(running.address, session_id=name)
    stream.hello.options.allocation_interval_ns = interval
    stream.leading_since_ns = elected
    return stream


def closed_because(stream: Stream) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as raised:
        hear_to_the_end(stream)
    return raised.value.code(), raised.value.details() or ""


def hear_to_the_end(stream: Stream) -> None:
    while True:
        stream.hear()


def test_a_standby_master_changes_nothing_and_gets_empty_decisions(
    running: Service,
) -> None:
    leader, standby = master(running, "m1", ELECTED), master(running, "m2", 0)
    assert leader.open(agents=[AGENT], frameworks=[FRAMEWORK]).offers
    assert standby.open(agents=[agent_call("s9", "cpus:9")]) == contract.Decisions()
    assert standby.tell(tick=contract.Tick()).decisions == contract.Decisions(applied_sequence=1)
    seen = scrape(running)
    assert seen["longshare_capacity", "cpus"] == 4.0
    assert seen["longshare_session_connected",] == 1.0
    assert seen["longshare_standby_sessions",] == 1.0
    assert leader.tell(tick=contract.Tick()).decisions.applied_sequence == 1


def test_an_elected_master_is_served_once_the_stream_of_the_former_leader_ends(
    running: Service,
) -> None:
    old, new = master(running, "m1", ELECTED + 180 * SECOND), master(running, "m2", 0)
    old.open(agents=[AGENT], frameworks=[FRAMEWORK])
    new.open()
    answer = new.tell(recover=contract.Recover(expected_agents=1))
    assert answer.snapshot_request.reason == "you lead now"
    assert answer.snapshot_request.elected
    new.send(tick=contract.Tick())  # sent before the answer arrived; ignored
    new.leading_since_ns = ELECTED
    waiting = f"{old.hello.master} leads, and its stream is open"
    assert new.resynchronise(agents=[OTHER], frameworks=[FRAMEWORK]) == contract.Decisions(
        applied_sequence=2, waiting_for=waiting
    )
    assert new.tell(tick=contract.Tick()).decisions == contract.Decisions(
        applied_sequence=3, waiting_for=waiting
    )
    assert scrape(running)["longshare_capacity", "cpus"] == 4.0, (
        "the leader is connected and not silent"
    )
    old.close()
    wait_for(lambda: new.tell(tick=contract.Tick()).HasField("snapshot_request"))
    assert new.resynchronise(agents=[OTHER], frameworks=[FRAMEWORK]).offers
    assert scrape(running)["longshare_capacity", "cpus"] == 2.0
    running.wait_to_say('"skew_at_least": 180.0')


@pytest.mark.parametrize("elected", [ELECTED - 180 * SECOND, ELECTED, 2**63 - 1])
def test_no_election_timestamp_locks_out_a_later_master(running: Service, elected: int) -> None:
    first, second = master(running, "m1", 2**63 - 1), master(running, "m2", elected)
    first.open(agents=[AGENT])
    first.close()
    wait_for(lambda: scrape(running)["longshare_session_connected",] == 0.0)
    assert second.open(agents=[OTHER], frameworks=[FRAMEWORK]).offers


def test_a_master_with_an_invalid_snapshot_supersedes_no_leader(running: Service) -> None:
    leader = master(running, "m1", ELECTED)
    leader.open(agents=[AGENT], frameworks=[FRAMEWORK])
    leader.close()
    wait_for(lambda: scrape(running)["longshare_session_connected",] == 0.0)
    liar = master(running, "m2", ELECTED + SECOND)
    liar.now_ns = -SECOND
    with pytest.raises(grpc.RpcError) as raised:
        liar.open(agents=[OTHER])
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert scrape(running)["longshare_capacity", "cpus"] == 4.0
    returned = master(running, "m1", ELECTED)
    assert returned.open(agents=[AGENT], frameworks=[FRAMEWORK]).offers


@pytest.mark.parametrize("name", ["m1", ""])
def test_a_standby_master_with_the_leaders_session_id_does_not_end_its_stream(
    running: Service, name: str
) -> None:
    leader, standby = master(running, name, ELECTED), master(running, name, 0)
    leader.open(agents=[AGENT])
    standby.open()
    standby.tell(tick=contract.Tick())
    assert leader.tell(tick=contract.Tick()).decisions.applied_sequence == 1


def test_a_master_without_session_id_is_not_taken_for_the_leader(running: Service) -> None:
    leader, rival = master(running, "", ELECTED), master(running, "", ELECTED)
    leader.open(agents=[AGENT])
    rival.open(agents=[OTHER])
    assert leader.tell(tick=contract.Tick()).decisions.applied_sequence == 1
    assert scrape(running)["longshare_capacity", "cpus"] == 4.0


@pytest.mark.slow
def test_a_frozen_leader_with_an_open_stream_is_superseded(running: Service) -> None:
    frozen = master(running, "m1", ELECTED, interval=SECOND)
    elected = master(running, "m2", ELECTED)
    frozen.open(agents=[AGENT])
    assert not elected.open(agents=[OTHER], frameworks=[FRAMEWORK]).offers
    wait_for(lambda: elected.tell(tick=contract.Tick()).HasField("snapshot_request"))
    assert elected.resynchronise(agents=[OTHER], frameworks=[FRAMEWORK]).offers
    code, reason = closed_because(frozen)
    assert code == grpc.StatusCode.ABORTED
    assert "superseded by master 127.0.0.1:5050" in reason


def test_events_of_a_superseded_stream_are_ignored(running: Service) -> None:
    old, new = master(running, "m1", ELECTED), master(running, "m1", ELECTED)
    old.open(agents=[AGENT])
    for _ in range(50):
        old.send(add_framework=FRAMEWORK)
    new.open(agents=[OTHER])
    closed_because(old)
    assert new.tell(tick=contract.Tick()).decisions.applied_sequence == 1
    seen = scrape(running)
    assert seen["longshare_frameworks",] == 0.0
    assert seen["longshare_capacity", "cpus"] == 2.0


def test_a_leader_that_reconnects_is_served_at_once(running: Service) -> None:
    former, present = master(running, "m1", ELECTED), master(running, "m1", ELECTED)
    former.open(agents=[AGENT])
    present.open(agents=[AGENT], frameworks=[FRAMEWORK])
    code, reason = closed_because(former)
    assert code == grpc.StatusCode.ABORTED
    assert "new stream of the same master" in reason
    assert present.tell(tick=contract.Tick()).WhichOneof("message") == "decisions"


def test_commitments_are_kept_when_the_leader_changes(tmp_path: Path) -> None:
    held = agent_call("s1", "cpus:4;mem:4096")
    declared = '[policy]\nname = "sdrf"\ndelta = 0.99\n' + "".join(
        f'[[users.declared]]\nname = "{user}"\n' for user in "ab"
    )
    with service(tmp_path, declared) as running:
        old, new = master(running, "m1", ELECTED), master(running, "m2", 0)
        old.open(agents=[held], frameworks=[FRAMEWORK])
        new.open()
        old.now_ns += 100 * SECOND
        old.tell(tick=contract.Tick())
        new.now_ns = old.now_ns
        old.close()
        wait_for(lambda: scrape(running)["longshare_session_connected",] == 0.0)
        new.tell(recover=contract.Recover())
        new.leading_since_ns = ELECTED + SECOND
        new.resynchronise(agents=[held])
        owed = scrape(running)["longshare_user_commitment_ratio", "a", "cpus"]
    assert owed == pytest.approx(0.5 * (1 - 0.99**100))


def test_a_master_is_told_once_about_a_refused_framework(running: Service) -> None:
    leader = master(running, "m1", ELECTED)
    roles = [f"r{number}" for number in range(300)]
    info = framework_info("many", *roles)
    many = contract.AddFramework(framework_id="many", info=info, active=True)
    leader.open(agents=[AGENT], frameworks=[FRAMEWORK])
    leader.tell(add_framework=many)
    refused = leader.tell(tick=contract.Tick()).decisions.refused
    assert [framework.framework_id for framework in refused] == ["many"]
    assert "limits.roles" in refused[0].reason
    assert not leader.tell(tick=contract.Tick()).decisions.refused
