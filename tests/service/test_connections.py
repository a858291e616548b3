"""Connections that no permitted call came on are closed before they keep others out."""

import asyncio
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, NoReturn
from unittest import mock

import pytest
from structlog.testing import capture_logs

from allocator.service import connections as module
from allocator.service.addresses import host_of
from allocator.service.connections import Connections
from allocator.service.loop.cooperative import run_in_slices
from allocator.service.stream_traffic import MESSAGE_BYTES, StreamTraffic

KILOBYTE = 2**10


class Peers:
    """Peers that connect to a port of this process, which accepts and says nothing."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.connections = Connections()
        self.connections.ports.add(self._listening.getsockname()[1])
        self._peers: list[socket.socket] = []
        self._named: dict[str, tuple[socket.socket, socket.socket]] = {}

    def connect(self, host: str = "127.0.0.1", data: bytes = b"") -> str:
        """Connect from a host; return the peer in gRPC's notation."""
        address = self._listening.getsockname()
        peer = self._stack.enter_context(
            socket.create_connection(address, source_address=(host, 0))
        )
        accepted = self._stack.enter_context(self._listening.accept()[0])
        self._peers.append(peer)
        own, port = peer.getsockname()
        name = f"ipv4:{own}:{port}"
        self._named[name] = peer, accepted
        self.send(name, data)
        return name

    def send(self, name: str, data: bytes) -> None:
        """Send data from a peer, and wait until it has arrived; the service reads it at once."""
        peer, accepted = self._named[name]
        peer.sendall(data)
        while data:
            data = data[len(accepted.recv(len(data))) :]

    def reply(self, name: str, data: bytes) -> None:
        """Send data to a peer, which reads it at once."""
        peer, accepted = self._named[name]
        accepted.sendall(data)
        peer.setblocking(True)
        while data:
            data = data[len(peer.recv(len(data))) :]

    def begin_stream(
        self, name: str, traffic: StreamTraffic | None = None, master: str = "m"
    ) -> Callable[[], None]:
        """Begin a master's stream on a connection; return the function for the stream's end."""
        return self.connections.note_stream(name, master, traffic or StreamTraffic())

    def scan(self) -> list[int]:
        """Scan once; return the numbers of the peers whose connections are closed."""
        asyncio.run(run_in_slices(self.connections.scan()))
        closed = []
        for number, peer in enumerate(self._peers):
            peer.setblocking(False)
            with suppress(BlockingIOError):
                assert not peer.recv(1)
                closed.append(number)
        return closed


@pytest.fixture
def peers() -> Iterator[Peers]:
    with ExitStack() as stack:
        yield Peers(stack)


def test_the_oldest_silent_connections_of_a_host_are_closed_and_no_proved_one(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HOST_UNPROVED", 3)
    master = peers.connect()
    peers.connect(data=b"hello")
    for _ in range(4):
        peers.connect()
    peers.connections.note(master, True)
    peers.begin_stream(master)
    for _ in range(4):  # the proof lasts as long as the connection
        assert peers.scan() == [2, 3]
    assert peers.connections.closed == 2


def test_a_host_that_only_asks_keeps_a_limited_number_of_connections(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HOST_ASKING", 2)
    master = peers.connect()
    readers = [peers.connect() for _ in range(4)]
    peers.connections.note(master, True)
    peers.begin_stream(master)
    for reader in readers:
        peers.connections.note(reader, True)
    assert peers.scan() == [1, 2]


@pytest.mark.parametrize(("kind", "permitted"), [("ASKING", True), ("UNPROVED", False)])
def test_the_host_with_the_most_connections_makes_room_for_others(
    peers: Peers,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    permitted: bool,  # noqa: FBT001 - a parameter
) -> None:
    monkeypatch.setattr(module, f"HOST_{kind}", 8)
    monkeypatch.setattr(module, f"ALL_{kind}", 7)
    monkeypatch.setattr(module, "host_of", lambda peer: peer.rpartition(":")[0])
    connected = [peers.connect("127.0.0.2"), *(peers.connect("127.0.0.3") for _ in range(8))]
    for peer in connected:
        if permitted:
            peers.connections.note(peer, True)
    assert peers.scan() == [1, 2]


@pytest.mark.parametrize("asks", [False, True])
def test_more_hosts_than_connections_in_all_keep_the_newest(
    peers: Peers,
    monkeypatch: pytest.MonkeyPatch,
    asks: bool,  # noqa: FBT001 - a case of the table
) -> None:
    for name in ("HOST_UNPROVED", "ALL_UNPROVED", "HOST_ASKING", "ALL_ASKING"):
        monkeypatch.setattr(module, name, 3)
    monkeypatch.setattr(module, "host_of", lambda peer: peer.rpartition(":")[0])
    for host in range(2, 8):
        name = peers.connect(f"127.0.0.{host}", b"hello")
        if asks:
            peers.connections.note(name, True)
    assert peers.scan() == [0, 1, 2]


def test_of_connections_with_refused_calls_only_those_with_the_fewest_stay(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ALL_REFUSED", 2)
    names = [peers.connect() for _ in range(5)]
    for number, name in enumerate(names):
        for _ in range(5 - number):
            peers.connections.note(name, False)
    peers.connections.note(names[0], True)
    assert peers.scan() == [1, 2]


def test_connections_with_too_many_more_refused_than_permitted_calls_are_closed(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_REFUSED", 3)
    calls = {"few": "rr", "many": "rrr", "reader": "prrr", "flooding reader": "prrrr"}
    for outcomes in calls.values():
        name = peers.connect()
        for outcome in outcomes:
            peers.connections.note(name, outcome == "p")
    assert [list(calls)[number] for number in peers.scan()] == ["many", "flooding reader"]


def test_connections_that_send_much_without_a_permitted_call_are_closed(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_RECEIVED", 1000)
    master = peers.connect(data=b"x" * 1000)
    peers.connect(data=b"x" * 999)
    peers.connect(data=b"x" * 1000)
    refused = peers.connect(data=b"x" * 1000)
    peers.connections.note(master, True)
    peers.begin_stream(master)
    peers.connections.note(refused, False)
    assert peers.scan() == [2, 3]


def test_connections_without_a_permitted_call_send_a_limited_number_of_bytes_together(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGE", 1000)
    monkeypatch.setattr(module, "ALL_RECEIVED", 2500)
    large = [peers.connect(data=b"x" * 1000) for _ in range(6)]
    for _ in range(4):
        peers.connect(data=b"x" * 999)
    peers.connections.note(large[0], True)
    peers.connections.note(large[1], False)
    assert peers.scan() == [1, 2, 3]


def test_bytes_outside_of_permitted_calls_are_limited(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = module.CALL_BYTES + 1000
    monkeypatch.setattr(module, "MOST_RECEIVED", 1000)
    master, reader, second = (peers.connect(data=b"x" * (limit - 1)) for _ in range(3))
    for name in (master, reader, second):
        peers.connections.note(name, True)
    peers.begin_stream(master)
    assert peers.scan() == []
    peers.connections.note_request(reader, 5000)
    peers.send(master, b"x" * 9000)
    peers.send(reader, b"x" * 5000)  # the request of the call
    assert peers.scan() == []
    peers.connections.note_request(reader, -5000, 5000)
    assert peers.scan() == []
    peers.send(reader, b"x")
    assert peers.scan() == [1]
    assert peers.connections.closed == 1


def test_the_master_with_the_most_unfinished_bytes_loses_its_connection_with_the_most(
    peers: Peers,
) -> None:
    begun = [("a", 300), ("b", 600), ("a", 400), ("leader", 2000), ("c", 0)]
    streams = []
    for master, kilobytes in begun:
        name, traffic = peers.connect(), StreamTraffic(leads=master == "leader")
        peers.connections.note(name, True)
        peers.begin_stream(name, traffic, master)
        streams.append((name, traffic))
        assert peers.scan() == []
        for _ in range(kilobytes):
            peers.send(name, bytes(KILOBYTE))
    assert peers.scan() == []
    peers.connections.most_unfinished = 1000 * KILOBYTE
    assert peers.scan() == [2]
    streams[1][1].note_received(600 * KILOBYTE)  # the message is complete
    assert peers.scan() == [2]
    for _ in range(700):
        peers.send(streams[4][0], bytes(KILOBYTE))
    assert peers.scan() == [2]
    peers.send(streams[4][0], bytes(3 * module.CALL_BYTES))
    assert peers.scan() == [2, 4]
    assert peers.connections.closed == 2


def test_a_master_that_does_not_lead_causes_a_limited_number_of_replies_of_grpc_itself(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    names = []
    for number in range(4):
        names.append((peers.connect(), StreamTraffic(leads=number == 0)))
        peers.connections.note(names[-1][0], True)
        peers.begin_stream(*names[-1])
    leader, answered, slow, flooded = names
    assert peers.scan() == []
    for _ in range(2 * module.MOST_REPLIES // KILOBYTE):
        now += KILOBYTE / module.REPLIES_RATE
        peers.reply(slow[0], bytes(KILOBYTE))
        for name, traffic in (leader, answered):
            peers.reply(name, bytes(KILOBYTE))
            traffic.note_sent(KILOBYTE - MESSAGE_BYTES)
        assert peers.scan() == []
    for name, _ in (leader, flooded):
        peers.reply(name, bytes(module.MOST_REPLIES + 2 * module._SPARE))
    assert peers.scan() == [3]


def test_bytes_are_limited_again_some_seconds_after_the_end_of_a_masters_stream(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    limit = module.MOST_RECEIVED + module._SPARE
    name = peers.connect()
    peers.connections.note(name, True)
    ends = [peers.begin_stream(name)]
    peers.send(name, b"x" * limit)
    assert peers.scan() == []
    for end in ends:
        end()
        peers.send(name, b"x" * limit)  # sent before the peer learned of the end
        assert peers.scan() == []
        now += module.MASTER_REST
        peers.send(name, b"x" * (module.MOST_RECEIVED - 1))
        assert peers.scan() == []
        if len(ends) == 1:  # the master connects again
            peers.connections.note(name, True)
            ends.append(peers.begin_stream(name))
            peers.send(name, b"x" * limit)
            assert peers.scan() == []
    peers.send(name, b"x" * limit)
    assert peers.scan() == [0]


def test_a_stream_that_ends_late_leaves_the_next_stream_of_its_peers_port_unlimited(
    peers: Peers,
) -> None:
    name = peers.connect()
    peers.connections.note(name, True)
    end = peers.begin_stream(name)
    peers.connections._calls.clear()  # the connection was lost, and another one has its port
    peers.connections.note(name, True)
    peers.begin_stream(name)
    end()
    peers.send(name, b"x" * 2 * module.MOST_RECEIVED)
    assert peers.scan() == []


def test_short_calls_save_up_few_bytes_that_a_peer_may_send_later(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_RECEIVED", 1000)
    reader = peers.connect()
    for _ in range(100):
        peers.connections.note(reader, True)
        assert peers.scan() == []
    peers.send(reader, b"x" * (module._SPARE + 1000))
    assert peers.scan() == [0]


def test_a_long_series_of_calls_with_large_requests_and_replies_closes_no_connection(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_RECEIVED", 1000)
    reader = peers.connect()
    for _ in range(50):
        peers.send(reader, b"x" * 600)  # headers
        peers.connections.note(reader, True)
        peers.connections.note_request(reader, 20_000)
        peers.send(reader, b"x" * 3000)
        assert peers.scan() == []
        peers.connections.note_request(reader, -20_000, 3000)
        peers.reply(reader, b"y" * 32_768)
        peers.send(reader, b"x" * 120)  # frames that acknowledge the reply
        assert peers.scan() == []


def test_a_scan_lets_no_other_thread_run_between_two_descriptors(peers: Peers) -> None:
    """A busy event loop would otherwise delay a scan by 5 ms for each descriptor."""
    for _ in range(module._STEP // 4):
        peers.connect(data=b"x")
    turns, stop = 0, threading.Event()

    def compete() -> None:
        nonlocal turns
        while not stop.is_set():
            turns += 1

    competitor = threading.Thread(target=compete)
    interval = sys.getswitchinterval()
    competitor.start()
    try:
        sys.setswitchinterval(1.0)
        undisturbed = 0
        for _ in range(5):  # the other thread may still have a turn from before
            before = turns
            list(peers.connections.scan())
            undisturbed += turns == before
        assert undisturbed
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        competitor.join()


class Pauses:
    """An event that ends the scanning after some pauses, and keeps their lengths."""

    def __init__(self, number: int, before: Callable[[int], None] = lambda _: None) -> None:
        self.seconds: list[float] = []
        self._number, self._before = number, before

    def wait(self, seconds: float) -> bool:
        self.seconds.append(seconds)
        self._before(len(self.seconds))
        return len(self.seconds) > self._number


def scan_with(connections: Connections, pauses: Pauses, port: int = 4000) -> mock.Mock:
    """Scan until the pauses end; return the event loop with its recorded calls."""
    loop = mock.Mock()
    event: Any = pauses
    connections.ports.add(port)
    connections._scan_until(event, loop)
    return loop


def test_scanning_goes_on_after_an_error_and_logs_it_once_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, scans = 1000.0, 0

    def fail(_: object) -> NoReturn:
        nonlocal now, scans
        scans += 1
        now += 25.0
        raise RuntimeError

    monkeypatch.setattr(Connections, "scan", fail)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with capture_logs() as logs:
        scan_with(Connections(), Pauses(5))
    assert scans == 5
    assert [(entry["log_level"], entry["exc_info"]) for entry in logs] == [("error", True)] * 2


@pytest.mark.parametrize(("port", "scanned"), [(4000, 51), (0, 0)], ids=["TCP", "Unix"])
def test_a_service_is_scanned_only_with_a_tcp_port_and_its_loop_wakes_twice_a_second(
    monkeypatch: pytest.MonkeyPatch, port: int, scanned: int
) -> None:
    now, scans = 1000.0, 0

    def scan(_: object) -> Iterator[None]:
        nonlocal scans
        scans += 1
        return iter(())

    class Sleeps(Pauses):
        def wait(self, seconds: float) -> bool:
            nonlocal now
            now += seconds
            return super().wait(seconds)

    monkeypatch.setattr(Connections, "scan", scan)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)
    sleeps = Sleeps(51)
    connections = Connections()
    connections.note("unix:", True)
    loop = scan_with(connections, sleeps, port)
    assert scans == scanned
    assert bool(connections._calls) == bool(port)
    assert loop.call_soon_threadsafe.call_count <= 1 + sum(sleeps.seconds) / 0.5


def test_a_scan_that_waits_for_a_processor_does_not_delay_the_next_scan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wall = 0.0

    def wait(_: object) -> Iterator[None]:
        nonlocal wall
        wall += 10.0
        return iter(())

    monkeypatch.setattr(Connections, "scan", wait)
    monkeypatch.setattr(time, "perf_counter", lambda: wall)
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)
    pauses = Pauses(3)
    scan_with(Connections(), pauses)
    assert pauses.seconds == [module._SCAN_EVERY] * 4


def test_scans_follow_each_other_closely_while_unknown_peers_send_much(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)
    peer, master = peers.connect(), peers.connect()
    peers.connections.note(master, True)
    peers.begin_stream(master)
    sends = {2: (peer, module.LARGE - 1), 3: (peer, module.LARGE), 5: (master, module.LARGE)}

    def send(number: int) -> None:
        if number in sends:
            name, size = sends[number]
            peers.send(name, b"x" * size)

    pauses = Pauses(5, send)
    scan_with(peers.connections, pauses)
    quiet, hasty = module._SCAN_EVERY, module._HASTY_SCAN_EVERY
    assert pauses.seconds == [quiet, quiet, quiet, hasty, quiet, quiet]


def test_calls_of_peers_that_are_gone_are_forgotten(peers: Peers) -> None:
    for port in range(1000):
        peers.connections.note(f"ipv4:127.0.0.1:{port}", bool(port % 2))
    for _ in range(3):
        peers.scan()
    assert not peers.connections._calls


def test_sockets_of_other_ports_are_left_alone(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HOST_UNPROVED", 0)
    peers.connect()
    peers.connections.ports.clear()
    assert peers.scan() == []


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:127.0.0.1:4000", "loopback"),
        ("ipv4:127.3.2.1:4000", "loopback"),
        ("ipv6:%5B::1%5D:4000", "loopback"),
        ("ipv4:10.0.0.1:4000", "10.0.0.1"),
        ("ipv6:%5B::ffff:10.0.0.1%5D:4000", "10.0.0.1"),
        ("ipv6:%5B2001:db8::1%5D:4000", "2001:db8::/64"),
        ("ipv6:%5B2001:db8::ffff:2%5D:4001", "2001:db8::/64"),
        ("ipv6:%5Bfe80::1%25eth0%5D:4001", "fe80::/64"),
        ("unix:", "unix:"),
    ],
)
def test_addresses_that_one_machine_may_use_count_as_one_host(peer: str, host: str) -> None:
    assert host_of(peer) == host


def test_a_port_of_both_families_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HOST_UNPROVED", 1)
    with (
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listening,
        ExitStack() as stack,
    ):
        connections = Connections()
        connections.ports.add(listening.getsockname()[1])
        for host in ("127.0.0.1", "::1", "127.0.0.1"):
            peer = socket.create_connection((host, listening.getsockname()[1]))
            stack.enter_context(peer)
            stack.enter_context(listening.accept()[0])
        asyncio.run(run_in_slices(connections.scan()))
        assert connections.closed == 2
        assert not peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
