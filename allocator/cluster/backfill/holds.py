"""Which agents are held back for whom, and until when."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from allocator.cluster.backfill.runtime_estimates import RuntimeEstimates
from allocator.cluster.frameworks.framework import Client
from allocator.fairness.quantities import Quantities
from allocator.fairness.turns import Turns

Holding: TypeAlias = Literal["off", "one", "all"]
"""For how many clients at a time an agent may be held back."""


@dataclass(frozen=True, slots=True)
class BackfillHold:
    """An agent that is held back for a client's next task. Times are in nanoseconds."""

    client: Client
    agent: str
    task: Quantities
    """What the task needs."""
    ready_ns: int
    """When the agent is expected to have room for it."""
    until_ns: int
    """When the hold ends in vain."""


@dataclass(slots=True)
class HoldStatistics:
    """What has happened since the engine was made."""

    begun: int = 0
    served: int = 0
    """Ended as the client was offered what it waited for, there or elsewhere."""
    in_vain: int = 0
    """Ended by the bound on how long an agent may be held back."""


class BackfillHolds:
    """Holds: at most one altogether, or several, which go by turns, as in the simulator.

    The client that has been longest without one is first, but for those that are due to it by the
    order alone. After a hold that was in vain, or whose offer the client declines, the client
    gets no hold for as much time as one may last. So no client keeps agents idle for more than half
    of the time.

    Args:
        holding: For how many clients at a time.
        longest_ns: How long one lasts at most.
        statistics: Are counted in.
        by_turns: Whether the client that has been longest without one is first. Otherwise they go
            in rounds, which end as soon as no client of a round needs one; clients may starve.
    """

    def __init__(
        self,
        holding: Holding,
        longest_ns: int,
        statistics: HoldStatistics,
        *,
        by_turns: bool = False,
    ) -> None:
        self.enabled = holding != "off"
        """Whether agents are held back at all."""
        self.several = holding == "all"
        """Whether for more than one task at a time."""
        self.by_turns = by_turns
        """Whether the client that has been longest without one is first."""
        self._longest_ns = longest_ns
        self._statistics = statistics
        self._on: dict[str, BackfillHold] = {}
        self._had = set[Client]()
        self._turns = Turns[Client]()
        self._paused: dict[Client, int] = {}
        self._answering: dict[Client, str] = {}
        """Clients that have been offered what was held for them, and where."""
        self.run_times = RuntimeEstimates()

    def __bool__(self) -> bool:
        return bool(self._on)

    def __iter__(self) -> Iterator[BackfillHold]:
        """Go through the holds, the oldest first."""
        yield from self._on.values()

    @property
    def full(self) -> bool:
        """Whether there may be no other hold now."""
        return not self.several and (bool(self._on) or not self.enabled)

    def on(self, agent: str) -> BackfillHold | None:
        """Return for whom an agent is held back; None: for nobody."""
        return self._on.get(agent)

    def has(self, client: Client) -> bool:
        """Whether an agent is held back for a client."""
        return any(hold.client == client for hold in self._on.values())

    def may_begin(self, client: Client) -> bool:
        """Whether it is a client's turn to have a hold, for which there is none."""
        return self.may_have_more(client) and client not in self._had and not self.has(client)

    def in_turn(self, clients: Iterable[Client]) -> list[Client]:
        """Return clients that have no hold and are not barred from one, in order of their turns.

        Args:
            clients: In the policy's order, which decides between clients that come at one time.
        """
        barred = self._paused.keys() | {hold.client for hold in self._on.values()}
        return self._turns.order(client for client in clients if client not in barred)

    def defer(self, clients: Iterable[Client]) -> None:
        """Place clients that need no hold now behind the clients that wait for one."""
        self._turns.defer(clients)

    def may_have_more(self, client: Client) -> bool:
        """Whether there may be a hold for a client, or another one, if the order says so."""
        return not self.full and client not in self._paused

    def next_round(self) -> bool:
        """Begin a new round, as nobody is left in this one; return whether that helps anybody."""
        helps = bool(self._had) and not self.full
        if helps:
            self._had.clear()
        return helps

    def begin(self, client: Client, agent: str, task: Quantities, now_ns: int, ready: int) -> None:
        """Hold back an agent that nobody holds."""
        self._on[agent] = BackfillHold(client, agent, task, ready, now_ns + self._longest_ns)
        self._statistics.begun += 1

    def served(self, client: Client, agent: str) -> str | None:
        """Follow that a client is offered something; return the agent that was held for it.

        What it is offered elsewhere ends the hold that would have helped it last.
        """
        if not self._on:
            return None
        hold = self._on.get(agent)
        if hold is None or hold.client != client:
            mine = [hold for hold in self._on.values() if hold.client == client]
            hold = max(mine, key=lambda each: each.ready_ns, default=None)
        if hold is None:
            return None
        self.drop(hold)
        self._answering[client] = agent
        self._statistics.served += 1
        return hold.agent

    def declined(self, client: Client, agent: str, now_ns: int) -> None:
        """Follow that a client gives back something of an offer.

        Who declines what was held for it has to wait as if that had been in vain.
        """
        if self._answering.pop(client, None) == agent:
            self._paused[client] = now_ns + self._longest_ns

    def drop(self, hold: BackfillHold) -> None:
        """End a hold."""
        if self._on.get(hold.agent) is hold:
            del self._on[hold.agent]
            self._had.add(hold.client)
            self._turns.end(hold.client)

    def expire(self, now_ns: int) -> list[str]:
        """End what has lasted for too long; return the agents."""
        for client in [each for each, until in self._paused.items() if until <= now_ns]:
            del self._paused[client]
        over = [hold for hold in self._on.values() if hold.until_ns <= now_ns]
        for hold in over:
            self.drop(hold)
            self._paused[hold.client] = now_ns + self._longest_ns
            self._statistics.in_vain += 1
        return [hold.agent for hold in over]

    def forget(self, client: Client) -> list[str]:
        """Forget a client that is gone; return the agents that were held for it."""
        mine = [hold for hold in self._on.values() if hold.client == client]
        for hold in mine:
            self.drop(hold)
        self._had.discard(client)
        self._turns.forget(client)
        self._answering.pop(client, None)
        self._paused.pop(client, None)
        return [hold.agent for hold in mine]

    def forget_agent(self, agent: str) -> None:
        """Forget an agent that is gone."""
        hold = self._on.get(agent)
        if hold is not None:
            self.drop(hold)
        self.run_times.forget_agent(agent)
