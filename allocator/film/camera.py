"""Records a film, an animation of a cluster: pictures of users and agents at regular intervals.

The number of pictures is bounded, and each distinct state is stored once.
"""

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

MOST_FRAMES = 1440
"""Maximum number of pictures in a film: one a minute for a day."""
MOST_CELLS = 250_000
"""Maximum number of users and agents in all pictures together. Beyond this limit, every other
picture is dropped."""
MAX_OBSERVATIONS = 3_000_000
"""Maximum number of users and agents in all pictures that a camera takes, also in dropped pictures.
With many users and agents, `interval` therefore returns a longer interval."""
MOST_USERS = 200
"""Maximum number of users in a picture, and in a film: the users with the largest shares and
commitments."""
MOST_AGENTS = 2000
"""Maximum number of agents in a picture; further agents are left out."""
MOST_MARKS = 200
"""Maximum number of marks, which are events on the film's time axis; later marks are left out."""
MOST_NEWCOMERS = 50
"""Maximum number of users whose first appearance is marked."""

_INTERVALS = (
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0),
    *(3600.0, 7200.0, 21600.0, 43200.0, 86400.0),
)

State = TypeVar("State", bound=Hashable)


def interval(seconds: float, size: int) -> float:
    """Return a suitable interval between two pictures: a round number of seconds.

    Args:
        seconds: Duration of the film, in seconds.
        size: Number of users and agents.
    """
    limit = max(min(MOST_FRAMES, MAX_OBSERVATIONS // max(size, 1)), 1)
    return next(
        (candidate for candidate in _INTERVALS if seconds / candidate <= limit), seconds / limit
    )


class UserNow(NamedTuple):
    """A user's present state, as input of `Camera.take`. Ratios are fractions of the cluster."""

    name: str
    parent: str
    """The role below which the user competes; empty for a user at the top."""
    share: float
    commitment: float
    entitlement: float
    turn: int
    """Place among the users at the same level that want offers, from 1; 0: the user wants no
    offers."""
    waits: str
    """Reason why the user gets nothing more, in a few words; empty if unknown."""
    held: Mapping[str, int]
    """Thousandths of units, by resource."""


class AgentNow(NamedTuple):
    """An agent's resources and its users' holdings now, as input of `Camera.take`.

    Amounts are in thousandths of units, by resource.
    """

    name: str
    state: str
    """Reason why the agent is not offered, in words; empty if the agent is offered."""
    total: Mapping[str, int]
    held: Mapping[str, Mapping[str, int]]
    """Held amounts, by user."""


class Numbers(Generic[State]):
    """Assigns numbers from 0 to distinct states, so that a film can store each state once."""

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
"""An agent's state, its total resources, and the resources that each user holds."""


class UserFrame(NamedTuple):
    """A user in a stored picture, in integers.

    `share`, `commitment` and `entitlement` are ten-thousandths of the cluster. `turn` is as in
    `UserNow`.
    """

    share: int
    commitment: int
    entitlement: int
    turn: int
    waits: int
    """Index in `Reel.waits`."""
    held: int
    """Index in `Reel.held`."""


@dataclass(slots=True)
class Frame:
    """One picture: users by name, and for each agent the index of its state in `Reel.cells`."""

    time: float
    users: dict[str, UserFrame]
    agents: dict[str, int]


@dataclass(slots=True)
class Reel:
    """The stored data of a film: all pictures, and the states to which they refer by number."""

    frames: list[Frame] = field(default_factory=list)
    parents: dict[str, str] = field(default_factory=dict)
    """The role below which each user competes; empty for a user at the top."""
    cells: Numbers[Cell] = field(default_factory=Numbers)
    held: Numbers[Amounts] = field(default_factory=Numbers)
    waits: Numbers[str] = field(default_factory=Numbers)
    marks: list[tuple[float, str]] = field(default_factory=list)
    """Time and description of each mark."""
    agents_left_out: int = 0
    """Largest number of agents missing in one picture."""
    users_left_out: int = 0
    """Largest number of users missing in one picture."""
    marks_left_out: int = 0


class Camera:
    """Records a film of a cluster: pictures at regular intervals, and marked events, in `reel`.

    The caller calls `due` at any time, and `take` if a picture is due. A caller that knows the time
    of the next change calls `due_between` instead. A picture then shows the state in which an
    interval ends. A state of a few milliseconds is thus rarely shown.

    Args:
        every: Seconds from one picture to the next; doubled whenever there are too many pictures.
    """

    def __init__(self, every: float) -> None:
        self.reel = Reel()
        self._every = every
        self._interval = 0
        """Number of the interval in which the latest picture was taken."""
        self._last: float | None = None
        self._seen: set[str] = set()
        """Users that have wanted offers."""
        self._agents: set[str] = set()
        """Agents in the previous picture."""

    @property
    def every(self) -> float:
        """Present interval between pictures, in seconds."""
        return self._every

    def due(self, now: float) -> bool:
        """Return whether to take a picture: a new interval has begun, or the clock was set back."""
        return self._last is None or now < self._last or self._number(now) != self._interval

    def due_between(self, earlier: float, later: float) -> bool:
        """Return whether a picture of the state at `earlier` is due before a change at `later`."""
        if self._last is None:
            return later != earlier
        return self._last != earlier and self._number(earlier) != self._number(later)

    def take(self, now: float, users: Iterable[UserNow], agents: Iterable[AgentNow]) -> None:
        """Add a picture to the film. A picture with the same time is replaced.

        Args:
            now: The time in seconds.
            users: All users.
            agents: All agents.
        """
        reel = self.reel
        if self._last == now:
            reel.frames.pop()
        reel.frames.append(Frame(now, self._lines(users), self._cells(agents)))
        self._mark_changes(now)
        self._last = now
        self._thin_out()
        self._interval = self._number(now)

    def mark(self, now: float, description: str) -> None:
        """Mark an event on the film's time axis.

        Args:
            now: Time of the event in seconds.
            description: Text that the player shows.
        """
        if len(self.reel.marks) < MOST_MARKS:
            self.reel.marks.append((now, description))
        else:
            self.reel.marks_left_out += 1

    def _number(self, now: float) -> int:
        return math.floor(
            now / self._every + 1e-6
        )  # rounding: the sum of ten tenths is less than 1

    def _mark_changes(self, now: float) -> None:
        """Mark events since the last picture: new and lost agents, users that first want offers."""
        frame = self.reel.frames[-1]
        newcomers = [name for name, line in frame.users.items() if line.turn]
        newcomers = [name for name in newcomers if name not in self._seen]
        newcomers = newcomers[: MOST_NEWCOMERS - len(self._seen)]
        self._seen.update(newcomers)
        if newcomers:
            remainder = f" and {len(newcomers) - 1:,} more" if len(newcomers) > 1 else ""
            self.mark(now, f"{newcomers[0]}{remainder} began to want offers")
        agents = frame.agents.keys()
        for names, change in ((agents - self._agents, "came"), (self._agents - agents, "went")):
            if names and self._agents:
                remainder = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
                self.mark(now, f"agent {min(names)}{remainder} {change}")
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
        reel, remaining = self.reel, iter(agents)
        cells = {}
        for agent in islice(remaining, MOST_AGENTS):
            held = tuple((user, _amounts(amounts)) for user, amounts in sorted(agent.held.items()))
            cells[agent.name] = reel.cells[agent.state, _amounts(agent.total), held]
        reel.agents_left_out = max(reel.agents_left_out, sum(1 for _ in remaining))
        return cells

    def _thin_out(self) -> None:
        frames = self.reel.frames
        size = max(len(frames[-1].users) + len(frames[-1].agents), 1)
        if len(frames) > max(min(MOST_FRAMES, MOST_CELLS // size), 2):
            del frames[1:-1:2]
            self._every *= 2


def _amounts(amounts: Mapping[str, int]) -> Amounts:
    return tuple(sorted(amounts.items()))
