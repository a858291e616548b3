"""What frameworks are presumed to use, where no master tells: before Mesos 1.10."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping

from allocator.cluster.agents import Agent
from allocator.cluster.frameworks import Client
from allocator.cluster.resources import Resources
from allocator.cluster.running import Running
from allocator.cluster.steps import Steps


class Presumed:
    """Takes what was offered for used when it has been answered, or after some time.

    Until then it counts as unanswered. An answer is what comes back with a filter: an offer that is
    declined, or what is left of one that is accepted. What a task leaves behind, or the master
    takes back, says nothing of an offer: else whoever has a task that ends could hoard beside it.

    Offering, answering and forgetting are O(1); `expiring` is O(what is due), in steps.

    Args:
        running: Is told what is presumed to be used.
        after_ns: Nanoseconds after which no answer is one.
    """

    def __init__(self, running: Running, after_ns: int) -> None:
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

    def expiring(self, agents: Mapping[str, Agent], now_ns: int) -> Steps[None]:
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

    def carry_over(self, before: "Presumed", agents: Mapping[str, Agent]) -> Steps[None]:
        """Go on counting as unanswered what did before a snapshot, which does not say."""
        for name, client, since, used in before.waiting():
            yield
            agent = agents.get(name)
            if agent is not None and agent.held(client.framework, client.role):
                self._since[name, client] = since
                self._running.end(name, client, self._running.on(name, client))
                self._running.begin(agent, client, used)
