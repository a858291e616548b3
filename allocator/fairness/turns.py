"""Turns: the one that has been longest without something is first."""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Turns(Generic[T]):
    """A queue for something scarce, in which each place is kept until its turn has come.

    A member gets its place when it is first seen, and a place behind all others when it has had its
    turn. So while a member waits, each other one has at most one turn before it.
    """

    def __init__(self) -> None:
        self._last = 0
        self._place: dict[T, int] = {}

    def order(self, members: Iterable[T]) -> list[T]:
        """Return members in order of their turns; those that are equal stay in the order given.

        A member that is new is placed before the one that has had its turn last, since it may have
        come while that turn lasted.
        """
        waiting = list(members)
        for member in waiting:
            self._place.setdefault(member, self._last - 1)
        return sorted(waiting, key=self._place.__getitem__)

    def end(self, member: T) -> None:
        """Place a member that has had its turn behind all others."""
        self._last += 2
        self._place[member] = self._last

    def defer(self, members: Iterable[T]) -> None:
        """Place members that have no use for their turns now behind all others."""
        self._last += 2
        for member in members:
            self._place[member] = self._last - 1

    def forget(self, member: T) -> None:
        """Forget a member that is gone."""
        self._place.pop(member, None)
