"""Commitments outlive services: a crash loses only the documented seconds, and no stored order."""

import asyncio
import math
from collections.abc import Callable, Mapping
from fractions import Fraction

from typing_extensions import override

from allocator.contract import admin_pb2 as admin
from allocator.contract import log_pb2 as log
from tests.world.checkers.checker import Checker, Violated
from tests.world.checkers.debts import Debts
from tests.world.checkers.twin import FADED, Owed, Twin, kept, read_memory
from tests.world.service import Incarnation

EVERY = 1.0
"""Seconds between saves, as configured by default."""
SAVING = 2.0
"""Seconds for a save and the concurrent reading of the clock, on a healthy disk."""


ALMOST = 0.1
"""Seconds from reading a memory until the memory is on a healthy disk."""
KEEPS_ON = 45.0
"""Seconds after which something is saved even after failures: the longest pause, and some."""
DISPUTED = 30.0
"""Additional seconds if another service has saved for a master that was deposed unawares."""


class Remembrance(Checker):
    """Compares a service's initial memory with the knowledge of its predecessor.

    Args:
        debts: The checker with the twins.
        honest: Returns whether the disk has kept all acknowledged writes and has had space.
        serves: Returns whether a service is in use by the leading master.
    """

    def __init__(
        self, debts: Debts, honest: Callable[[], bool], serves: Callable[[Incarnation], bool]
    ) -> None:
        self.begun = 0
        """Number of services that began with a predecessor's memory."""
        self.taken_over = 0
        """Number of takeovers from a living service."""
        self.lost = 0.0
        """The most seconds lost in a crash."""
        self.worst = 0.0
        """By how much a crash has changed a commitment at most."""
        self._loop = asyncio.get_running_loop()
        self._debts = debts
        self._honest = honest
        self._serves = serves
        self._read: dict[Incarnation, bytes] = {}
        """The initial memory of services that have not served yet."""
        self._hosts: set[str] = set()
        """Names of hosts that have started services."""
        self._writer: Incarnation | None = None
        """The service that wrote last."""
        self._disputed = False
        """Whether a deposed master, unaware of the election, leads beside another service."""
        self._claims = set[Incarnation]()
        """Services of deposed masters that are yet to overwrite the other service's memory."""
        self._left: dict[Incarnation, tuple[float, int]] = {}
        """For living services that no longer serve: when they stopped, and their engines' time
        then.
        """
        self._fenced = False
        """Whether only the serving service may write."""
        self._promised: dict[str, Fraction | None] = {}
        """Weights that were ordered and whose storing the service confirmed."""
        self._orders = 0
        """Number of orders carried out but not answered yet."""
        self._saved = self._served = self._heard = 0.0
        """Times of the latest save, of the service's first snapshot, and of its latest input."""
        self._unsaved = math.inf
        """Time of the first unsaved change."""
        self._stored = 0
        """The twin's time at the latest save."""
        self._before: tuple[Incarnation, Twin] | None = None
        """The present or latest serving service, and its twin."""

    @override
    def logged(self, life: Incarnation, entry: log.LogEntry) -> None:
        former, twin = self._before or (life, self._debts.twin(life))
        if entry.HasField("header"):
            if self._before is not None and life.host is former.host:
                self._compare(twin, entry.header.memory)
            self._read[life] = entry.header.memory
            self._hosts.add(life.host.name)
            self._claims = {claim for claim in self._claims if claim.host is not life.host}
        follows = life.host is former.host or entry.HasField("restore")
        if life is not former and not (follows and self._serves(life)):
            if entry.HasField("restore"):
                self._disputed = True
                self._claims.add(life)
            return  # a service on standby, or on a deposed master
        if entry.HasField("header"):
            self._orders, self._served = 0, math.inf
        elif entry.HasField("order") and not entry.order.outcome.refusal:
            self._orders += 1
            self._promised.pop(entry.order.order.set_weight.user, None)
        if entry.HasField("restore"):
            self._restored(life, former, entry.restore)
        self._heard = self._loop.time()
        self._unsaved = min(self._unsaved, self._heard)
        if entry.HasField("restore"):
            self._served = min(self._served, self._heard)
        self._before = life, self._debts.twin(life)

    def _restored(self, life: Incarnation, former: Incarnation, entry: log.LogRestore) -> None:
        """Handle a snapshot, which may be for another service than the previous server."""
        read = self._read.pop(life, b"")
        if life.host is former.host:
            if entry.memory and len(self._hosts) == 1:
                raise Violated("a service recalled what nobody but itself can have stored")
            return
        assert self._before is not None
        self._left[former] = self._loop.time(), self._before[1].now
        self._fenced, self._orders, self._served = False, 0, math.inf
        if self._writer is not life:
            self.taken_over += 1
            after = self._debts.twin(life)
            self._compare(self._before[1], entry.memory or read, after, self._away(life, after))

    def _away(self, life: Incarnation, after: Twin) -> float:
        """Return the seconds for which a service has not served, by the larger of two clocks.

        Masters' clocks are believed within the bounds of the clocks checker. Commitments may
        therefore decay by the difference of the clocks when leadership changes.
        """
        if life not in self._left:
            return math.inf
        departure, then = self._left[life]
        return max(self._loop.time() - departure, (after.now - then) / 1e9)

    @override
    def second(self) -> None:
        since, patience = max(self._unsaved, self._served), KEEPS_ON + DISPUTED * self._disputed
        if self._honest() and since < math.inf and self._loop.time() - since > patience:
            raise Violated(f"nothing has been saved for {self._loop.time() - since:.0f} s")

    @override
    def saved(self, life: Incarnation) -> None:
        if self._before is not None and self._before[0] is not life:
            if self._fenced and self._honest() and not self._disputed:
                raise Violated(f"{life} has overwritten what {self._before[0]} keeps")
            self._claims.discard(life)
            return
        self._writer = life
        self._fenced, self._disputed = self._honest(), bool(self._claims)
        self._saved, self._unsaved = self._loop.time(), math.inf
        if self._before is not None and self._before[0] is life:
            self._stored = self._before[1].now

    def ordered(self, life: Incarnation, reply: admin.OrderReply) -> None:
        """An order was answered."""
        if self._before is None or self._before[0] is not life:
            return
        self._orders -= 1
        if reply.stored and self._orders == 0:
            twin = self._debts.twin(life)
            self._promised = {name: owed.ordered for name, owed in twin.users.items()}

    def _compare(
        self, before: Twin, memory: bytes, after: Twin | None = None, away: float = 0.0
    ) -> None:
        """Compare stored memory, or the new service's state, with the predecessor's state.

        A service whose clock differs cannot know the length of the pause, except that the pause is
        at most the time for which the new service was away.
        """
        if before.unsure or self._disputed or not self._honest():
            self._promised = {}
            return
        if not memory:
            owing = [user for user, owed in before.users.items() if any(owed.commitments.values())]
            if owing and before.now:
                raise Violated(f"what {owing} owed is gone")
            return
        self.begun += 1
        saved_at, users, saved_with = read_memory(memory)
        passed = self._heard - self._saved + ALMOST  # a master's clock may be behind the store's
        self.lost = max(self.lost, (before.now - saved_at) / 1e9)
        lost = max(before.now - saved_at, round(passed * 1e9))
        self._stored_in_time(saved_at, lost)
        faded = Fraction(0)
        if after is not None:
            users, faded = after.users, FADED
            since = self._loop.time() - self._saved + ALMOST
            by_clock = min((after.now - saved_at) / 1e9, away + ALMOST)
            lost = max(lost, round(max(since, by_clock) * 1e9))
        moved = 1 - min(before.kept(lost), kept(lost, saved_with))
        for name, owed in before.users.items():
            most = max([Fraction(1), *before.shares(name).values(), *owed.commitments.values()])
            for resource, amount in owed.commitments.items():
                then = users[name].commitments.get(resource) if name in users else None
                difference = abs(amount - (then if then is not None else min(amount, faded)))
                self.worst = max(self.worst, float(difference))
                if difference > moved * most + Fraction(1, 10**6):
                    raise Violated(
                        f"{name} owed {float(amount)} of {resource} and now "
                        f"{float(then or 0)}, though only {lost / 1e9:.1f} s are lost"
                    )
        self._keep_promises(users)

    def _stored_in_time(self, saved_at: int, lost: int) -> None:
        """Check the pace of saves, and that a successor finds the latest save."""
        if saved_at < self._stored - round(SAVING * 1e9):
            raise Violated(f"what was saved is gone: {(self._stored - saved_at) / 1e9:.1f} s of it")
        idle = self._heard - max(self._unsaved, self._served)
        if idle > EVERY + SAVING:
            raise Violated(f"nothing was saved for {idle:.1f} s, and {lost / 1e9:.1f} s are lost")

    def _keep_promises(self, users: Mapping[str, Owed]) -> None:
        """Check that weights of stored orders are present."""
        for name, weight in self._promised.items():
            ordered = users[name].ordered if name in users else None
            if ordered != weight:
                raise Violated(
                    f"{name} was ordered to weigh {weight}, stored, and is now {ordered}"
                )
