"""The state that a master keeps: agents, frameworks, offers, and operations under way."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tests.world.model.amounts import Amounts, fits, minus, plus, total
from tests.world.model.site import Machine

if TYPE_CHECKING:
    from tests.world.model.master import Master


@dataclass
class Offer:
    """An unanswered offer."""

    id: str
    framework: str
    role: str
    agent: str
    amounts: Amounts


class Subscriber(Protocol):
    """A framework's scheduler, as seen by a master."""

    id: str
    roles: tuple[str, ...]

    def info(self) -> bytes:
        """Return the serialised framework info."""

    def offered(self, master: "Master", offers: list[Offer]) -> None:
        """Hear of offers."""


@dataclass
class Booked:
    """A registered agent."""

    machine: Machine
    added_at: int
    """Number of the call that added the agent."""
    used: dict[tuple[str, str], Amounts] = field(default_factory=dict)
    """(framework, role) → resources in tasks and offers"""
    active: bool = True

    @property
    def free(self) -> Amounts:
        """Resources in no task or offer."""
        return minus(self.machine.amounts, total(self.used.values()))


@dataclass
class Subscription:
    """A subscribed framework."""

    scheduler: Subscriber
    info: bytes
    roles: tuple[str, ...]
    active: bool = True
    suppressed: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Step:
    """A step of an operation: consumed resources and the converted resources."""

    kind: str
    """RESERVE, UNRESERVE, CREATE or DESTROY."""
    consumed: Amounts
    converted: Amounts

    @property
    def said(self) -> Amounts:
        """The resources that the operation names: always a reservation or a volume."""
        return self.converted if self.kind in {"RESERVE", "CREATE"} else self.consumed


@dataclass(frozen=True)
class UnderWay:
    """An operator's operation that the allocator has not answered yet."""

    booked: Booked
    steps: list[Step]


def applied(steps: list[Step], amounts: Amounts) -> Amounts | None:
    """Return the amounts after some steps; None if the steps do not apply."""
    for step in steps:
        if not fits(step.consumed, amounts):
            return None
        amounts = plus(minus(amounts, step.consumed), step.converted)
    return amounts
