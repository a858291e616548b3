"""How much users hold, over-use and owe over time: integrals, exact, by hour.

Between two changes what a user holds is constant, and what it owes a known function of time
(Eq. 12): so both have integrals in closed form, and only changes cost something.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from allocator.fairness.commitment import approached, decayed
from allocator.fairness.quantities import Quantities

HOUR = 3600
"""Seconds; hours begin at multiples of it, counted from the Unix epoch."""
LONGEST_GAP = 7200.0
"""Seconds in which nobody told what is held, of which something may still be said."""
MOST_WAITING = 100_000
"""Spans that wait to be added up; some twenty megabytes."""
_TASKS = "tasks"
"""What policies that count tasks measure instead of resources, as a fraction of 1."""
_ONE = 1000
"""Thousandths."""


class Integrals:
    """Of one user and one resource: thousandths × seconds."""

    __slots__ = ("entitled", "held", "overused", "owed")

    def __init__(self) -> None:
        self.held = 0.0
        self.overused = 0.0
        """Held beyond the entitlement."""
        self.owed = 0.0
        """The commitment, as that part of the capacity."""
        self.entitled = 0.0

    def add(self, other: "Integrals") -> None:
        """Add what another has counted."""
        self.held += other.held
        self.overused += other.overused
        self.owed += other.owed
        self.entitled += other.entitled


@dataclass(slots=True)
class Tally:
    """What has been counted of one user in one hour."""

    resources: dict[str, Integrals] = field(default_factory=dict)
    wanted: float = 0.0
    """Seconds in which it wanted offers."""
    waited: float = 0.0
    """Of these, seconds in which its dominant share was below its entitlement."""
    offers: int = 0
    """Made to it."""
    refused: int = 0
    """Answers by which it gave offers back, as a whole or in part, with a filter."""

    def add(self, other: "Tally") -> None:
        """Add what has been counted apart."""
        for name, integrals in other.resources.items():
            self.resources.setdefault(name, Integrals()).add(integrals)
        self.wanted += other.wanted
        self.waited += other.waited
        self.offers += other.offers
        self.refused += other.refused


@dataclass(slots=True)
class Counted:
    """All that has been counted since it was last taken, by hour (since the epoch)."""

    users: dict[int, dict[str, Tally]] = field(default_factory=dict)
    capacity: dict[int, dict[str, float]] = field(default_factory=dict)
    """Thousandths × seconds, by resource."""
    _waiting: list[tuple[str, "Span"]] = field(default_factory=list)

    def tally(self, hour: int, user: str) -> Tally:
        """Return the tally of a user in an hour, which may be new."""
        tallies = self.users.setdefault(hour, {})
        tally = tallies.get(user)
        if tally is None:
            tally = tallies[user] = Tally()
        return tally

    def note(self, user: str, span: "Span") -> None:
        """Have a user's time added up later; where too much waits for that, at once."""
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append((user, span))
        else:
            self._integrate(user, span)

    def settle(self) -> None:
        """Add up what waits for that; may be done in another thread, once nobody notes any more."""
        waiting, self._waiting = self._waiting, []
        for user, span in waiting:
            self._integrate(user, span)

    def add(self, other: "Counted") -> None:
        """Add what has been counted apart."""
        other.settle()
        for hour, tallies in other.users.items():
            for user, tally in tallies.items():
                self.tally(hour, user).add(tally)
        for hour, amounts in other.capacity.items():
            sums = self.capacity.setdefault(hour, {})
            for name, amount in amounts.items():
                sums[name] = sums.get(name, 0.0) + amount

    def _integrate(self, user: str, span: "Span") -> None:
        stood, tau = span.stood, span.tau
        for begin, end in _hours(span.begin, span.end):
            tally = self.tally(math.floor(begin / HOUR), user)
            _add(tally, end - begin, span.capacity, span.excluded, stood, tau)
            if end < span.end:
                stood = stood._replace(commitments=_later(stood, end - begin, tau))


class Stretch(NamedTuple):
    """How a user stands for a time in which nothing changes but its commitments."""

    allocation: Quantities
    entitlement: float
    """Part of the capacity."""
    commitments: Mapping[str, float]
    """At the begin, as parts of the capacity."""
    overuse: Mapping[str, float]
    """What they move towards (Eq. 7)."""
    active: bool
    """Whether it wants offers."""

    def least(self, later: "Stretch") -> "Stretch":
        """Return what is certain to have been in between, where nobody told: in the user's favour.

        It held what it held both before and after; over-use likewise; it owed what it owed before.
        """
        held = later.allocation
        return Stretch(
            Quantities({n: min(amount, held[n]) for n, amount in self.allocation.items()}),
            max(self.entitlement, later.entitlement),
            self.commitments,
            {n: min(rate, later.overuse.get(n, 0.0)) for n, rate in self.overuse.items()},
            self.active and later.active,
        )


class Span(NamedTuple):
    """A time in which a user stood so, and all that its integrals depend on."""

    begin: float
    """Seconds since the epoch."""
    end: float
    capacity: Quantities
    excluded: Collection[str]
    stood: Stretch
    """At the begin."""
    tau: float | None


class Former(NamedTuple):
    """How a user stood when it was last counted."""

    at: float
    """Seconds since the epoch."""
    stretch: Stretch


class Meter:
    """Counts what users have, at whatever level they compete.

    It looks, and touches nothing that decisions depend on. No instant is counted twice for a user,
    also if a clock goes back. O(1) for each change of what a user holds; what that comes to,
    O(resources), is added up when it has been taken.
    """

    def __init__(self) -> None:
        self.counted = Counted()
        """Since this was last taken."""
        self.since = 0.0
        """The latest instant that anything was counted until."""
        self.excluded: Collection[str] = ()
        """Resources that do not count in shares."""
        self.tau: float | None = None
        """With which commitments are made and fade; None: they stay."""
        self.beginning: dict[str, Former] | None = None
        """How users stood when this began to count, until it is taken from here."""
        self._at: dict[str, float] = {}
        """Until when each user is counted."""
        self._capacity_at = 0.0

    def begin_anew(self, now: float, tau: float | None, excluded: Collection[str]) -> None:
        """Forget who is counted: all users, and what the cluster has, begin anew.

        Args:
            now: Seconds since the epoch.
            tau: Time constant of commitments in seconds; None: they stay.
            excluded: Resources that do not count in shares.
        """
        self._at.clear()
        self._capacity_at = max(now, self.since)
        self.tau, self.excluded = tau, excluded

    def begin(self, user: str, now: float) -> None:
        """Begin to count for a user that is new here."""
        self._at[user] = max(now, self.since)

    def end(self, user: str) -> None:
        """Cease to count for a user that is gone; what was counted stays."""
        self._at.pop(user, None)

    def until(self, user: str, now: float) -> float | None:
        """Return until when a user is counted, if that is before now."""
        at = self._at.get(user)
        return at if at is not None and at < now else None

    def count(self, user: str, at: float, now: float, capacity: Quantities, stood: Stretch) -> None:
        """Count how a user stood from an instant, until when it is counted, to a later one.

        Args:
            user: Who.
            at: What `until` has returned.
            now: Seconds since the epoch, later.
            capacity: What there was in that time.
            stood: With commitments of the instant `at`.
        """
        self._at[user] = now
        self.since = max(self.since, now)
        self.counted.note(user, Span(at, now, capacity, self.excluded, stood, self.tau))

    def count_capacity(self, capacity: Quantities, now: float) -> None:
        """Count what the cluster has had until now."""
        at, self._capacity_at = self._capacity_at, max(now, self._capacity_at)
        if 0.0 < at < now:
            for begin, end in _hours(at, now):
                sums = self.counted.capacity.setdefault(math.floor(begin / HOUR), {})
                for name, total in capacity.items():
                    sums[name] = sums.get(name, 0.0) + total * (end - begin)

    def offered(self, users: Iterable[str], now: float) -> None:
        """Count an offer made to a user, and to those above it."""
        hour = math.floor(now / HOUR)
        for user in users:
            self.counted.tally(hour, user).offers += 1

    def refused(self, users: Iterable[str], now: float) -> None:
        """Count an offer that a user has given back."""
        hour = math.floor(now / HOUR)
        for user in users:
            self.counted.tally(hour, user).refused += 1

    def bridge(
        self,
        before: Mapping[str, Former],
        after: Mapping[str, Former],
        capacity: Quantities,
        tau: float | None = None,
    ) -> None:
        """Count a time in which nobody told what is held, as far as that is certain.

        It is left out where it is longer than `LONGEST_GAP`, or ends before it begins.

        Args:
            before: How users stood when it began.
            after: How they stand now that it is over.
            capacity: What there is now.
            tau: Time constant of commitments in the meantime; None: the present one.
        """
        tau = self.tau if tau is None else tau
        spans = set()
        for user, former in before.items():
            later = after.get(user)
            if later is None or not 0.0 < later.at - former.at <= LONGEST_GAP:
                continue
            spans.add((former.at, later.at))
            stood = former.stretch.least(later.stretch)
            span = Span(former.at, later.at, capacity, self.excluded, stood, tau)
            self.counted.note(user, span)
        if spans:
            for begin, end in _hours(min(span[0] for span in spans), max(s[1] for s in spans)):
                sums = self.counted.capacity.setdefault(math.floor(begin / HOUR), {})
                for name, total in capacity.items():
                    sums[name] = sums.get(name, 0.0) + total * (end - begin)

    def take(self) -> Counted:
        """Return what has been counted since this was last called, to be added up elsewhere."""
        taken, self.counted = self.counted, Counted()
        return taken


def _hours(begin: float, end: float) -> Iterable[tuple[float, float]]:
    """Cut a time where an hour is full."""
    while begin < end:
        full = (math.floor(begin / HOUR) + 1.0) * HOUR
        yield begin, min(full, end)
        begin = full


def _later(stood: Stretch, elapsed: float, tau: float | None) -> Mapping[str, float]:
    if tau is None:
        return stood.commitments
    return {
        name: decayed(commitment, stood.overuse.get(name, 0.0), elapsed, tau)
        for name, commitment in stood.commitments.items()
    }


def _add(  # noqa: PLR0913, PLR0917 - what is added to, for how long, and all that it depends on
    tally: Tally,
    elapsed: float,
    capacity: Quantities,
    excluded: Collection[str],
    stood: Stretch,
    tau: float | None,
) -> None:
    """Add integrals over a time within one hour."""
    allocation, entitlement = stood.allocation, stood.entitlement
    resources = tally.resources
    below = True
    for name, total in capacity.items():
        integrals = resources.get(name)
        if integrals is None:
            integrals = resources[name] = Integrals()
        held = allocation[name]
        integrals.held += held * elapsed
        if name not in excluded:
            entitled = entitlement * total
            integrals.entitled += entitled * elapsed
            if held >= entitled:
                integrals.overused += (held - entitled) * elapsed
                below = False
    if stood.active:
        tally.wanted += elapsed
        if below:
            tally.waited += elapsed
    if any(stood.commitments.values()) or any(stood.overuse.values()):
        for name, owed in _owed(stood, elapsed, tau).items():
            total = capacity[name] or (_ONE if name == _TASKS else 0)
            if total:
                resources.setdefault(name, Integrals()).owed += owed * total


def _owed(stood: Stretch, elapsed: float, tau: float | None) -> dict[str, float]:
    """Return ∫c dt = ō·T + (c₀ − ō)·τ·(1 − δ), the integral of Eq. 12, by resource."""
    if tau is None:
        return {name: commitment * elapsed for name, commitment in stood.commitments.items()}
    overuse, part = stood.overuse, tau * approached(elapsed, tau)
    owed = {}
    for name, commitment in stood.commitments.items():
        rate = overuse.get(name, 0.0)
        owed[name] = rate * elapsed + (commitment - rate) * part
    return owed
