"""Which names Prometheus is told: it keeps a series for each that it has ever been told."""

import time
from collections.abc import Callable, Iterable

AN_HOUR = 3600.0
"""Seconds."""


class LabelLimiter:
    """Names that have metrics of their own: so many at a time, and so many new ones an hour.

    As many are told at once when the service begins. Whoever comes under ever new names has no
    metrics then until some time has gone by. A name that was told within the hour is not new.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._looked = clock()
        self._room = float(most)
        self._told: dict[str, float] = {}

    def among(self, names: Iterable[str]) -> list[str]:
        """Return which of some names, those that matter most first, are told now."""
        now = self._clock()
        since, self._looked = now - self._looked, now
        self._room = min(self._most, self._room + self._most * since / AN_HOUR)
        self._told = {name: at for name, at in self._told.items() if now - at < AN_HOUR}
        chosen: list[str] = []
        for name in names:
            if len(chosen) == self._most:
                break
            if name not in self._told:
                if self._room < 1.0:
                    continue
                self._room -= 1.0
            self._told[name] = now
            chosen.append(name)
        return chosen
