"""Clients that poll the HTTP port: Prometheus, supervisors, people with an open page."""

import asyncio
import json
import math
from random import Random
from typing import Protocol

from prometheus_client.parser import text_string_to_metric_families

from tests.world.checkers.checker import Violated
from tests.world.service import Host
from tests.world.simulated.http import ask
from tests.world.simulated.loop import VirtualLoop

PAGES = ("/metrics", "/api/status", "/api/explain?user=a", "/healthz")


class Polled(Protocol):
    """The part of the world that a poller knows."""

    loop: VirtualLoop

    @property
    def host(self) -> Host:
        """The host of the service in use."""

    def fail(self, error: Violated) -> None:
        """Something is wrong."""


class Poller:
    """Requests page after page.

    Args:
        world: Access to services.
        chance: Draws the waiting times.
        pace: The factor by which everything takes longer than usual.
    """

    def __init__(self, world: Polled, chance: Random, pace: float) -> None:
        self.answered = 0
        self._world = world
        self._chance = chance
        self._pace = pace

    async def live(self) -> None:
        """Look, until cancelled."""
        while True:
            await asyncio.sleep(self._chance.uniform(2.0, 15.0) * self._pace)
            await self.look(self._chance.choice(PAGES))

    async def look(self, path: str) -> None:
        """Request a page, which must arrive and be valid while the service lives."""
        life = self._world.host.life
        host, _, port = self._world.host.config().metrics.address.rpartition(":")
        try:
            status, body = await ask(self._world.loop, (host, int(port)), path)
            _make_sense(path, status, body)
        except ConnectionRefusedError:
            return  # the service does not listen yet
        except (OSError, TimeoutError, ValueError) as error:
            if life is not None and life.alive and self._world.host.life is life:
                self._world.fail(Violated(f"{path} of {life}: {error!r}"))
            return
        self.answered += 1


def _make_sense(path: str, status: int, body: bytes) -> None:
    """Check the format of an answer.

    Raises:
        ValueError: The format is wrong.
    """
    if status != 200 and not (status == 404 and path.startswith("/api/explain")):
        raise ValueError(f"status {status}: {body[:200]!r}")
    if path == "/metrics":
        for family in text_string_to_metric_families(body.decode()):
            for sample in family.samples:
                if math.isnan(sample.value):
                    raise ValueError(f"{sample.name} {sample.labels} is no number")
    else:
        json.loads(body)
