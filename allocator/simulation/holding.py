"""Holds: a machine is kept free for a user whose next task fits on no machine now.

Without holds, a large task could wait forever. If the policy skips users whose next task does not
fit, small tasks occupy all capacity that becomes free. A task that needs a whole machine then never
finds a free machine.

A hold keeps one machine for the user of this task. By the finish times known when the hold begins,
the machine that will be free for the task first is held. Until then, a task of another user starts
on the held machine only if the task finishes before that time (EASY backfilling). Run times are
taken from the trace.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal, TypeAlias

from allocator.fairness.turns import Turns

Blocking: TypeAlias = Literal["head-of-line", "skip", "hold", "hold-all"]
"""The rule for a user that is first in the order while its next task fits on no machine.

* "head-of-line": no task starts until the next task fits (Stateful DRF, Algorithm 1).
* "skip": the next user in the order is considered.
* "hold": as "skip", but a machine is held for the first user whose next task does not fit.
* "hold-all": as "skip", but a machine is held for each user whose next task does not fit.
"""


@dataclass(frozen=True, slots=True)
class Hold:
    """A machine that is kept free for one user's next task, which fits on no machine now."""

    user: int
    machine: int
    ready: int
    """Time in microseconds at which the machine will be free for the user's next task."""


class Holds:
    """All machines that are now kept free for a user's next task ("holds").

    There is at most one hold per user, and at most one per machine. Holds are given to
    users in turn: first to the user that has been without a hold the longest. This order
    bounds waits. Let n users submit tasks that run for at most R. A user's next task that fits on
    an empty machine then waits at most n·R.

    The bound holds under any policy and for any tasks of other users. Proof:

    1. A hold lasts at most R. All tasks on the machine end within R, and tasks that start meanwhile
       end before the hold does.
    2. Let the next task of user u wait from the instant t on. While u has no hold, other users hold
       each machine that suits u; with "hold", another user has the one hold. The holds follow each
       other without a gap.
    3. A hold that begins after t belongs to a user whose turn comes before the turn of u. Each
       other user has at most one of these holds. The user that has the hold at t has none, because
       its new place is behind u.
    4. So at most n - 1 holds end before the hold of u begins, and u waits for at most n holds.

    The bound is tight: on a machine for one task, n users that always submit tasks of run time R
    each wait n·R.

    Args:
        blocking: Determines how many users may have a hold at a time.
    """

    def __init__(self, blocking: Blocking) -> None:
        self._limit = {"hold": 1, "hold-all": None}.get(blocking, 0)
        self._by_user: dict[int, Hold] = {}
        self._by_machine: dict[int, Hold] = {}
        self._turns = Turns[int]()

    @property
    def full(self) -> bool:
        """True if the maximum number of holds, which the blocking rule sets, is reached."""
        return self._limit is not None and len(self._by_user) >= self._limit

    def in_turn(self, users: Iterable[int]) -> Iterator[int]:
        """Iterate over users for which a machine may be held now, longest without a hold first.

        The iteration ends when the maximum number of holds is reached. Users with a hold are left
        out.


        Args:
            users: Waiting users in the policy's order. This order decides between users that
                started to wait at the same time.
        """
        waiting = [] if self.full else [user for user in users if user not in self._by_user]
        yield from takewhile(lambda _user: not self.full, self._turns.order(waiting))

    def begin(self, hold: Hold) -> None:
        """Add a hold. The machine must not be held yet, and the user must have no hold."""
        self._by_user[hold.user] = self._by_machine[hold.machine] = hold

    def end(self, user: int) -> bool:
        """Remove a user's hold when its task starts. Return whether the user had a hold."""
        hold = self._by_user.pop(user, None)
        if hold is not None:
            del self._by_machine[hold.machine]
            self._turns.end(user)
        return hold is not None

    def on(self, machine: int) -> bool:
        """Return whether a machine is held for a user."""
        return machine in self._by_machine

    def keeps_off(self, user: int, machine: int, finish: int) -> bool:
        """Return whether another user's hold forbids a user to start a task on a machine.

        The task may start in three cases: the machine is not held, it is held for this user, or the
        task finishes before the hold's `ready` time (backfilling).

        Args:
            user: The user of the task to start.
            machine: The machine's number.
            finish: Time in microseconds at which the task would finish.
        """
        hold = self._by_machine.get(machine)
        return hold is not None and hold.user != user and finish > hold.ready

    def barred(self, user: int, finish: int) -> list[int]:
        """Return the machines on which a user may not start a task, because other users hold them.

        Args:
            user: The user of the task to start.
            finish: Time in microseconds at which the task would finish. A task that finishes before
                the held machine is needed may start on it.
        """
        return [machine for machine in self._by_machine if self.keeps_off(user, machine, finish)]
