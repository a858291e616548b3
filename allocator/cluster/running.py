"""What of the allocated is running: the rest is offered, and nobody has said yes to it so far."""

from collections.abc import Iterator

from allocator.cluster.agents import Agent
from allocator.cluster.frameworks import Client
from allocator.cluster.resources import NOTHING, Resources
from allocator.fairness.quantities import Quantities


class Running:
    """What tasks and executors use, as far as the master tells (since Mesos 1.10), or is presumed.

    It is never more than what is held: whoever changes that calls `follow`.
    """

    def __init__(self) -> None:
        self.places: dict[str, dict[Client, Resources]] = {}
        """What clients have running, by agent; empty where nobody tells."""
        self._sums: dict[Client, Quantities] = {}

    def __iter__(self) -> Iterator[Client]:
        """Go through the clients that have something running, in no particular order."""
        return iter(self._sums)

    def of(self, client: Client) -> Quantities:
        """Return what a client has running on all agents together."""
        return self._sums.get(client, Quantities())

    def begin(self, agent: Agent, client: Client, resources: Resources) -> bool:
        """Note that something offered is used from now on; return whether all of it was offered."""
        running = self.on(agent.id, client)
        held = agent.held(client.framework, client.role)
        self._set(agent.id, client, _common(running + resources, held))
        return resources in held - running

    def end(self, agent: str, client: Client, resources: Resources) -> None:
        """Note that something is not used any more; what was not running is passed over."""
        running = self.on(agent, client)
        if running:
            self._set(agent, client, running - resources)

    def follow(self, agent: Agent, client: Client) -> None:
        """Follow that a client holds something else on an agent now."""
        running = self.on(agent.id, client)
        held = agent.held(client.framework, client.role)
        if running and running not in held:
            self._set(agent.id, client, _common(running, held))

    def on(self, agent: str, client: Client) -> Resources:
        """Return what a client has running on an agent."""
        return self.places.get(agent, {}).get(client, NOTHING)

    def _set(self, agent: str, client: Client, after: Resources) -> None:
        before = self.on(agent, client)
        clients = self.places.setdefault(agent, {})
        if after:
            clients[client] = after
        else:
            clients.pop(client, None)
            if not clients:
                del self.places[agent]
        total = self.of(client) - before.scalars + after.scalars
        if total:
            self._sums[client] = total
        else:
            self._sums.pop(client, None)


def _common(resources: Resources, held: Resources) -> Resources:
    """Return what of resources is held."""
    return resources if resources in held else held - (held - resources)
