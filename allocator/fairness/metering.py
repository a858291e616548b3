"""How much users hold, over-use and owe over time: integrals, exact, by hour.

Between two changes what a user holds is constant, and what it owes a known function of time
(Eq. 12): so both have integrals in closed form, and only changes cost something.
"""

import math
from collections import deque
from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from allocator.fairness.commitment import approached, decayed
from allocator.fairness.quantities import Quantities

HOUR = 3600
"""Seconds; hours begin at multiples of it, counted from the Unix epoch."""
LONGEST_GAP = 7200.0
"""Seconds in which nobody told what is held, of which something may still be said."""
MOST_WAITING = 20_000
"""Spans that wait to be added up; some twenty megabytes."""
_AT_ONCE = 16
"""Of what waits, added up in one step: some fifty microseconds."""
_TASKS = "tasks"
"""What policies that count tasks measure instead of resources, as a fraction of 1."""
_ONE = 1000
"""Thousandths."""


@dataclass(slots=True)
class Integrals:
    """Of one user and one resource: thousandths × seconds."""

    held: float = 0.0
    overused: float = 0.0
    """Held beyond the entitlement."""
    owed: float = 0.0
    """The commitment, as that part of the capacity."""
    entitled: float = 0.0

    def add(self, other: "Integrals") -> None:
        """Add what another has counted."""
        self.held += other.held
        self.overused += other.overused
        self.owed += other.owed
        self.entitled += other.entitled


@dataclass(slots=True)
class HourlyUsage:
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

    def add(self, other: "HourlyUsage") -> None:
        """Add what has been counted apart."""
        for name, integrals in other.resources.items():
            self.resources.setdefault(name, Integrals()).add(integrals)
        self.wanted += other.wanted
        self.waited += other.waited
        self.offers += other.offers
        self.refused += other.refused


Terms: TypeAlias = tuple[Collection[str], float | None]
"""Resources that do not count in shares; the time constant of commitments, None: they stay."""
Span: TypeAlias = tuple[
    str,
    float,
    float,
    Quantities,
    Terms,
    Quantities,
    float,
    float,
    Mapping[str, float],
    Mapping[str, float],
    bool,
]
"""A time in which a user stood so, and all that its integrals depend on: who; from when to when,
in seconds since the epoch; the capacity; terms; then as in `AccountState`, but that commitments are
those of an instant of their own, not after the begin, which comes before them."""
Act: TypeAlias = tuple[tuple[str, ...], float, bool]
"""Under which names an offer counts, when, and whether it was given back."""


@dataclass(slots=True)
class UsageAccumulator:
    """All that has been counted since it was last taken, by hour (since the epoch).

    What is noted is added up by `settling`, soon: memory that is used again at once costs little.
    """

    users: dict[int, dict[str, HourlyUsage]] = field(default_factory=dict)
    capacity: dict[int, dict[str, float]] = field(default_factory=dict)
    """Thousandths × seconds, by resource."""
    spans: deque[Span] = field(default_factory=deque)
    """That wait to be added up."""
    acts: deque[Act] = field(default_factory=deque)
    """Likewise."""
    until: float = 0.0
    """The latest instant that has been added up."""
    closed: Mapping[str, "AccountCheckpoint"] = field(default_factory=dict)
    """How users stood when their accounts were closed, which is done one by one."""
    next: "UsageAccumulator | None" = None
    """What they have had since then, and the cluster; None: no accounts are being closed."""

    @property
    def since(self) -> float:
        """The latest instant that anything was counted until."""
        return max(self.until, self.spans[-1][2]) if self.spans else self.until

    def tally(self, hour: int, user: str) -> HourlyUsage:
        """Return the tally of a user in an hour, which may be new."""
        tallies = self.users.get(hour)
        if tallies is None:
            tallies = self.users[hour] = {}
        tally = tallies.get(user)
        if tally is None:
            tally = tallies[user] = HourlyUsage()
        return tally

    def settling(self) -> Generator[None, None, None]:
        """Add up what waits for that, bit by bit; meanwhile more may be noted, and added up."""
        spans, acts = self.spans, self.acts
        while spans or acts:
            for _ in range(min(len(spans), _AT_ONCE)):
                self._integrate(spans.popleft())
            for _ in range(min(len(acts), _AT_ONCE)):
                self.add_act(acts.popleft())
            yield

    def settle(self) -> None:
        """Add up all that waits for that."""
        for _ in self.settling():
            pass

    def bound(self) -> None:
        """Where too much waits to be added up, add up the earliest now."""
        if len(self.spans) > MOST_WAITING:
            self._integrate(self.spans.popleft())
        if len(self.acts) > MOST_WAITING:
            self.add_act(self.acts.popleft())

    def add_act(self, act: Act) -> None:
        """Add up an offer that was made, or given back."""
        names, now, refused = act
        hour = math.floor(now / HOUR)
        for name in names:
            tally = self.tally(hour, name)
            if refused:
                tally.refused += 1
            else:
                tally.offers += 1

    def add(self, other: "UsageAccumulator") -> None:
        """Add what has been counted apart."""
        other.settle()
        for hour, tallies in other.users.items():
            for user, tally in tallies.items():
                self.tally(hour, user).add(tally)
        for hour, amounts in other.capacity.items():
            sums = self.capacity.setdefault(hour, {})
            for name, amount in amounts.items():
                sums[name] = sums.get(name, 0.0) + amount

    def _integrate(self, span: Span) -> None:
        user, begin, end, capacity, (excluded, tau), held, entitlement, at, owes, over, wants = span
        closed = self.closed.get(user)
        if closed is not None and self.next is not None and begin >= closed.at:
            self.next._integrate(span)  # noqa: SLF001 - its own kind
            return
        settled = AccountState(held, entitlement, owes, over, wants)
        stood = settled if at >= begin or not _moves(settled) else _later(settled, begin - at, tau)
        self.until = max(self.until, end)
        for since, until in by_hours(begin, end):
            tally = self.tally(math.floor(since / HOUR), user)
            _add(tally, until - since, capacity, excluded, stood, tau)
            if until < end:
                stood = _later(stood, until - since, tau)


class AccountState(NamedTuple):
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

    def least(self, later: "AccountState") -> "AccountState":
        """Return what is certain to have been in between, where nobody told: in the user's favour.

        It held what it held both before and after; over-use likewise; it owed what it owed before.
        """
        held = later.allocation
        return AccountState(
            Quantities({n: min(amount, held[n]) for n, amount in self.allocation.items()}),
            max(self.entitlement, later.entitlement),
            self.commitments,
            {n: min(rate, later.overuse.get(n, 0.0)) for n, rate in self.overuse.items()},
            self.active and later.active,
        )


class AccountCheckpoint(NamedTuple):
    """How a user stood when it was last counted."""

    at: float
    """Seconds since the epoch."""
    stretch: AccountState


class Meter:
    """Counts what users have, at whatever level they compete.

    It looks, and touches nothing that decisions depend on. No instant is counted twice for a user,
    also if a clock goes back: each account says until when it has been counted. Each change of what
    a user holds is noted, O(1), and added up later, in O(resources).
    """

    def __init__(self) -> None:
        self.counted = UsageAccumulator()
        """Since this was last taken."""
        self.terms: Terms = ((), None)
        self.beginning: dict[str, AccountCheckpoint] | None = None
        """How users stood when this began to count, until it is taken from here."""
        self._since = 0.0
        """Of what was taken, as below."""
        self._capacity_at = 0.0

    @property
    def since(self) -> float:
        """The latest instant that anything was counted until: nothing before is counted again."""
        return max(self._since, self.counted.since)

    @property
    def tau(self) -> float | None:
        """With which commitments are made and fade; None: they stay."""
        return self.terms[1]

    def begin_anew(self, now: float, tau: float | None, excluded: Collection[str]) -> None:
        """Count others from now on.

        Args:
            now: Seconds since the epoch.
            tau: Time constant of commitments in seconds; None: they stay.
            excluded: Resources that do not count in shares.
        """
        self._capacity_at = max(now, self.since)
        self.terms = excluded, tau

    def count_capacity(self, capacity: Quantities, now: float) -> None:
        """Count what the cluster has had until now."""
        at, self._capacity_at = self._capacity_at, max(now, self._capacity_at)
        if at > 0.0:
            self._add_capacity(capacity, at, now)

    def offered(self, users: tuple[str, ...], now: float) -> None:
        """Count an offer made to a user, and to those above it."""
        self.counted.acts.append((users, now, False))

    def refused(self, users: tuple[str, ...], now: float) -> None:
        """Count an offer that a user has given back."""
        self.counted.acts.append((users, now, True))

    def bridge(
        self,
        before: Mapping[str, AccountCheckpoint],
        after: Mapping[str, AccountCheckpoint],
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
        terms = self.terms if tau is None else (self.terms[0], tau)
        spans = set()
        for user, former in before.items():
            later = after.get(user)
            if later is None or not 0.0 < later.at - former.at <= LONGEST_GAP:
                continue
            spans.add((former.at, later.at))
            held, entitlement, owes, over, wants = former.stretch.least(later.stretch)
            begin, end = former.at, later.at
            span = (user, begin, end, capacity, terms, held, entitlement, begin, owes, over, wants)
            self.counted.spans.appendleft(span)  # as it is of before
        if spans:  # the capacity, since the first account was closed
            end = max(span[1] for span in spans)
            ats = (former.at for former in before.values())
            begin = min(at for at in ats if 0.0 < end - at <= LONGEST_GAP)
            self._add_capacity(capacity, begin, end)

    def close(self) -> dict[str, AccountCheckpoint]:
        """Begin to close accounts, the cluster's first; return where to note how each user stood.

        What a user has from then on belongs to what is taken the next time. So whoever goes on from
        how users stood counts no instant again, however long closing takes.
        """
        counted, formers = self.counted, dict[str, AccountCheckpoint]()
        if counted.next is not None:  # it was begun before, and is begun anew
            begun, counted.next = counted.next, None
            counted.add(begun)
        counted.closed, counted.next = formers, UsageAccumulator()
        return formers

    def take(self) -> UsageAccumulator:
        """Return what has been counted since this was last called, to be added up elsewhere.

        Of accounts that have been closed, until then.
        """
        self._since = self.since
        taken = self.counted
        self.counted = UsageAccumulator() if taken.next is None else taken.next
        return taken

    def _add_capacity(self, capacity: Quantities, begin: float, end: float) -> None:
        counted = self.counted if self.counted.next is None else self.counted.next
        for since, until in by_hours(begin, end):
            sums = counted.capacity.setdefault(math.floor(since / HOUR), {})
            for name, total in capacity.items():
                sums[name] = sums.get(name, 0.0) + total * (until - since)


def by_hours(begin: float, end: float) -> Iterable[tuple[float, float]]:
    """Cut a time where an hour is full; nothing, if it ends before it begins."""
    while begin < end:
        full = (math.floor(begin / HOUR) + 1.0) * HOUR
        yield begin, min(full, end)
        begin = full


def _moves(stood: AccountState) -> bool:
    """Whether it owes anything, or begins to."""
    return any(stood.commitments.values()) or any(stood.overuse.values())


def _later(stood: AccountState, elapsed: float, tau: float | None) -> AccountState:
    if tau is None:
        return stood
    commitments = {
        name: decayed(commitment, stood.overuse.get(name, 0.0), elapsed, tau)
        for name, commitment in stood.commitments.items()
    }
    return stood._replace(commitments=commitments)


def _add(  # noqa: PLR0913, PLR0917 - what is added to, for how long, and all that it depends on
    tally: HourlyUsage,
    elapsed: float,
    capacity: Quantities,
    excluded: Collection[str],
    stood: AccountState,
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
    if _moves(stood):
        for name, owed in _owed(stood, elapsed, tau).items():
            total = capacity[name] or (_ONE if name == _TASKS else 0)
            if total:
                resources.setdefault(name, Integrals()).owed += owed * total


def _owed(stood: AccountState, elapsed: float, tau: float | None) -> dict[str, float]:
    """Return ∫c dt = ō·T + (c₀ − ō)·τ·(1 − δ), the integral of Eq. 12, by resource."""
    if tau is None:
        return {name: commitment * elapsed for name, commitment in stood.commitments.items()}
    overuse, part = stood.overuse, tau * approached(elapsed, tau)
    owed = {}
    for name, commitment in stood.commitments.items():
        rate = overuse.get(name, 0.0)
        owed[name] = rate * elapsed + (commitment - rate) * part
    return owed
