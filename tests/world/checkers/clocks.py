"""No master's clock moves an engine's time further than time can have passed."""

import asyncio

from typing_extensions import override

from allocator.contract import log_pb2 as log
from tests.world.checkers.checker import Checker, Violated
from tests.world.checkers.twin import read_memory
from tests.world.service import Incarnation

TOLERANCE = 15.0
"""Seconds: what a master's clock may be off and is believed, and some for the way."""


class Clocks(Checker):
    """Holds the stamps that reach an engine against the time of the service's own machine."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._origin = 0.0
        """The machine's date when the service began, less the world's time then."""

    @override
    def logged(self, life: Incarnation, entry: log.LogEntry) -> None:
        if entry.HasField("header"):
            stored = read_memory(entry.header.memory)[0] / 1e9 if entry.header.memory else 0.0
            self._origin = max(life.host.clock.now(), stored) - self._loop.time()
        stamps = [event.time_ns for event in entry.apply.events.events]
        if entry.HasField("restore"):
            stamps.append(entry.restore.snapshot.time_ns)
        for stamp in stamps:
            ahead = stamp / 1e9 - self._origin - self._loop.time()
            if abs(ahead) > TOLERANCE:
                raise Violated(f"a stamp is {ahead:.1f} s ahead of the time, and was let through")
