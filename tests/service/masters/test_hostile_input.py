"""No input on the wire ends the service or changes its state; each refusal gives a reason."""

import os
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import DecodeError

from allocator.cluster.engine import Engine
from allocator.cluster.input.errors import InvalidEvent
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.service.masters.sessions import MAX_STREAMS_WITHOUT_SNAPSHOT
from frameworks.harness.ports import free_port
from tests.cluster.master_side import START_NS, MasterSide, agent_call, framework_info, resources
from tests.service.hostile import METHOD, Attacker, attacks
from tests.service.served import PATIENCE, Stream, hello, service
from tests.service.show.test_metrics import scrape

ATTACKS = int(os.environ.get("LONGSHARE_ATTACKS", "300"))


def test_no_attack_ends_the_service_or_stays_unanswered(tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    with service(tmp_path) as running:
        attacker = Attacker(running.address)
        for name, attack in islice(attacks(seed=1), ATTACKS):
            assert running.process.poll() is None, name
            outcomes[attacker.strike(attack)] += 1
        # The state comes from the last snapshot alone.
        seen = scrape(running)
        assert seen["longshare_capacity", "cpus"] == 4.0
        assert seen["longshare_agents",] == seen["longshare_frameworks",] == 1.0
        log = running.log.read_text()
    assert "session failed" not in log
    assert "Traceback" not in log
    assert min(outcomes[kind] for kind in ("refused", "snapshot asked for", "decided")) > 20


def test_a_refused_call_changes_nothing() -> None:
    refused = 0
    for name, attack in islice(attacks(seed=2), 3 * ATTACKS):
        try:
            message = contract.FromMaster.FromString(attack)
        except DecodeError:
            continue
        master, twin = cluster(), cluster()
        if accepts(master.engine, message.events) or master.engine.sequence:
            continue  # includes messages in which an event before the refused event was applied
        refused += 1
        assert state(master.engine) == state(twin.engine), name
        assert master.tick() == twin.tick(), name
    assert refused > 100


def accepts(engine: Engine, events: contract.Events) -> bool:
    try:
        engine.apply(events)
    except InvalidEvent:
        return False
    return True


def cluster() -> MasterSide:
    master = MasterSide("sdrf", {"half_life": 60.0})
    snapshot = Attacker("unix:///none").snapshot()
    snapshot.time_ns = START_NS
    master.restore(snapshot)
    return master


def state(engine: Engine) -> tuple[object, ...]:
    return engine.memory(), engine.allocations(), engine.available(), engine.now, engine.quotas()


def test_a_message_over_the_size_limit_is_refused(tmp_path: Path) -> None:
    with service(tmp_path, "[listen]\nlargest_message = 65536\n") as running:
        stream = Stream(running.address)
        stream.open()
        info = framework_info("f1", "a", name="x" * 100_000)
        call = contract.AddFramework(framework_id="f1", info=info, active=True)
        with pytest.raises(grpc.RpcError) as raised:
            stream.tell(add_framework=call)
        assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert running.process.poll() is None
        Stream(running.address).open()


def test_too_many_standby_masters_do_not_keep_a_leader_out(tmp_path: Path) -> None:
    with service(tmp_path, "[listen]\nsessions = 2\n") as running:
        waiting = [Stream(running.address, name) for name in "12"]
        for stream in waiting:
            stream.leading_since_ns = 0
            stream.open()
        third = Stream(running.address, "3")
        third.leading_since_ns = 0
        with pytest.raises(grpc.RpcError) as raised:
            third.open()
        assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "listen.sessions" in (raised.value.details() or "")
        leader = Stream(running.address, "4")
        leader.open()
        assert leader.tell(tick=contract.Tick()).HasField("decisions")


@pytest.mark.parametrize("greets", [True, False])
def test_silent_streams_do_not_keep_a_master_out(tmp_path: Path, *, greets: bool) -> None:
    """New streams displace the oldest silent streams; a stream without Hello ends after 10 s.

    The order of arrival does not matter. While a service is stalled, gRPC queues streams, and
    accepts them in any order.
    """
    silent = 3 * MAX_STREAMS_WITHOUT_SNAPSHOT
    ends = {
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,  # a Hello may arrive too late
    }
    with (
        service(tmp_path) as running,
        ThreadPoolExecutor(silent) as listeners,
        ExitStack() as connections,
    ):
        sessions: list[Any] = [
            connections.enter_context(
                grpc.insecure_channel(
                    running.address, options=[("grpc.use_local_subchannel_pool", 1)]
                )
            ).stream_stream(METHOD)
            for _ in range(silent)
        ]
        waiting = threading.Event()
        calls = [
            session(silence(waiting, [greeting] if greets else []), timeout=PATIENCE)
            for number, session in enumerate(sessions)
            for greeting in [hello(session_id=f"m{number}").SerializeToString()]
        ]
        ended = as_completed([listeners.submit(end_of, call) for call in calls])
        first = Counter(
            listening.result() for listening in islice(ended, silent - MAX_STREAMS_WITHOUT_SNAPSHOT)
        )
        assert set(first) <= ends
        assert first[grpc.StatusCode.ABORTED] > 0 or not greets
        leader = Stream(running.address)
        leader.open()
        assert leader.tell(tick=contract.Tick()).HasField("decisions")
        waiting.set()
        for call in calls:
            call.cancel()


def end_of(call: Any) -> grpc.StatusCode:  # noqa: ANN401 - gRPC has no name for it
    """Read a stream to its end and return the status code, ignoring messages before the end."""
    with pytest.raises(grpc.RpcError):
        list(call)
    assert call.details() != "Deadline Exceeded", "the client's own deadline ended the stream"
    code: grpc.StatusCode = call.code()
    return code


@pytest.mark.slow
def test_silent_connections_do_not_keep_a_master_out(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with service(tmp_path, listen=address) as running, ExitStack() as stack:
        for _ in range(1100):
            host, _, port = address.partition(":")
            stack.enter_context(socket.create_connection((host, int(port))))
        leader = Stream(running.address)
        leader.open()
        assert leader.tell(tick=contract.Tick()).HasField("decisions")


def silence(until: threading.Event, first: list[bytes]) -> Iterator[bytes]:
    """Yield the first messages, then nothing until the event is set."""
    yield from first
    until.wait()


def test_a_hello_with_an_overlong_name_is_refused(tmp_path: Path) -> None:
    with service(tmp_path) as running:
        stream = Stream(running.address, "x" * 1001)
        with pytest.raises(grpc.RpcError) as raised:
            stream.open()
        assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_random_bytes_instead_of_hello_are_refused_and_logged(tmp_path: Path) -> None:
    with service(tmp_path) as running, grpc.insecure_channel(running.address) as channel:
        session: Any = channel.stream_stream(METHOD)
        with pytest.raises(grpc.RpcError) as raised:
            next(session(iter([b"\xff\xff\xff"]), timeout=PATIENCE))
        assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        running.wait_to_say("not a message of the contract")


def test_a_master_that_reads_no_answers_does_not_make_the_service_grow(tmp_path: Path) -> None:
    with service(tmp_path) as running, grpc.insecure_channel(running.address) as channel:
        session: Any = channel.stream_stream(METHOD)
        before = memory(running.process.pid)
        call = session(flood(Attacker(running.address).snapshot()), timeout=60.0)
        second = Stream(running.address, "other")
        second.leading_since_ns = 0
        second.open()
        for _ in range(200):  # the service answers other masters meanwhile
            second.tell(tick=contract.Tick())
        assert memory(running.process.pid) - before < 100 * 2**20
        call.cancel()


def flood(snapshot: contract.Snapshot) -> Iterator[bytes]:
    """Yield a hello, a snapshot, and then a gigabyte of events whose answers are never read."""
    yield hello().SerializeToString()
    yield contract.FromMaster(snapshot=snapshot).SerializeToString()
    wish = mesos.Request(resources=[mesos.Resource.FromString(resources("cpus:1")[0])])
    requests = [wish.SerializeToString()] * 2000
    call = contract.RequestResources(framework_id="f1", requests=requests)
    for sequence in range(1, 20_000):
        event = contract.Event(sequence=sequence, time_ns=START_NS, request_resources=call)
        yield contract.FromMaster(events=contract.Events(events=[event])).SerializeToString()


def memory(process: int) -> int:
    """Return the resident memory of a process in bytes."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(process)


def test_no_framework_ends_the_leaders_stream_by_what_it_excludes(tmp_path: Path) -> None:
    """Offer constraints beyond the limits cost a framework its offers, whichever message tells."""
    names, roles = [f"s{number}" for number in range(40)], [f"r{number}" for number in range(1000)]
    agents = [agent_call(name, "cpus:1;mem:512", {}) for name in names]
    excluded = [contract.ExcludedAgents(role=role, agent_ids=names) for role in roles]
    honest = contract.AddFramework(
        framework_id="honest", info=framework_info("honest", "h"), active=True
    )
    picky = contract.AddFramework(
        framework_id="picky",
        info=framework_info("picky", *roles[:200]),
        active=True,
        excluded=excluded,
    )
    with service(tmp_path, "[listen]\nmost_parts = 30000\n") as running:
        master = Stream(running.address)
        assert {o.framework_id for o in master.open(agents=agents, frameworks=[honest]).offers} == {
            "honest"
        }
        assert master.tell(add_framework=picky).HasField("decisions")
        assert [refused.framework_id for refused in master.tell(tick={}).decisions.refused] == [
            "picky"
        ]
        for agent in agents:
            for role in roles:
                agent.excluded.exclusions.add(framework_id="picky", role=role)
        del picky.excluded[:]
        decided = master.resynchronise(agents=agents, frameworks=[honest, picky])
        assert {o.framework_id for o in decided.offers} == {"honest"}
        assert [refused.framework_id for refused in master.tell(tick={}).decisions.refused] == []
        assert scrape(running)["longshare_agents",] == 40.0
        running.wait_for_metric('longshare_set_aside{kind="framework",reason="limit"} 1.0')


def test_events_that_are_too_heavy_cost_a_snapshot_and_not_the_stream(tmp_path: Path) -> None:
    conversions = [contract.Conversion(consumed=[b""] * 10)] * 300
    agents = [agent_call("s1", "cpus:1;mem:512", {})]
    with service(tmp_path, "[listen]\nmost_parts = 1024\n") as running:
        master = Stream(running.address)
        master.open(agents=agents)
        operations = contract.UpdateAllocation(
            framework_id="f", agent_id="s1", offered=[b"x" * 70_000], conversions=conversions
        )
        answer = master.tell(update_allocation=operations)
        assert "the allocator cannot read the events" in answer.snapshot_request.reason
        assert "listen.most_parts" in answer.snapshot_request.reason
        master.resynchronise(agents=agents)
        assert master.tell(tick={}).HasField("decisions")


@pytest.mark.parametrize("revived", ["", "honest", "other"])
def test_too_heavy_operations_of_a_framework_cost_no_other_framework_its_filters(
    tmp_path: Path, revived: str
) -> None:
    agents = [agent_call("s1", "cpus:1;mem:512", {})]
    frameworks = [
        contract.AddFramework(framework_id=name, info=framework_info(name, name), active=True)
        for name in ("honest", "other")
    ]
    conversions = [contract.Conversion(consumed=[b""] * 10)] * 300
    heavy = contract.UpdateAllocation(
        framework_id="other", agent_id="s1", offered=[b"x" * 70_000], conversions=conversions
    )
    week = mesos.Filters(refuse_seconds=604_800).SerializeToString()
    with service(tmp_path, "[listen]\nmost_parts = 1024\n") as running:
        master = Stream(running.address)
        decided = master.open(agents=agents, frameworks=frameworks)
        for _ in frameworks:
            [declined] = decided.offers
            decline = contract.RecoverResources(
                framework_id=declined.framework_id,
                agent_id="s1",
                resources=declined.offers[0].resources,
                filters=week,
            )
            decided = master.tell(recover_resources=decline).decisions
        assert not decided.offers
        calls: list[dict[str, object]] = [{"update_allocation": heavy}]
        if revived:
            calls.insert(0, {"revive_offers": contract.ReviveOffers(framework_id=revived)})
        assert master.tell_at_once(*calls).HasField("snapshot_request")
        decided = master.resynchronise(agents=agents, frameworks=frameworks)
        offered = [offers.framework_id for offers in decided.offers]
        offered += [o.framework_id for o in master.tell(tick={}).decisions.offers]
        assert offered == ([revived] if revived else [])
