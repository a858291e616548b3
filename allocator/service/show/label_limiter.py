"""Limit on the number of label values, because each value costs Prometheus a time series."""

import time
from collections.abc import Callable, Iterable

AN_HOUR = 3600.0
"""Number of seconds in an hour."""


class LabelLimiter:
    """Selects which names get metrics: at most `limit` at a time, and `limit` new names per hour.

    A framework that registers under ever new names therefore cannot create metrics without limit.
    A name that was selected within the last hour is not new. When the limiter is created, `limit`
    new names can be selected at once.

    Args:
        limit: Maximum number of names at a time, and of new names per hour.
        clock: Returns seconds from any origin; never goes back.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._last_refill = clock()
        self._allowance = float(limit)
        self._selected: dict[str, float] = {}

    def among(self, names: Iterable[str]) -> list[str]:
        """Select the names that get metrics now, and return them in the given order.

        A scrape calls this method once for all metrics of users, and once for those of roles: two
        calls may select twice as many names.

        Args:
            names: All names that exist now, the most important first.
        """
        now = self._clock()
        elapsed, self._last_refill = now - self._last_refill, now
        self._allowance = min(self._limit, self._allowance + self._limit * elapsed / AN_HOUR)
        self._selected = {
            name: selected_at
            for name, selected_at in self._selected.items()
            if now - selected_at < AN_HOUR
        }
        selected: list[str] = []
        for name in names:
            if len(selected) == self._limit:
                break
            if name not in self._selected:
                if self._allowance < 1.0:
                    continue
                self._allowance -= 1.0
            self._selected[name] = now
            selected.append(name)
        return selected
