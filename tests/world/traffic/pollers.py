"""Who looks at the HTTP port again and again: Prometheus, supervisors, people with a page open."""

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
    """What a poller knows of the world."""

    loop: VirtualLoop

    @property
    def host(self) -> Host:
        """The host of the service that is used."""

    def fail(self, error: Violated) -> None:
        """Something is wrong."""


class Poller:
    """Asks for one page after the other.

    Args:
        world: Where services are.
        chance: Draws for how long it waits.
        pace: How many times as long everything takes as usual.
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
        """Ask for one page, which must come and make sense while the service lives."""
        life = self._world.host.life
        host, _, port = self._world.host.config().metrics.address.rpartition(":")
        try:
            status, body = await ask(self._world.loop, (host, int(port)), path)
            _make_sense(path, status, body)
        except ConnectionRefusedError:
            return  # it has not begun yet
        except (OSError, TimeoutError, ValueError) as error:
            if life is not None and life.alive and self._world.host.life is life:
                self._world.fail(Violated(f"{path} of {life}: {error!r}"))
            return
        self.answered += 1


def _make_sense(path: str, status: int, body: bytes) -> None:
    """Hold an answer against what such a page says.

    Raises:
        ValueError: it does not.
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
