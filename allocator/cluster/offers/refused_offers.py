"""Refusals of offers by the master's side, and the resources that are withheld for them.

The master's side refuses an offer if its own record of the agent, or of the framework, differs. If
the records differ for long, the engine would make the same offer again without end.
"""

import heapq
from dataclasses import dataclass

from allocator.cluster.frameworks.framework import Framework
from allocator.cluster.resources import Kind, Resources

_LONGEST = 7
"""Number of refusals in a row from which the wait no longer grows: 63 intervals."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The last refusal of a kind of resource on an agent."""

    number: int
    """Number of refusals in a row."""
    until_ns: int
    """The kind is withheld before this instant."""
    ends_ns: int
    """A refusal at or after this instant is the first of a new row."""


class RefusedOffers:
    """Withholds a kind of resource on an agent after repeated refusals of offers with this kind.

    The first refusal withholds nothing, because crossing messages can cause one. Each further
    refusal in a row at least doubles the wait: 1, 3, 7, up to 63 intervals. Only reserved and
    revocable resources are withheld, so a tenant's reservations never withhold other roles'
    resources. A snapshot ends all waits.

    Args:
        interval_ns: Nanoseconds between two ticks.
        departed_refuse_nothing: See `EngineSettings.departed_refuse_nothing`.
    """

    def __init__(self, interval_ns: int, departed_refuse_nothing: bool = True) -> None:  # noqa: FBT001, FBT002
        self._interval_ns = interval_ns
        self._departed_refuse_nothing = departed_refuse_nothing
        self.by_agent: dict[str, dict[Kind, _Refusal]] = {}
        """Refusals by agent and kind, without agents with no refusal."""
        self._instants: list[tuple[int, str]] = []
        """Instants in nanoseconds at which a wait or a row ends, with the agent's ID; a heap."""

    def concern(self, framework: Framework | None, role: str) -> bool:
        """Return whether a refusal of an offer concerns the agent's resources.

        A tenant can leave its role whenever it has got an offer, and so cause refusals without end.
        After an unacceptable update, the engine does not know which roles the framework has left.

        Args:
            framework: The framework of the offer; None if it is gone.
            role: The role of the offer.
        """
        departed = (
            framework is None
            or not framework.active
            or framework.subscription.flaw is not None
            or role not in framework.roles
        )
        return not (departed and self._departed_refuse_nothing)

    def note(self, agent: str, resources: Resources, now_ns: int) -> None:
        """Note that the master's side refused an offer of an agent's resources."""
        kinds = [kind for kind, _ in resources.items() if not kind.plain]
        if not kinds:
            return
        known, instants = self.by_agent.setdefault(agent, {}), dict[int, None]()
        for kind in kinds:
            last = known.get(kind)
            in_row = last is not None and now_ns < last.ends_ns
            number = min(last.number + 1, _LONGEST) if last is not None and in_row else 1
            wait = (2 ** (number - 1) - 1) * self._interval_ns
            refusal = _Refusal(number, now_ns + wait, now_ns + 2 * (wait + self._interval_ns))
            known[kind] = refusal
            instants |= {refusal.until_ns: None, refusal.ends_ns: None}
        for instant in instants:
            heapq.heappush(self._instants, (instant, agent))

    def without(self, agent: str, available: Resources, now_ns: int) -> Resources:
        """Return an agent's available resources except the kinds that are withheld."""
        known = self.by_agent.get(agent, {})
        return available.where(lambda kind: kind not in known or known[kind].until_ns <= now_ns)

    def expire(self, now_ns: int) -> list[str]:
        """Forget rows that have ended; return the IDs of agents of which a wait may have ended."""
        agents = dict[str, None]()
        while self._instants and self._instants[0][0] <= now_ns:
            agents[heapq.heappop(self._instants)[1]] = None
        for agent in agents:
            kept = {k: r for k, r in self.by_agent.pop(agent, {}).items() if now_ns < r.ends_ns}
            if kept:
                self.by_agent[agent] = kept
        return list(agents)
