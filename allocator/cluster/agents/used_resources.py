"""Used resources: the allocated resources on which tasks run, as told by the master or assumed."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from allocator.cluster.agents.agent import Agent
from allocator.cluster.agents.shared_volumes import Volume, sizes, volumes
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.resources import NOTHING, Resources
from allocator.cooperative import Cooperative
from allocator.fairness.quantities import NO_QUANTITIES, Quantities


class LeastUse:
    """The resources that each client has used all the time since the last sample.

    A client that uses resources only at the times of samples has used nothing all the time.
    """

    def __init__(self) -> None:
        self._least: dict[Client, Quantities] | None = None
        self._volumes: dict[Client, set[Volume]] = {}

    def lower(self, client: Client, used: Quantities) -> None:
        """Take into account that a client uses less than before.

        Args:
            client: Any client; a client without use at the last sample is ignored.
            used: All quantities that the client uses from now on, without shared volumes.
        """
        least = None if self._least is None else self._least.get(client)
        if least is not None and not used.contains(least):
            self._least[client] = least.common(used)  # type: ignore[index]  # not None

    def end_volumes(self, client: Client, volumes: Iterable[Volume]) -> None:
        """Take into account that a client no longer uses these shared volumes."""
        if client in self._volumes:
            self._volumes[client].difference_update(volumes)

    def replace(
        self, used: dict[Client, Quantities], volumes: Mapping[Client, Collection[Volume]]
    ) -> tuple[dict[Client, Quantities], dict[Client, set[Volume]]]:
        """Begin a new period at a sample, and return the least use of the period that ends.

        Args:
            used: The quantities that clients use at this time, without shared volumes; clients
                without use may be absent.
            volumes: The shared volumes that clients use at this time.

        Returns:
            The quantities, and the shared volumes, that each of these clients has used all the time
            since the last sample. At the first sample, earlier use is unknown, so the result is the
            present use.
        """
        before, self._least = self._least, used
        steady, self._volumes = (
            self._volumes,
            {client: set(present) for client, present in volumes.items()},
        )
        if before is None:
            return used, {client: set(present) for client, present in volumes.items()}
        least = {
            client: amounts.common(before[client]) if client in before else Quantities()
            for client, amounts in used.items()
        }
        return least, {client: steady[client] for client in volumes if client in steady}


class OutstandingOffers:
    """The quantities in each framework's outstanding offers: allocated, and not used.

    Costs: `note` is O(1); `update` is O(clients noted since the last update).
    """

    def __init__(self) -> None:
        self._changed: dict[Client, None] = {}
        """Clients whose allocated or used resources may differ since the last update."""
        self._by_client: dict[Client, Quantities] = {}
        self._by_framework: dict[str, Quantities] = {}

    def note(self, client: Client) -> None:
        """Record that a client's allocated or used resources change."""
        self._changed[client] = None

    def update(self, outstanding: Callable[[Client], Quantities]) -> Mapping[str, Quantities]:
        """Return the quantities by framework; frameworks without outstanding offers are absent.

        Args:
            outstanding: Returns the quantities of a client in outstanding offers.
        """
        for client in self._changed:
            before, after = self._by_client.pop(client, NO_QUANTITIES), outstanding(client)
            if after:
                self._by_client[client] = after
            total = self._by_framework.pop(client.framework, NO_QUANTITIES) - before + after
            if total:
                self._by_framework[client.framework] = total
        self._changed.clear()
        return self._by_framework


class UsedResources:
    """The resources that tasks and executors use, by agent and client.

    The master reports used resources since Mesos 1.10. With older masters, `AssumedUsage` assumes
    them. Used resources never exceed allocated resources, because a caller that changes an
    allocation calls `clip`.
    """

    def __init__(self) -> None:
        self.by_agent: dict[str, dict[Client, Resources]] = {}
        """agent → client → used resources; empty if neither the master nor an assumption
        provides them"""
        self._sums: dict[Client, Quantities] = {}
        self.volumes: dict[Client, set[Volume]] = {}
        """Client → shared volumes that it uses"""
        self._volume_sizes: dict[Client, Quantities] = {}
        """Client → total size of these volumes"""
        self.least = LeastUse()
        """Use between samples of the users' use."""
        self.outstanding: OutstandingOffers | None = None
        """Allocated and unused quantities by framework; None if no limit depends on them."""

    def __iter__(self) -> Iterator[Client]:
        """Iterate over the clients with used resources, in no particular order."""
        return iter(self._sums)

    def of(self, client: Client) -> Quantities:
        """Return the quantities that a client uses on all agents together."""
        return self._sums.get(client, NO_QUANTITIES)

    def apart_from_volumes(self, client: Client) -> Quantities:
        """Return the quantities that a client uses on all agents, without shared volumes."""
        quantities = self.of(client)
        volumes = self._volume_sizes.get(client)
        return quantities if volumes is None else quantities - volumes

    def begin(self, agent: Agent, client: Client, resources: Resources) -> bool:
        """Mark allocated resources of a client on an agent as used.

        Returns:
            True if all of the resources were allocated to the client and not used before.
        """
        used = self.on(agent.id, client)
        held = agent.held(client.framework, client.role)
        self._set(agent.id, client, _common(used + resources, held))
        return resources in held - used

    def end(self, agent: str, client: Client, resources: Resources) -> None:
        """Mark resources as no longer used; resources that were not used are ignored."""
        used = self.on(agent, client)
        if used:
            self._set(agent, client, used - resources)

    def clip(self, agent: Agent, client: Client) -> None:
        """Clip the client's used resources on an agent to its current allocation there."""
        used = self.on(agent.id, client)
        held = agent.held(client.framework, client.role)
        if used and used not in held:
            self._set(agent.id, client, _common(used, held))

    def on(self, agent: str, client: Client) -> Resources:
        """Return the resources that a client uses on an agent."""
        return self.by_agent.get(agent, {}).get(client, NOTHING)

    def _set(self, agent: str, client: Client, after: Resources) -> None:
        """Replace the resources that a client uses on an agent, and update the client's total."""
        before = self.on(agent, client)
        clients = self.by_agent.setdefault(agent, {})
        if after:
            clients[client] = after
        else:
            clients.pop(client, None)
            if not clients:
                del self.by_agent[agent]
        total = self._sums.get(client, NO_QUANTITIES) - before.scalars + after.scalars
        if total:
            self._sums[client] = total
        else:
            self._sums.pop(client, None)
        if before.has_shared or after.has_shared:
            self._set_volumes(client, set(volumes(agent, before)), set(volumes(agent, after)))
        self.least.lower(client, self.apart_from_volumes(client))
        if self.outstanding is not None:
            self.outstanding.note(client)

    def _set_volumes(self, client: Client, before: set[Volume], after: set[Volume]) -> None:
        """Replace the shared volumes that a client uses on one agent."""
        ended, begun = before - after, after - before
        used = self.volumes.setdefault(client, set())
        used -= ended
        used |= begun
        size = self._volume_sizes.get(client, NO_QUANTITIES) - sizes(ended) + sizes(begun)
        if used:
            self._volume_sizes[client] = size
        else:
            del self.volumes[client]
            self._volume_sizes.pop(client, None)
        self.least.end_volumes(client, ended)


def _common(resources: Resources, allocated: Resources) -> Resources:
    """Return the part of `resources` that is contained in `allocated`."""
    return resources if resources in allocated else allocated - (allocated - resources)


class AssumedUsage:
    """Assumes that resources are used once their offer has been answered, or after a timeout.

    The class is needed with masters before Mesos 1.10, which do not report used resources. An
    answer is a recovery of resources with a filter: a declined offer, or the unused part of an
    accepted offer. Resources that a task releases or the master rescinds are not an answer.
    Otherwise, a framework could hoard offers as long as one of its tasks ends now and then.

    Costs: `offered`, `answered` and `forget` are O(1); `expire_in_steps` is O(expired offers).

    Args:
        running: Receives the assumed usage.
        after_ns: Nanoseconds after which an unanswered offer is assumed to be used.
    """

    def __init__(self, running: UsedResources, after_ns: int) -> None:
        self._running = running
        self._after_ns = after_ns
        self._offered_at = OrderedDict[tuple[str, Client], int]()
        """(agent, client) → time of the latest offer in nanoseconds, in ascending order. A plain
        dict would search past all removed entries to find the first one."""

    def offered(self, agent: str, client: Client, now_ns: int) -> None:
        """Record that resources of the agent were offered to the client.

        Args:
            agent: The agent's ID.
            client: The client that received the offer.
            now_ns: Time of the offer in nanoseconds.
        """
        self._offered_at[agent, client] = now_ns
        self._offered_at.move_to_end((agent, client))

    def answered(self, agent: Agent, client: Client) -> None:
        """Record the client's answer to an offer of the agent.

        Resources on the agent that the client still holds count as used from now on.
        """
        if self._offered_at.pop((agent.id, client), None) is not None:
            self.used(agent, client)

    def used(self, agent: Agent, client: Client) -> None:
        """Mark all resources that the client holds on the agent as used."""
        self._running.begin(agent, client, agent.held(client.framework, client.role))

    def forget(self, agent: str, client: Client) -> None:
        """Forget an unanswered offer, because the client no longer holds resources on the agent."""
        self._offered_at.pop((agent, client), None)

    def expire_in_steps(self, agents: Mapping[str, Agent], now_ns: int) -> Cooperative[None]:
        """Mark offers as used that have been unanswered for at least `after_ns`.

        Generator for cooperative steps.

        Args:
            agents: All agents, by ID.
            now_ns: The current time in nanoseconds.
        """
        while self._offered_at:
            (agent, client), offered_at = next(iter(self._offered_at.items()))
            if offered_at + self._after_ns > now_ns:
                return
            self.answered(agents[agent], client)
            yield

    def waiting(self) -> Iterator[tuple[str, Client, int, Resources]]:
        """Iterate over unanswered offers: agent ID, client, offer time, and used resources.

        The offer time is in nanoseconds. The used resources are the resources that the client uses
        on this agent already.
        """
        for (agent, client), offered_at in self._offered_at.items():
            yield agent, client, offered_at, self._running.on(agent, client)

    def carry_over(self, before: "AssumedUsage", agents: Mapping[str, Agent]) -> Cooperative[None]:
        """Copy unanswered offers and assumed usage from before a snapshot, which contains neither.

        Generator for cooperative steps.

        Args:
            before: The assumptions before the snapshot.
            agents: The agents of the snapshot, by ID.
        """
        for name, client, offered_at, used in before.waiting():
            yield
            agent = agents.get(name)
            if agent is not None and agent.held(client.framework, client.role):
                self._offered_at[name, client] = offered_at
                self._running.end(name, client, self._running.on(name, client))
                self._running.begin(agent, client, used)
