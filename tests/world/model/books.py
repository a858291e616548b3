"""What a master keeps books of: agents, frameworks, offers, and operations that are under way."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tests.world.model.amounts import Amounts, fits, minus, plus, total
from tests.world.model.site import Machine

if TYPE_CHECKING:
    from tests.world.model.master import Master


@dataclass
class Offer:
    """One offer that has not been answered."""

    id: str
    framework: str
    role: str
    agent: str
    amounts: Amounts


class Subscriber(Protocol):
    """A framework's scheduler, as a master knows it."""

    id: str
    roles: tuple[str, ...]

    def info(self) -> bytes:
        """Return what it says of itself."""

    def offered(self, master: "Master", offers: list[Offer]) -> None:
        """Hear of offers."""


@dataclass
class Booked:
    """An agent that has registered."""

    machine: Machine
    added_at: int
    """Number of the call that told the allocator."""
    used: dict[tuple[str, str], Amounts] = field(default_factory=dict)
    """(framework, role) → what tasks and offers hold"""
    active: bool = True

    @property
    def free(self) -> Amounts:
        """What nobody holds."""
        return minus(self.machine.amounts, total(self.used.values()))


@dataclass
class Subscription:
    """A framework that has subscribed."""

    scheduler: Subscriber
    info: bytes
    roles: tuple[str, ...]
    active: bool = True
    suppressed: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Step:
    """One step of an operation: what it takes, and what it makes of that."""

    kind: str
    """RESERVE, UNRESERVE, CREATE or DESTROY."""
    consumed: Amounts
    converted: Amounts

    @property
    def said(self) -> Amounts:
        """What the operation names: always what is reserved, or a volume."""
        return self.converted if self.kind in {"RESERVE", "CREATE"} else self.consumed


@dataclass(frozen=True)
class UnderWay:
    """An operator's operation that the allocator has not answered yet."""

    booked: Booked
    steps: list[Step]


def applied(steps: list[Step], one: Amounts) -> Amounts | None:
    """Return what steps make of amounts; None: they do not apply."""
    for step in steps:
        if not fits(step.consumed, one):
            return None
        one = plus(minus(one, step.consumed), step.converted)
    return one
