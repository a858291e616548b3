"""How much roles hold over time, where users are no roles: integrals, exact, by hour.

A role is entitled to nothing there, and neither owes nor waits: its frameworks' users do. A change
costs one tuple; these are added up later, in the order in which they came.
"""

import math
from collections import deque
from collections.abc import Mapping
from typing import TypeAlias

from allocator.cluster.cooperative import Cooperative
from allocator.cluster.input.limits import Limits
from allocator.cluster.input.text import is_path
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
from allocator.fairness.quantities import Quantities

_AT_ONCE = 16
"""Of what waits, added up in one step."""
_REMEMBERED = 1000
_NOTHING = Quantities()


class _Taking:
    """What is taken up to an instant, while it is worked out."""

    def __init__(self, at: float) -> None:
        self.at = at
        self.counted = UsageAccumulator()
        self.formers: dict[str, AccountCheckpoint] = {}
        """How roles stood then, as far as it has been looked."""
        self.begun = False
        """Whether all that was noted before has been added up."""


_Note: TypeAlias = tuple[str, float, Quantities, Quantities]
"""In which role there is a change, when, and what is held more and less."""
_Offer: TypeAlias = tuple[str, float, bool]
"""In which role, when, and whether it was given back."""


class RoleMeter:
    """Counts what is held and offered in roles, in each for those below it as well."""

    def __init__(self, limits: Limits) -> None:
        self.counted = UsageAccumulator()
        """Since this was last taken; nothing waits in it."""
        self.beginning: dict[str, AccountCheckpoint] | None = None
        """How roles stood when this began to count, until it is taken from here."""
        self._limits = limits
        self._notes: deque[_Note | _Offer | _Taking] = deque()
        self._held: dict[str, tuple[float, Quantities]] = {}
        """role → until when it has been counted, and what it has held since; not nothing"""
        self._latest = 0.0
        """Nothing before is counted of a role that held nothing."""
        self._taking: _Taking | None = None
        self._lines: dict[str, tuple[str, ...]] = {}

    def note(self, role: str, now: float, more: Quantities, less: Quantities = _NOTHING) -> None:
        """Count that more, and less, is held in a role from now on. O(1)."""
        self._notes.append((role, now, more, less))
        while len(self._notes) > MOST_WAITING:
            self._follow(self._notes.popleft())

    def note_offer(self, role: str, now: float, *, refused: bool) -> None:
        """Count an offer that was made in a role, or given back. O(1)."""
        self._notes.append((role, now, refused))

    def settling(self) -> Cooperative[None]:
        """Add up what waits for that, bit by bit; meanwhile more may be noted, and added up."""
        while self._notes:
            for _ in range(min(len(self._notes), _AT_ONCE)):
                self._follow(self._notes.popleft())
            yield

    def taking(
        self, now: float
    ) -> Cooperative[tuple[UsageAccumulator, dict[str, AccountCheckpoint]]]:
        """Return what has been counted until now, and how each role stands.

        What is noted wherever this yields belongs to what is taken the next time.
        """
        taking = _Taking(now)
        self._notes.append(taking)
        settling = self.settling()
        while not taking.begun:
            next(settling, None)
            yield
        for number, role in enumerate(list(self._held)):
            if role in self._held:
                self._count(role, now)
            if number % _AT_ONCE == 0:
                yield
        self._taking = None
        return taking.counted, taking.formers

    def resuming(
        self, until: float, now: float, held: Mapping[str, Quantities], *, anew: bool
    ) -> Cooperative[None]:
        """Go on with what roles hold now, after a time in which nobody told.

        In between counts what was held both before and after, where that is not too long.

        Args:
            until: When somebody told last.
            now: When somebody tells again.
            held: By role, those above included.
            anew: Whether it was others who were counted before, as in another service.
        """
        yield from self.settling()
        if anew:
            self._held.clear()
            self.beginning = {role: _former(now, holds) for role, holds in held.items()}
        for role in {**self._held, **held}:
            holds, at = held.get(role, _NOTHING), max(now, self._latest)
            if role in self._held:
                self._count(role, until)
                at, held_before = self._held[role]
                if 0.0 < now - at <= LONGEST_GAP:
                    self._held[role] = at, _least(held_before, holds)
                    self._count(role, now)
                at = max(now, at)
            self._hold(role, at, holds)
            yield
        self._latest = max(self._latest, until, now)

    def bridge(
        self, before: Mapping[str, AccountCheckpoint], after: Mapping[str, AccountCheckpoint]
    ) -> None:
        """Count likewise a time in which another service did, or none."""
        for role, former in before.items():
            later = after.get(role)
            if later is not None and 0.0 < later.at - former.at <= LONGEST_GAP:
                held = _least(former.stretch.allocation, later.stretch.allocation)
                _add(self.counted, role, former.at, later.at, held)

    def above(self, role: str) -> tuple[str, ...]:
        """Return a role with all above it; none of one that is beyond limits, or is none."""
        if (
            len(role) > self._limits.name
            or role.count("/") >= self._limits.role_depth
            or not is_path(role)
        ):
            return ()
        levels = role.split("/")
        return tuple("/".join(levels[:depth]) for depth in range(len(levels), 0, -1))

    def _line(self, role: str) -> tuple[str, ...]:
        """Return what `above` does, which is remembered of so many roles."""
        line = self._lines.get(role)
        if line is None:
            if len(self._lines) >= _REMEMBERED:
                self._lines.clear()
            line = self._lines[role] = self.above(role)
        return line

    def _follow(self, note: _Note | _Offer | _Taking) -> None:
        if isinstance(note, _Taking):
            if self._taking is not None:  # it was given up
                self.counted.add(self._taking.counted)
            self._taking, note.begun = note, True
            note.counted, self.counted = self.counted, note.counted
        elif len(note) == 3:
            role, now, refused = note
            self.counted.add_act((self._line(role), now, refused))
        else:
            self._change(*note)

    def _change(self, role: str, now: float, more: Quantities, less: Quantities) -> None:
        for name in self._line(role):
            at, held = max(now, self._latest), _NOTHING
            if name in self._held:
                self._count(name, now)
                at, held = self._held[name]
            self._hold(name, at, held + more - less)
        self._latest = max(self._latest, now)

    def _count(self, role: str, until: float) -> None:
        """Count what a role has held until an instant; up to where it is taken, with what is."""
        at, held = self._held[role]
        taking = self._taking
        if taking is not None and role not in taking.formers:
            _add(taking.counted, role, at, taking.at, held)
            at = max(at, taking.at)
            taking.formers[role] = _former(at, held)
            self._held[role] = at, held
        if until > at:
            _add(self.counted, role, at, until, held)
            self._held[role] = until, held

    def _hold(self, role: str, at: float, held: Quantities) -> None:
        if held:
            self._held[role] = at, held
        else:
            self._held.pop(role, None)


def _former(at: float, held: Quantities) -> AccountCheckpoint:
    return AccountCheckpoint(at, AccountState(held, 0.0, {}, {}, active=False))


def _least(before: Quantities, after: Quantities) -> Quantities:
    return Quantities({name: min(amount, after[name]) for name, amount in before.items()})


def _add(counted: UsageAccumulator, role: str, begin: float, end: float, held: Quantities) -> None:
    for since, until in by_hours(begin, end):
        resources = counted.tally(math.floor(since / HOUR), role).resources
        for name, amount in held.items():
            integrals = resources.get(name)
            if integrals is None:
                integrals = resources[name] = Integrals()
            integrals.held += amount * (until - since)
