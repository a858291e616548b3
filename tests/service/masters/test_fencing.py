"""Several masters are connected; the one elected last is served, the others wait or are gone."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from allocator.contract import allocator_pb2 as contract
from tests.cluster.master_side import SECOND, agent_call, framework_info
from tests.service.served import Service, Stream, service, wait_for
from tests.service.show.test_metrics import scrape

AGENT = agent_call("s1", "cpus:4;mem:4096")
FRAMEWORK = contract.AddFramework(framework_id="f1", info=framework_info("f1", "a"), active=True)
ELECTED = 1_500_000_000 * SECOND


@pytest.fixture(name="running")
def _running(tmp_path: Path) -> Iterator[Service]:
    with service(tmp_path) as started:
        yield started


def master(running: Service, name: str, elected: int) -> Stream:
    stream = Stream(running.address, session_id=name)
    stream.leading_since_ns = elected
    return stream


def closed_because(stream: Stream) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as raised:
        hear_to_the_end(stream)
    return raised.value.code(), raised.value.details() or ""


def hear_to_the_end(stream: Stream) -> None:
    while True:
        stream.hear()


def test_a_master_on_standby_changes_nothing_and_is_answered_with_nothing(
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


def test_a_master_that_is_elected_is_asked_for_a_snapshot_and_supersedes_the_other(
    running: Service,
) -> None:
    old, new = master(running, "m1", ELECTED), master(running, "m2", 0)
    old.open(agents=[AGENT], frameworks=[FRAMEWORK])
    new.open()
    answer = new.tell(recover=contract.Recover(expected_agents=1))
    assert answer.snapshot_request.reason == "you lead now"
    new.send(tick=contract.Tick())  # on its way already; ignored
    new.leading_since_ns = ELECTED + SECOND
    new.resynchronise(agents=[agent_call("s2", "cpus:2;mem:512")])
    code, reason = closed_because(old)
    assert code == grpc.StatusCode.ABORTED
    assert "superseded by master 127.0.0.1:5050" in reason
    assert scrape(running)["longshare_capacity", "cpus"] == 2.0


def test_nothing_that_a_superseded_leader_still_says_is_heard(running: Service) -> None:
    old, new = master(running, "m1", ELECTED), master(running, "m2", ELECTED + 1)
    old.open(agents=[AGENT])
    for _ in range(50):
        old.send(add_framework=FRAMEWORK)
    new.open(agents=[agent_call("s2", "cpus:2;mem:512")])
    closed_because(old)
    assert new.tell(tick=contract.Tick()).decisions.applied_sequence == 1
    seen = scrape(running)
    assert seen["longshare_frameworks",] == 0.0
    assert seen["longshare_capacity", "cpus"] == 2.0


@pytest.mark.parametrize("connected", [True, False])
def test_a_master_elected_earlier_than_the_last_leader_is_refused(
    running: Service, *, connected: bool
) -> None:
    leader, late = master(running, "m1", ELECTED), master(running, "m2", ELECTED - 1)
    leader.open(agents=[AGENT])
    if not connected:
        leader.close()
        wait_for(lambda: scrape(running)["longshare_session_connected",] == 0.0)
    with pytest.raises(grpc.RpcError) as raised:
        late.open(agents=[agent_call("s2", "cpus:2")])
    assert raised.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert "was elected later" in (raised.value.details() or "")
    assert scrape(running)["longshare_capacity", "cpus"] == 4.0


def test_a_leader_that_connects_anew_is_served_at_once(running: Service) -> None:
    former, present = master(running, "m1", ELECTED), master(running, "m1", ELECTED)
    former.open(agents=[AGENT])
    present.open(agents=[AGENT], frameworks=[FRAMEWORK])
    code, reason = closed_because(former)
    assert code == grpc.StatusCode.ABORTED
    assert "new stream of the same master" in reason
    assert present.tell(tick=contract.Tick()).WhichOneof("message") == "decisions"


def test_commitments_follow_from_one_leader_to_the_next(tmp_path: Path) -> None:
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
        new.tell(recover=contract.Recover())
        new.leading_since_ns = ELECTED + SECOND
        new.resynchronise(agents=[held])
        owed = scrape(running)["longshare_user_commitment_ratio", "a", "cpus"]
    assert owed == pytest.approx(0.5 * (1 - 0.99**100))
