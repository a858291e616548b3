"""Election of the master to serve, among the masters that claim leadership (fencing).

No wall clock takes part in the election. A Mesos master that stops leading exits, and its stream
ends. A master that claims leadership therefore waits while the leader's stream is open and active.
Among waiting masters, the master with the newest first claim has precedence; a superseded master
comes last.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import structlog

from allocator.contract import allocator_pb2 as contract

SILENCE = 10.0
"""Seconds without a message after which a leader no longer keeps other masters out."""
_LONGEST_SILENCE = 60.0
"""Maximum of the tolerated silence, in seconds, for a leader with a long allocation interval."""
_CERTAINTY = 1.0
"""Further seconds of silence before a silent leader is replaced. If this service was busy, it
reads the messages that arrived meanwhile within this time."""
GRACE = 10.0
"""Seconds to wait for the latest leader before a master that it superseded is served."""
_REMEMBERED = 1000
"""Maximum number of masters whose first claims are remembered."""
_NANOSECONDS = 1_000_000_000

_log = structlog.get_logger(__name__)


class Claimant(Protocol):
    """A master's stream, as far as elections are concerned."""

    hello: contract.Hello
    certificate: str | None
    """Name in the peer's certificate; None if the peer showed no certificate."""
    last_heard: float
    """Time of the latest message, by the clock of `Leadership`, in seconds."""
    elected_ns: int
    """Time at which the master claims to have been elected, in nanoseconds by its own clock."""

    def end(self, reason: str) -> None:
        """End the stream.

        Args:
            reason: Text that the peer receives.
        """


def same_master(first: Claimant, second: Claimant) -> bool:
    """Return whether two streams belong to one master.

    The session identifier is proof: identifiers are random, and no other master learns them.
    """
    return (
        bool(first.hello.session_id)
        and first.hello.session_id == second.hello.session_id
        and first.certificate == second.certificate
    )


class Leadership:
    """The present leader, and the order in which masters first claimed leadership.

    Args:
        clock: Returns seconds; never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.leader: Claimant | None = None
        self.clock = clock
        self._waiting: dict[Claimant, float | None] = {}
        """Waiting masters: the time since which each waits, or None once a warning has been
        logged."""
        self._claim_numbers: OrderedDict[tuple[str, str | None] | Claimant, int] = OrderedDict()
        """Number of each master's first claim, oldest first."""
        self._claim_count = 0
        """Number of masters' first claims since the start of the service."""
        self._latest_number = 0
        """Number of the present leader's first claim, or of the last leader's."""
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
        """Number of masters that claim leadership and are not served."""
        return len(self._waiting)

    def obstacle(self, claimant: Claimant) -> str | None:
        """Return why a master that claims leadership has to wait; None if it may lead.

        The leader stays unchanged: `promote` replaces it once the claimant's snapshot has proved
        usable.
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
        """Make a master the leader; return the superseded stream, or None."""
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
                "the leader says that it was elected before the one it follows; "
                "one of the two masters' clocks is wrong",
                master=claimant.hello.master,
                skew_at_least=round(lag, 3),
            )
        self._latest_number, self._latest_elected_ns = number, claimant.elected_ns
        return former

    def withdraw(self, claimant: Claimant) -> None:
        """Remove a stream that has ended or whose master no longer claims leadership."""
        self._waiting.pop(claimant, None)
        self._claim_numbers.pop(claimant, None)
        if self.leader is claimant:
            self.leader = None
            self._vacant_since = self.clock()

    def _note_wait(self, claimant: Claimant, reason: str) -> None:
        """Log that a master waits; warn only if it waits longer than an ordinary election takes."""
        since = self._waiting.setdefault(claimant, now := self.clock())
        if since == now:
            _log.info("master has to wait", master=claimant.hello.master, reason=reason)
        elif since is not None and now - since > GRACE:
            self._waiting[claimant] = None
            _log.warning("master has to wait", master=claimant.hello.master, reason=reason)

    def _reason_to_wait(self, number: int) -> str | None:
        """Return why the master with this claim number has to wait; None if it need not."""
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
            now: Seconds by `clock`.
        """
        interval = leader.hello.options.allocation_interval_ns / _NANOSECONDS
        if now - leader.last_heard < min(max(SILENCE, 3 * interval), _LONGEST_SILENCE):
            self._suspect = None
            return False
        if self._suspect is None or self._suspect[0] is not leader:
            self._suspect = leader, now
        return now - self._suspect[1] >= _CERTAINTY

    def _claim_number(self, claimant: Claimant) -> int:
        """Return the number of a master's first claim, on any of its streams."""
        name = claimant.hello.session_id
        key = (name, claimant.certificate) if name else claimant
        if key not in self._claim_numbers:
            self._claim_count += 1
            self._claim_numbers[key] = self._claim_count
            if len(self._claim_numbers) > _REMEMBERED:
                self._claim_numbers.popitem(last=False)
        return self._claim_numbers[key]
