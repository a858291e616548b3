"""Takes pictures of a cluster over time: bounded in number, and each state kept once."""

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

MOST_FRAMES = 1440
"""A day by the minute."""
MOST_CELLS = 250_000
"""Of all frames together: a user or an agent in one frame. Beyond, every other frame is dropped."""
MOST_LOOKS = 3_000_000
"""Likewise, of those that a camera is shown; it leaves out most of them if they are many."""
MOST_USERS = 200
"""In a frame, and in a film: those who hold and owe most."""
MOST_AGENTS = 2000
"""In a frame: the first."""
MOST_MARKS = 200
"""Of what happened: the first."""
MOST_NEWCOMERS = 50
"""Users of whom it is noted when they come."""

_INTERVALS = (
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0),
    *(3600.0, 7200.0, 21600.0, 43200.0, 86400.0),
)

State = TypeVar("State", bound=Hashable)


def interval(seconds: float, size: int) -> float:
    """Return how far pictures are to be apart: a round time.

    Args:
        seconds: How long it all takes.
        size: How many users and agents there are.
    """
    most = max(min(MOST_FRAMES, MOST_LOOKS // max(size, 1)), 1)
    return next((each for each in _INTERVALS if seconds / each <= most), seconds / most)


class UserNow(NamedTuple):
    """How a user stands. Ratios are fractions of the cluster."""

    name: str
    parent: str
    """The role below which it competes; empty: it is at the top."""
    share: float
    commitment: float
    entitlement: float
    turn: int
    """Its place among those at its level that want offers, from 1; 0: it wants none."""
    waits: str
    """What keeps it from more, in a few words; empty: nobody knows."""
    held: Mapping[str, int]
    """Thousandths of units, by resource."""


class AgentNow(NamedTuple):
    """What an agent has, and who holds it, in thousandths of units by resource."""

    name: str
    state: str
    """Why it is not offered, in words; empty: it is."""
    total: Mapping[str, int]
    held: Mapping[str, Mapping[str, int]]
    """By user."""


class Numbers(Generic[State]):
    """Gives each different state a number, from 0."""

    def __init__(self) -> None:
        self._numbers: dict[State, int] = {}

    def __getitem__(self, state: State) -> int:
        return self._numbers.setdefault(state, len(self._numbers))

    def __len__(self) -> int:
        return len(self._numbers)

    def states(self) -> list[State]:
        """Return all states, in order of their numbers."""
        return list(self._numbers)


Amounts = tuple[tuple[str, int], ...]
Cell = tuple[str, Amounts, tuple[tuple[str, Amounts], ...]]
"""An agent's state, what it has, and what each user holds of it."""


class UserFrame(NamedTuple):
    """How a user stands, for storing: ratios in ten-thousandths, states by number."""

    share: int
    commitment: int
    entitlement: int
    turn: int
    waits: int
    held: int


@dataclass(slots=True)
class Frame:
    """One picture: users' lines and agents' cells, by name and by the cell's number."""

    time: float
    users: dict[str, UserFrame]
    agents: dict[str, int]


@dataclass(slots=True)
class Reel:
    """All pictures, and what they refer to by number."""

    frames: list[Frame] = field(default_factory=list)
    parents: dict[str, str] = field(default_factory=dict)
    cells: Numbers[Cell] = field(default_factory=Numbers)
    held: Numbers[Amounts] = field(default_factory=Numbers)
    waits: Numbers[str] = field(default_factory=Numbers)
    marks: list[tuple[float, str]] = field(default_factory=list)
    agents_left_out: int = 0
    """The most that a frame lacks."""
    users_left_out: int = 0
    marks_left_out: int = 0


class Camera:
    """Takes a picture whenever one is due.

    Args:
        every: Seconds from one picture to the next; doubled whenever there are too many.
    """

    def __init__(self, every: float) -> None:
        self.reel = Reel()
        self._every = every
        self._interval = 0
        """Number of the one that has its picture."""
        self._last: float | None = None
        self._seen: set[str] = set()
        """Users that have wanted offers."""
        self._agents: set[str] = set()
        """In the frame before."""

    @property
    def every(self) -> float:
        """Seconds from one picture to the next, now."""
        return self._every

    def due(self, now: float) -> bool:
        """Whether it is time for a picture; also when a clock has been set back."""
        return self._last is None or now < self._last or self._number(now) != self._interval

    def take(self, now: float, users: Iterable[UserNow], agents: Iterable[AgentNow]) -> None:
        """Take a picture; one of the same instant is replaced."""
        reel = self.reel
        if self._last == now:
            reel.frames.pop()
        reel.frames.append(Frame(now, self._lines(users), self._cells(agents)))
        self._mark_changes(now)
        self._last = now
        self._thin_out()
        self._interval = self._number(now)

    def mark(self, now: float, what: str) -> None:
        """Note that something has happened."""
        if len(self.reel.marks) < MOST_MARKS:
            self.reel.marks.append((now, what))
        else:
            self.reel.marks_left_out += 1

    def _number(self, now: float) -> int:
        return math.floor(now / self._every + 1e-6)  # the sum of ten tenths is less than one

    def _mark_changes(self, now: float) -> None:
        """Note who wants offers for the first time, and which agents came and went."""
        frame = self.reel.frames[-1]
        newcomers = [name for name, line in frame.users.items() if line.turn]
        newcomers = [name for name in newcomers if name not in self._seen]
        newcomers = newcomers[: MOST_NEWCOMERS - len(self._seen)]
        self._seen.update(newcomers)
        if newcomers:
            others = f" and {len(newcomers) - 1:,} more" if len(newcomers) > 1 else ""
            self.mark(now, f"{newcomers[0]}{others} began to want offers")
        agents = frame.agents.keys()
        for names, did in ((agents - self._agents, "came"), (self._agents - agents, "went")):
            if names and self._agents:
                others = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
                self.mark(now, f"agent {min(names)}{others} {did}")
        self._agents = set(agents)

    def _lines(self, users: Iterable[UserNow]) -> dict[str, UserFrame]:
        reel = self.reel
        by_size = sorted(users, key=lambda user: -max(user.share, user.commitment))
        reel.users_left_out = max(reel.users_left_out, len(by_size) - MOST_USERS)
        lines = {}
        for user in by_size[:MOST_USERS]:
            reel.parents[user.name] = user.parent
            ratios = (user.share, user.commitment, user.entitlement)
            share, commitment, entitlement = (round(10_000 * ratio) for ratio in ratios)
            waits, held = reel.waits[user.waits], reel.held[_amounts(user.held)]
            lines[user.name] = UserFrame(share, commitment, entitlement, user.turn, waits, held)
        return lines

    def _cells(self, agents: Iterable[AgentNow]) -> dict[str, int]:
        reel, rest = self.reel, iter(agents)
        cells = {}
        for agent in islice(rest, MOST_AGENTS):
            held = tuple((user, _amounts(each)) for user, each in sorted(agent.held.items()))
            cells[agent.name] = reel.cells[agent.state, _amounts(agent.total), held]
        reel.agents_left_out = max(reel.agents_left_out, sum(1 for _ in rest))
        return cells

    def _thin_out(self) -> None:
        frames = self.reel.frames
        size = max(len(frames[-1].users) + len(frames[-1].agents), 1)
        if len(frames) > max(min(MOST_FRAMES, MOST_CELLS // size), 2):
            del frames[1:-1:2]
            self._every *= 2


def _amounts(amounts: Mapping[str, int]) -> Amounts:
    return tuple(sorted(amounts.items()))
