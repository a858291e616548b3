"""Since when clients have had work: what a log lets one say about when tasks were submitted.

An allocator never sees a submission. A client that begins to want offers, or asks for them anew,
and then keeps something of every offer has had work since then. One that refuses a whole offer
has none, until it takes one again: that it has had some for longer cannot be known.
"""

from collections.abc import Iterable

from allocator.cluster.engine import Engine
from allocator.cluster.frameworks.framework import Client
from allocator.contract import allocator_pb2 as contract


class Readiness:
    """By client, since when it has kept something of every offer. Times are in seconds."""

    def __init__(self) -> None:
        self._since: dict[Client, float] = {}
        self._wanting: set[Client] = set()

    def follow(self, event: contract.Event, engine: Engine, now: float) -> None:
        """Take in an event that the engine has applied."""
        match event.WhichOneof("call"):
            case "revive_offers":
                self._look(engine, event.revive_offers.framework_id, now)
                revived = event.revive_offers
                for client in _clients(revived.framework_id, revived.roles or self._roles(revived)):
                    if client in self._wanting:
                        self._since.setdefault(client, now)
            case "add_framework":
                self._look(engine, event.add_framework.framework_id, now)
            case "update_framework":
                self._look(engine, event.update_framework.framework_id, now)
            case "remove_framework":
                self._look(engine, event.remove_framework.framework_id, now)
            case "activate_framework":
                self._look(engine, event.activate_framework.framework_id, now)
            case "deactivate_framework":
                self._look(engine, event.deactivate_framework.framework_id, now)
            case "suppress_offers":
                self._look(engine, event.suppress_offers.framework_id, now)

    def look_at_all(self, engine: Engine, now: float) -> None:
        """Follow a snapshot."""
        known = {client.framework for client in engine.clients()}
        for framework in known | {client.framework for client in self._wanting}:
            self._look(engine, framework, now)

    def offered(self, client: Client, now: float) -> float:
        """Return since when the client had work, supposing that it keeps what it gets now."""
        return self._since.setdefault(client, now)

    def refused(self, client: Client) -> None:
        """Note that of an offer nothing was kept."""
        self._since.pop(client, None)

    def _look(self, engine: Engine, framework: str, now: float) -> None:
        """Find out in which roles a framework wants offers now."""
        before = {client for client in self._wanting if client.framework == framework}
        known = engine.framework(framework)
        roles = known.roles if known is not None else ()
        wanting = {
            c for c in _clients(framework, roles) if known is not None and known.wants(c.role)
        }
        for client in wanting - before:
            self._since.setdefault(client, now)
        for client in before - wanting:
            self._since.pop(client, None)
        self._wanting -= before - wanting
        self._wanting |= wanting

    def _roles(self, revived: contract.ReviveOffers) -> list[str]:
        return [c.role for c in self._wanting if c.framework == revived.framework_id]


def _clients(framework: str, roles: Iterable[str]) -> list[Client]:
    return [Client(role, framework) for role in roles]
