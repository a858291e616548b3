"""The C++ transport against the real service, and against misbehaving peers."""

import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from allocator.contract import allocator_pb2 as contract
from frameworks.harness.ports import free_port
from tests.cluster.master_side import agent_call, framework_info
from tests.module.built import BUILDING, SANITIZERS, Programs, build
from tests.module.driven import TICK, Master, Scripted, event, master, peer
from tests.service.served import Service, hello, service, wait_for
from tests.service.test_tls import Authority, protected

pytestmark = [pytest.mark.slow, pytest.mark.timeout(BUILDING)]

AGENT = agent_call("s1", "cpus:4;mem:4096")
FRAMEWORK = contract.AddFramework(framework_id="f1", info=framework_info("f1", "a"), active=True)
LARGE_TICK = contract.Event.FromString(
    TICK.SerializeToString() + b"\xc2\x3e" + b"\x90\x4e" + b"f" * 10_000
)
"""A valid tick with ten kilobytes in field 1,000, as from a future module."""
HUGE_TICK = contract.Event.FromString(
    TICK.SerializeToString() + b"\xc2\x3e" + b"\x80\x80\x80\x04" + b"f" * (8 << 20)
)
"""A valid tick that is larger than all buffers of a blocked connection."""

in_every_build = pytest.mark.parametrize(
    "programs", ["", *SANITIZERS], ids=["default", "asan", "tsan"], indirect=True
)


@pytest.fixture(name="programs")
def _programs(request: pytest.FixtureRequest) -> Programs:
    return build(getattr(request, "param", ""))


@pytest.fixture(name="running")
def _running(tmp_path: Path) -> Iterator[Service]:
    with service(tmp_path) as started:
        yield started


@in_every_build
def test_the_unit_tests_without_a_service_pass(programs: Programs) -> None:
    run_unit_tests(programs.unit_tests, programs)


def test_the_unit_tests_of_the_adapter_without_mesos_pass(programs: Programs) -> None:
    # With a sanitizer, dlopen refuses the adapter's flag RTLD_DEEPBIND.
    loading = ["--test-case-exclude=a library*,the real transport*"]
    run_unit_tests(programs.adapter_unit_tests, programs, *(loading if programs.sanitizer else ()))


def run_unit_tests(program: Path, programs: Programs, *options: str) -> None:
    if not program.exists():
        pytest.skip("the unit tests of the C++ module are not built: there is no doctest")
    done = subprocess.run(
        [program, *options],
        capture_output=True,
        check=False,
        text=True,
        env=programs.environment | {"LONGSHARE_TRANSPORT": str(programs.library)},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_library_exports_a_single_symbol(programs: Programs) -> None:
    listed = subprocess.run(
        ["nm", "--dynamic", "--defined-only", programs.library],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    assert [line.split()[-1] for line in listed.splitlines()] == ["longshare_transport_interface"]


def test_snapshot_and_events_are_answered_with_the_services_decisions(
    programs: Programs, running: Service
) -> None:
    with master(programs, running.address) as driven:
        driven.snapshot.agents.append(AGENT)
        driven.start().wait_for("decisions")
        assert driven.decisions == [contract.Decisions(applied_sequence=1)]
        driven.wait_until_applied(driven.push(event(add_framework=FRAMEWORK)))
        (offers,) = driven.decisions[-1].offers
        assert offers.framework_id == "f1"
        assert offers.offers[0].agent_id == "s1"
        statistics = driven.statistics()
        assert statistics.pop("round_trip_ns") > 0
        assert statistics == {
            "connected": 1,
            "synchronised": 1,
            "sessions": 1,
            "resyncs": 0,
            "overflows": 0,
            "queued_events": 0,
            "queued_bytes": 0,
            "messages_sent": 2,
            "unanswered": 0,
        }


def test_a_leader_waiting_for_another_leader_is_synchronised_only_once_served(
    programs: Programs, running: Service
) -> None:
    with master(programs, running.address) as second:
        with master(programs, running.address) as first:
            first.start(hello(session_id="1").hello).wait_until_synchronised()
            second.start(hello(session_id="2").hello).wait_for("decisions")
            assert second.decisions[-1].waiting_for
            assert second.statistics()["synchronised"] == 0, "its snapshot was not taken in"
            assert [line[0] for line in second.lines("log")] == ["0"], "which is no warning"
        wait_for(lambda: second.push(TICK) > 0 and second.statistics()["synchronised"] == 1)
        assert not second.decisions[-1].waiting_for
        assert [line[0] for line in second.lines("log")] == ["0", "0"]


def test_events_flushed_together_get_a_single_answer(programs: Programs, running: Service) -> None:
    with master(programs, running.address) as driven:
        driven.start().wait_for("decisions")
        last = driven.push(TICK, TICK, TICK)
        driven.wait_until_applied(last)
        assert [decisions.applied_sequence for decisions in driven.decisions] == [1, last]


@in_every_build
def test_events_of_many_threads_arrive_in_the_order_of_their_numbers(
    programs: Programs, running: Service
) -> None:
    with master(programs, running.address) as driven:
        driven.start().wait_until_synchronised()
        driven.burst(4, 5_000, TICK)
        assert driven.burst_over() == 20_001
        driven.wait_until_applied(20_001)
        # The service refuses a number that is not its last number plus one.
        assert driven.statistics()["resyncs"] == 0
        applied = [decisions.applied_sequence for decisions in driven.decisions]
        assert applied == sorted(set(applied))


def test_calls_that_contradict_each_other_in_any_other_order_are_accepted(
    programs: Programs, running: Service
) -> None:
    add = event(add_agent=AGENT)
    remove = event(remove_agent=contract.RemoveAgent(agent_id="s1"))
    with master(programs, running.address) as driven:
        driven.start().wait_until_synchronised()
        for _ in range(100):
            driven.push(add)
            driven.push(remove)
        driven.wait_until_applied(201)
        assert driven.statistics()["resyncs"] == 0


def test_a_service_absent_at_start_is_connected_once_it_starts(
    programs: Programs, tmp_path: Path
) -> None:
    absent = f"unix://{tmp_path}/allocator.sock"
    with master(programs, absent) as driven:
        driven.start().wait_for("log")
        assert driven.push(TICK) == 1
        assert driven.statistics()["connected"] == 0
        with service(tmp_path):
            driven.wait_until_synchronised()
            complaints = driven.lines("log")
            assert f"1 no allocator at {absent}: " in complaints[0]
            assert len(complaints) == len(set(complaints)), "a complaint was repeated"


@in_every_build
def test_after_kill_9_under_load_a_new_service_gets_a_snapshot_and_later_events(
    programs: Programs, tmp_path: Path
) -> None:
    with master(programs, f"unix://{tmp_path}/allocator.sock") as driven:
        with service(tmp_path) as first:
            driven.start().wait_until_synchronised()
            driven.burst(4, 20_000, TICK)
            driven.wait_until_applied(100)
            first.stop(signal.SIGKILL)
            driven.wait_for("disconnected")
        driven.snapshot.agents.append(AGENT)
        driven.snapshot.frameworks.append(FRAMEWORK)
        with service(tmp_path):
            driven.wait_until_applied(driven.burst_over())
            driven.wait_until_synchronised()
            driven.wait_until_applied(driven.push(TICK))
            assert any(decisions.offers for decisions in driven.decisions)
            assert driven.statistics()["sessions"] == 2
            assert driven.count("connected") == 2


def test_the_services_request_for_a_snapshot_reaches_the_owner_with_its_reason(
    programs: Programs, running: Service
) -> None:
    unknown = event(remove_agent=contract.RemoveAgent(agent_id="nobody"))
    with master(programs, running.address) as driven:
        driven.start().wait_until_synchronised()
        driven.push(unknown)
        driven.wait_for("wanted", 2)
        assert "nobody" in driven.lines("wanted")[1]
        driven.wait_until_synchronised()
        driven.wait_until_applied(driven.push(TICK))
        assert driven.statistics()["resyncs"] == 1


@in_every_build
def test_without_a_listening_service_the_queue_is_dropped_and_a_snapshot_follows_later(
    programs: Programs, running: Service
) -> None:
    with master(programs, running.address, queue_bytes=200_000) as driven:
        driven.start().wait_until_synchronised()
        running.stand_still()
        driven.mute = True  # otherwise events after the snapshot might overflow, too
        driven.burst(2, 2_000, LARGE_TICK)
        driven.burst_over()
        stuck = driven.statistics()
        assert stuck["overflows"] == 1
        assert (stuck["queued_bytes"], stuck["synchronised"]) == (0, 0)
        if not programs.sanitizer:
            assert driven.memory() < 60 * 2**20, "of 40 MB pushed"
        running.go_on()
        driven.wait_for("wanted", 2)
        assert "the queue was full" in driven.lines("wanted")[1]
        driven.send_snapshot()
        driven.wait_until_synchronised()
        driven.wait_until_applied(driven.push(TICK))


def test_events_pushed_during_a_write_are_sent_in_one_message(
    programs: Programs, running: Service
) -> None:
    with master(programs, running.address) as driven:
        driven.start().wait_until_synchronised()
        running.stand_still()
        before = driven.statistics()["messages_sent"]
        driven.push(HUGE_TICK)
        wait_for(lambda: driven.statistics()["messages_sent"] == before + 1)
        driven.burst(1, 100, TICK)
        last = driven.burst_over()
        stuck = driven.statistics()
        assert (stuck["messages_sent"], stuck["queued_events"]) == (before + 1, 100)
        running.go_on()
        driven.wait_until_applied(last)
        statistics = driven.statistics()
        assert statistics["messages_sent"] == before + 2
        assert statistics["overflows"] == 0


def test_turns_share_a_message_while_the_service_has_four_turns_to_answer(
    programs: Programs, running: Service
) -> None:
    """So a flood of calls costs few allocations, and no long queue of messages delays a call."""
    with master(programs, running.address) as driven:
        driven.start().wait_until_synchronised()
        running.stand_still()
        before = driven.statistics()["messages_sent"]
        for _ in range(100):
            last = driven.push(TICK)
        wait_for(lambda: driven.statistics()["messages_sent"] == before + 4)
        assert driven.statistics()["queued_events"] > 0
        running.go_on()
        driven.wait_until_applied(last)
        assert driven.statistics()["messages_sent"] == before + 5


def test_a_service_that_is_silent_is_given_up(programs: Programs, running: Service) -> None:
    patience = {"keepalive_time": 5_000, "keepalive_timeout": 200}
    with master(programs, running.address, **patience) as driven:
        driven.start().wait_until_synchronised()
        running.stand_still()
        driven.wait_for("disconnected")
        running.go_on()
        driven.wait_until_synchronised()


@in_every_build
def test_the_transport_can_be_destroyed_during_a_flood_of_answers(programs: Programs) -> None:
    script = Scripted()
    with peer(script) as second_peer, master(programs, second_peer.address) as driven:
        driven.start().wait_for("snapshot")
        for _ in range(20_000):
            script.say(decisions=contract.Decisions(applied_sequence=1))
        driven.wait_for("decisions")
        driven.listening.clear()
        # After half a second its callback blocks, with answers behind, while destruction begins.
        threading.Timer(0.5, driven.listening.set).start()
    script.end()


@in_every_build
def test_a_port_that_never_answers_is_given_up_after_the_timeout(programs: Programs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        with master(programs, address, connect_timeout=200) as driven:
            driven.start().wait_for("log")
            assert driven.lines("log")[0].endswith("no answer within 200 ms")


def test_a_service_of_another_version_is_not_connected_and_its_reason_is_reported(
    programs: Programs, running: Service
) -> None:
    with master(programs, running.address) as driven:
        driven.start(hello(version=99).hello).wait_for("log")
        assert "speaks version 99 of the contract" in driven.lines("log")[0]
        assert driven.count("connected") == 0


def test_a_transport_starts_once(programs: Programs, running: Service) -> None:
    with master(programs, running.address) as driven:
        driven.start().start().wait_for("started", 2)
        assert driven.lines("started") == ["0", "-1"]


def test_a_transport_that_was_never_started_can_be_destroyed(programs: Programs) -> None:
    with master(programs, "localhost:1") as driven:
        assert driven.push(TICK) == 1
        assert driven.send_snapshot() == 0


def test_invalid_settings_are_refused_before_any_process_starts(programs: Programs) -> None:
    driven = Master(programs, "allocator.example:5060", connect_timeout=0)
    assert driven.process.wait() == 2
    assert driven.process.stderr is not None
    address, timeout = driven.process.stderr.read().splitlines()
    assert address.startswith("address: 'allocator.example:5060' is another machine")
    assert timeout == "connect_timeout: 0 is not between 1 and 86400000"
    driven.kill()


@in_every_build
def test_decisions_from_before_the_latest_snapshot_are_withheld(programs: Programs) -> None:
    script = Scripted()
    with peer(script) as second_peer, master(programs, second_peer.address) as driven:
        driven.start().wait_for("snapshot")
        event_number = driven.push(TICK)
        wait_for(lambda: len(script.heard) == 3)
        assert driven.send_snapshot() == event_number + 1
        wait_for(lambda: len(script.heard) == 4)
        for applied in (1, event_number, event_number + 1):
            script.say(decisions=contract.Decisions(applied_sequence=applied))
        driven.wait_for("decisions")
        script.end()
        driven.wait_for("disconnected")
        assert [decision.applied_sequence for decision in driven.decisions] == [event_number + 1]
        kinds = [message.WhichOneof("message") for message in script.heard]
        assert kinds == ["hello", "snapshot", "events", "snapshot"]


def test_slices_of_an_answer_reach_the_owner_and_only_the_last_answers(
    programs: Programs,
) -> None:
    script = Scripted()
    with peer(script) as second_peer, master(programs, second_peer.address) as driven:
        driven.start().wait_for("snapshot")
        script.say(decisions=contract.Decisions(applied_sequence=1))
        driven.wait_until_synchronised()
        last = driven.push(TICK)
        wait_for(lambda: len(script.heard) == 3)
        slices = [
            contract.Decisions(applied_sequence=last, more=True, offers=[contract.Offers()]),
            contract.Decisions(applied_sequence=last, more=True),
        ]
        for decisions in slices:
            script.say(decisions=decisions)
        driven.wait_for("decisions", 3)
        assert driven.statistics()["unanswered"] == 1
        script.say(decisions=contract.Decisions(applied_sequence=last))
        driven.wait_for("decisions", 4)
        assert driven.statistics()["unanswered"] == 0
        assert driven.decisions[1:3] == slices
        script.end()
        driven.wait_for("disconnected")


def test_events_of_a_long_turn_are_sent_before_its_end(programs: Programs) -> None:
    script = Scripted()
    with peer(script) as second_peer, master(programs, second_peer.address) as driven:
        driven.start().wait_for("snapshot")
        events = 600
        driven.push(*[TICK] * events)
        wait_for(
            lambda: (
                sum(len(message.events.events) for message in script.heard) == events
                and not script.heard[-1].events.more
            )
        )
        script.end()
        driven.wait_for("disconnected")
        received = [message.events for message in script.heard[2:]]
        numbers = [event.sequence for part in received for event in part.events]
        assert numbers == list(range(2, events + 2))
        assert not received[-1].more
        assert all(part.more for part in received[:-1])


def test_events_before_a_snapshot_are_contained_in_the_snapshot(programs: Programs) -> None:
    script = Scripted()
    with peer(script) as second_peer, master(programs, second_peer.address) as driven:
        driven.mute = True
        driven.start().wait_for("wanted")
        driven.push(TICK, TICK)
        assert driven.send_snapshot() == 3
        assert driven.push(TICK) == 4
        wait_for(lambda: len(script.heard) == 3)
        script.end()
        assert script.heard[1].snapshot.sequence == 3
        assert [event.sequence for event in script.heard[2].events.events] == [4]


@in_every_build
@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"\xff\xff", "not a message of the contract"),
        (contract.ToMaster().SerializeToString(), "not a message of the contract"),
        (
            contract.ToMaster(decisions=contract.Decisions()).SerializeToString(),
            "did not begin with Welcome",
        ),
    ],
)
def test_a_peer_with_invalid_messages_is_disconnected_and_retried(
    programs: Programs, answer: bytes, complaint: str
) -> None:
    streams = []

    def babble(requests: Iterator[bytes]) -> Iterator[bytes]:
        streams.append(requests)
        yield answer

    with peer(babble) as second_peer, master(programs, second_peer.address) as driven:
        driven.start().wait_for("log")
        assert complaint in driven.lines("log")[0]
        wait_for(lambda: len(streams) > 3)
        assert driven.count("connected") == 0


@in_every_build
def test_with_mtls_only_a_master_with_a_certificate_is_connected(
    programs: Programs, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "ca").found()
    mine = authority.issue("master")
    stranger = Authority(tmp_path / "other").found().issue("stranger")
    with protected(tmp_path, authority, mutual=True) as running:
        known = {"authority": mine.authority, "certificate": mine.certificate, "key": mine.key}
        with master(programs, running.address, **known) as driven:
            driven.start().wait_until_synchronised()
        for identity in (
            {"authority": mine.authority},
            {**known, "certificate": stranger.certificate, "key": stranger.key},
            {**known, "authority": stranger.authority},
            {},
        ):
            with master(programs, running.address, **identity) as driven:
                driven.start().wait_for("log")
                assert driven.count("connected") == 0


def test_certificates_are_read_again_for_each_attempt(programs: Programs, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca").found()
    trusted = tmp_path / "trusted.pem"
    trusted.write_text("-----BEGIN CERTIFICATE-----\nnothing of value\n-----END CERTIFICATE-----\n")
    with (
        protected(tmp_path, authority, mutual=False) as running,
        master(programs, running.address, authority=trusted) as driven,
    ):
        driven.start().wait_for("log")
        trusted.unlink()
        wait_for(lambda: f"{trusted}: No such file" in driven.lines("log")[-1])
        trusted.write_bytes(authority.certificate.read_bytes())
        driven.wait_until_synchronised()


def test_a_tcp_port_serves_as_well_as_a_socket(programs: Programs, tmp_path: Path) -> None:
    with (
        service(tmp_path, listen=f"127.0.0.1:{free_port()}") as running,
        master(programs, running.address) as driven,
    ):
        driven.start().wait_until_synchronised()
