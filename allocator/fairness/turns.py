"""Turns: a queue in which the member that has waited longest is first."""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Turns(Generic[T]):
    """A queue for a scarce resource: the member that has waited longest has the next turn.

    A new member gets a place when it is first seen, and a place at the end after its turn. So while
    a member waits, every other member has at most one turn before it.
    """

    def __init__(self) -> None:
        self._last = 0
        self._place: dict[T, int] = {}

    def order(self, members: Iterable[T]) -> list[T]:
        """Return the given members sorted by their places in the queue.

        Members with equal places keep the given order. A new member is placed before the member
        that had its turn last, because it may have arrived during that turn.
        """
        waiting = list(members)
        for member in waiting:
            self._place.setdefault(member, self._last - 1)
        return sorted(waiting, key=self._place.__getitem__)

    def end(self, member: T) -> None:
        """Record that a member has had its turn: move the member to the end."""
        self._last += 2
        self._place[member] = self._last

    def defer(self, members: Iterable[T]) -> None:
        """Move members to the end because they cannot use their turns now."""
        self._last += 2
        for member in members:
            self._place[member] = self._last - 1

    def forget(self, member: T) -> None:
        """Remove a member from the queue, for example because it no longer exists."""
        self._place.pop(member, None)
