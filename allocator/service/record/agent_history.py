"""Which agents were there in an event log, from when to when, and which tasks they are for."""

from collections.abc import Iterable
from dataclasses import dataclass

from allocator.cluster.agents.placement_constraints import Constraint, Host
from allocator.cluster.engine import Engine
from allocator.fairness.quantities import Quantities


@dataclass(frozen=True, slots=True)
class Presence:
    """An agent, as it was for a time. Times are the master's, in seconds."""

    host: Host
    total: Quantities
    since: float
    until: float

    def admitted_by(self, constraints: Iterable[Constraint]) -> bool:
        """Whether all these constraints are met."""
        return all(constraint.admits(self.host) for constraint in constraints)


class AgentIntervals:
    """Follows agents that come, change and go."""

    def __init__(self) -> None:
        self._there: dict[str, Presence] = {}
        self._been: list[Presence] = []

    def look(self, engine: Engine, agent: str, now: float) -> None:
        """Find out what an agent is now, or that it is gone."""
        known = engine.agent(agent)
        before = self._there.pop(agent, None)
        if known is not None:
            is_now = Presence(Host.of(known.info), known.total.scalars, now, now)
            if before is not None and (before.host, before.total) == (is_now.host, is_now.total):
                self._there[agent] = before
                return
            self._there[agent] = is_now
        if before is not None:
            self._leave(before, now)

    def look_at_all(self, engine: Engine, agents: Iterable[str], now: float) -> None:
        """Follow a snapshot with these agents."""
        for agent in {*self._there, *agents}:
            self.look(engine, agent, now)

    def until(self, end: float) -> list[Presence]:
        """Return who was there until the end, and before."""
        for presence in self._there.values():
            self._leave(presence, end)
        self._there.clear()
        return self._been

    def _leave(self, presence: Presence, now: float) -> None:
        if now > presence.since:
            self._been.append(Presence(presence.host, presence.total, presence.since, now))
