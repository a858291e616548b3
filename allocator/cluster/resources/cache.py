"""Remembers results by their arguments, within a bound in bytes."""

from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")

_ENTRY = 1024
"""Bytes that an entry takes beside what it was made from, in round numbers."""
_GROWTH = 12
"""Bytes in memory for each byte that an entry was made from; ranges need as many."""


class Cache(Generic[Key, Result]):
    """Holds on to what was made lately.

    There are two generations: what is new goes into the younger one, and when that is full it
    becomes the older one, and what was the older one goes. What is used again and again is made
    again once in a while, so a hit costs no more than a look into a dictionary.

    Args:
        size: Bytes of both generations together, each entry with what it takes in round numbers.
            What takes more than a hundredth of that alone is not remembered.
    """

    __slots__ = ("_left", "_most", "_old", "_young")

    def __init__(self, size: int) -> None:
        self._most = size // 2
        self._left = self._most
        self._young: dict[Key, Result] = {}
        self._old: dict[Key, Result] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: Key) -> Result | None:
        """Return what is remembered for a key; None: nothing."""
        found = self._young.get(key)
        return found if found is not None else self._old.get(key)

    def put(self, key: Key, result: Result, size: int) -> Result:
        """Remember a result that is not None, made from so many bytes, and return it."""
        taken = _ENTRY + size * _GROWTH
        if taken * 50 <= self._most:
            self._left -= taken
            if self._left < 0:
                self._old, self._young = self._young, {}
                self._left = self._most - taken
            self._young[key] = result
        return result
