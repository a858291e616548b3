"""Meters the allocations of roles, if users are not roles: exact integrals over time, by hour.

In this case a role has no entitlement, commitment or waiting time, because the users of its
frameworks have them. A change of an allocation is recorded as one tuple, which is cheap. The tuples
are added up later, in order of arrival.
"""

import math
from collections import deque
from collections.abc import Mapping
from typing import TypeAlias

from allocator.cluster.input.limits import Limits
from allocator.cluster.input.text import is_valid_role
from allocator.cooperative import Cooperative
from allocator.fairness.metering import (
    HOUR,
    LONGEST_GAP,
    MOST_WAITING,
    AccountCheckpoint,
    AccountState,
    Integrals,
    UsageAccumulator,
    by_hours,
)
from allocator.fairness.quantities import NO_QUANTITIES, Quantities

_AT_ONCE = 16
"""Number of recorded changes that are added up in one cooperative step."""
_REMEMBERED = 1000
"""Maximum number of roles whose ancestors are cached."""


class _Period:
    """An accounting period that has ended, while its last recorded changes are added up.

    The period has its usage so far, and each role's account checkpoint at the end of the period.
    """

    def __init__(self, at: float) -> None:
        self.at = at
        self.counted = UsageAccumulator()
        self.checkpoints: dict[str, AccountCheckpoint] = {}
        """role → account checkpoint at the end of the period, as far as computed"""
        self.complete = False
        """Whether all changes recorded before the end of the period have been added up."""


_Change: TypeAlias = tuple[str, float, Quantities, Quantities]
"""A change of allocation: role, time in seconds, added quantities, released quantities."""
_Offer: TypeAlias = tuple[str, float, bool]
"""An offer or a decline: role, time in seconds, and whether the offer was declined."""


class RoleMeter:
    """Meters the allocations and offers of roles over time, for accounting.

    The allocation of a role includes the allocations of its descendants.
    """

    def __init__(self, limits: Limits) -> None:
        self.counted = UsageAccumulator()
        """Usage since the end of the last closed period, without the changes still to be added
        up."""
        self.beginning: dict[str, AccountCheckpoint] | None = None
        """Account checkpoints of roles at the start of metering, until the accountant takes
        them."""
        self._limits = limits
        self._notes: deque[_Change | _Offer | _Period] = deque()
        self._held: dict[str, tuple[float, Quantities]] = {}
        """role → time until which its usage is counted, and its allocation since then, which is
        not empty"""
        self._latest = 0.0
        """Time of the latest change in seconds. A role without an allocation has no usage before
        this time."""
        self._period: _Period | None = None
        self._ancestors: dict[str, tuple[str, ...]] = {}

    def note(
        self, role: str, now: float, added: Quantities, released: Quantities = NO_QUANTITIES
    ) -> None:
        """Record a change of a role's allocation, to be added up later. O(1).

        Args:
            role: The role that the resources are allocated to.
            now: Time of the change in seconds.
            added: Quantities that are allocated from now on.
            released: Quantities that are no longer allocated.
        """
        self._notes.append((role, now, added, released))
        while len(self._notes) > MOST_WAITING:
            self._follow(self._notes.popleft())

    def note_offer(self, role: str, now: float, *, refused: bool) -> None:
        """Record an offer made or declined in a role. O(1).

        Args:
            role: The role of the client that gets or declines the offer.
            now: The time of the offer or the decline, in seconds.
            refused: True for a decline, False for an offer.
        """
        self._notes.append((role, now, refused))

    def add_up_in_steps(self) -> Cooperative[None]:
        """Add up all recorded changes of allocations, as usage by role and hour.

        Generator for cooperative steps. Changes recorded between the steps are added up, too.
        """
        while self._notes:
            for _ in range(min(len(self._notes), _AT_ONCE)):
                self._follow(self._notes.popleft())
            yield

    def close_period(
        self, now: float
    ) -> Cooperative[tuple[UsageAccumulator, dict[str, AccountCheckpoint]]]:
        """Close the accounting period; return its usage, and the account checkpoint of each role.

        Generator for cooperative steps. Changes recorded between the steps belong to the next
        period.

        Args:
            now: End of the period, in seconds.
        """
        period = _Period(now)
        self._notes.append(period)
        accrual = self.add_up_in_steps()
        while not period.complete:
            next(accrual, None)
            yield
        for number, role in enumerate(list(self._held)):
            if role in self._held:
                self._count(role, now)
            if number % _AT_ONCE == 0:
                yield
        self._period = None
        return period.counted, period.checkpoints

    def resume_in_steps(
        self, until: float, now: float, held: Mapping[str, Quantities], *, reset: bool
    ) -> Cooperative[None]:
        """Continue with the roles' current allocations after a time without reports.

        During this gap, an allocation counts as far as it existed both before and after the gap. A
        gap longer than `LONGEST_GAP` is not counted. Generator for cooperative steps.

        Args:
            until: Time of the last report before the gap, in seconds.
            now: Time of the first report after the gap, in seconds.
            held: Current allocations by role, including the roles' ancestors.
            reset: Whether all earlier allocations are dropped, because another service metered
                them.
        """
        yield from self.add_up_in_steps()
        if reset:
            self._held.clear()
            self.beginning = {role: _checkpoint(now, amounts) for role, amounts in held.items()}
        for role in {**self._held, **held}:
            amounts, at = held.get(role, NO_QUANTITIES), max(now, self._latest)
            if role in self._held:
                self._count(role, until)
                at, held_before = self._held[role]
                if 0.0 < now - at <= LONGEST_GAP:
                    self._held[role] = at, _least(held_before, amounts)
                    self._count(role, now)
                at = max(now, at)
            self._hold(role, at, amounts)
            yield
        self._latest = max(self._latest, until, now)

    def bridge(
        self, before: Mapping[str, AccountCheckpoint], after: Mapping[str, AccountCheckpoint]
    ) -> None:
        """Count the usage between the end of another service's metering and the start of this one.

        The other service is, for example, an instance that was active before a takeover.

        As in `resume_in_steps`, an allocation counts as far as it existed before and after the gap.

        Args:
            before: By role, account checkpoints at the end of the other service's metering.
            after: By role, account checkpoints at the start of this metering.
        """
        for role, earlier in before.items():
            later = after.get(role)
            if later is not None and 0.0 < later.at - earlier.at <= LONGEST_GAP:
                held = _least(earlier.state.allocation, later.state.allocation)
                _add(self.counted, role, earlier.at, later.at, held)

    def with_ancestors(self, role: str) -> tuple[str, ...]:
        """Return a role and its ancestors, the role first.

        The result is empty if the role is invalid or exceeds the limits.
        """
        if (
            len(role) > self._limits.name
            or role.count("/") >= self._limits.role_depth
            or not is_valid_role(role)
        ):
            return ()
        levels = role.split("/")
        return tuple("/".join(levels[:depth]) for depth in range(len(levels), 0, -1))

    def _line(self, role: str) -> tuple[str, ...]:
        """Return the same result as `with_ancestors`, from a cache."""
        line = self._ancestors.get(role)
        if line is None:
            if len(self._ancestors) >= _REMEMBERED:
                self._ancestors.clear()
            line = self._ancestors[role] = self.with_ancestors(role)
        return line

    def _follow(self, note: _Change | _Offer | _Period) -> None:
        """Process one record: a change of allocation, an offer, a decline, or the end of a period.

        Records are processed in order of arrival: by `add_up_in_steps`, or earlier if many wait.
        """
        if isinstance(note, _Period):
            if self._period is not None:  # an earlier closing was abandoned
                self.counted.add(self._period.counted)
            self._period, note.complete = note, True
            note.counted, self.counted = self.counted, note.counted
        elif len(note) == 3:
            role, now, refused = note
            self.counted.add_act((self._line(role), now, refused))
        else:
            self._change(*note)

    def _change(self, role: str, now: float, added: Quantities, released: Quantities) -> None:
        """Process a recorded change of a role's allocation, for the role and its ancestors.

        Usage by the old allocation is added up until the change; then the new allocation holds.

        Args:
            role: The role that the resources are allocated to.
            now: Time of the change in seconds.
            added: Quantities that are allocated from then on.
            released: Quantities that are no longer allocated from then on.
        """
        for name in self._line(role):
            at, held = max(now, self._latest), NO_QUANTITIES
            if name in self._held:
                self._count(name, now)
                at, held = self._held[name]
            self._hold(name, at, held + added - released)
        self._latest = max(self._latest, now)

    def _count(self, role: str, until: float) -> None:
        """Add up a role's usage from the time until which it is counted already to a later time.

        If a period is being closed, usage before its end is added to this period, and later usage
        to the next period.

        Args:
            role: A role with an allocation.
            until: The time in seconds.
        """
        at, held = self._held[role]
        period = self._period
        if period is not None and role not in period.checkpoints:
            _add(period.counted, role, at, period.at, held)
            at = max(at, period.at)
            period.checkpoints[role] = _checkpoint(at, held)
            self._held[role] = at, held
        if until > at:
            _add(self.counted, role, at, until, held)
            self._held[role] = until, held

    def _hold(self, role: str, at: float, held: Quantities) -> None:
        """Set a role's allocation from a time on.

        Args:
            role: The role.
            at: Time in seconds, until which earlier usage has been counted.
            held: The new allocation; empty: the role has no allocation.
        """
        if held:
            self._held[role] = at, held
        else:
            self._held.pop(role, None)


def _checkpoint(at: float, held: Quantities) -> AccountCheckpoint:
    return AccountCheckpoint(at, AccountState(held, 0.0, {}, {}, active=False))


def _least(before: Quantities, after: Quantities) -> Quantities:
    """Return the minimum of two quantities for each resource."""
    return Quantities({name: min(amount, after[name]) for name, amount in before.items()})


def _add(usage: UsageAccumulator, role: str, begin: float, end: float, held: Quantities) -> None:
    """Add an allocation that lasted from `begin` to `end`, in seconds, to a role's hourly usage."""
    for since, until in by_hours(begin, end):
        resources = usage.usage(math.floor(since / HOUR), role).resources
        for name, amount in held.items():
            integrals = resources.get(name)
            if integrals is None:
                integrals = resources[name] = Integrals()
            integrals.held += amount * (until - since)
