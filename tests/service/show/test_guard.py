"""The HTTP port stays open whoever connects to it, and answers to its own names alone."""

import http.client
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from allocator.service.show.guard import MOST
from tests.service.served import PATIENCE, Service, Stream, service
from tests.service.show.test_metrics import scrape

HALF_SENT = 1100


@pytest.fixture(name="running")
def _running(tmp_path: Path) -> Iterator[Service]:
    with service(tmp_path, '[metrics]\nhosts = ["longshare.example"]\n') as started:
        yield started


def port(running: Service) -> int:
    return int(running.metrics_url.split(":")[2].split("/")[0])


@pytest.mark.slow
def test_requests_that_are_sent_by_half_keep_nobody_out(running: Service) -> None:
    with ExitStack() as stack:
        for _ in range(HALF_SENT):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port(running))))
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: local")
        assert scrape(running)["longshare_session_connected",] == 0.0
        leader = Stream(running.address)
        leader.open()
        assert scrape(running)["longshare_session_connected",] == 1.0
        descriptors = len(list(Path(f"/proc/{running.process.pid}/fd").iterdir()))
        assert descriptors < MOST + 60
    assert len(running.log.read_text().splitlines()) < 40


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("localhost", 200),
        ("localhost:9105", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:9105", 200),
        ("[::1]", 200),
        (socket.gethostname(), 200),
        ("longshare.example:9105", 200),
        ("LONGSHARE.example.", 200),
        ("evil.example", 421),
        ("evil.example:9105", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
    ],
)
@pytest.mark.parametrize("path", ["/metrics", "/api/status"])
def test_only_who_asks_by_a_name_of_ours_is_answered(
    running: Service, path: str, name: str, status: int
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port(running), timeout=PATIENCE)
    connection.putrequest("GET", path, skip_host=True)
    connection.putheader("Host", name)
    connection.endheaders()
    assert connection.getresponse().status == status
    connection.close()
