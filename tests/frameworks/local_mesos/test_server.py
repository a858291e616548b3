"""The embedded master as a process: listening address, progress of time, shutdown."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import ClientSession

from frameworks.local_mesos import server
from frameworks.local_mesos.clock import SECOND, Clock
from tests.frameworks.local_mesos.shell import HttpScheduler, settings, system, until


@contextmanager
def command(*options: str) -> Iterator[subprocess.Popen[str]]:
    """Run `longshare local-mesos` without an allocator."""
    arguments = ["local-mesos", "--allocator=unix:///nowhere", *options]
    with subprocess.Popen(
        [sys.executable, "-m", "allocator.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_server_prints_its_address_and_stops_cleanly_on_request(number: int) -> None:
    with command("--port=0", "--agents=2") as process:
        assert process.stdout is not None
        lines = iter(process.stdout)
        address = next(filter(None, (re.search(r"Mesos master on (\S+):(\d+)", x) for x in lines)))
        with socket.create_connection((address[1], int(address[2]))):
            process.send_signal(number)
        out, errors = process.communicate()
    assert process.returncode == 0
    assert "Traceback" not in out + errors


def test_a_client_of_another_protocol_causes_a_line_and_no_traceback() -> None:
    with command("--port=0", "--agents=0") as process:
        assert process.stdout is not None
        lines = iter(process.stdout)
        address = next(filter(None, (re.search(r"Mesos master on (\S+):(\d+)", x) for x in lines)))
        with socket.create_connection((address[1], int(address[2]))) as client:
            client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(50))  # as of gRPC
            while client.recv(4096):
                pass
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate()
    assert "Traceback" not in out + errors
    assert errors.count("a client sent a request that is not HTTP/1") == 1


def test_a_master_without_a_service_says_what_to_start() -> None:
    with command("--port=0") as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "no allocator, will retry" in line)
    assert "start 'longshare serve'" in line


def test_an_address_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with command(f"--port={port}") as process:
            _, errors = process.communicate()
    assert process.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in errors
    assert "Traceback" not in errors


def test_names_of_agents_sort_by_number() -> None:
    async def names() -> list[str]:
        async with server.serving(settings("unix:///nowhere", agents=12)) as embedded:
            return [agent.hostname for agent in embedded.master.agents.values()]

    named = asyncio.run(names())
    assert named == sorted(named)
    assert (named[0], named[-1]) == ("agent-01", "agent-12")


def test_masters_with_the_same_seed_assign_the_same_ids_and_other_masters_do_not() -> None:
    async def master_id(seed: int | None) -> str:
        async with server.serving(settings("unix:///nowhere", seed=seed)) as embedded:
            return embedded.master.id

    ids = [asyncio.run(master_id(seed)) for seed in (1, 1, None, None)]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


class Watched(Clock):
    """A clock that records its advances."""

    def __init__(self) -> None:
        super().__init__(0)
        self.steps: list[int] = []

    def advance(self, nanoseconds: int) -> None:
        self.steps.append(nanoseconds)
        super().advance(nanoseconds)


@contextmanager
def driven(clock: Clock, pace: Callable[[], float], speed: float = 1000.0) -> Iterator[None]:
    """Have a clock driven at a speed of 1,000, or as is said."""
    driving = asyncio.create_task(server._drive(clock, speed, pace))
    try:
        yield
    finally:
        driving.cancel()


def test_a_suspended_process_does_not_make_time_jump() -> None:
    async def steps() -> list[int]:
        clock = Watched()
        with driven(clock, lambda: 1000.0):
            await until(lambda: clock.steps)
            time.sleep(0.2)  # noqa: ASYNC251 - this is the hiccup
            count = len(clock.steps)
            await until(lambda: len(clock.steps) > count)
        return clock.steps

    taken = asyncio.run(steps())
    assert 0 < max(taken) <= server.MAX_STEP_S * 1000 * SECOND


def test_a_clock_of_speed_1_follows_real_time_over_pauses_and_timers() -> None:
    """A lag of more than ten seconds made the service call the master's clock implausible."""

    async def scenario() -> None:
        clock = Watched()
        clock.after(2 * server.MAX_STEP_S, lambda: None)
        with driven(clock, lambda: 1.0, speed=1.0):
            await until(lambda: clock.steps)
            started, first = time.monotonic(), clock.now
            time.sleep(20 * server.MAX_STEP_S)  # noqa: ASYNC251 - the process is suspended
            await until(
                lambda: time.monotonic() - started - (clock.now - first) < server.MAX_STEP_S
            )

    asyncio.run(scenario())


def test_while_an_answer_is_awaited_the_clock_is_not_faster_than_wall_time() -> None:
    async def steps() -> list[int]:
        clock = Watched()
        with driven(clock, lambda: 1.0):
            await until(lambda: len(clock.steps) > 5)
        return clock.steps

    assert 0 < max(asyncio.run(steps())) <= server.MAX_STEP_S * SECOND


def test_time_stops_until_expected_frameworks_have_subscribed_and_answered(tmp_path: Path) -> None:
    async def scenario() -> list[float]:
        stood: list[float] = []
        async with system(tmp_path, speed=1000.0) as (_, embedded), ClientSession() as session:
            master = embedded.master

            async def look() -> None:
                await until(lambda: master.answer_due)
                first = master.clock.now
                await asyncio.sleep(2 * server.MAX_STEP_S)
                stood.extend((first, master.clock.now))

            due = master.clock.now - master.started + 60.0
            master.expect("announced", due)
            await look()
            assert stood[0] == pytest.approx(master.started + due, abs=1e-6)
            scheduler = HttpScheduler(session, embedded.address)
            await scheduler.subscribe(name="announced")
            offers = await scheduler.next("OFFERS")
            await look()
            ids = [offer["id"] for offer in offers["offers"]]
            await scheduler.call("DECLINE", decline={"offer_ids": ids})
            await until(lambda: master.clock.now > stood[-1])
        return stood

    before, still_before, after, still_after = asyncio.run(scenario())
    assert before == still_before < after == still_after


@pytest.mark.parametrize(
    ("expecting", "owed", "kept", "unheard", "pace"),
    [
        (False, False, False, False, 40.0),
        (False, False, True, False, 1.0),
        (False, False, False, True, 1.0),
        (True, False, False, False, 40.0),
        (True, True, False, False, 0.0),
        (True, False, True, False, 1.0),
        (True, False, False, True, 0.0),
    ],
)
def test_the_allocator_is_waited_for_in_an_experiment_and_else_time_only_slows_down(
    *, expecting: bool, owed: bool, kept: bool, unheard: bool, pace: float
) -> None:
    master: Any = SimpleNamespace(expecting=expecting, answer_due=owed, awaiting=kept)
    link: Any = SimpleNamespace(awaiting=unheard)
    assert server._pace(40.0, master, link) == pace


def test_time_stops_at_each_timer_for_the_answers_to_its_event() -> None:
    async def looks() -> list[float]:
        clock = Clock(0)
        rung: list[float] = []
        for seconds in (0.1, 0.2, 0.2, 0.25):
            clock.after(seconds, lambda: rung.append(clock.now))
        seen: list[float] = []

        def pace() -> float:
            seen.append(clock.now)
            return 1000.0

        with driven(clock, pace):
            await until(lambda: len(rung) == 4)
        return seen

    assert {0.1, 0.2, 0.25} <= set(asyncio.run(looks()))


def agents_of(options: list[str]) -> list[dict[str, Any]]:
    """Return the agents that a master with these options shows."""
    with command("--port=0", *options) as process:
        assert process.stdout is not None
        matches = (re.search(r"Mesos master on (\S+)", line) for line in process.stdout)
        address = next(filter(None, matches))[1]
        with urllib.request.urlopen(f"http://{address}/slaves") as answer:
            return list(json.load(answer)["slaves"])


def test_agents_may_be_of_several_kinds() -> None:
    kinds = ["--agents=2", "--resources=cpus:1", "--attributes=rack:1"]
    kinds += ["--agents=1", "--resources=cpus:2", "--attributes=rack:2;disk:ssd"]
    agents = agents_of(kinds)
    shown = [(a["hostname"], a["resources"]["cpus"], a["attributes"]) for a in agents]
    assert shown == [
        ("agent-1", 1.0, {"rack": 1.0}),
        ("agent-2", 1.0, {"rack": 1.0}),
        ("agent-3", 2.0, {"rack": 2.0, "disk": "ssd"}),
    ]


@pytest.mark.parametrize(
    ("prefixes", "names"),
    [
        (["cpu-", "gpu-", "cpu-"], ["cpu-1", "cpu-2", "cpu-3", "gpu-1", "gpu-2"]),
        (["node"], ["node1", "node2", "node3", "node4", "node5"]),
    ],
)
def test_agents_are_numbered_by_prefix_of_their_host_names(
    prefixes: list[str], names: list[str]
) -> None:
    kinds = ["--agents=2", "--agents=2", "--agents=1", *["--resources=cpus:1"] * 3]
    agents = agents_of([*kinds, *(f"--hostname-prefix={prefix}" for prefix in prefixes)])
    assert sorted(agent["hostname"] for agent in agents) == names


def test_kinds_of_agents_must_be_complete() -> None:
    kinds = [*["--agents=2"] * 3, "--resources=cpus:1", *["--hostname-prefix=gpu-"] * 2]
    with command(*kinds) as process:
        _, errors = process.communicate()
    assert process.returncode == 2
    message = " ".join(errors.replace("│", " ").split())
    assert "3 --agents, 1 --resources, 3 --attributes and 2 --hostname-prefix" in message


@pytest.mark.parametrize("numbers", [["3000000"], ["60000", "60000"]])
def test_too_many_agents_are_refused(numbers: list[str]) -> None:
    options = [
        option for number in numbers for option in (f"--agents={number}", "--resources=cpus:1")
    ]
    with command(*options) as process:
        _, errors = process.communicate()
    assert process.returncode == 2
    assert "100000" in errors


def test_a_signal_is_handled_while_agents_are_created(tmp_path: Path) -> None:
    ready: list[str] = []

    async def scenario() -> None:
        many = settings(f"unix://{tmp_path}/nowhere", agents=10_000)
        running = asyncio.create_task(server.run(many, ready.append))
        await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)
        await running

    asyncio.run(scenario())
    assert not ready, "the server was ready before its stop"
