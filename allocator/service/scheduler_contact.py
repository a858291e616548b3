"""Whether the service is in contact with the scheduler that it follows."""

from typing import Protocol


class SchedulerContact(Protocol):
    """Facts about the contact with a scheduler, such as a stream of a Mesos master."""

    @property
    def connected(self) -> bool:
        """Whether the scheduler is in contact."""

    @property
    def alone(self) -> float | None:
        """Seconds since the scheduler was last in contact; None while it is in contact."""

    @property
    def standby(self) -> int:
        """Number of further schedulers that may take over, such as standby masters."""
