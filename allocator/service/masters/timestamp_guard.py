"""Limits on the timestamps of masters, so that a wrong clock cannot change commitments.

The engine takes the time from the timestamps of events, and commitments decay with time. A clock
that jumps, or a peer that lies about the time, could therefore erase all commitments. The guard
moves timestamps to within a tolerance of the service's own time, before the engine and the event
log see them.
"""

import time
from collections.abc import Callable

import structlog

from allocator.contract import allocator_pb2 as contract

TOLERANCE_NS = 10 * 1_000_000_000
"""Maximum accepted difference between a master's clock and the service's timeline, in
nanoseconds."""
_NANOSECONDS = 1_000_000_000
_LATEST_NS = 2**62
"""Latest start of the timeline: a date in the year 2116, in nanoseconds since the Unix epoch.

Even if a store remembers a later time, timestamps fit into 64 bits.
"""

_log = structlog.get_logger(__name__)


class Timeline:
    """The service's own time, which starts at a date and advances by a clock that nobody can set.

    The time never goes back or jumps. It includes the time during which the machine sleeps.

    Args:
        origin_ns: Start of the timeline, in nanoseconds since the Unix epoch.
        clock_ns: Returns nanoseconds from any origin; never goes back.
    """

    def __init__(self, origin_ns: int, clock_ns: Callable[[], int]) -> None:
        self._origin_ns = origin_ns - clock_ns()
        self._clock_ns = clock_ns
        self.latest_ns = 0
        """Latest timestamp of a snapshot or event that reached the engine from any master, in
        nanoseconds since the Unix epoch.

        A snapshot must not set time back: otherwise each snapshot would grant the tolerance once
        more.
        """

    @classmethod
    def from_now(cls, remembered: float) -> "Timeline":
        """Start a timeline at this machine's date, or at the time of the latest save if later.

        Args:
            remembered: Time of the latest save, in seconds since the Unix epoch; 0 if nothing is
                stored.
        """
        begin_ns = round(min(remembered * _NANOSECONDS, _LATEST_NS))
        return cls(max(time.time_ns(), begin_ns), _boot_time_ns)

    @property
    def now_ns(self) -> int:
        """Present time, in nanoseconds since the Unix epoch."""
        return self._origin_ns + self._clock_ns()


class TimestampGuard:
    """Corrects timestamps of a master's messages that deviate too far from the service's time.

    The first correction is logged.

    Args:
        timeline: The service's time.
        master: HOST:PORT of the master, for the log.
    """

    def __init__(self, timeline: Timeline, master: str) -> None:
        self.corrected = 0
        """Number of timestamps that were corrected."""
        self._timeline = timeline
        self._master = master
        self._warned = False

    def bound(self, message: contract.FromMaster) -> None:
        """Move timestamps too far from the service's time to the nearest accepted time.

        A timestamp may differ by `TOLERANCE_NS`. A snapshot's time is also raised to the latest
        time that the engine has seen.

        Args:
            message: The message to change.
        """
        now = self._timeline.now_ns
        for event in message.events.events[:]:
            ahead = event.time_ns - now
            if abs(ahead) > TOLERANCE_NS:
                self._note_correction(ahead)
                event.time_ns = now + (TOLERANCE_NS if ahead > 0 else -TOLERANCE_NS)
        if message.HasField("snapshot"):
            snapshot = message.snapshot
            accepted = min(max(snapshot.time_ns, now - TOLERANCE_NS), now + TOLERANCE_NS)
            if accepted != snapshot.time_ns:
                self._note_correction(snapshot.time_ns - now)
            accepted = max(accepted, self._timeline.latest_ns)
            if accepted != snapshot.time_ns:
                if snapshot.HasField("hold_off"):  # keep the remaining duration
                    remaining = snapshot.hold_off.until_ns - snapshot.time_ns
                    snapshot.hold_off.until_ns = accepted + min(
                        max(remaining, 0), _LONGEST_HOLD_OFF_NS
                    )
                snapshot.time_ns = accepted

    def record(self, stamp_ns: int) -> None:
        """Record the time of an event that the engine receives; later snapshots cannot be earlier.

        The leading master's session calls this method, so times of standby masters do not count.

        Args:
            stamp_ns: The event's timestamp, in nanoseconds since the Unix epoch.
        """
        self._timeline.latest_ns = max(self._timeline.latest_ns, stamp_ns)

    def _note_correction(self, ahead_ns: int) -> None:
        """Count a correction, and log the first.

        Args:
            ahead_ns: Timestamp minus the service's time, in nanoseconds.
        """
        self.corrected += 1
        if not self._warned:
            self._warned = True
            _log.warning(
                "a master's clock is implausible; commitments decay by this machine's clock",
                master=self._master,
                ahead=round(ahead_ns / _NANOSECONDS, 3),
                tolerance=TOLERANCE_NS / _NANOSECONDS,
            )


_LONGEST_HOLD_OFF_NS = 86400 * _NANOSECONDS
"""Maximum remaining duration of a failover recovery, in nanoseconds, so that its end fits into a
timestamp.

The engine applies its own, shorter limit.
"""


def _boot_time_ns() -> int:
    """Return nanoseconds since boot; the clock cannot be set, and runs while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
