"""The session protocol, over a real gRPC channel to a real service."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from allocator.cluster.frameworks.demands import DemandFloor
from allocator.contract import VERSION
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.quantities import Quantities
from allocator.service.masters.session import Session, SessionStatistics
from frameworks.harness.ports import free_port
from tests.cluster.master_side import SECOND, MasterSide, agent_call, framework_info, resources
from tests.counted import counted
from tests.forks import longshare
from tests.service.served import Service, Stream, hello, service, wait_for

SDRF = '[policy]\nname = "sdrf"\ndelta = 0.99\n[[users.declared]]\nname = "b"\n'
AGENT = agent_call("s1", "cpus:4;mem:4096")
FRAMEWORK = contract.AddFramework(framework_id="f1", info=framework_info("f1", "a"), active=True)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Service]:
    with service(tmp_path, SDRF) as started:
        yield started


@pytest.fixture
def stream(running: Service) -> Iterator[Stream]:
    opened = Stream(running.address)
    yield opened
    opened.close()


def refusal(stream: Stream) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        stream.hear()
    return caught.value.code(), caught.value.details() or ""


def test_hello_is_answered_with_contract_version_and_policy(stream: Stream) -> None:
    stream.say(hello())
    welcome = stream.hear().welcome
    assert (welcome.contract_version, welcome.policy) == (VERSION, "sdrf")


def test_an_older_module_is_answered_in_its_contract_version(stream: Stream) -> None:
    stream.say(hello(version=1))
    assert stream.hear().welcome.contract_version == 1


@pytest.mark.parametrize(
    ("more", "reports_used", "warned"),
    [("", False, True), ("", True, False), ("answered_after = 45", False, False)],
)
def test_an_ineffective_limit_of_unanswered_offers_is_logged(
    tmp_path: Path, *, more: str, reports_used: bool, warned: bool
) -> None:
    with service(tmp_path, f"{SDRF}[limits]\nunanswered = 0.5\n{more}\n") as running:
        stream = Stream(running.address)
        greeting = hello()
        greeting.hello.options.tells_running = reports_used
        stream.say(greeting)
        stream.hear()
        stream.resynchronise(agents=[AGENT], frameworks=[FRAMEWORK])
        stream.close()
        running.wait_to_say("snapshot restored")
        assert ("limits.all_unanswered have no effect" in running.log.read_text()) is warned


def test_answers_to_ticks_contain_the_statistics_for_the_masters_metrics(stream: Stream) -> None:
    stream.say(hello())
    stream.hear()
    snapshot = contract.Snapshot(
        sequence=1, time_ns=SECOND, leading_since_ns=1, agents=[AGENT], frameworks=[FRAMEWORK]
    )
    stream.say(contract.FromMaster(snapshot=snapshot))
    offer = stream.hear().decisions.offers[0].offers[0]
    declined = contract.RecoverResources(
        framework_id="f1",
        agent_id="s1",
        resources=offer.resources,
        filters=mesos.Filters(refuse_seconds=60.0).SerializeToString(),
    )
    decline = contract.Event(sequence=2, time_ns=SECOND, recover_resources=declined)
    stream.say(contract.FromMaster(events=contract.Events(events=[decline])))
    assert not stream.hear().decisions.HasField("statistics")
    tick = contract.Event(sequence=3, time_ns=2 * SECOND, tick=contract.Tick())
    stream.say(contract.FromMaster(events=contract.Events(events=[tick])))
    statistics = stream.hear().decisions.statistics
    assert statistics.active_filters == {"a": 1}
    assert statistics.allocation_runs >= 2
    assert statistics.run_ns > 0


def test_an_answer_counts_filters_of_the_2000_roles_with_the_most(tmp_path: Path) -> None:
    roles = [f"r{number:04}" for number in range(2002)]
    total = [f"{kind}:4096" for kind in ("cpus", "mem")]
    held = [part for role in roles for part in resources("cpus:1;mem:1", role)]
    with service(tmp_path, f"{SDRF}[limits]\nroles = 3000\n") as running:
        stream = Stream(running.address)
        stream.open(
            agents=[agent_call("s1", ";".join(total), {"f1": held})],
            frameworks=[
                contract.AddFramework(
                    framework_id="f1", info=framework_info("f1", *roles), active=False
                )
            ],
        )

        def decline(role: str, part: str) -> None:
            stream.tell(
                recover_resources=contract.RecoverResources(
                    framework_id="f1",
                    agent_id="s1",
                    resources=resources(part, role),
                    filters=mesos.Filters(refuse_seconds=60.0).SerializeToString(),
                )
            )

        decline("r2000", "cpus:1")
        decline("r2001", "cpus:1")
        decline("r2001", "mem:1")
        first = stream.tell(tick=contract.Tick()).decisions.statistics.active_filters
        for role in roles[:-2]:
            decline(role, "cpus:1")
        second = stream.tell(tick=contract.Tick()).decisions.statistics.active_filters
        stream.close()
    assert first == {"r2000": 1, "r2001": 2}
    assert second == {"r2001": 2} | dict.fromkeys(roles[:1999], 1)


def test_a_stream_without_an_initial_hello_is_refused(stream: Stream) -> None:
    stream.say(contract.FromMaster(events=contract.Events()))
    code, details = refusal(stream)
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert "must be Hello" in details


def test_an_unknown_contract_version_is_refused_with_both_versions(stream: Stream) -> None:
    stream.say(hello(version=7))
    code, details = refusal(stream)
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert "version 7" in details
    assert f"versions 1 to {VERSION}" in details


def test_hello_twice_is_refused(stream: Stream) -> None:
    stream.open()
    stream.say(hello())
    assert refusal(stream)[0] == grpc.StatusCode.FAILED_PRECONDITION


def test_events_before_a_snapshot_are_refused(stream: Stream) -> None:
    stream.say(hello())
    stream.hear()
    stream.send(tick=contract.Tick())
    code, details = refusal(stream)
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert "before a snapshot" in details


def test_a_message_of_an_unknown_kind_is_refused(stream: Stream) -> None:
    stream.open()
    stream.say(contract.FromMaster())
    assert refusal(stream)[0] == grpc.StatusCode.INVALID_ARGUMENT


def test_messages_are_answered_in_order_with_the_last_applied_event(stream: Stream) -> None:
    stream.open(agents=[AGENT])
    for _ in range(50):
        stream.send(tick=contract.Tick())
    stream.send(add_framework=FRAMEWORK)
    answers = [stream.hear().decisions for _ in range(51)]
    assert [a.applied_sequence for a in answers] == list(range(1, 52))
    assert [len(a.offers) for a in answers] == [0] * 50 + [1]


def test_an_inconsistency_is_answered_with_a_snapshot_request(
    stream: Stream,
) -> None:
    stream.open(agents=[AGENT])
    asked = stream.tell(remove_agent=contract.RemoveAgent(agent_id="nobody"))
    assert "agent 'nobody' is not known" in asked.snapshot_request.reason
    stream.send(add_framework=FRAMEWORK)  # sent too early; part of the snapshot
    decisions = stream.resynchronise(agents=[AGENT], frameworks=[FRAMEWORK])
    assert decisions.applied_sequence == 2
    assert [offers.framework_id for offers in decisions.offers] == ["f1"]


def test_a_lost_event_requests_a_snapshot(stream: Stream) -> None:
    stream.open()
    stream.skip()
    assert "missing" in stream.tell(tick=contract.Tick()).snapshot_request.reason


def test_a_new_stream_of_the_same_master_supersedes_the_former_stream(
    running: Service, stream: Stream
) -> None:
    stream.open(agents=[AGENT])
    newer = Stream(running.address)
    newer.open(agents=[AGENT])
    code, details = refusal(stream)
    assert code == grpc.StatusCode.ABORTED
    assert "superseded" in details
    assert newer.tell(add_framework=FRAMEWORK).decisions.offers
    newer.close()


def test_commitments_survive_a_broken_stream(running: Service, stream: Stream) -> None:
    stream.open(agents=[AGENT], frameworks=[FRAMEWORK])
    stream.now_ns += 100 * SECOND
    stream.tell(tick=contract.Tick())
    stream.close()
    second = Stream(running.address)
    second.now_ns = stream.now_ns
    both = [
        FRAMEWORK,
        contract.AddFramework(framework_id="f2", info=framework_info("f2", "b"), active=True),
    ]
    # Both users hold nothing now. Without the commitment, "a" would be first by name.
    [offers] = second.open(agents=[AGENT], frameworks=both).offers
    assert offers.framework_id == "f2"
    second.close()


def test_on_sigterm_streams_end_with_a_reason_and_the_exit_code_is_0(
    running: Service, stream: Stream
) -> None:
    stream.open()
    assert running.stop(signal.SIGTERM) == 0
    code, details = refusal(stream)
    assert code == grpc.StatusCode.ABORTED
    assert "stopping" in details
    assert not Path(running.address.removeprefix("unix://")).exists()


def test_a_killed_service_can_be_restarted_at_its_socket(tmp_path: Path) -> None:
    with service(tmp_path, SDRF) as first:
        first.stop(signal.SIGKILL)
        assert Path(first.address.removeprefix("unix://")).is_socket()
    with service(tmp_path, SDRF) as second:
        stream = Stream(second.address)
        stream.open()
        stream.close()


@pytest.mark.parametrize("over_tcp", [False, True])
def test_a_second_service_at_the_same_address_is_refused(tmp_path: Path, *, over_tcp: bool) -> None:
    listen = f"127.0.0.1:{free_port()}" if over_tcp else None
    with service(tmp_path, SDRF, listen) as first:
        config = (tmp_path / "longshare.toml").read_text()
        (tmp_path / "again.toml").write_text(config.replace(str(first.store), f"{tmp_path}/other"))
        completed = longshare("serve", "--config", str(tmp_path / "again.toml"))
        assert completed.returncode == (1 if over_tcp else 2), "a port may become free"
        assert "listen.address" in completed.stderr
        stream = Stream(first.address)
        stream.open()
        stream.close()


def test_a_second_service_that_cannot_start_leaves_the_recording_unchanged(tmp_path: Path) -> None:
    with service(tmp_path, SDRF) as first:
        stream = Stream(first.address)
        stream.open(agents=[AGENT], frameworks=[FRAMEWORK])
        for _ in range(20):
            stream.now_ns += SECOND
            stream.tell(tick=contract.Tick())
        wait_for(lambda: first.recording.stat().st_size > 100)  # flushed to disk
        assert longshare("serve", "--config", str(tmp_path / "longshare.toml")).returncode == 2
        stream.close()
        assert first.stop() == 0
    lines = first.recording.read_text().splitlines()
    assert lines[0].startswith("time,user,")
    assert len({line.split(",")[0] for line in lines[1:]}) == 20


def test_a_lost_connection_of_a_master_is_logged(running: Service) -> None:
    stream = Stream(running.address)
    stream.open()
    stream.vanish()
    wait_for(lambda: "session closed" in running.log.read_text())


def test_recovering_more_than_was_held_requests_a_single_snapshot(tmp_path: Path) -> None:
    with service(tmp_path, SDRF) as started:
        stream = Stream(started.address)
        stream.open(agents=[AGENT], frameworks=[FRAMEWORK])
        too_much = contract.RecoverResources(
            framework_id="f1", agent_id="s1", resources=resources("cpus:999", "a")
        )
        answer = stream.tell(recover_resources=too_much)
        assert "more than it held" in answer.snapshot_request.reason
        stream.resynchronise(agents=[AGENT], frameworks=[FRAMEWORK])
        # A repeated contradiction requests no second snapshot, so that offer filters are kept.
        assert stream.tell(recover_resources=too_much).WhichOneof("message") == "decisions"
        stream.close()


def given_back(decisions: contract.Decisions, step: int) -> list[tuple[str, contract.Offer]]:
    """Return the offers to decline, each with the framework ID that received the offer."""
    made = [(offers.framework_id, offer) for offers in decisions.offers for offer in offers.offers]
    return made if step % 5 else made[:1]


def conversation(stream: Stream) -> list[bytes]:
    """Play a session with offers, declines, ticks and a burst; return the serialised decisions."""
    heard = [
        stream.open(agents=[AGENT, agent_call("s2", "cpus:2;mem:2048")], frameworks=[FRAMEWORK])
    ]
    for step in range(60):
        stream.now_ns += SECOND // 3
        heard.append(stream.tell(tick=contract.Tick()).decisions)
        if step == 20:
            second_framework = contract.AddFramework(
                framework_id="f2", info=framework_info("f2", "b"), active=True
            )
            heard.append(stream.tell(add_framework=second_framework).decisions)
        for framework, offer in given_back(heard[-1], step):
            part = contract.RecoverResources(
                framework_id=framework, agent_id=offer.agent_id, resources=offer.resources
            )
            if step % 3:
                part.filters = b""
            heard.append(stream.tell(recover_resources=part).decisions)
    for decisions in heard:
        decisions.ClearField("statistics")  # measured values, not decisions
    return [decisions.SerializeToString(deterministic=True) for decisions in heard]


def test_the_same_log_gives_the_same_decisions_bit_for_bit_in_another_process(
    tmp_path: Path,
) -> None:
    decided = []
    for run in ("one", "two"):
        (tmp_path / run).mkdir()
        with service(tmp_path / run, SDRF) as started:
            stream = Stream(started.address)
            decided.append(conversation(stream))
            stream.close()
    assert decided[0] == decided[1]
    assert sum(map(bool, decided[0])) > 20


def with_invalid_frameworks(number: int) -> tuple[MasterSide, Session]:
    """Return a cluster with one valid framework and many invalid ones, and its master's session."""
    master = MasterSide()
    calls = [
        contract.AddFramework(framework_id=f"x{n}", info=framework_info(f"x{n}", "a/../b"))
        for n in range(number)
    ]
    master.send(AGENT, *calls, FRAMEWORK)
    masters: Any = None  # reports need no other session

    async def opened() -> Session:
        return Session(master.engine, SessionStatistics(), masters)

    return master, asyncio.run(opened())


@pytest.mark.interpreted
def test_a_tick_costs_the_same_however_many_frameworks_are_invalid() -> None:
    def cost(number: int) -> int:
        _, session = with_invalid_frameworks(number - 1)
        for _ in range(8):
            session._report_misfits()
            session._newly_refused()
        return counted(session._report_misfits) + counted(session._newly_refused)

    cost(1)  # fills the caches
    assert cost(1600) < cost(400) + 20


@pytest.mark.interpreted
def test_a_changed_reason_costs_the_same_however_many_frameworks_are_invalid() -> None:
    def cost(number: int) -> int:
        master, session = with_invalid_frameworks(number)
        for _ in range(8):
            session._report_misfits()
            session._newly_refused()
        data = framework_info("x0", "other/../role")
        master.send(contract.UpdateFramework(framework_id="x0", info=data))
        reported: list[contract.Refused] = []

        def work() -> None:
            session._report_misfits()
            reported.extend(session._newly_refused())

        calls = counted(work)
        assert ["other" in refused.reason for refused in reported] == [True]
        return calls

    cost(1)  # fills the caches
    assert cost(1600) < cost(400) + 20


def test_many_invalid_frameworks_are_reported_to_the_master_at_several_ticks() -> None:
    _, session = with_invalid_frameworks(2500)
    numbers = [len(session._newly_refused()) for _ in range(4)]
    assert numbers == [1000, 1000, 500, 0]


def test_each_invalid_framework_is_logged_once_and_reported_to_the_master_once() -> None:
    master, session = with_invalid_frameworks(500)

    def logged_and_reported(ticks: int) -> tuple[list[str], list[str]]:
        reported = []
        with capture_logs() as logs:
            for _ in range(ticks):
                session._report_misfits()
                reported += [refused.framework_id for refused in session._newly_refused()]
        assert {line["event"] for line in logs} <= {"framework does not fit"}
        return sorted(line["framework"] for line in logs), reported

    names = sorted(f"x{n}" for n in range(500))
    assert logged_and_reported(3) == (names, names)
    assert logged_and_reported(6) == ([], [])
    master.send(contract.RemoveFramework(framework_id="x7"))
    assert logged_and_reported(3) == ([], [])
    again = contract.AddFramework(framework_id="x7", info=framework_info("x7", "..", "b"))
    master.send(again)
    assert logged_and_reported(3) == (["x7"], ["x7"])


def misspelt_request(framework: str, names: list[str]) -> contract.RequestResources:
    request = mesos.Request()
    for name in names:
        request.resources.add(name=name, type=mesos.Value.SCALAR).scalar.value = 1
    data = request.SerializePartialToString()
    return contract.RequestResources(framework_id=framework, requests=[data])


def with_misspelt_requests(frameworks: int) -> tuple[MasterSide, Session, Callable[[int], None]]:
    """Return a cluster with many frameworks, its master's session, and a function for requests.

    The function requests eight new names of each framework, all similar to a name of the cluster.
    """
    master, session = with_invalid_frameworks(0)
    master.send(agent_call("s2", "cpus:4;mem:4096;network_bandwidth:9;disk:9;gpus:9;licences:9"))
    identifiers = [f"m{n:03}" for n in range(frameworks)]
    infos = {name: framework_info(name, name) for name in identifiers}
    master.send(
        *(contract.AddFramework(framework_id=name, info=infos[name]) for name in identifiers)
    )

    def request(number: int) -> None:
        names = [f"network_bandwi{number}{letter}" for letter in "abcdefgh"]
        master.send(*(misspelt_request(name, names) for name in identifiers))

    return master, session, request


@pytest.mark.interpreted
def test_a_tick_costs_the_same_however_many_frameworks_request_misspelt_names() -> None:
    def cost(frameworks: int) -> int:
        _, session, request = with_misspelt_requests(frameworks)
        request(0)
        session._report_misfits()
        request(1)
        return counted(session._report_misfits)

    cost(1)  # fills the caches
    assert cost(190) < cost(30) + 500


def test_a_misspelt_name_is_corrected_in_the_log_beside_frameworks_that_change_theirs() -> None:
    master, session, request = with_misspelt_requests(100)
    info = framework_info("honest", "honest")
    master.send(contract.AddFramework(framework_id="honest", info=info))
    master.send(misspelt_request("honest", ["cpu"]))
    with capture_logs() as logs:
        for number in range(30):
            request(number)
            session._report_misfits()
    honest = [line["reason"] for line in logs if line["framework"] == "honest"]
    assert honest == ["the cluster has no cpu; did you mean cpus?"]
    assert len(logs) < 30 * 20, "most changes of a reason between two examinations are not logged"


@pytest.mark.interpreted
def test_a_correction_costs_the_same_however_many_similar_names_the_cluster_has() -> None:
    def cost(names: int) -> int:
        floor = DemandFloor(0.0)
        floor.put_names([f"gpu-{number}" for number in range(names)])
        demand = Quantities({"gpu-x": 1})
        assert "did you mean gpu-" in floor.unknown(demand)[0]
        before = floor.comparisons
        floor.unknown(demand)
        return floor.comparisons - before

    assert cost(1000) == cost(100)
