"""The service notifies systemd when it is ready, alive, and stopping."""

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.served import PATIENCE, Stream, service


@pytest.fixture
def supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Socket that takes the place of systemd's, named to the services in the environment."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(PATIENCE)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield listening


def heard(supervisor: socket.socket, times: int) -> set[bytes]:
    return {supervisor.recv(100) for _ in range(times)}


def test_ready_is_notified_once_masters_can_connect_and_stopping_at_the_end(
    tmp_path: Path, supervisor: socket.socket
) -> None:
    with service(tmp_path) as running:
        assert supervisor.recv(100) == b"READY=1"
        stream = Stream(running.address)
        stream.open()
        stream.close()
        assert running.stop() == 0
        assert supervisor.recv(100) == b"STOPPING=1"


def test_the_watchdog_is_fed_until_the_service_hangs(
    tmp_path: Path, supervisor: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "100000")
    with service(tmp_path) as running:
        assert supervisor.recv(100) == b"READY=1"
        assert heard(supervisor, 4) == {b"WATCHDOG=1"}
        running.stand_still()
        supervisor.setblocking(False)
        with pytest.raises(BlockingIOError):
            heard(supervisor, 10**6)  # drain all notifications sent before the stop
        supervisor.settimeout(1.0)
        with pytest.raises(TimeoutError):
            supervisor.recv(100)


def test_a_service_with_an_unreachable_supervisor_still_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    with service(tmp_path) as running:
        stream = Stream(running.address)
        stream.open()
        stream.close()
        assert running.stop() == 0
    assert "systemd cannot be notified" in running.log.read_text()


def test_sighup_rotates_the_recording_without_harm(tmp_path: Path) -> None:
    with service(tmp_path) as running:
        stream = Stream(running.address)
        stream.open()
        running.process.send_signal(signal.SIGHUP)
        stream.resynchronise()
        stream.close()
        assert running.stop() == 0
