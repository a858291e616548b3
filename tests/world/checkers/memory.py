"""What users owe outlives services: a crash costs what is stated, and no order that was stored."""

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
"""Seconds that a save may take, and the reading of the clock beside it, where the disk is well."""


ALMOST = 0.1
"""Seconds from the reading of a memory to its being on the disk, where that is well."""
KEEPS_ON = 45.0
"""Seconds after which something is saved even after failures: the longest pause, and some."""
DISPUTED = 30.0
"""More of them if another service has saved, whose master did not know that it leads no more."""


class Remembrance(Checker):
    """Holds what a service begins with against what the one before knew.

    Args:
        debts: Has the twins.
        honest: Whether the disk has kept all that it said it had, and has had room.
        serves: Whether a service is the one that the leading master asks.
    """

    def __init__(
        self, debts: Debts, honest: Callable[[], bool], serves: Callable[[Incarnation], bool]
    ) -> None:
        self.begun = 0
        """Services that began with what another one has left."""
        self.taken_over = 0
        """Times that one took over while the other lived."""
        self.lost = 0.0
        """Seconds that a crash has cost at most."""
        self.worst = 0.0
        """By how much a crash has changed a commitment at most."""
        self._loop = asyncio.get_running_loop()
        self._debts = debts
        self._honest = honest
        self._serves = serves
        self._read: dict[Incarnation, bytes] = {}
        """What services that have not served yet began with."""
        self._hosts: set[str] = set()
        """Where services have been started."""
        self._writer: Incarnation | None = None
        """The one that has written last."""
        self._disputed = False
        """Whether a master that does not know better leads beside another service."""
        self._claims = set[Incarnation]()
        """Services of such masters, which are yet to save over what another one has."""
        self._left: dict[Incarnation, tuple[float, int]] = {}
        """When services have ceased to serve that live on, and what their engines' time was."""
        self._fenced = False
        """Whether nobody may write but the one that serves."""
        self._promised: dict[str, Fraction | None] = {}
        """Weights that were ordered and, as the service said, stored."""
        self._orders = 0
        """That have been carried out, and not been answered."""
        self._saved = self._served = self._heard = 0.0
        """When something was last saved, a service was first told all, and told anything."""
        self._unsaved = math.inf
        """When the first came of what has not been saved."""
        self._stored = 0
        """What the time was, by the twin, when something was last saved."""
        self._before: tuple[Incarnation, Twin] | None = None
        """The one that serves, or did last."""

    @override
    def logged(self, life: Incarnation, entry: log.LogEntry) -> None:
        former, twin = self._before or (life, self._debts.twin(life))
        if entry.HasField("header"):
            if self._before is not None and life.host is former.host:
                self._compare(twin, entry.header.memory)
            self._read[life] = entry.header.memory
            self._hosts.add(life.host.name)
            self._claims = {each for each in self._claims if each.host is not life.host}
        follows = life.host is former.host or entry.HasField("restore")
        if life is not former and not (follows and self._serves(life)):
            if entry.HasField("restore"):
                self._disputed = True
                self._claims.add(life)
            return  # it waits, or what it does is done in vain
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
        """A snapshot has come, perhaps to another service than the one that served before."""
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
        """Return for how many seconds a service has not served, by its masters' clocks as well.

        These are believed within what is held by the checker of clocks, so that what is owed fades
        by their difference where one master leads after the other.
        """
        if life not in self._left:
            return math.inf
        left, then = self._left[life]
        return max(self._loop.time() - left, (after.now - then) / 1e9)

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
        """Hold what is remembered, or what has become of it, against what was known before.

        Whose clock is set otherwise cannot know how long it has been, but that it is no longer than
        the service that takes over was away.
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
        """Saves came at their pace, and the latest is what a successor finds."""
        if saved_at < self._stored - round(SAVING * 1e9):
            raise Violated(f"what was saved is gone: {(self._stored - saved_at) / 1e9:.1f} s of it")
        idle = self._heard - max(self._unsaved, self._served)
        if idle > EVERY + SAVING:
            raise Violated(f"nothing was saved for {idle:.1f} s, and {lost / 1e9:.1f} s are lost")

    def _keep_promises(self, users: Mapping[str, Owed]) -> None:
        """Weights that were ordered and stored are there."""
        for name, weight in self._promised.items():
            found = users[name].ordered if name in users else None
            if found != weight:
                raise Violated(f"{name} was ordered to weigh {weight}, stored, and is now {found}")
