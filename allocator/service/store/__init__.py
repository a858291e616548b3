"""Stores that keep users' commitments across restarts of the service; interface of all stores."""

from typing import Protocol

from allocator.cluster.memory import Memory, MemoryChanges


class StoreError(Exception):
    """A store cannot be used; the message names the store, the reason and the remedy."""


class StoreUnavailable(StoreError):  # noqa: N818 - the name states a condition that may pass
    """A store does not answer now, and may answer later."""


class StoreInUse(StoreError):  # noqa: N818 - the name states a condition
    """Another service has the store's file open."""


class StoreTaken(StoreError):  # noqa: N818 - the name states a condition
    """Another service has written to a store that this service has open."""


class StoreDamaged(StoreError):  # noqa: N818 - the name states a condition
    """The content of a store was written by Longshare and is damaged."""


class Store(Protocol):
    """Storage of one memory.

    The methods block. Callers call one method at a time, from any thread.
    """

    @property
    def shared(self) -> bool:
        """True if another service may save into the store while this service has it open."""

    def load(self) -> Memory | None:
        """Return the memory that was stored when the store was opened; None if there was none.

        Raises:
            StoreUnavailable: the store does not answer.
            StoreError: the content is damaged or foreign; the store has not touched it.
        """

    def recall(self) -> Memory | None:
        """Return the memory that another service has saved since the last load, recall or save.

        From then on this service may replace the returned memory. The result is None if no service
        but this one has saved.

        Raises:
            StoreUnavailable: the store does not answer.
            StoreError: the content is damaged or foreign; the store has not touched it.
        """

    def take_over(self) -> None:
        """Let the next save replace the content, even if another service has saved since.

        The other service's next save then fails with StoreTaken.

        Raises:
            StoreUnavailable: the store does not answer.
            StoreError: the content may not be read.
        """

    def save(self, changes: MemoryChanges) -> None:
        """Store changes durably and atomically.

        An error leaves the former content in place, and the next successful save includes the
        failed changes. The first changes must be complete.

        Raises:
            StoreUnavailable: the store does not answer or is full.
            StoreTaken: another service has saved meanwhile.
            StoreError: the store is no longer the one that was opened.
        """

    def close(self) -> None:
        """Release the store, so that another service can open it."""
