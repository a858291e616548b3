"""Where what users owe outlives the service: the small interface that all stores share."""

from typing import Protocol

from allocator.cluster.memory import Changes, Memory


class StoreError(Exception):
    """A store cannot be used as it is; the message says which, why, and what to do."""


class StoreUnavailable(StoreError):  # noqa: N818 - it says what is the case, and may pass
    """A store does not answer now, and may later."""


class Store(Protocol):
    """Holds one memory. Its methods block, and are called one at a time, from any thread."""

    def load(self) -> Memory | None:
        """Return what was saved last, whoever did; None: nothing ever was.

        Raises:
            StoreUnavailable: it does not answer.
            StoreError: what is there is damaged, or not ours; it has not been touched.
        """

    def save(self, changes: Changes) -> None:
        """Follow changes; from then on they survive a crash, all together.

        An error leaves what was there before; the next save that succeeds makes up for it. The
        first changes must be complete.

        Raises:
            StoreUnavailable: it does not answer, or has no room.
            StoreError: it is no longer the one that was opened.
        """

    def close(self) -> None:
        """Let go of it, so that another service can have it."""
