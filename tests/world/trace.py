"""A hash of all events in a world: equal runs have equal hashes."""

import hashlib
from collections import deque


class Trace:
    """A hash of all events.

    Args:
        keep: The number of latest lines to keep for display.
    """

    def __init__(self, keep: int = 4000) -> None:
        self._hash = hashlib.sha256()
        self.lines: deque[str] = deque(maxlen=keep)
        self.count = 0

    def note(self, instant: float, text: str, data: bytes = b"") -> None:
        """Add an event at an instant."""
        line = f"{instant:.6f} {text}"
        self._hash.update(line.encode("utf-8", "backslashreplace"))
        self._hash.update(data)
        self._hash.update(b"\n")
        self.lines.append(line)
        self.count += 1

    def digest(self) -> str:
        """Return the number."""
        return self._hash.hexdigest()
