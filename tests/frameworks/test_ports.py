"""Ports that programs are told before they start."""

import itertools
import socket

import pytest

from frameworks.harness.ports import free_port


def test_a_free_port_is_none_that_the_system_gives_to_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as given:
        ports = {free_port() for _ in range(50)}
        assert max(ports) < given.getsockname()[1]
    assert len(ports) > 25, "hardly ever what another process has just been told"


def test_a_port_on_which_somebody_listens_is_not_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = free_port()
    with socket.create_server(("127.0.0.1", taken)):
        drawn = itertools.count(taken - 10_000)
        monkeypatch.setattr("frameworks.harness.ports.secrets.randbelow", lambda _end: next(drawn))
        assert free_port() > taken
