"""Ports that programs get as arguments before they start."""

import itertools
import multiprocessing
import socket
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from frameworks.harness.ports import free_port


def some(number: int) -> list[int]:
    return [free_port() for _ in range(number)]


def test_free_ports_are_outside_the_range_for_outgoing_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as given:
        assert max(some(50)) < given.getsockname()[1]


@pytest.mark.slow
def test_processes_get_different_ports_even_before_listening() -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(4, mp_context=context) as processes:
        assigned = [port for ports in processes.map(some, [100] * 8) for port in ports]
    assert len(set(assigned)) == 800


def test_a_port_with_a_listener_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = free_port()
    with socket.create_server(("127.0.0.1", taken)):
        turns = itertools.count(taken - 10_000)
        monkeypatch.setattr("frameworks.harness.ports._next_number", lambda: next(turns))
        assert free_port() != taken  # the next may be lower: numbers wrap around


@pytest.mark.parametrize("said", ["", "rubbish", "9" * 30, "-1"])
def test_a_free_port_is_found_for_any_contents_of_the_turn_file(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    free_port()
    [file] = tmp_path.iterdir()
    file.write_text(said)
    assert len(set(some(5))) == 5
