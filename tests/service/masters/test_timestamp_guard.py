"""Commitments decay with the time that has passed, whatever the clock of a master says."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from allocator.contract import VERSION
from allocator.contract import allocator_pb2 as contract
from allocator.service.masters.timestamp_guard import TOLERANCE_NS, Timeline, TimestampGuard
from tests.cluster.master_side import SECOND, agent_call, framework_info
from tests.service.served import Service, Stream, service
from tests.service.show.test_metrics import scrape
from tests.service.stored import stored

NOW = 1_700_000_000 * SECOND
YEARS = 10 * 365 * 86400 * SECOND
AGENT = agent_call("s1", "cpus:4;mem:4096")
FRAMEWORK = contract.AddFramework(framework_id="f1", info=framework_info("f1", "a"), active=True)
SETTINGS = '[policy]\nname = "sdrf"\nhalf_life = "1h"\n' + "".join(
    f'[[users.declared]]\nname = "{name}"\ncommitment = 0.5\n' for name in "ab"
)


class Machine:
    """A machine with a monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.up_ns = 12345

    def timeline(self) -> Timeline:
        return Timeline(NOW, lambda: self.up_ns)


@given(
    stamps=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1),
    passed=st.integers(0, YEARS),
    snapshot=st.booleans(),
)
def test_no_timestamp_beyond_the_tolerance_reaches_the_engine(
    stamps: list[int], passed: int, *, snapshot: bool
) -> None:
    machine = Machine()
    bounded = TimestampGuard(machine.timeline(), "m:1")
    machine.up_ns += passed
    message = contract.FromMaster()
    if snapshot:
        message.snapshot.time_ns = stamps[0]
    else:
        message.events.events.extend(contract.Event(time_ns=stamp) for stamp in stamps)
    bounded.bound(message)
    seen = [message.snapshot.time_ns] if snapshot else [e.time_ns for e in message.events.events]
    for claimed, believed in zip(stamps, seen, strict=False):
        off = claimed - (NOW + passed)
        assert believed - (NOW + passed) == max(min(off, TOLERANCE_NS), -TOLERANCE_NS)


def test_a_wrong_master_clock_is_logged_once_with_its_offset() -> None:
    bounded = TimestampGuard(Machine().timeline(), "m:1")
    message = contract.FromMaster()
    message.snapshot.time_ns = NOW + 180 * SECOND
    with capture_logs() as logs:
        for _ in range(5):
            message.snapshot.time_ns = NOW + 180 * SECOND
            bounded.bound(message)
    assert [(line["master"], line["ahead"]) for line in logs] == [("m:1", 180.0)]
    assert bounded.corrected == 5


@pytest.mark.parametrize(
    ("until", "left"), [(NOW + YEARS + 300 * SECOND, 300), (2**63 - 1, 86400), (-1, 0)]
)
def test_failover_recovery_keeps_its_length_with_a_wrong_master_clock(
    until: int, left: int
) -> None:
    message = contract.FromMaster()
    message.snapshot.time_ns = NOW + YEARS
    message.snapshot.hold_off.until_ns = until
    TimestampGuard(Machine().timeline(), "m:1").bound(message)
    snapshot = message.snapshot
    assert snapshot.hold_off.until_ns - snapshot.time_ns == left * SECOND


def test_the_services_time_starts_no_earlier_than_the_stored_time() -> None:
    remembered = 4e9
    assert Timeline.from_now(remembered).now_ns >= round(remembered * SECOND)
    assert Timeline.from_now(0.0).now_ns > NOW


@pytest.mark.parametrize("remembered", [2**63 / 1e9, 1e12, 1e300])
def test_a_stored_time_in_the_far_future_leaves_room_for_timestamps(remembered: float) -> None:
    message = contract.FromMaster()
    message.snapshot.time_ns = NOW
    message.snapshot.hold_off.until_ns = 2**63 - 1
    message.events.events.add(time_ns=2**63 - 1)
    TimestampGuard(Timeline.from_now(remembered), "m:1").bound(message)
    assert message.events.events[0].time_ns < 2**63 - 1


@pytest.fixture(name="running")
def _running(tmp_path: Path) -> Iterator[Service]:
    with service(tmp_path, SETTINGS) as started:
        yield started


def owed(running: Service) -> float:
    return scrape(running)["longshare_user_commitment_ratio", "b", "cpus"]


def master(running: Service, time_ns: int, name: str = "real", leading_since_ns: int = 1) -> Stream:
    stream = Stream(running.address)
    stream.now_ns, stream.leading_since_ns = time_ns, leading_since_ns
    stream.say(
        contract.FromMaster(
            hello=contract.Hello(contract_version=VERSION, session_id=name, master="m:1")
        )
    )
    assert stream.hear().HasField("welcome")
    stream.resynchronise(agents=[AGENT], frameworks=[FRAMEWORK])
    return stream


def least(since_ns: int) -> float:
    """Return the lowest commitment possible if decay is limited to the passed time and tolerance.

    Call this function after reading the commitment, since the duration of the reading is unknown.
    """
    passed = max(0, Timeline.from_now(0.0).now_ns - since_ns)
    factor: float = 0.5 ** ((passed + 2 * TOLERANCE_NS) / (3600 * SECOND))
    return 0.5 * factor


@pytest.mark.parametrize("leap", [YEARS, -YEARS, 2**62])
def test_a_snapshot_with_a_broken_clock_reduces_no_commitment(running: Service, leap: int) -> None:
    now = Timeline.from_now(0.0).now_ns
    stream = master(running, now)
    assert owed(running) > least(now)
    stream.now_ns = now + leap
    stream.resynchronise(agents=[AGENT], frameworks=[FRAMEWORK])
    assert owed(running) > least(now)
    stream.now_ns = now
    stream.resynchronise(agents=[AGENT], frameworks=[FRAMEWORK])
    assert owed(running) > least(now)


def test_many_small_leaps_in_one_message_reduce_no_commitment(running: Service) -> None:
    now = Timeline.from_now(0.0).now_ns
    stream = master(running, now)
    before = scrape(running)["longshare_bounded_stamps_total",]
    events = contract.Events()
    for number in range(1, 61):
        stamp = now + number * 7199 * SECOND
        events.events.add(sequence=number, time_ns=stamp, tick=contract.Tick())
    stream.say(contract.FromMaster(events=events))
    assert stream.hear().decisions.applied_sequence == 60
    assert owed(running) > least(now)
    assert scrape(running)["longshare_bounded_stamps_total",] == before + 60


def test_the_clock_of_a_standby_master_does_not_move_the_engines_time(
    running: Service,
) -> None:
    now = Timeline.from_now(0.0).now_ns
    leader = master(running, now)
    before = owed(running)
    standby = master(running, now + 9 * SECOND, "standby", leading_since_ns=0)
    standby.tell(tick=contract.Tick())
    leader.resynchronise(agents=[AGENT], frameworks=[FRAMEWORK])
    after = owed(running)
    # On a slow machine, the repeated timestamp of the leader falls below the tolerance.
    late = max(0, Timeline.from_now(0.0).now_ns - (now + TOLERANCE_NS))
    assert before * 0.5 ** (late / (3600 * SECOND)) <= after <= before


def test_a_timestamp_before_the_epoch_is_not_stored(tmp_path: Path) -> None:
    now = Timeline.from_now(0.0).now_ns
    with service(tmp_path, SETTINGS) as running:
        master(running, -1)
        assert running.stop() == 0
    assert stored(running.store) is not None
    with service(tmp_path, SETTINGS) as running:
        assert owed(running) > least(now)


def test_a_virtual_clock_is_refused_unless_the_operator_allows_it(tmp_path: Path) -> None:
    with service(tmp_path, "[listen]\n", virtual_clocks=False) as running:
        stream = Stream(running.address)
        with pytest.raises(grpc.RpcError) as raised:
            stream.open()
    assert raised.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert "listen.virtual_clocks" in (raised.value.details() or "")
