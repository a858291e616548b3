"""Used resources: the allocated part that tasks run on, as told by the master or assumed."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping

from allocator.cluster.agents.agent import Agent
from allocator.cluster.cooperative import Cooperative
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.resources import NOTHING, Resources
from allocator.fairness.quantities import Quantities


class UsedResources:
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


class AssumedUsage:
    """Takes what was offered for used when it has been answered, or after some time.

    Until then it counts as unanswered. An answer is what comes back with a filter: an offer that is
    declined, or what is left of one that is accepted. What a task leaves behind, or the master
    takes back, says nothing of an offer: else whoever has a task that ends could hoard beside it.

    Offering, answering and forgetting are O(1); `expiring` is O(what is due), in steps.

    Args:
        running: Is told what is presumed to be used.
        after_ns: Nanoseconds after which no answer is one.
    """

    def __init__(self, running: UsedResources, after_ns: int) -> None:
        self._running = running
        self._after_ns = after_ns
        self._since = OrderedDict[tuple[str, Client], int]()
        """(agent, client) → when it was last offered something, in that order; the first of a plain
        dict is found by going past all that have been taken out before it"""

    def offered(self, agent: str, client: Client, now_ns: int) -> None:
        """Note that a client is offered something of an agent."""
        self._since[agent, client] = now_ns
        self._since.move_to_end((agent, client))

    def answered(self, agent: Agent, client: Client) -> None:
        """Note that a client has answered what it was offered of an agent."""
        if self._since.pop((agent.id, client), None) is not None:
            self.used(agent, client)

    def used(self, agent: Agent, client: Client) -> None:
        """Take all that a client holds of an agent for used."""
        self._running.begin(agent, client, agent.held(client.framework, client.role))

    def forget(self, agent: str, client: Client) -> None:
        """Forget what was offered: the client holds nothing of the agent any more."""
        self._since.pop((agent, client), None)

    def expiring(self, agents: Mapping[str, Agent], now_ns: int) -> Cooperative[None]:
        """Take for used what has not been answered for so long."""
        while self._since:
            (agent, client), since = next(iter(self._since.items()))
            if since + self._after_ns > now_ns:
                return
            self.answered(agents[agent], client)
            yield

    def waiting(self) -> Iterator[tuple[str, Client, int, Resources]]:
        """Go through what may be unanswered: agent, client, since when, and what is used there."""
        for (agent, client), since in self._since.items():
            yield agent, client, since, self._running.on(agent, client)

    def carry_over(self, before: "AssumedUsage", agents: Mapping[str, Agent]) -> Cooperative[None]:
        """Go on counting as unanswered what did before a snapshot, which does not say."""
        for name, client, since, used in before.waiting():
            yield
            agent = agents.get(name)
            if agent is not None and agent.held(client.framework, client.role):
                self._since[name, client] = since
                self._running.end(name, client, self._running.on(name, client))
                self._running.begin(agent, client, used)
