"""Follows one Slurm: reads it again and again in a thread, and shows what has changed."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from allocator.service.loop import gc_tuning
from allocator.service.loop.cooperative import run_in_slices
from allocator.service.shared_parts import SharedParts
from allocator.service.slurm.config import SlurmConfig
from allocator.service.slurm.starts import StartTrail
from allocator.slurm.adapter import SlurmAdapter
from allocator.slurm.bridge import Bridge, Cycle
from allocator.slurm.client import CommandError
from allocator.slurm.rows import ShapeError, UnreadableRowsError
from allocator.slurm.shares import ShareTree
from allocator.slurm.state import MOST_UNKNOWN_ACCOUNTS

_LONGEST_PAUSE = 60.0
"""Maximum seconds between two attempts to read a Slurm that does not answer."""
_PARTS = {
    "accounts": (
        "the tree of accounts cannot be read; accounts and shares stay as they are",
        "the tree of accounts is read again",
    ),
    "records": (
        "records of slurmdbd are missing; the service continues, but jobs may be missed",
        "the records of slurmdbd are complete again",
    ),
}
"""Messages about the parts of slurmdbd: after a failed reading, and after the next success."""

_MOST_LOGGED = 10
"""Maximum number of rejected records that are logged after one reading."""

_log = structlog.get_logger(__name__)


@dataclass
class SlurmContact:
    """Whether Slurm answers, and counters of the readings, exported as metrics."""

    connected: bool = False
    """Whether the latest reading succeeded."""
    since: float = field(default_factory=time.monotonic)
    """Monotonic time, in seconds, at which `connected` last changed."""
    standby: int = 0
    """Always 0: the client commands find the present controller among several on their own."""
    failure: str = ""
    """Error of the latest reading; empty if it succeeded."""
    readings: int = 0
    failures: int = 0
    seconds: float = 0.0
    """Duration of the latest reading, with the planning and setting of site factors."""
    updates: int = 0
    """Number of site factors that were set, or in a dry run planned."""
    rejected_updates: int = 0
    """Number of site factors that Slurm did not accept."""
    cycle: Cycle | None = None
    """The result of the latest reading; None before the first."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Number of unreadable records by source."""

    @property
    def alone(self) -> float | None:
        """Seconds since Slurm last answered; None while Slurm answers."""
        return None if self.connected else time.monotonic() - self.since

    def note(self, cycle: Cycle, seconds: float) -> None:
        """Record a reading that succeeded."""
        if not self.connected:
            self.connected, self.since = True, time.monotonic()
            _log.info("slurmctld answers", failures=self.failures, dry_run=cycle.dry_run)
        self.failure, self.cycle, self.seconds = "", cycle, seconds
        self.readings += 1
        self.updates += len(cycle.updates)
        self.rejected_updates += len(cycle.failures)

    def note_failure(self, error: Exception) -> None:
        """Record a reading that failed; log it if it is the first of a series."""
        self.failures += 1
        if self.connected or not self.failure:
            self.since = time.monotonic() if self.connected else self.since
            known = isinstance(error, CommandError | ShapeError)
            _log.error(
                "Slurm cannot be read; it goes on with the order that it has",
                reason=str(error) or repr(error),
                exc_info=None if known else error,
            )
        self.connected, self.failure = False, str(error) or repr(error)


class SlurmFollower:
    """Polls a bridge in a thread. All changes of the state happen in the event loop's thread.

    Args:
        config: The configuration.
        parts: The shared parts, which observe each change.
        dry_run: Whether to set no site factors although the configuration allows them.
    """

    def __init__(self, config: SlurmConfig, parts: SharedParts, *, dry_run: bool) -> None:
        self.contact = SlurmContact()
        self.trail = StartTrail()
        self._every = config.slurm.every
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._failed_parts: set[str] = set()
        self._uncounted_users: set[str] = set()
        """System users whose jobs of too many unknown accounts were logged."""
        memory, now = parts.memory, time.time()
        since = now if memory is None or not memory.time else min(memory.time, now)
        settings = config.bridge_settings(dry_run=dry_run)
        self.bridge = Bridge(config.client(), settings, since, self._apply)
        self.contact.rejected = self.bridge.rejected.counts
        if memory is not None:
            self.bridge.state.inherit(memory)
        self.adapter = SlurmAdapter(self.bridge.state, parts.meter)

    async def run(self, stop: asyncio.Event) -> None:
        """Read Slurm regularly until an event is set; a reading that has begun is completed."""
        pause = self._every
        while not stop.is_set():
            started = time.monotonic()
            try:
                cycle = await asyncio.to_thread(self.bridge.poll)
            except Exception as error:  # noqa: BLE001 - Slurm goes on, and so does the next reading
                self.contact.note_failure(error)
                if isinstance(error, UnreadableRowsError):  # no user may delay the next reading
                    pause = self._every
                else:
                    pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                self.contact.note(cycle, time.monotonic() - started)
                self._note("accounts", self.bridge.accounts_failure)
                self._note("records", self.bridge.records_failure)
                self._note_uncounted()
                self.trail.note(self.bridge.state.seen(), self.bridge.state.path_of)
                gc_tuning.collect_after_snapshot()  # a reading replaces the copies of all users
                pause = self._every
            self._note_rejected()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), max(started + pause - time.monotonic(), 0.0))

    def _note(self, part: str, failure: str) -> None:
        """Log the first failed reading of a part of slurmdbd, and the next successful reading."""
        without, again = _PARTS[part]
        if failure and part not in self._failed_parts:
            _log.warning(without, reason=failure)
            self._failed_parts.add(part)
        elif part in self._failed_parts and not failure:
            _log.info(again)
            self._failed_parts.remove(part)

    def _note_uncounted(self) -> None:
        """Log, once for each system user, that jobs of too many unknown accounts do not count."""
        for user, number in self.bridge.state.uncounted.items():
            if user not in self._uncounted_users:
                self._uncounted_users.add(user)
                _log.warning(
                    "pending jobs of accounts unknown to slurmdbd are left out of the order; set "
                    "AccountingStorageEnforce=associations",
                    user=user,
                    jobs=number,
                    accounts=MOST_UNKNOWN_ACCOUNTS,
                )

    def _note_rejected(self) -> None:
        """Log the unreadable records of the latest reading, up to a maximum."""
        number, reasons = self.bridge.rejected.take_new()
        for reason in reasons[:_MOST_LOGGED]:
            _log.warning("a record of Slurm cannot be read; it is set aside", reason=reason)
        if (more := number - _MOST_LOGGED) > 0:
            _log.warning("more records of Slurm cannot be read; they are set aside", number=more)

    def _apply(self, change: Callable[[], ShareTree]) -> ShareTree:
        """Run a change of the state in the event loop's thread; called by the polling thread."""
        return asyncio.run_coroutine_threadsafe(self._apply_in_turn(change), self._loop).result()

    async def _apply_in_turn(self, change: Callable[[], ShareTree]) -> ShareTree:
        """Run a change of the state while nobody else reads it, and show the result."""
        parts, adapter = self._parts, self.adapter
        async with parts.engine_lock:
            work = parts.before_change(adapter, time.time())
            if work is not None:
                await run_in_slices(work, rest=0.0)
            if parts.recorder is not None:
                parts.recorder.allow()
            if parts.shadows.followers:
                parts.shadows.before_run(adapter)
            former = self.bridge.state.settled.tree
            try:
                present = change()
                adapter.show(present.fork())  # the polling thread goes on with its own
            finally:
                adapter.follow(former)
                if parts.shadows.followers:
                    parts.shadows.after_run(adapter, None)
        return present
