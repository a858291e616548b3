"""A simulator of Algorithm 1 in exact fractions, written from the paper alone.

The simulator shares no code with the project and uses only the standard library. Times are whole
seconds and δ is a fraction. The decay factor, δ to the power of a whole number, is therefore also a
fraction, and all priorities and ties are exact. The simulator is slow and small on purpose.
"""

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

NEAR = Fraction(1, 2**40)
"""Priorities with a smaller difference may be equal in floating point."""
Order = tuple[Fraction, Fraction, int]
"""Priority, its growth rate, and the user's number."""


@dataclass(frozen=True)
class Task:
    submitted: int
    runs: int
    user: int
    needs: tuple[int, ...]


@dataclass(frozen=True)
class Workload:
    tasks: tuple[Task, ...]
    """In order of submission."""
    capacity: tuple[int, ...]
    weights: tuple[int, ...]
    """By user; all users count from the start."""


@dataclass(frozen=True)
class Rule:
    """The rule for the next user: DRF without δ; with δ, SDRF as in the journal or the thesis."""

    delta: Fraction | None = None
    """The factor by which a commitment decays in a second."""
    form: Literal["journal", "thesis"] = "journal"


@dataclass
class Found:
    starts: list[int | None]
    """Start of each task, in seconds; None if the task never fits."""
    ties: int = 0
    """Number of choices between users with exactly equal priorities."""
    unclear: int = 0
    """Choices that followed the other simulator: priorities were equal or nearly equal."""


@dataclass
class _User:
    weight: Fraction
    holds: list[int]
    owes: list[Fraction]
    waiting: deque[int] = field(default_factory=deque)


def simulate(
    workload: Workload, rule: Rule, other_starts: Sequence[int | None] | None = None
) -> Found:
    """Start every task as Algorithm 1 does.

    Args:
        workload: The submitted tasks.
        rule: The rule for the next user.
        other: The starts of another simulator. If priorities differ by less than `NEAR`, rounding
            may have decided; the other simulator's choice is then taken, and counted.
    """
    return _Simulation(workload, rule, other_starts).run()


class _Simulation:
    def __init__(
        self, workload: Workload, rule: Rule, other_starts: Sequence[int | None] | None
    ) -> None:
        self.tasks, self.capacity = workload.tasks, workload.capacity
        self.rule, self.other = rule, other_starts
        self.total = sum(workload.weights)
        zeros = [0] * len(self.capacity)
        self.users = [
            _User(Fraction(weight), list(zeros), [Fraction(0)] * len(zeros))
            for weight in workload.weights
        ]
        self.free = list(self.capacity)
        self.now = 0
        self.running: list[tuple[int, int, int]] = []  # end, serial number, task
        self.found = Found([None] * len(self.tasks))
        self.serial = 0

    def run(self) -> Found:
        for number, task in enumerate(self.tasks):
            while self.running and self.running[0][0] <= task.submitted:
                self.end()
            self.move(task.submitted)
            if all(need <= most for need, most in zip(task.needs, self.capacity, strict=True)):
                self.users[task.user].waiting.append(number)
            self.fill()
        while self.running:
            self.end()
        return self.found

    def end(self) -> None:
        when, _serial, number = heapq.heappop(self.running)
        self.move(when)
        self.change(self.tasks[number], -1)
        self.fill()

    def change(self, task: Task, sign: int) -> None:
        holds = self.users[task.user].holds
        for resource, need in enumerate(task.needs):
            holds[resource] += sign * need
            self.free[resource] -= sign * need

    def move(self, when: int) -> None:
        """Let commitments move towards over-use, as Eq. 6 adds it up."""
        if self.rule.delta is not None and when > self.now:
            factor = self.rule.delta ** (when - self.now)
            for user in self.users:
                user.owes = [
                    over + (owed - over) * factor
                    for over, owed in zip(self.overuse(user), user.owes, strict=True)
                ]
        self.now = when

    def overuse(self, user: _User) -> list[Fraction]:
        """Eq. 7, with a weight's part of all instead of 1/n."""
        part = user.weight / self.total
        return [max(share - part, Fraction(0)) for share in self.shares(user)]

    def shares(self, user: _User) -> list[Fraction]:
        return [Fraction(h, most) for h, most in zip(user.holds, self.capacity, strict=True)]

    def order(self, number: int) -> Order:
        """Line 5 of Algorithm 1; ties go to slower growth, then to the lower number."""
        user = self.users[number]
        shares = self.shares(user)
        if self.rule.delta is None:
            return max(shares) / user.weight, Fraction(0), number
        over = self.overuse(user)
        if self.rule.form == "journal":
            levels = [max(shares) + owed for owed in user.owes]
        else:
            levels = [share + owed for share, owed in zip(shares, user.owes, strict=True)]
        top = max(levels)
        growth = max(
            o - owed for level, o, owed in zip(levels, over, user.owes, strict=True) if level == top
        )
        return top / user.weight, growth / user.weight, number

    def fill(self) -> None:
        while (number := self.choose()) is not None:
            user = self.users[number]
            task = user.waiting.popleft()
            self.change(self.tasks[task], 1)
            self.found.starts[task] = self.now
            self.serial += 1
            heapq.heappush(self.running, (self.now + self.tasks[task].runs, self.serial, task))

    def choose(self) -> int | None:
        """Return the user whose task starts next; None if the next user has to wait."""
        ranked = sorted(self.order(i) for i, user in enumerate(self.users) if user.waiting)
        if not ranked:
            return None
        least = ranked[0][0]
        equals = [number for priority, _growth, number in ranked if priority - least < NEAR]
        self.found.ties += sum(priority == least for priority, *_ in ranked) > 1
        first = equals[0] if self.fits(equals[0]) else None
        if self.other is None or len(equals) == 1 or self.agrees(first):
            return first
        for number in equals:
            if self.fits(number) and self.agrees(number):
                self.found.unclear += 1
                return number
        if first is not None and not all(map(self.fits, equals)):
            self.found.unclear += 1
            return None
        return first

    def fits(self, number: int) -> bool:
        needs = self.tasks[self.users[number].waiting[0]].needs
        return all(need <= free for need, free in zip(needs, self.free, strict=True))

    def agrees(self, number: int | None) -> bool:
        """Return whether the other simulator starts this user's next task now."""
        assert self.other is not None
        return number is not None and self.other[self.users[number].waiting[0]] == self.now
