"""Machines held for users whose next task fits nowhere, so that no big task waits for ever.

Where users are skipped, small tasks take whatever becomes free, and a task that needs a whole
machine never finds one. So one is held for it: the machine that will be free for it first, as far
as is known when it is chosen. Until then only tasks run there that will have ended by then (EASY
backfilling; run times are the trace's).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal, TypeAlias

from allocator.fairness.turns import Turns

Blocking: TypeAlias = Literal["head-of-line", "skip", "hold", "hold-all"]
"""What happens when the next task of the user that is next fits nowhere.

"head-of-line": nothing starts until it does (Stateful DRF, Algorithm 1); "skip": the next user is
looked at; "hold": likewise, but a machine is held for the first such user; "hold-all": for each.
"""


@dataclass(frozen=True, slots=True)
class Hold:
    """A machine that is held for a user."""

    user: int
    machine: int
    ready: int
    """When it will be free for the user's next task, in microseconds."""


class Holds:
    """Which machines are held for whom; at most one for a user.

    The user that has been longest without one is first. Let n users submit tasks that run for R at
    most. A user's next task that fits on an empty machine then waits at most n·R. This holds under
    any policy, for any tasks of other users (docs/simulation.md proves it).

    Args:
        blocking: Says for how many users at a time.
    """

    def __init__(self, blocking: Blocking) -> None:
        self._most = {"hold": 1, "hold-all": None}.get(blocking, 0)
        self._of: dict[int, Hold] = {}
        self._on: dict[int, Hold] = {}
        self._turns = Turns[int]()

    @property
    def full(self) -> bool:
        """Whether nobody else may have one now."""
        return self._most is not None and len(self._of) >= self._most

    def in_turn(self, users: Iterable[int]) -> Iterator[int]:
        """Go through users for whom a machine may be held now, in order of their turns.

        Args:
            users: In the policy's order, which decides between users that come at one time.
        """
        waiting = [] if self.full else [user for user in users if user not in self._of]
        yield from takewhile(lambda _user: not self.full, self._turns.order(waiting))

    def begin(self, hold: Hold) -> None:
        """Hold a machine that nobody holds."""
        self._of[hold.user] = self._on[hold.machine] = hold

    def end(self, user: int) -> bool:
        """Hold nothing for a user any longer; return whether anything was."""
        hold = self._of.pop(user, None)
        if hold is not None:
            del self._on[hold.machine]
            self._turns.end(user)
        return hold is not None

    def on(self, machine: int) -> bool:
        """Whether a machine is held."""
        return machine in self._on

    def bars(self, user: int, machine: int, finish: int) -> bool:
        """Whether a task of a user that would end then is kept off a machine."""
        hold = self._on.get(machine)
        return hold is not None and hold.user != user and finish > hold.ready

    def barred(self, user: int, finish: int) -> list[int]:
        """Return all machines that such a task is kept off."""
        return [machine for machine in self._on if self.bars(user, machine, finish)]
