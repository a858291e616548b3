"""Election of the one master to serve, among the connected masters that claim to lead (fencing).

No wall clock takes part in the election. A Mesos master that stops leading exits, and its stream
ends. A new claimant therefore waits while the leader's stream is open and active. Among waiting
masters, the master that first claimed leadership most recently has precedence. A master that
another master has already replaced comes last.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import structlog

from allocator.contract import allocator_pb2 as contract

SILENCE = 10.0
"""Seconds without a message after which a leader can be replaced."""
_LONGEST_SILENCE = 60.0
"""Upper bound, in seconds, of the silence tolerated from a leader with a long allocation interval.
"""
_CERTAINTY = 1.0
"""Seconds between noticing a leader's silence and replacing the leader.

If this service was too busy to read, it reads the leader's waiting messages within this time.
"""
GRACE = 10.0
"""Seconds that a formerly replaced master waits for the latest leader to return, before it is
served."""
_REMEMBERED = 1000
"""Maximum number of masters whose first claims of leadership are remembered."""
_NANOSECONDS = 1_000_000_000

_log = structlog.get_logger(__name__)


class Claimant(Protocol):
    """Interface to a master's stream: the attributes and the method that the election needs."""

    hello: contract.Hello
    certificate: str | None
    """Name in the peer's certificate; None if the peer showed no certificate."""
    last_heard: float
    """Time of the latest message, in seconds by the clock of `Leadership`."""
    elected_ns: int
    """Time at which the master claims to have been elected, in nanoseconds by its own clock."""

    def end(self, reason: str) -> None:
        """End the stream.

        Args:
            reason: Text that the master's side receives.
        """


def same_master(first: Claimant, second: Claimant) -> bool:
    """Return whether two streams belong to the same master, for example after a reconnection.

    Equal session identifiers prove it, because they are random and no other master learns them. The
    certificate names must be equal, too.
    """
    return (
        bool(first.hello.session_id)
        and first.hello.session_id == second.hello.session_id
        and first.certificate == second.certificate
    )


class Leadership:
    """Elects the leader among the masters that claim leadership; promotes and removes masters.

    The election remembers the order in which masters first claimed leadership.

    Args:
        clock: Returns seconds from any origin; never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.leader: Claimant | None = None
        self.clock = clock
        self._waiting: dict[Claimant, float | None] = {}
        """Masters that wait to lead: the time at which each began to wait, or None once a warning
        has been logged."""
        self._claim_numbers: OrderedDict[tuple[str, str | None] | Claimant, int] = OrderedDict()
        """Number of each master's first claim of leadership; the oldest claim comes first."""
        self._claim_count = 0
        """Number of first claims of leadership since the start of the service."""
        self._latest_number = 0
        """Claim number of the present leader, or of the last leader if there is none."""
        self._latest_elected_ns = 0
        """Time at which the latest leader claimed to have been elected, in nanoseconds by its
        own clock."""
        self._vacant_since = clock()
        """Time at which the latest leader left, in seconds by `clock`."""
        self._suspect: tuple[Claimant, float] | None = None
        """A leader that has been silent for too long, and the time at which the silence was
        noticed."""

    @property
    def waiting(self) -> int:
        """Number of masters that claim leadership, but have to wait for it."""
        return len(self._waiting)

    def takeover_blocker(self, claimant: Claimant) -> str | None:
        """Return why a master that claims leadership has to wait; None if it may lead now.

        The method does not change the leader. The caller calls `promote` once the claimant's
        snapshot has proved usable.
        """
        number = self._claim_number(claimant)
        leader = self.leader
        if leader is claimant or (leader is not None and same_master(leader, claimant)):
            return None
        reason = self._reason_to_wait(number)
        if reason is None:
            self._waiting.pop(claimant, None)
        else:
            self._note_wait(claimant, reason)
        return reason

    def promote(self, claimant: Claimant) -> Claimant | None:
        """Make a master's stream the leader.

        Returns:
            The stream that led before, for the caller to end; None if there was none, or if this
                stream led already.
        """
        self._waiting.pop(claimant, None)
        former, self.leader = self.leader, claimant
        if former is claimant:
            return None
        number = self._claim_number(claimant)
        _log.info(
            "master leads",
            master=claimant.hello.master,
            elected=claimant.elected_ns / _NANOSECONDS,
            certificate=claimant.certificate,
        )
        lag = (self._latest_elected_ns - claimant.elected_ns) / _NANOSECONDS
        if number != self._latest_number and lag > 0:
            _log.warning(
                "the new leader reports an earlier election than the former leader; check the "
                "clocks of both masters",
                master=claimant.hello.master,
                skew_at_least=round(lag, 3),
            )
        self._latest_number, self._latest_elected_ns = number, claimant.elected_ns
        return former

    def withdraw(self, claimant: Claimant) -> None:
        """Remove a stream from the election: it ended, or its master claims no leadership."""
        self._waiting.pop(claimant, None)
        self._claim_numbers.pop(claimant, None)
        if self.leader is claimant:
            self.leader = None
            self._vacant_since = self.clock()

    def _note_wait(self, claimant: Claimant, reason: str) -> None:
        """Log that a master waits; warn once if it waits longer than an ordinary election takes.

        Args:
            claimant: The waiting master's stream.
            reason: Why the master waits.
        """
        since = self._waiting.setdefault(claimant, now := self.clock())
        if since == now:
            _log.info("master has to wait", master=claimant.hello.master, reason=reason)
        elif since is not None and now - since > GRACE:
            self._waiting[claimant] = None
            _log.warning("master has to wait", master=claimant.hello.master, reason=reason)

    def _reason_to_wait(self, number: int) -> str | None:
        """Return why a master that is not the leader has to wait; None if it may lead now.

        Args:
            number: Number of the master's first claim; masters are numbered in the order of first
                claims.
        """
        now = self.clock()
        leader = self.leader
        if leader is not None and not self._is_silent(leader, now):
            return f"{leader.hello.master} leads, and its stream is open"
        for rival in self._waiting:
            if self._claim_number(rival) > number and now - rival.last_heard < SILENCE:
                return f"{rival.hello.master} claimed leadership later"
        if leader is None and number < self._latest_number and now - self._vacant_since < GRACE:
            return "it has been superseded by a master that may come back"
        return None

    def _is_silent(self, leader: Claimant, now: float) -> bool:
        """Return whether a leader has been silent long enough to be replaced.

        Args:
            leader: The leader's stream.
            now: Present time, in seconds by `clock`.
        """
        interval = leader.hello.options.allocation_interval_ns / _NANOSECONDS
        if now - leader.last_heard < min(max(SILENCE, 3 * interval), _LONGEST_SILENCE):
            self._suspect = None
            return False
        if self._suspect is None or self._suspect[0] is not leader:
            self._suspect = leader, now
        return now - self._suspect[1] >= _CERTAINTY

    def _claim_number(self, claimant: Claimant) -> int:
        """Return the number of a master's first claim of leadership.

        If the master has not claimed leadership before, it gets the next number. All streams of one
        master share the number.
        """
        name = claimant.hello.session_id
        key = (name, claimant.certificate) if name else claimant
        if key not in self._claim_numbers:
            self._claim_count += 1
            self._claim_numbers[key] = self._claim_count
            if len(self._claim_numbers) > _REMEMBERED:
                self._claim_numbers.popitem(last=False)
        return self._claim_numbers[key]
