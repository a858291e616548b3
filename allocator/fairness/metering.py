"""Metering: exact hourly integrals of users' allocations, over-use and commitments.

Between two changes a user's allocation is constant, and its commitment is a known function of time
(SDRF paper, Eq. 12). So both integrals have closed forms, and only changes cost computing time.
"""

import math
from collections import deque
from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from allocator.compilation import mypyc_attr
from allocator.fairness.commitment import approached, decayed
from allocator.fairness.quantities import Quantities

HOUR = 3600
"""Seconds. Hours begin at multiples of this number, counted from the Unix epoch."""
LONGEST_GAP = 7200.0
"""Seconds. Longer gaps without information about allocations are not metered."""
MOST_WAITING = 20_000
"""Maximum number of spans that wait to be integrated; about twenty megabytes."""
_STEP_SIZE = 16
"""Number of waiting entries that one step adds up, in about fifty microseconds."""
_TASKS_NAME = "tasks"
"""The measured value of policies that count tasks, as a fraction of 1, in place of resources."""
_ONE = 1000
"""Thousandths."""


@dataclass(slots=True)
class Integrals:
    """Integrals over time of one user's amounts of one resource, in thousandths × seconds."""

    held: float = 0.0
    """Integral of the allocation."""
    overused: float = 0.0
    """Integral of the allocation beyond the entitlement."""
    owed: float = 0.0
    """Integral of the commitment, times the capacity."""
    entitled: float = 0.0
    """Integral of the entitlement, times the capacity."""

    def add(self, integrals: "Integrals") -> None:
        """Add another meter's integrals for the same user and resource to these integrals."""
        self.held += integrals.held
        self.overused += integrals.overused
        self.owed += integrals.owed
        self.entitled += integrals.entitled


@dataclass(slots=True)
class HourlyUsage:
    """Usage of one user in one hour: integrals by resource, waiting time and offer counts."""

    resources: dict[str, Integrals] = field(default_factory=dict)
    wanted: float = 0.0
    """Seconds in which the user wanted offers."""
    waited: float = 0.0
    """Seconds of `wanted` in which the user's dominant share was below its entitlement."""
    offers: int = 0
    """Number of offers made to the user."""
    refused: int = 0
    """Number of offers that the user declined, as a whole or in part."""

    def add(self, usage: "HourlyUsage") -> None:
        """Add another meter's usage of the same user in the same hour to this record."""
        for name, integrals in usage.resources.items():
            self.resources.setdefault(name, Integrals()).add(integrals)
        self.wanted += usage.wanted
        self.waited += usage.waited
        self.offers += usage.offers
        self.refused += usage.refused


MeterParameters: TypeAlias = tuple[Collection[str], float | None]
"""Names of resources that do not count in shares, and the time constant of commitments in seconds.
None: commitments do not decay."""
Span: TypeAlias = tuple[
    str,
    float,
    float,
    Quantities,
    MeterParameters,
    Quantities,
    float,
    float,
    dict[str, float],
    dict[str, float],
    bool,
]
"""A time span in which a user's state did not change, with the inputs of its integrals: user; begin
and end in seconds since the epoch; capacity; terms; allocation; entitlement; time of the
commitments, not after the begin; commitments at that time; over-use; whether the user was
active."""
Act: TypeAlias = tuple[tuple[str, ...], float, bool]
"""One offer event: the users that it counts for, its time in seconds since the epoch, and whether
the offer was declined."""


@dataclass(slots=True)
class UsageAccumulator:
    """Collects usage since the last `Meter.take`, by hour since the epoch and by user.

    Time spans and offer events wait in queues until `add_up` or `add_up_in_steps` adds them to the
    usage. The caller should do so often, so that the queues stay short.
    """

    users: dict[int, dict[str, HourlyUsage]] = field(default_factory=dict)
    """Usage by hour since the epoch, and by user."""
    capacity: dict[int, dict[str, float]] = field(default_factory=dict)
    """Integrals of the capacity in thousandths × seconds, by hour and resource."""
    spans: deque[Span] = field(default_factory=deque)
    """Spans that wait to be integrated."""
    offer_events: deque[Act] = field(default_factory=deque)
    """Offer events that wait to be counted."""
    until: float = 0.0
    """End of the latest span that has been integrated, in seconds since the epoch."""
    closed: Mapping[str, "AccountCheckpoint"] = field(default_factory=dict)
    """Checkpoints of the accounts that have been closed so far. Accounts are closed one by one."""
    next: "UsageAccumulator | None" = None
    """Usage after the checkpoints, and the capacity. None: no accounts are being closed."""

    @property
    def since(self) -> float:
        """The time up to which usage was collected, in seconds since the epoch."""
        return max(self.until, self.spans[-1][2]) if self.spans else self.until

    def usage(self, hour: int, user: str) -> HourlyUsage:
        """Return the usage record of a user in an hour; create an empty record if there is none.

        Args:
            hour: Hours since the epoch.
            user: The user's id.
        """
        users = self.users.get(hour)
        if users is None:
            users = self.users[hour] = {}
        tally = users.get(user)
        if tally is None:
            tally = users[user] = HourlyUsage()
        return tally

    def add_up_in_steps(self) -> Generator[None, None, None]:
        """Do the work of `add_up` as a generator, which yields after each small step.

        So the event loop can do other work between steps, which may add spans and offer events.
        """
        spans, acts = self.spans, self.offer_events
        while spans or acts:
            for _ in range(min(len(spans), _STEP_SIZE)):
                self._integrate(spans.popleft())
            for _ in range(min(len(acts), _STEP_SIZE)):
                self.add_act(acts.popleft())
            yield

    def add_up(self) -> None:
        """Add all waiting spans and offer events to the usage of their hours."""
        for _ in self.add_up_in_steps():
            pass

    def bound(self) -> None:
        """Limit the queues of spans and offer events to `MOST_WAITING` entries each.

        If a queue is longer, its earliest entry is removed and added to the usage. Call this method
        after adding an entry to a queue.
        """
        if len(self.spans) > MOST_WAITING:
            self._integrate(self.spans.popleft())
        if len(self.offer_events) > MOST_WAITING:
            self.add_act(self.offer_events.popleft())

    def add_act(self, act: Act) -> None:
        """Count one offer event, an offer that was made or declined, in the usage of its hour.

        Args:
            act: The users to count the event for; its time; whether the offer was declined.
        """
        names, now, refused = act
        hour = math.floor(now / HOUR)
        for name in names:
            usage = self.usage(hour, name)
            if refused:
                usage.refused += 1
            else:
                usage.offers += 1

    def add(self, accumulator: "UsageAccumulator") -> None:
        """Add the usage of another accumulator, including its spans and events not yet added up."""
        accumulator.add_up()
        for hour, users in accumulator.users.items():
            for user, usage in users.items():
                self.usage(hour, user).add(usage)
        for hour, amounts in accumulator.capacity.items():
            sums = self.capacity.setdefault(hour, {})
            for name, amount in amounts.items():
                sums[name] = sums.get(name, 0.0) + amount

    def _integrate(self, span: Span) -> None:
        """Add the integrals of a span with constant allocation to the usage of each hour in it."""
        user, begin, end, capacity, (_, tau), _, _, at, commitments, overuse, _ = span
        closed = self.closed.get(user)
        if closed is not None and self.next is not None and begin >= closed.at:
            self.next._integrate(span)  # noqa: SLF001 - its own kind
            return
        self.until = max(self.until, end)
        moves = _any_nonzero(commitments) or _any_nonzero(overuse)
        while begin < end:
            hour = math.floor(begin / HOUR)
            until = min((hour + 1.0) * HOUR, end)
            usage = self.usage(hour, user)
            _add_integrals(usage, until - begin, span)
            if moves:
                if tau is not None and at < begin:
                    commitments = _advanced(commitments, overuse, begin - at, tau)
                _add_commitments(usage, until - begin, capacity, commitments, overuse, tau)
            at, begin = begin, until


class AccountState(NamedTuple):
    """State of a user's account at the begin of a time span in which the allocation is constant.

    Only the commitments change during the span (SDRF paper, Eq. 12).
    """

    allocation: Quantities
    entitlement: float
    """Fraction of the capacity."""
    commitments: Mapping[str, float]
    """Commitments at the begin of the span, as fractions of the capacity."""
    overuse: Mapping[str, float]
    """The values that commitments approach (SDRF paper, Eq. 7), by resource."""
    active: bool
    """Whether the user wants offers."""

    def least(self, later: "AccountState") -> "AccountState":
        """Return a lower bound of the user's state in a gap, in which its allocation is unknown.

        This state is from the begin of the gap. The result has the smaller allocation and over-use
        of both states, the larger entitlement, and this state's commitments.

        Args:
            later: The user's state at the end of the gap.
        """
        held = later.allocation
        return AccountState(
            Quantities({name: min(amount, held[name]) for name, amount in self.allocation.items()}),
            max(self.entitlement, later.entitlement),
            self.commitments,
            {name: min(rate, later.overuse.get(name, 0.0)) for name, rate in self.overuse.items()},
            self.active and later.active,
        )


class AccountCheckpoint(NamedTuple):
    """A user's state at the time when its account was last metered."""

    at: float
    """Time in seconds since the epoch."""
    state: AccountState
    """The account's state at this time."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Meter:
    """Integrates the usage of users over time, at any level of the role tree.

    A meter only reads accounts and changes nothing on which decisions depend. Each account stores
    the time up to which it was metered. So no time is counted twice for a user, even if a clock is
    set back. Each change of an allocation is recorded in O(1), and integrated later in
    O(resources).
    """

    def __init__(self) -> None:
        self.counted = UsageAccumulator()
        """Usage since the last `take`."""
        self.terms: MeterParameters = ((), None)
        self.first_checkpoints: dict[str, AccountCheckpoint] | None = None
        """Checkpoints at the begin of metering, until a caller takes them from here."""
        self._since = 0.0
        """`since` at the last `take`."""
        self._capacity_at = 0.0

    @property
    def since(self) -> float:
        """The latest metered time in seconds since the epoch. No earlier time is metered."""
        return max(self._since, self.counted.since)

    @property
    def tau(self) -> float | None:
        """Time constant of commitments in seconds. None: commitments do not decay."""
        return self.terms[1]

    def restart(self, now: float, tau: float | None, excluded: Collection[str]) -> None:
        """Start metering pools that have replaced the pools metered before.

        Args:
            now: Seconds since the epoch.
            tau: Time constant of commitments in seconds. None: commitments do not decay.
            excluded: Names of resources that do not count in shares.
        """
        self._capacity_at = max(now, self.since)
        self.terms = excluded, tau

    def count_capacity(self, capacity: Quantities, now: float) -> None:
        """Add the integral of the capacity over the time since the last call to the usage.

        Call this method before the capacity changes.

        Args:
            capacity: The cluster's capacity since the last call.
            now: Seconds since the epoch.
        """
        begin, self._capacity_at = self._capacity_at, max(now, self._capacity_at)
        if begin > 0.0:
            self._add_capacity(capacity, begin, now)

    def offered(self, users: tuple[str, ...], now: float) -> None:
        """Count an offer in the usage of the user and its ancestors.

        Args:
            users: The user that was offered resources, and the user's ancestors in the role tree.
            now: Seconds since the epoch.
        """
        self.counted.offer_events.append((users, now, False))

    def refused(self, users: tuple[str, ...], now: float) -> None:
        """Count a declined offer in the usage of the user and its ancestors.

        Args:
            users: The user that declined the offer, and the user's ancestors in the role tree.
            now: Seconds since the epoch.
        """
        self.counted.offer_events.append((users, now, True))

    def bridge(
        self,
        before: Mapping[str, AccountCheckpoint],
        after: Mapping[str, AccountCheckpoint],
        capacity: Quantities,
        tau: float | None = None,
    ) -> None:
        """Add a lower bound of the usage in a gap, in which allocations are unknown.

        A gap is, for example, the time between two runs of the allocator. It is not metered if it
        is longer than `LONGEST_GAP` or ends before it begins.

        Args:
            before: Checkpoints at the begin of the gap, by user.
            after: Checkpoints at the end of the gap, by user.
            capacity: The present capacity.
            tau: Time constant of commitments during the gap in seconds. None: the present time
                constant.
        """
        terms = self.terms if tau is None else (self.terms[0], tau)
        spans = set()
        for user, earlier in before.items():
            later = after.get(user)
            if later is None or not 0.0 < later.at - earlier.at <= LONGEST_GAP:
                continue
            spans.add((earlier.at, later.at))
            held, entitlement, owed, over, active = earlier.state.least(later.state)
            begin, end = earlier.at, later.at
            commitments = begin, dict(owed), dict(over)
            span = (user, begin, end, capacity, terms, held, entitlement, *commitments, active)
            self.counted.spans.appendleft(span)  # all others are later
        if spans:  # integrate the capacity since the first account was closed
            end = max(span[1] for span in spans)
            ats = (earlier.at for earlier in before.values())
            begin = min(at for at in ats if 0.0 < end - at <= LONGEST_GAP)
            self._add_capacity(capacity, begin, end)

    def close(self) -> dict[str, AccountCheckpoint]:
        """Begin to divide usage in two parts: before and after a checkpoint of each user's account.

        The caller then stores one user's checkpoint after another in the returned dictionary. The
        next `take` returns each user's usage up to its checkpoint, and the `take` after it the
        rest. Integrals of the capacity are divided at the time of this call. So a program that
        continues from the checkpoints counts no time twice, however long the caller needs.

        Returns:
            An empty dictionary, in which the caller stores the users' checkpoints.
        """
        counted, checkpoints = self.counted, dict[str, AccountCheckpoint]()
        if counted.next is not None:  # an earlier closing was not finished
            unfinished, counted.next = counted.next, None
            counted.add(unfinished)
        counted.closed, counted.next = checkpoints, UsageAccumulator()
        return checkpoints

    def take(self) -> UsageAccumulator:
        """Return the usage since the last call, and start a new accumulator.

        After `close`, a user's usage in the result ends at the user's checkpoint.
        """
        self._since = self.since
        taken = self.counted
        self.counted = UsageAccumulator() if taken.next is None else taken.next
        return taken

    def _add_capacity(self, capacity: Quantities, begin: float, end: float) -> None:
        """Add the integrals of the capacity over a time span, in seconds since the epoch."""
        counted = self.counted if self.counted.next is None else self.counted.next
        for since, until in by_hours(begin, end):
            sums = counted.capacity.setdefault(math.floor(since / HOUR), {})
            for name, total in capacity.items():
                sums[name] = sums.get(name, 0.0) + total * (until - since)


def by_hours(begin: float, end: float) -> Iterable[tuple[float, float]]:
    """Divide a time span at full hours, and yield the begin and end of each part.

    All times are seconds since the epoch.

    A span that ends before it begins has no parts.
    """
    while begin < end:
        full = (math.floor(begin / HOUR) + 1.0) * HOUR
        yield begin, min(full, end)
        begin = full


def _advanced(
    commitments: dict[str, float], overuse: dict[str, float], elapsed: float, tau: float
) -> dict[str, float]:
    """Return a user's commitments after some seconds in which its allocation was constant.

    Args:
        commitments: The commitments at the begin, by resource.
        overuse: The values that the commitments approach.
        elapsed: Seconds.
        tau: Time constant of commitments in seconds.
    """
    return {
        name: decayed(commitment, overuse.get(name, 0.0), elapsed, tau)
        for name, commitment in commitments.items()
    }


def _any_nonzero(amounts: dict[str, float]) -> bool:
    """Return whether an amount is not zero. mypyc compiles the loop; `any` would be a call."""
    for amount in amounts.values():  # noqa: SIM110 - see above
        if amount:
            return True
    return False


def _add_integrals(usage: HourlyUsage, elapsed: float, span: Span) -> None:
    """Add the integrals of a span's allocation over a part of the span to the usage of an hour.

    Args:
        usage: The user's usage in the hour, which this function changes.
        elapsed: Length of the part in seconds.
        span: The span, whose commitments are not added.
    """
    _, _, _, capacity, (excluded, _), allocation, entitlement, _, _, _, active = span
    resources = usage.resources
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
    if active:
        usage.wanted += elapsed
        if below:
            usage.waited += elapsed


def _add_commitments(  # noqa: PLR0913, PLR0917 - all that the integrals depend on
    usage: HourlyUsage,
    elapsed: float,
    capacity: Quantities,
    commitments: dict[str, float],
    overuse: dict[str, float],
    tau: float | None,
) -> None:
    """Add the integral of each commitment over a time span to the usage of an hour.

    Over T seconds it is ō·T + (c₀ − ō)·τ·(1 − δ), the integral of Eq. 12 (SDRF paper).

    Args:
        usage: The user's usage in the hour, which this function changes.
        elapsed: T, in seconds.
        capacity: The cluster's capacity.
        commitments: c₀ by resource: the commitments at the begin, as fractions of the capacity.
        overuse: ō by resource: the values that the commitments approach.
        tau: Time constant of commitments in seconds. None: commitments do not decay.
    """
    approach = 0.0 if tau is None else tau * approached(elapsed, tau)
    for name, commitment in commitments.items():
        total = capacity[name] or (_ONE if name == _TASKS_NAME else 0)
        if total:
            rate = overuse.get(name, 0.0)
            owed = rate * elapsed + (commitment - rate) * approach
            if tau is None:
                owed = commitment * elapsed
            integrals = usage.resources.get(name)
            if integrals is None:
                integrals = usage.resources[name] = Integrals()
            integrals.owed += owed * total
