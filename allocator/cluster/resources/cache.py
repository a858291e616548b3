"""Caches bounded in bytes: for results of functions, and for long messages."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")
Content = TypeVar("Content", bound=Hashable)

_ENTRY = 1024
"""Approximate overhead of an entry in bytes."""
_GROWTH = 12
"""Bytes in memory for each byte of an entry's source; this high for ranges."""
_MISSES_A_CHECK = 4
"""After this number of messages without room, a `MessageCache` checks its oldest entry."""


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


class Entry(Generic[Content, Result]):
    """A long message and its parsed form, in a `MessageCache`.

    The class is no data class, because mypyc cannot compile a generic one.

    Args:
        data: The serialised message.
        parsed: The parsed message.
        content: The content from which the message was written; None if it was received only.
        cost: Approximate bytes of this entry.
    """

    __slots__ = ("checked", "content", "cost", "data", "parsed", "used")

    def __init__(self, data: bytes, parsed: Result, content: Content | None, cost: int) -> None:
        self.data = data
        self.parsed = parsed
        self.content = content
        self.cost = cost
        self.checked: int | None = None
        """The limit that the message was checked against last, and respects; None: not checked."""
        self.used = True
        """Whether the entry has been used since the cache last looked for entries to drop."""


class MessageCache(Generic[Content, Result]):
    """A cache of long messages that are written, sent, received and parsed again and again.

    One entry serves both directions: content → message, and message → parsed form.

    The messages of one round come in the same order in each round. If they take more than the
    cache's size, a cache that drops old entries for new ones would find none of them. A full cache
    therefore rejects new messages. For every `_MISSES_A_CHECK` rejected messages, the oldest entry
    is dropped if it has not been used since its last check. All operations cost O(1).

    Args:
        size: Approximate bytes of all entries together.
    """

    __slots__ = ("_by_content", "_by_data", "_free", "_misses", "_most")

    def __init__(self, size: int) -> None:
        self._most = size
        self._free = size
        self._misses = 0
        """Messages that have found no room since the last check."""
        self._by_data: OrderedDict[bytes, Entry[Content, Result]] = OrderedDict()
        self._by_content: dict[Content, Entry[Content, Result]] = {}

    def __len__(self) -> int:
        return len(self._by_data)

    def received(self, data: bytes) -> Entry[Content, Result] | None:
        """Return the entry of a message; None if the message is not cached."""
        entry = self._by_data.get(data)
        if entry is not None:
            entry.used = True
        return entry

    def written(self, content: Content) -> bytes | None:
        """Return the message that was written from a content; None if it is not cached."""
        entry = self._by_content.get(content)
        if entry is None:
            return None
        entry.used = True
        return entry.data

    def put(self, data: bytes, parsed: Result, size: int, content: Content | None = None) -> None:
        """Store a message with its parsed form, if there is room.

        Args:
            data: The serialised message.
            parsed: The parsed message.
            size: Bytes of the message and of its parsed form.
            content: The content from which the message was written; None if it was received.
        """
        former = self._by_data.get(data)
        if former is not None:
            if content is None or former.content is not None:
                return
            self._drop(former)  # the message was received before it was written
        cost = _ENTRY + size
        if cost > self._free:
            self._misses += 1
            if self._misses >= _MISSES_A_CHECK:
                self._misses = 0
                self._check_oldest()
        if cost <= self._free:
            self._free -= cost
            entry = Entry(data, parsed, content, cost)
            self._by_data[data] = entry
            if content is not None:
                self._by_content[content] = entry

    def _check_oldest(self) -> None:
        """Drop the oldest entry, or make it the newest if it has been used since its last check."""
        for data, entry in self._by_data.items():
            if entry.used:
                entry.used = False
                self._by_data.move_to_end(data)
            else:
                self._drop(entry)
            return

    def _drop(self, entry: Entry[Content, Result]) -> None:
        """Remove an entry."""
        del self._by_data[entry.data]
        if entry.content is not None:
            del self._by_content[entry.content]
        self._free += entry.cost
