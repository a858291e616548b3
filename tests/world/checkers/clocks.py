"""No master's clock moves an engine's time further than the elapsed time can explain.

Only the clock of the served master moves the time; masters on standby have no effect.
"""

import asyncio
from weakref import WeakKeyDictionary

from typing_extensions import override

from allocator.contract import allocator_pb2 as contract
from allocator.contract import log_pb2 as log
from tests.world.checkers.checker import Checker, Violated
from tests.world.checkers.twin import read_memory
from tests.world.model.link import Link
from tests.world.service import Incarnation

TOLERANCE = 15.0
"""Seconds of clock error within which a master is believed, plus some for the way."""
BELIEVED = 9.0
"""Seconds of clock error within which a master is certainly believed, to the nanosecond."""
UNDER_WAY = 15.0
"""Seconds from a snapshot's being judged to its reaching an engine, at most."""


class Clocks(Checker):
    """Compares timestamps that reach an engine with the clock of the service's machine."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._origins: WeakKeyDictionary[Incarnation, float] = WeakKeyDictionary()
        """The machine's date when a service began, less the world's time then."""
        self._said: dict[str, tuple[int, float]] = {}
        """Session → timestamp and arrival of the latest snapshot of a leading master.
        """
        self._reached: WeakKeyDictionary[Incarnation, int] = WeakKeyDictionary()
        """The latest timestamp that has reached each engine."""

    @override
    def said(self, link: Link, message: contract.FromMaster) -> None:
        if message.snapshot.leading_since_ns > 0:
            claim = message.snapshot.time_ns, self._loop.time()
            self._said[link.hello.session_id] = claim

    @override
    def logged(self, life: Incarnation, entry: log.LogEntry) -> None:
        if entry.HasField("header"):
            stored = read_memory(entry.header.memory)[0] / 1e9 if entry.header.memory else 0.0
            self._origins[life] = max(life.host.clock.now(), stored) - self._loop.time()
            self._reached[life] = 0
        stamps = [event.time_ns for event in entry.apply.events.events]
        if entry.HasField("restore"):
            stamp = entry.restore.snapshot.time_ns
            stamps.append(stamp)
            known = {self._reached[life], *(stamp for stamp, _ in self._said.values())}
            if stamp not in known and not self._bounded(life, stamp):
                raise Violated(f"no master that leads has stamped its snapshot {stamp}")
        waited = UNDER_WAY if entry.HasField("restore") else 0.0
        for stamp in stamps:
            ahead = self._ahead(life, stamp)
            if not -TOLERANCE - waited <= ahead <= TOLERANCE:
                raise Violated(f"a stamp is {ahead:.1f} s ahead of the time, and was let through")
            self._reached[life] = max(self._reached[life], stamp)

    def _bounded(self, life: Incarnation, stamp: int) -> bool:
        """Return whether a timestamp is at the bound, perhaps due to a recent larger one."""
        return abs(self._ahead(life, stamp)) >= BELIEVED or any(
            abs(self._ahead(life, claimed, at)) >= BELIEVED
            and abs(self._ahead(life, stamp, at)) >= BELIEVED
            for claimed, at in self._said.values()
            if self._loop.time() - at < UNDER_WAY
        )

    def _ahead(self, life: Incarnation, stamp: int, when: float | None = None) -> float:
        when = self._loop.time() if when is None else when
        return stamp / 1e9 - self._origins[life] - when
