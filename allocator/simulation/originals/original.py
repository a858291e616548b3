"""Base classes of emulated schedulers, which sample usage only at certain times."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import ClassVar, TypeAlias

from typing_extensions import override

from allocator.fairness.quantities import Quantities

Key: TypeAlias = tuple[float, ...]
"""Sort key of a user; the user with the smallest key is first."""


class EmulatedScheduler(ABC):
    """An emulated scheduler: keeps users' accounts as the original does, and gives their sort keys.

    All times are seconds since the trace's origin and never decrease from call to call.
    """

    PERIOD: ClassVar[float]
    """The original system's default period between two samples, in seconds."""

    @abstractmethod
    def join(self, user: int, weight: float, commitment: float) -> None:
        """Add a user.

        Args:
            user: The user's number.
            weight: The user's weight.
            commitment: Initial usage, as a fraction of the cluster.
        """

    @abstractmethod
    def started(self, user: int, demand: Quantities, now: float) -> None:
        """Record that a user's task has started.

        Args:
            user: The user's number.
            demand: Resources of the task.
            now: The current time in seconds.
        """

    @abstractmethod
    def ended(self, user: int, demand: Quantities, since: float, now: float) -> None:
        """Record that a user's task has ended.

        Args:
            user: The user's number.
            demand: Resources of the task.
            since: Time in seconds at which the task started.
            now: The current time in seconds.
        """

    @abstractmethod
    def renewed(self, now: float) -> Collection[int] | None:
        """Advance the clock to a time in seconds, and take the samples due until then.

        Returns:
            The users whose sort keys changed; None means that all users' keys may have changed.
        """

    @abstractmethod
    def key(self, user: int) -> Key:
        """Return a user's sort key.

        Users are served in ascending order of keys. A key changes only when the scheduler samples
        usage, and when a task of the user starts or ends.
        """

    def wants(self, user: int, *, waiting: bool) -> None:  # noqa: B027 - most systems ignore waiting tasks
        """Record whether a user has a waiting task. Schedulers that count demands override this."""


class Periodic(EmulatedScheduler):
    """An emulated scheduler that samples all users together, at each multiple of a period.

    Args:
        period: Seconds between two samples.
    """

    def __init__(self, period: float) -> None:
        self.period = period
        self._samples = 0

    @property
    def last(self) -> float:
        """Time of the last sample in seconds; the first sample is at 0."""
        return self._samples * self.period

    @override
    def renewed(self, now: float) -> Collection[int] | None:
        samples = int(now // self.period)
        if samples == self._samples:
            return ()
        count, self._samples = samples - self._samples, samples
        self.sample(count)
        return None

    @abstractmethod
    def sample(self, count: int) -> None:
        """Update the accounts for one or more periods without any event in between.

        Args:
            count: Number of periods that ended; the last one ended at `last`.
        """
