"""HTTP answers are encoded in steps, and another program on the HTTP port stops no service."""

import asyncio
import json
import math
import socket
from contextlib import suppress

import pytest
from prometheus_client import CollectorRegistry

from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.cooperative import run_to_completion
from allocator.fairness import policies
from allocator.service.config import ConfigError, MetricsSection
from allocator.service.loop.engine_lock import EngineLock
from allocator.service.masters.session import SessionStatistics
from allocator.service.show import web
from allocator.service.show.curves import Curves, encoding
from allocator.service.show.offer_history import OfferTrail
from allocator.service.show.standing_history import StandingHistory
from allocator.service.show.status import Status
from allocator.service.show.wait_reasons import Waits

TOLD = {
    "users": [{"user": 'a"b', "share": 0.1}, {"user": "é/{}"}],
    "agents": [],
    "capacity": {"cpus": 1.5},
    "half_life": None,
}


def test_an_answer_encoded_in_steps_equals_the_whole_encoding() -> None:
    assert run_to_completion(encoding(TOLD)) == json.dumps(TOLD)


def test_encoding_takes_a_step_for_each_list_entry() -> None:
    assert sum(1 for _ in encoding(TOLD)) == 4


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        run_to_completion(encoding({"users": [{"share": math.nan}]}))


def test_a_taken_port_is_used_once_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "LISTEN_EVERY", 0.01)
    engine = Engine(EngineSettings(policies.create("sdrf", {"half_life": "1h"})))
    status = Status(engine, Waits(engine, SessionStatistics()), OfferTrail(), None)
    curves = Curves(engine, StandingHistory())

    async def begin_beside(other_program: socket.socket) -> str:
        host, port = other_program.getsockname()
        section = MetricsSection(address=f"{host}:{port}")
        registry = CollectorRegistry()
        async with web.serving(section, engine, registry, status, curves, EngineLock()):
            other_program.close()
            while True:
                with suppress(OSError):
                    reader, writer = await asyncio.open_connection(host, port)
                    writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
                    answer = await reader.readline()
                    writer.close()
                    return answer.decode()
                await asyncio.sleep(0.01)

    with socket.create_server(("127.0.0.1", 0)) as other_program:
        assert asyncio.run(begin_beside(other_program)) == "HTTP/1.0 200 OK\r\n"


def test_an_address_of_another_machine_is_refused() -> None:
    engine = Engine(EngineSettings(policies.create("sdrf", {"half_life": "1h"})))
    status = Status(engine, Waits(engine, SessionStatistics()), OfferTrail(), None)
    section = MetricsSection(address="192.0.2.1:9105", public=True)

    async def begin() -> None:
        curves = Curves(engine, StandingHistory())
        async with web.serving(section, engine, CollectorRegistry(), status, curves, EngineLock()):
            pass

    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1:9105: cannot assign"):
        asyncio.run(begin())
