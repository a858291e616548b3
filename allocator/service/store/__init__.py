"""Stores that keep users' commitments across restarts of the service, and their interface."""

from typing import Protocol

from allocator.users.memory import Memory, MemoryChanges


class StoreError(Exception):
    """A store or database cannot be used; the message names it, the reason and the remedy."""


class StoreUnavailable(StoreError):  # noqa: N818 - the name states a condition that may pass
    """The store does not answer now, but may answer later."""


class StoreInUse(StoreError):  # noqa: N818 - the name states a condition
    """Another service has the store's file open."""


class OtherScheduler(StoreError):  # noqa: N818 - the name states a condition
    """A store or database contains users of another scheduler."""


class StoreTaken(StoreError):  # noqa: N818 - the name states a condition
    """A save failed because another service has written to the store meanwhile."""


class StoreDamaged(StoreError):  # noqa: N818 - the name states a condition
    """A store's content was written by Longshare, but is damaged."""


class Store(Protocol):
    """Storage that keeps an engine's commitments and operator settings.

    All methods block. Callers call one method at a time, from any thread.
    """

    @property
    def shared(self) -> bool:
        """Whether another service may save into the store while this service has it open."""

    @property
    def left_out(self) -> int:
        """Number of users whose commitments the latest save left out, because there is no room."""

    def load(self) -> Memory | None:
        """Return the commitments and operator settings that the store contained when it was opened.

        The result is None if the store was empty.

        Raises:
            StoreUnavailable: the store does not answer.
            StoreError: the content is damaged or foreign; it is left unchanged.
        """

    def recall(self) -> Memory | None:
        """Return commitments and operator settings that another service has saved meanwhile.

        "Meanwhile" means since this service's last load, recall or save. The result is None if no
        other service has saved. The next save of this service may replace the returned content.

        Raises:
            StoreUnavailable: the store does not answer.
            StoreError: the content is damaged or foreign; it is left unchanged.
        """

    def take_over(self) -> None:
        """Allow the next save to replace the content even if another service has saved meanwhile.

        The other service's next save then fails with StoreTaken.

        Raises:
            StoreUnavailable: the store does not answer.
            StoreError: access to the content is denied.
        """

    def save(self, changes: MemoryChanges) -> None:
        """Store changes of commitments and operator settings durably and atomically.

        An error leaves the former content in place, and the next successful save includes the
        failed changes.

        Args:
            changes: Changes since the last save. The first changes must contain all commitments and
                settings.

        Raises:
            StoreUnavailable: the store does not answer or is full.
            StoreTaken: another service has saved meanwhile.
            StoreError: the store is no longer the one that was opened.
        """

    def close(self) -> None:
        """Release the store, so that another service can open it."""
