"""History of agents during a replayed event log, as intervals in which an agent did not change."""

from collections.abc import Iterable
from dataclasses import dataclass

from allocator.cluster.agents.placement_constraints import Constraint, Host
from allocator.cluster.engine import Engine
from allocator.fairness.quantities import Quantities


@dataclass(frozen=True, slots=True)
class Presence:
    """Host and resources of one agent, during an interval in which they did not change.

    Times are the master's, in seconds since the epoch.
    """

    host: Host
    total: Quantities
    since: float
    """Start of the interval."""
    until: float
    """End of the interval."""

    def admitted_by(self, constraints: Iterable[Constraint]) -> bool:
        """Return whether the agent meets all of the given placement constraints."""
        return all(constraint.admits(self.host) for constraint in constraints)


class AgentIntervals:
    """Records the intervals in which each agent stayed unchanged, while a log is replayed."""

    def __init__(self) -> None:
        self._open: dict[str, Presence] = {}
        """Agents that are present, each with its unfinished interval, by agent identifier."""
        self._closed: list[Presence] = []
        """Intervals that have ended."""

    def look(self, engine: Engine, agent: str, now: float) -> None:
        """Compare an agent with its recorded state. If they differ, the agent's interval ends.

        The agent may have changed, come or left. Unless it has left, a new interval begins.

        Args:
            engine: The engine, after it has applied the event.
            agent: The agent's identifier.
            now: The master's time, in seconds since the epoch.
        """
        agent_state = engine.agent(agent)
        previous = self._open.pop(agent, None)
        if agent_state is not None:
            current = Presence(Host.of(agent_state.info), agent_state.total.scalars, now, now)
            if previous is not None and (previous.host, previous.total) == (
                current.host,
                current.total,
            ):
                self._open[agent] = previous
                return
            self._open[agent] = current
        if previous is not None:
            self._close(previous, now)

    def look_at_all(self, engine: Engine, agents: Iterable[str], now: float) -> None:
        """Compare all recorded agents and all agents of a snapshot with the engine's state.

        The interval of each changed agent ends, and a new interval begins.

        Args:
            engine: The engine, after it has restored the snapshot.
            agents: Identifiers of the agents in the snapshot.
            now: The master's time, in seconds since the epoch.
        """
        for agent in {*self._open, *agents}:
            self.look(engine, agent, now)

    def until(self, end: float) -> list[Presence]:
        """End all open intervals at a given time, and return all intervals in no particular order.

        Args:
            end: The master's time, in seconds since the epoch.
        """
        for presence in self._open.values():
            self._close(presence, end)
        self._open.clear()
        return self._closed

    def _close(self, presence: Presence, now: float) -> None:
        """End an agent's open interval, and add it to the ended intervals unless it is empty.

        Args:
            presence: The open interval.
            now: The master's time, in seconds since the epoch.
        """
        if now > presence.since:
            self._closed.append(Presence(presence.host, presence.total, presence.since, now))
