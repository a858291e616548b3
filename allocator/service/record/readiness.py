"""Estimates, from the calls in an event log, since when clients have had work to run.

A client is a framework in one of its roles. An allocator never sees task submissions. A client is
assumed to have work since it asked for offers, as long as it keeps a part of every offer. A client
that declines a whole offer is assumed to have no work until it accepts an offer again. Work that
arrived in between cannot be recognised.
"""

from collections.abc import Iterable

from allocator.cluster.engine import Engine
from allocator.cluster.frameworks.framework import Client
from allocator.contract import allocator_pb2 as contract


class Readiness:
    """Tracks for each client since when it has had work, while an event log is replayed."""

    def __init__(self) -> None:
        self._ready_since: dict[Client, float] = {}
        """Time since which a client has had work, in seconds; clients without work are absent."""
        self._wanting: set[Client] = set()
        """Clients that want offers."""

    def follow(self, event: contract.Event, engine: Engine, now: float) -> None:
        """Update the estimates of when clients got work, after the engine has applied an event.

        Args:
            event: The event.
            engine: The engine, after it has applied the event.
            now: The master's time, in seconds since the epoch.
        """
        match event.WhichOneof("call"):
            case "revive_offers":
                self._update_framework(engine, event.revive_offers.framework_id, now)
                revived = event.revive_offers
                for client in _clients(revived.framework_id, revived.roles or self._roles(revived)):
                    if client in self._wanting:
                        self._ready_since.setdefault(client, now)
            case "add_framework":
                self._update_framework(engine, event.add_framework.framework_id, now)
            case "update_framework":
                self._update_framework(engine, event.update_framework.framework_id, now)
            case "remove_framework":
                self._update_framework(engine, event.remove_framework.framework_id, now)
            case "activate_framework":
                self._update_framework(engine, event.activate_framework.framework_id, now)
            case "deactivate_framework":
                self._update_framework(engine, event.deactivate_framework.framework_id, now)
            case "suppress_offers":
                self._update_framework(engine, event.suppress_offers.framework_id, now)

    def look_at_all(self, engine: Engine, now: float) -> None:
        """Update the estimates of all clients after the engine has restored a snapshot.

        Args:
            engine: The engine, after it has restored the snapshot.
            now: The master's time, in seconds since the epoch.
        """
        known = {client.framework for client in engine.clients()}
        for framework in known | {client.framework for client in self._wanting}:
            self._update_framework(engine, framework, now)

    def offered(self, client: Client, now: float) -> float:
        """Return the time since which a client that gets an offer has had work, in seconds.

        If the client declined its offers until now, it is assumed to have work from now on.

        Args:
            client: The client, which is assumed to keep a part of the offer.
            now: Time of the offer, in seconds since the epoch.
        """
        return self._ready_since.setdefault(client, now)

    def refused(self, client: Client) -> None:
        """Record that a client declined a whole offer, so it is assumed to have no work now."""
        self._ready_since.pop(client, None)

    def _update_framework(self, engine: Engine, framework: str, now: float) -> None:
        """Update in which roles a framework wants offers, and since when it has had work in them.

        Args:
            engine: The engine, after a call that may change these roles.
            framework: Identifier of the framework.
            now: The master's time, in seconds since the epoch.
        """
        wanting_before = {client for client in self._wanting if client.framework == framework}
        state = engine.framework(framework)
        roles = state.roles if state is not None else ()
        wanting = {
            c for c in _clients(framework, roles) if state is not None and state.wants(c.role)
        }
        for client in wanting - wanting_before:
            self._ready_since.setdefault(client, now)
        for client in wanting_before - wanting:
            self._ready_since.pop(client, None)
        self._wanting -= wanting_before - wanting
        self._wanting |= wanting

    def _roles(self, revived: contract.ReviveOffers) -> list[str]:
        """Return the roles in which a framework that has sent a REVIVE call wants offers."""
        return [c.role for c in self._wanting if c.framework == revived.framework_id]


def _clients(framework: str, roles: Iterable[str]) -> list[Client]:
    return [Client(role, framework) for role in roles]
