"""What every system that looks at its users now and then has to answer."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import ClassVar, TypeAlias

from typing_extensions import override

from allocator.fairness.quantities import Quantities

Key: TypeAlias = tuple[float, ...]
"""Sorts users; the least is next."""


class Original(ABC):
    """Users' accounts as a system keeps them, and the keys that it ranks them by.

    Times are seconds from the trace's origin; each call is no earlier than the one before.
    """

    PERIOD: ClassVar[float]
    """Seconds between two looks, as the system does it unless told otherwise."""

    @abstractmethod
    def join(self, user: int, weight: float, owed: float) -> None:
        """Make a user known, with what it is to have used before as a fraction of the cluster."""

    @abstractmethod
    def started(self, user: int, demand: Quantities, now: float) -> None:
        """Note that a task of a user has started."""

    @abstractmethod
    def ended(self, user: int, demand: Quantities, since: float, now: float) -> None:
        """Note that a task is over which had started then."""

    @abstractmethod
    def renewed(self, now: float) -> Collection[int] | None:
        """Follow time; return whose keys are others now; None: everybody's."""

    @abstractmethod
    def key(self, user: int) -> Key:
        """Return what a user is ranked by, until the next look or its own next start or end."""

    def wants(self, user: int, *, more: bool) -> None:  # noqa: B027 - most do not ask
        """Note whether a user has a task that waits."""


class Periodic(Original):
    """A system that looks at all users at once, at each multiple of a period.

    Args:
        period: Seconds.
    """

    def __init__(self, period: float) -> None:
        self.period = period
        self._looks = 0

    @property
    def last(self) -> float:
        """When it looked last; it begins by looking."""
        return self._looks * self.period

    @override
    def renewed(self, now: float) -> Collection[int] | None:
        looks = int(now // self.period)
        if looks == self._looks:
            return ()
        times, self._looks = looks - self._looks, looks
        self.look(times)
        return None

    @abstractmethod
    def look(self, times: int) -> None:
        """Look so many times, a period apart, the last time at `last`; nothing happened between."""
