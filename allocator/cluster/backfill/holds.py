"""Backfill holds: agents kept free for clients whose next task fits on no agent now."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from allocator.cluster.backfill.runtime_estimates import RuntimeEstimates
from allocator.cluster.frameworks.framework import Client
from allocator.fairness.quantities import Quantities
from allocator.fairness.turns import Turns

HoldMode: TypeAlias = Literal["off", "one", "all"]
"""How many backfill holds are allowed at a time."""


@dataclass(frozen=True, slots=True)
class BackfillHold:
    """An agent kept free for a client's next task. Times are in nanoseconds since the epoch."""

    client: Client
    agent: str
    task: Quantities
    """The resources that the task needs."""
    ready_ns: int
    """The time at which the agent is expected to have capacity for the task."""
    until_ns: int
    """The time at which the hold expires."""


@dataclass(slots=True)
class HoldStatistics:
    """Counts of backfill holds by outcome since the engine was created."""

    begun: int = 0
    served: int = 0
    """Holds that ended because the client was offered the resources of a task, on any agent."""
    in_vain: int = 0
    """Holds that expired."""


class BackfillHolds:
    """All backfill holds in force: none, one or several, depending on the setting.

    The client that has waited longest for a hold is first. If a hold expires, or the client
    declines the resources held for it, the client is paused. A paused client gets no hold for the
    maximum length of a hold. Therefore no client keeps agents idle for more than half of the time.

    Args:
        holding: How many holds are allowed at a time: none, one or several.
        longest_ns: The maximum length of a hold, in nanoseconds.
        statistics: Receives the counts of holds by outcome.
        by_turns: Whether the client that has waited longest is first. Otherwise clients get holds
            in rounds. A round ends when no client of the round needs a hold; clients may starve.
    """

    def __init__(
        self,
        holding: HoldMode,
        longest_ns: int,
        statistics: HoldStatistics,
        *,
        by_turns: bool = False,
    ) -> None:
        self.enabled = holding != "off"
        """Whether holds are allowed."""
        self.several = holding == "all"
        """Whether more than one hold is allowed at a time."""
        self.by_turns = by_turns
        """Whether the client that has waited longest for a hold is first."""
        self._longest_ns = longest_ns
        self._statistics = statistics
        self._holds: dict[str, BackfillHold] = {}
        self._held = set[Client]()
        """Clients that had a hold in this round."""
        self._turns = Turns[Client]()
        self._paused: dict[Client, int] = {}
        self._awaiting_answer: dict[Client, str] = {}
        """By client, the agent of an ended hold, whose resources were offered to the client and are
        not answered yet."""
        self.runtime_estimates = RuntimeEstimates()

    def __bool__(self) -> bool:
        return bool(self._holds)

    def __iter__(self) -> Iterator[BackfillHold]:
        """Yield the holds, oldest first."""
        yield from self._holds.values()

    @property
    def full(self) -> bool:
        """Whether no further hold is allowed now.

        This is so if holds are disabled, or if one hold is allowed at a time and exists already.
        """
        return not self.several and (bool(self._holds) or not self.enabled)

    def on(self, agent: str) -> BackfillHold | None:
        """Return the hold of an agent; None if the agent is not held."""
        return self._holds.get(agent)

    def has(self, client: Client) -> bool:
        """Return whether at least one agent is held for a client."""
        return any(hold.client == client for hold in self._holds.values())

    def may_begin(self, client: Client) -> bool:
        """Return whether a client may get its first hold of the current round of holds.

        Within a round, each client gets at most one hold. The client must not be paused, and a
        further hold must be allowed.
        """
        return self.may_have_more(client) and client not in self._held and not self.has(client)

    def in_turn(self, clients: Iterable[Client]) -> list[Client]:
        """Return the clients that may get a hold, the longest-waiting client first.

        Paused clients and clients with a hold are left out.

        Args:
            clients: Clients in sorter order. If clients have waited equally long, the first of them
                in this order is first.
        """
        barred = self._paused.keys() | {hold.client for hold in self._holds.values()}
        return self._turns.order(client for client in clients if client not in barred)

    def defer(self, clients: Iterable[Client]) -> None:
        """Move clients that need no hold now to the end of the queue of waiting clients."""
        self._turns.defer(clients)

    def may_have_more(self, client: Client) -> bool:
        """Return whether a client that already has holds may get another one.

        A further hold must be allowed, and the client must not be paused. Whether it is the
        client's turn is not considered.
        """
        return not self.full and client not in self._paused

    def next_round(self) -> bool:
        """Begin a new round of holds if a further hold is allowed; return whether it has begun.

        Within a round, each client gets at most one hold. In the new round, all clients may get
        holds again. A new round does not begin if no client had a hold in this round.
        """
        helps = bool(self._held) and not self.full
        if helps:
            self._held.clear()
        return helps

    def begin(
        self, client: Client, agent: str, task: Quantities, now_ns: int, ready_ns: int
    ) -> None:
        """Hold an agent for a client. The agent must have no hold.

        Args:
            client: The client that the agent is kept free for.
            agent: The agent's ID.
            task: The resources that the client's task needs.
            now_ns: The current time, in nanoseconds.
            ready_ns: The time at which the agent is expected to have capacity for the task.
        """
        self._holds[agent] = BackfillHold(client, agent, task, ready_ns, now_ns + self._longest_ns)
        self._statistics.begun += 1

    def end_served(self, client: Client, agent: str) -> str | None:
        """End one hold of a client, because the client was offered resources for a task.

        Args:
            client: The client that received the offer.
            agent: ID of the offered agent. The client's hold of this agent ends, or else another of
                its holds.

        Returns:
            ID of the agent whose hold ended; None if the client has no hold.
        """
        if not self._holds:
            return None
        hold = self._holds.get(agent)
        if hold is None or hold.client != client:
            own = [hold for hold in self._holds.values() if hold.client == client]
            hold = max(own, key=lambda candidate: candidate.ready_ns, default=None)
        if hold is None:
            return None
        self.drop(hold)
        self._awaiting_answer[client] = agent
        self._statistics.served += 1
        return hold.agent

    def declined(self, client: Client, agent: str, now_ns: int) -> None:
        """Record that a client declined resources of an agent.

        If the client's hold ended when these resources were offered, the client is paused: it gets
        no hold for the maximum length of a hold.
        """
        if self._awaiting_answer.pop(client, None) == agent:
            self._paused[client] = now_ns + self._longest_ns

    def drop(self, hold: BackfillHold) -> None:
        """End a hold without counting it as served or expired; its agent becomes available."""
        if self._holds.get(hold.agent) is hold:
            del self._holds[hold.agent]
            self._held.add(hold.client)
            self._turns.end(hold.client)

    def expire(self, now_ns: int) -> list[str]:
        """End the holds that have reached their maximum length; return the IDs of their agents.

        The clients of these holds are paused, so they get no hold for some time. Earlier pauses
        that are over by now end, too.
        """
        for client in [paused for paused, until in self._paused.items() if until <= now_ns]:
            del self._paused[client]
        expired = [hold for hold in self._holds.values() if hold.until_ns <= now_ns]
        for hold in expired:
            self.drop(hold)
            self._paused[hold.client] = now_ns + self._longest_ns
            self._statistics.in_vain += 1
        return [hold.agent for hold in expired]

    def forget(self, client: Client) -> list[str]:
        """Forget a client that is gone; return the IDs of the agents that were held for it."""
        own = [hold for hold in self._holds.values() if hold.client == client]
        for hold in own:
            self.drop(hold)
        self._held.discard(client)
        self._turns.forget(client)
        self._awaiting_answer.pop(client, None)
        self._paused.pop(client, None)
        return [hold.agent for hold in own]

    def forget_agent(self, agent: str) -> None:
        """Forget the hold and the task runs of an agent that is gone."""
        hold = self._holds.get(agent)
        if hold is not None:
            self.drop(hold)
        self.runtime_estimates.forget_agent(agent)
