"""Interface of emulated schedulers, which sample their users from time to time."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import ClassVar, TypeAlias

from typing_extensions import override

from allocator.fairness.quantities import Quantities

Key: TypeAlias = tuple[float, ...]
"""A sort key of a user; the user with the smallest key is next."""


class Original(ABC):
    """Users' accounts as the original system keeps them, and the keys that order the users.

    Times are seconds from the trace's origin. Each call is no earlier than the previous call.
    """

    PERIOD: ClassVar[float]
    """Default seconds between two samples in the original system."""

    @abstractmethod
    def join(self, user: int, weight: float, commitment: float) -> None:
        """Add a user.

        Args:
            user: The user's number.
            weight: The user's weight.
            commitment: Assumed past use, as a fraction of the cluster.
        """

    @abstractmethod
    def started(self, user: int, demand: Quantities, now: float) -> None:
        """Record that a task of a user has started."""

    @abstractmethod
    def ended(self, user: int, demand: Quantities, since: float, now: float) -> None:
        """Record that a task has ended.

        Args:
            user: The user's number.
            demand: Resources of the task.
            since: Seconds at which the task started.
            now: The current time in seconds.
        """

    @abstractmethod
    def renewed(self, now: float) -> Collection[int] | None:
        """Advance the clock, in seconds. Return the users with changed keys; None: all users."""

    @abstractmethod
    def key(self, user: int) -> Key:
        """Return a user's key. It changes only at samples and at starts and ends of its tasks."""

    def wants(self, user: int, *, waiting: bool) -> None:  # noqa: B027 - most systems ignore waiting tasks
        """Record whether a user has a waiting task."""


class Periodic(Original):
    """A system that samples all users together, at each multiple of a period.

    Args:
        period: Seconds.
    """

    def __init__(self, period: float) -> None:
        self.period = period
        self._samples = 0

    @property
    def last(self) -> float:
        """Time of the last sample in seconds. The first sample is at 0."""
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
        """Take samples, one per period; the last sample is at `last`. Nothing happened in between.

        Args:
            count: Number of samples.
        """
