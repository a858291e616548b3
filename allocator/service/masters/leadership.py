"""Which of the masters that say they lead is served (fencing).

No wall clock decides that. A master that stops leading exits, so its stream ends; whoever claims
to lead while another's stream is open and speaks has to wait for that. Of those who wait, the one
whose first claim is the newest comes first; one that has been superseded comes last.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import structlog

from allocator.contract import allocator_pb2 as contract

SILENCE = 10.0
"""Seconds without a message after which a leader no longer keeps another out."""
_LONGEST_SILENCE = 60.0
"""Likewise, for one that says it ticks rarely."""
_CERTAINTY = 1.0
"""Seconds for which a leader must go on being silent: what it sent while this service was busy is
read within."""
GRACE = 10.0
"""Seconds for which the latest leader is waited for before one that it superseded is served."""
_REMEMBERED = 1000
"""Masters whose first claims are remembered."""
_NANOSECONDS = 1_000_000_000

_log = structlog.get_logger(__name__)


class Claimant(Protocol):
    """A master's stream, as far as elections go."""

    hello: contract.Hello
    certificate: str | None
    """Whose it is; None: nobody has shown one."""
    heard: float
    """When it last said something, by the clock of `Leadership`."""
    elected_ns: int
    """When it says that it was elected, by its own clock."""

    def end(self, reason: str) -> None:
        """End the stream."""


def same_master(one: Claimant, other: Claimant) -> bool:
    """Whether two streams are of one master: a session id is random, and told to nobody else."""
    return (
        bool(one.hello.session_id)
        and one.hello.session_id == other.hello.session_id
        and one.certificate == other.certificate
    )


class Leadership:
    """Who leads, and in which order masters came to say that they do.

    Args:
        clock: Seconds; never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.leader: Claimant | None = None
        self.clock = clock
        self._waiting: dict[Claimant, float | None] = {}
        """Masters that say they lead and are not served, and since when; None: people know."""
        self._orders: OrderedDict[tuple[str, str | None] | Claimant, int] = OrderedDict()
        """Number of each master's first claim."""
        self._claims = 0
        self._latest = 0
        """Number of the present leader, or of the last one there was."""
        self._latest_elected_ns = 0
        self._vacant_since = clock()
        self._suspect: tuple[Claimant, float] | None = None
        """A leader that has been silent for too long, and since when that is known."""

    @property
    def waiting(self) -> int:
        """How many say that they lead and are not served."""
        return len(self._waiting)

    def obstacle(self, claimant: Claimant) -> str | None:
        """Return why a master that says it leads has to wait; None: it may lead.

        Changes nothing about who leads: for that its snapshot must prove to be usable.
        """
        order = self._order(claimant)
        leader = self.leader
        if leader is claimant or (leader is not None and same_master(leader, claimant)):
            return None
        reason = self._kept_out(order)
        if reason is None:
            self._waiting.pop(claimant, None)
        else:
            self._note_wait(claimant, reason)
        return reason

    def take(self, claimant: Claimant) -> Claimant | None:
        """Make a master the leader; return the stream that it supersedes, if any."""
        self._waiting.pop(claimant, None)
        former, self.leader = self.leader, claimant
        if former is claimant:
            return None
        order = self._order(claimant)
        _log.info(
            "master leads",
            master=claimant.hello.master,
            elected=claimant.elected_ns / _NANOSECONDS,
            certificate=claimant.certificate,
        )
        behind = (self._latest_elected_ns - claimant.elected_ns) / _NANOSECONDS
        if order != self._latest and behind > 0:
            _log.warning(
                "the leader says that it was elected before the one it follows; "
                "one of the two masters' clocks is wrong",
                master=claimant.hello.master,
                skew_at_least=round(behind, 3),
            )
        self._latest, self._latest_elected_ns = order, claimant.elected_ns
        return former

    def leave(self, claimant: Claimant) -> None:
        """Follow that a stream has ended, or that its master no longer says it leads."""
        self._waiting.pop(claimant, None)
        self._orders.pop(claimant, None)
        if self.leader is claimant:
            self.leader = None
            self._vacant_since = self.clock()

    def _note_wait(self, claimant: Claimant, reason: str) -> None:
        """Log that a master waits; a wait as short as an ordinary election's is no warning."""
        since = self._waiting.setdefault(claimant, now := self.clock())
        if since == now:
            _log.info("master has to wait", master=claimant.hello.master, reason=reason)
        elif since is not None and now - since > GRACE:
            self._waiting[claimant] = None
            _log.warning("master has to wait", master=claimant.hello.master, reason=reason)

    def _kept_out(self, order: int) -> str | None:
        now = self.clock()
        leader = self.leader
        if leader is not None and not self._silent(leader, now):
            return f"{leader.hello.master} leads, and its stream is open"
        for other in self._waiting:
            if self._order(other) > order and now - other.heard < SILENCE:
                return f"{other.hello.master} has said later that it leads"
        if leader is None and order < self._latest and now - self._vacant_since < GRACE:
            return "it has been superseded by a master that may come back"
        return None

    def _silent(self, leader: Claimant, now: float) -> bool:
        interval = leader.hello.options.allocation_interval_ns / _NANOSECONDS
        if now - leader.heard < min(max(SILENCE, 3 * interval), _LONGEST_SILENCE):
            self._suspect = None
            return False
        if self._suspect is None or self._suspect[0] is not leader:
            self._suspect = leader, now
        return now - self._suspect[1] >= _CERTAINTY

    def _order(self, claimant: Claimant) -> int:
        """Return the number of a master's first claim, whichever stream it came by."""
        name = claimant.hello.session_id
        key = (name, claimant.certificate) if name else claimant
        if key not in self._orders:
            self._claims += 1
            self._orders[key] = self._claims
            if len(self._orders) > _REMEMBERED:
                self._orders.popitem(last=False)
        return self._orders[key]
