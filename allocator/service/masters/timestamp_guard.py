"""How far a master's clock is believed: as far as time can have passed by this machine's own.

The engine takes the stamps of events for the time, and time fades debts. So a clock that jumps, or
a peer that lies about the time, could forgive everybody everything. Stamps are therefore brought
within a tolerance of the service's own timeline before the engine, and the event log, see them.
"""

import time
from collections.abc import Callable

import structlog

from allocator.contract import allocator_pb2 as contract

TOLERANCE_NS = 10 * 1_000_000_000
"""What a master's clock may be ahead of the service's, or behind it, and is believed."""
_NANOSECONDS = 1_000_000_000
_LATEST_NS = 2**62
"""A date a century from now; a store that remembers a later one must leave room for stamps."""

_log = structlog.get_logger(__name__)


class Timeline:
    """The service's own time: where it began, carried on by a clock that nobody sets.

    It never goes back, neither jumps nor stands still, and counts while the machine sleeps.

    Args:
        origin_ns: Nanoseconds since the Unix epoch at which it begins.
        clock_ns: Nanoseconds since any origin; never goes back.
    """

    def __init__(self, origin_ns: int, clock_ns: Callable[[], int]) -> None:
        self._origin_ns = origin_ns - clock_ns()
        self._clock_ns = clock_ns
        self.believed_ns = 0
        """The latest stamp that reached the engine, of any master: a snapshot must not set time
        back, or the tolerance could be had again and again."""

    @classmethod
    def from_now(cls, remembered: float) -> "Timeline":
        """Begin with this machine's date, or with what a store remembers if that is later.

        Args:
            remembered: Seconds since the Unix epoch.
        """
        begin_ns = round(min(remembered * _NANOSECONDS, _LATEST_NS))
        return cls(max(time.time_ns(), begin_ns), _boot_time_ns)

    @property
    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        return self._origin_ns + self._clock_ns()


class TimestampGuard:
    """Brings the stamps of one master's messages within the tolerance, and says once how far off.

    Args:
        timeline: The service's.
        master: HOST:PORT, for the log.
    """

    def __init__(self, timeline: Timeline, master: str) -> None:
        self.bounded = 0
        """Stamps that were not believed as they came."""
        self._timeline = timeline
        self._master = master
        self._told = False

    def bound(self, message: contract.FromMaster) -> None:
        """Change the stamps of a message that cannot be true to the nearest that can."""
        now = self._timeline.now_ns
        for event in message.events.events:
            ahead = event.time_ns - now
            if abs(ahead) > TOLERANCE_NS:
                self._tell(ahead)
                event.time_ns = now + (TOLERANCE_NS if ahead > 0 else -TOLERANCE_NS)
        if message.HasField("snapshot"):
            snapshot = message.snapshot
            believed = min(max(snapshot.time_ns, now - TOLERANCE_NS), now + TOLERANCE_NS)
            if believed != snapshot.time_ns:
                self._tell(snapshot.time_ns - now)
            believed = max(believed, self._timeline.believed_ns)
            if believed != snapshot.time_ns:
                if snapshot.HasField("hold_off"):  # goes on for as long as it would have
                    left = snapshot.hold_off.until_ns - snapshot.time_ns
                    snapshot.hold_off.until_ns = believed + min(max(left, 0), _LONGEST_HOLD_OFF_NS)
                snapshot.time_ns = believed

    def believe(self, stamp_ns: int) -> None:
        """Note that a stamp reaches the engine; what a master on standby says does not."""
        self._timeline.believed_ns = max(self._timeline.believed_ns, stamp_ns)

    def _tell(self, ahead_ns: int) -> None:
        self.bounded += 1
        if not self._told:
            self._told = True
            _log.warning(
                "a master's clock is not believed; debts fade by this machine's",
                master=self._master,
                ahead=round(ahead_ns / _NANOSECONDS, 3),
                tolerance=TOLERANCE_NS / _NANOSECONDS,
            )


_LONGEST_HOLD_OFF_NS = 86400 * _NANOSECONDS
"""The engine knows how long a master may hold off; this is what fits into a stamp."""


def _boot_time_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
