"""Turns: shares a scarce resource by a queue, in which the longest-waiting member is first."""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Turns(Generic[T]):
    """A queue for a scarce resource: the member that has waited longest has the next turn.

    A member joins the queue when `order` first receives it, and moves to the end after its turn. So
    while a member waits, every other member has at most one turn before it.
    """

    def __init__(self) -> None:
        self._last = 0
        self._place: dict[T, int] = {}

    def order(self, members: Iterable[T]) -> list[T]:
        """Return the given members in the order of the queue, the longest-waiting first.

        New members join the queue, just before the member that had the last turn, because they may
        have arrived during that turn. Among themselves, new members keep the given order.
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
        """Move members to the end of the queue, because they cannot use a turn now."""
        self._last += 2
        for member in members:
            self._place[member] = self._last - 1

    def forget(self, member: T) -> None:
        """Remove a member from the queue, for example because it no longer exists."""
        self._place.pop(member, None)
