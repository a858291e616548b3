"""Which agents are held back for whom, and until when."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from allocator.cluster.frameworks import Client
from allocator.cluster.holding.run_times import RunTimes
from allocator.fairness.quantities import Quantities

Holding: TypeAlias = Literal["off", "one", "all"]
"""For how many clients at a time an agent may be held back."""


@dataclass(frozen=True, slots=True)
class Hold:
    """An agent that is held back for a client's next task. Times are in nanoseconds."""

    client: Client
    agent: str
    task: Quantities
    """What the task needs."""
    since_ns: int
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


class Holds:
    """Holds, at most one for a client; they go in rounds, as in the simulator.

    Who has had one comes after all others who wait for one; if it was in vain, or its client
    declines what it brings, not before as much time has passed again as one may last: so nobody
    keeps agents idle for more than half of the time, whatever it says.

    Args:
        holding: For how many clients at a time.
        longest_ns: How long one lasts at most.
        statistics: Are counted in.
    """

    def __init__(self, holding: Holding, longest_ns: int, statistics: HoldStatistics) -> None:
        self.enabled = holding != "off"
        """Whether agents are held back at all."""
        self._most = {"off": 0, "one": 1}.get(holding)
        self._longest_ns = longest_ns
        self._statistics = statistics
        self._of: dict[Client, Hold] = {}
        self._on: dict[str, Hold] = {}
        self._had = set[Client]()
        self._paused: dict[Client, int] = {}
        self._answering: dict[Client, str] = {}
        """Clients that have been offered what was held for them, and where."""
        self.run_times = RunTimes()

    def __bool__(self) -> bool:
        return bool(self._of)

    def __iter__(self) -> Iterator[Hold]:
        """Go through the holds, the oldest first."""
        yield from self._of.values()

    @property
    def full(self) -> bool:
        """Whether nobody else may have one now."""
        return self._most is not None and len(self._of) >= self._most

    def on(self, agent: str) -> Hold | None:
        """Return for whom an agent is held back; None: for nobody."""
        return self._on.get(agent)

    def may_begin(self, client: Client) -> bool:
        """Whether an agent may be held back for a client now."""
        return (
            not self.full
            and client not in self._of
            and client not in self._had
            and client not in self._paused
        )

    def next_round(self) -> bool:
        """Begin a new round, as nobody is left in this one; return whether that helps anybody."""
        helps = bool(self._had) and not self.full
        if helps:
            self._had.clear()
        return helps

    def begin(self, client: Client, agent: str, task: Quantities, now_ns: int, ready: int) -> None:
        """Hold back an agent that nobody holds."""
        hold = Hold(client, agent, task, now_ns, ready, now_ns + self._longest_ns)
        self._of[client] = self._on[agent] = hold
        self._statistics.begun += 1

    def served(self, client: Client) -> str | None:
        """Follow that a client is offered something; return the agent that was held for it."""
        hold = self._of.get(client)
        if hold is None:
            return None
        self._end(hold)
        self._answering[client] = hold.agent
        self._statistics.served += 1
        return hold.agent

    def declined(self, client: Client, agent: str, now_ns: int) -> None:
        """Follow that a client gives back something of an offer.

        Who declines what was held for it has to wait as if that had been in vain.
        """
        if self._answering.pop(client, None) == agent:
            self._paused[client] = now_ns + self._longest_ns

    def drop(self, hold: Hold) -> None:
        """End a hold that its client has no use for any longer."""
        if self._of.get(hold.client) is hold:
            self._end(hold)

    def expire(self, now_ns: int) -> list[str]:
        """End what has lasted for too long; return the agents."""
        for client in [each for each, until in self._paused.items() if until <= now_ns]:
            del self._paused[client]
        over = [hold for hold in self._of.values() if hold.until_ns <= now_ns]
        for hold in over:
            self._end(hold)
            self._paused[hold.client] = now_ns + self._longest_ns
            self._statistics.in_vain += 1
        return [hold.agent for hold in over]

    def forget(self, client: Client) -> str | None:
        """Forget a client that is gone; return the agent that was held for it."""
        hold = self._of.get(client)
        if hold is not None:
            self._end(hold)
        self._had.discard(client)
        self._answering.pop(client, None)
        self._paused.pop(client, None)
        return None if hold is None else hold.agent

    def forget_agent(self, agent: str) -> None:
        """Forget an agent that is gone."""
        hold = self._on.get(agent)
        if hold is not None:
            self._end(hold)
        self.run_times.forget_agent(agent)

    def _end(self, hold: Hold) -> None:
        del self._of[hold.client]
        del self._on[hold.agent]
        self._had.add(hold.client)
