"""The interface of checkers: the events they receive, and the exception they raise."""

from dataclasses import dataclass, field

import grpc

from allocator.contract import admin_pb2 as admin
from allocator.contract import allocator_pb2 as contract
from allocator.contract import log_pb2 as log
from tests.world.model.link import Link
from tests.world.service import Incarnation


class Violated(AssertionError):  # noqa: N818 - something has been
    """An invariant does not hold."""


@dataclass
class Line:
    """A line of a service's log."""

    level: str
    event: str
    fields: dict[str, object] = field(default_factory=dict)


class Checker:
    """Base class: subclasses override the events of interest and raise `Violated`."""

    def opened(self, link: Link) -> None:
        """A master has begun a stream."""

    def said(self, link: Link, message: contract.FromMaster) -> None:
        """A master has sent a message."""

    def heard(self, link: Link, message: contract.ToMaster) -> None:
        """Handle a message received by a master, before the master acts on the message."""

    def closed(self, link: Link, how: tuple[grpc.StatusCode, str]) -> None:
        """A master's stream has ended."""

    def began(self, life: Incarnation) -> None:
        """A service has been started."""

    def logged(self, life: Incarnation, entry: log.LogEntry) -> None:
        """Handle an entry of an engine's event log."""

    def saved(self, life: Incarnation) -> None:
        """A service has written its memory."""

    def told(self, life: Incarnation, line: Line) -> None:
        """A service has logged a line."""

    def shown(self, life: Incarnation, reply: admin.SharesReply) -> None:
        """Handle a reply to an operator with users' shares, at the instant of the reply."""

    def second(self) -> None:
        """Another second has passed."""

    def healed(self) -> None:
        """All faults have been over for long enough."""
