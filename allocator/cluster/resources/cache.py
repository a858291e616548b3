"""A cache of results by their arguments, bounded in bytes."""

from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")

_ENTRY = 1024
"""Approximate overhead of an entry in bytes."""
_GROWTH = 12
"""Bytes in memory for each byte of an entry's source; this high for ranges."""


class Cache(Generic[Key, Result]):
    """A cache with two generations.

    New results enter the younger generation. When the younger generation is full, it becomes the
    older one, and the old one is dropped. Frequently used results are recomputed once in a while,
    so that a hit costs no more than a dictionary lookup.

    Args:
        size: Approximate bytes of both generations together. A result that takes more than a
            hundredth of the size is not cached.
    """

    __slots__ = ("_free", "_most", "_old", "_young")

    def __init__(self, size: int) -> None:
        self._most = size // 2
        self._free = self._most
        self._young: dict[Key, Result] = {}
        self._old: dict[Key, Result] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: Key) -> Result | None:
        """Return the cached result of a key; None if not cached."""
        result = self._young.get(key)
        return result if result is not None else self._old.get(key)

    def put(self, key: Key, result: Result, size: int) -> Result:
        """Cache a result, which must not be None, and return it.

        Args:
            key: The arguments of the result.
            result: The result.
            size: Bytes of the data that the result was computed from.
        """
        cost = _ENTRY + size * _GROWTH
        if cost * 50 <= self._most:
            self._free -= cost
            if self._free < 0:
                self._old, self._young = self._young, {}
                self._free = self._most - cost
            self._young[key] = result
        return result
