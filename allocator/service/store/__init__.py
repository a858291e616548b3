"""Where what users owe outlives the service: the small interface that all stores share."""

from typing import Protocol

from allocator.cluster.memory import Memory, MemoryChanges


class StoreError(Exception):
    """A store cannot be used as it is; the message says which, why, and what to do."""


class StoreUnavailable(StoreError):  # noqa: N818 - it says what is the case, and may pass
    """A store does not answer now, and may later."""


class StoreInUse(StoreError):  # noqa: N818 - likewise
    """Another service has the file open."""


class StoreTaken(StoreError):  # noqa: N818 - likewise
    """Another service has written to a store that this one has opened."""


class StoreDamaged(StoreError):  # noqa: N818 - likewise
    """What is in a store is ours, and damaged."""


class Store(Protocol):
    """Holds one memory. Its methods block, and are called one at a time, from any thread."""

    @property
    def shared(self) -> bool:
        """Whether another service may save into it while this one has it open."""

    def load(self) -> Memory | None:
        """Return what was there when it was opened, whoever saved it; None: nothing ever was.

        Raises:
            StoreUnavailable: it does not answer.
            StoreError: what is there is damaged, or not ours; it has not been touched.
        """

    def recall(self) -> Memory | None:
        """Return what another service has saved since this one last loaded, recalled or saved.

        None: nobody has. What is returned is ours to replace from then on.

        Raises:
            StoreUnavailable: it does not answer.
            StoreError: what is there is damaged, or not ours; it has not been touched.
        """

    def take_over(self) -> None:
        """Have the next save replace what another service has saved since, which is then told so.

        Raises:
            StoreUnavailable: it does not answer.
            StoreError: what is there may not be read.
        """

    def save(self, changes: MemoryChanges) -> None:
        """Follow changes; from then on they survive a crash, all together.

        An error leaves what was there before; the next save that succeeds makes up for it. The
        first changes must be complete.

        Raises:
            StoreUnavailable: it does not answer, or has no room.
            StoreTaken: another service has saved meanwhile.
            StoreError: it is no longer the one that was opened.
        """

    def close(self) -> None:
        """Let go of it, so that another service can have it."""
