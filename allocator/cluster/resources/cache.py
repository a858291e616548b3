"""A cache for results of functions, bounded in bytes."""

from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")

_ENTRY = 1024
"""Approximate overhead of an entry in bytes."""
_GROWTH = 12
"""Bytes in memory for each byte of an entry's source; this high for ranges."""


class Cache(Generic[Key, Result]):
    """A cache that drops old results in two generations, so that a hit is cheap.

    New results enter the younger generation. When the younger generation is full, it becomes the
    older one, and the previous older one is dropped. Frequently used results are therefore
    recomputed once in a while. In return, a hit costs no more than a dictionary lookup.

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
        """Return the cached result for a key; None if the result is not cached."""
        result = self._young.get(key)
        return result if result is not None else self._old.get(key)

    def put(self, key: Key, result: Result, size: int, *, compact: bool = False) -> Result:
        """Store a result, which must not be None, and return the same result.

        Args:
            key: The arguments of the function.
            result: The function's result.
            size: Bytes of the data that the result was computed from.
            compact: Whether key and result take no more memory than `size`, as a bit mask does.
        """
        cost = _ENTRY + size * (1 if compact else _GROWTH)
        if cost * 50 <= self._most:
            self._free -= cost
            if self._free < 0:
                self._old, self._young = self._young, {}
                self._free = self._most - cost
            self._young[key] = result
        return result
