"""Why what is free does not go to a client: agent by agent, counted by reason.

It is worked out when somebody asks, beside the runs and never in them, with the same questions that
a run asks. Nothing is changed.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, TypeAlias

from allocator.cluster.agents import Agent
from allocator.cluster.allocation.unanswered import bound, offered, reached
from allocator.cluster.frameworks import Client, Framework
from allocator.cluster.quota import Headroom
from allocator.cluster.resources import NOTHING, Resources
from allocator.cluster.state import Cluster
from allocator.cluster.steps import Steps
from allocator.cluster.subscriptions import Alternatives
from allocator.fairness.quantities import Quantities

Reason: TypeAlias = Literal[
    "set_aside",
    "inactive",
    "suppressed",
    "recovering",
    "unanswered",
    "no_agents",
    "turn",
    "held",
    "quota",
    "refused",
    "nothing_free",
    "deactivated",
    "not_whitelisted",
    "agent_set_aside",
    "too_large",
    "capability",
    "constraint",
]
"""Of the client itself; of the whole cluster; then of agents, what is closest to an offer first."""

_OF_AGENTS: tuple[Reason, ...] = (
    "turn",
    "held",
    "quota",
    "refused",
    "nothing_free",
    "deactivated",
    "not_whitelisted",
    "agent_set_aside",
    "too_large",
    "capability",
    "constraint",
)
ORDER: tuple[Reason, ...] = (
    *_OF_AGENTS,
    "no_agents",
    "unanswered",
    "recovering",
    "inactive",
    "set_aside",
    "suppressed",
)
"""From what is closest to an offer to what is farthest from it."""
_NANOSECONDS = 1_000_000_000
_AT_ONCE = 200
"""Agents that are looked at between two pauses."""


@dataclass(frozen=True, slots=True)
class Why:
    """Why a client gets nothing of what is free now."""

    client: Client
    reason: Reason
    """That of the agents that are closest to being offered to it."""
    idle: bool
    """Whether it holds nothing."""
    agents: Mapping[Reason, int] = field(default_factory=dict)
    """How many are kept from it by what; each agent counts once."""
    until: float | None = None
    """When the first of its refusals ends, in seconds since the Unix epoch; None: it has none."""
    task: Quantities | None = None
    """What it is to be given at least; None: nobody knows what a task of it needs."""
    refusing: int = 0
    """On how many of the agents where nothing is free it has refused what its task needs, so that
    it would not get that either; looked for on request."""


@dataclass(slots=True, eq=False)
class _Alike:
    """Agents that are alike to every client, but for constraints and filters."""

    agent: Agent
    """One of them."""
    state: Reason | None
    """Why they are not offered; None: they are."""
    total: Resources
    free: Resources
    held_for: Client | None
    """Whom they are held back for."""
    ids: set[str] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class _Wants:
    """What a client takes, read once, since it may be gone before all agents are looked at."""

    client: Client
    framework: Framework
    task: Quantities | None
    minimum: Alternatives

    def fits(self, resources: Resources) -> bool:
        """Whether it would be offered anything of this if it were alone; `of` without making it."""
        if self.task is None or not resources.ordinary:
            return bool(self.of(resources))
        number = self._number(resources)
        given = {name: number * amount for name, amount in self.task.items()}
        return number > 0 and (
            not self.minimum
            or any(all(given.get(n, 0) >= a for n, a in m.items()) for m in self.minimum)
        )

    def _number(self, plain: Resources) -> int:
        """Return how many tasks there is room for."""
        assert self.task is not None
        room = plain.divisible
        return min(room.get(name, 0) // amount for name, amount in self.task.items())

    def of(self, resources: Resources) -> Resources:
        """Return what it would be offered of this if it were alone; nothing: it is too little."""
        usable = self.framework.share_of(resources, self.client.role)
        give = usable
        if self.task is not None:
            give = NOTHING if usable.ordinary else usable.where(lambda kind: not kind.plain)
            number = self._number(usable.plain)
            tasks = usable.plain.taken(self.task.times(number)) if number else None
            give = give if tasks is None else give + tasks
        reached = not self.minimum or any(give.quantities.contains(m) for m in self.minimum)
        return give if give and reached else NOTHING


class Survey:
    """A cluster's agents at one time, those that are alike together.

    To look at a client costs O(different agents + agents whose free resources it could use).
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._alike: dict[object, _Alike] = {}
        quotas = cluster.ledger.quotas
        self._headroom: Headroom | None = quotas.headroom() if quotas else None

    def put(self, agent: Agent) -> None:
        """Count an agent."""
        state = self._cluster.withheld(agent)
        total, free = agent.total, agent.shown
        hold = self._cluster.holds.on(agent.id)
        held_for = None if hold is None else hold.client
        key = (
            *(state, total.key, free.key, agent.region, held_for),
            *(agent.multi_role, agent.hierarchical_role),
        )
        alike = self._alike.get(key)
        if alike is None:
            alike = self._alike[key] = _Alike(agent, state, total, free, held_for)
        alike.ids.add(agent.id)

    def look(self, client: Client, *, closely: bool = False) -> Steps[Why | None]:
        """Return why a client gets nothing of what is free; None: it is gone.

        Args:
            client: Who.
            closely: Whether to look on each agent where nothing is free what it has refused.
        """
        ledger = self._cluster.ledger
        framework = ledger.frameworks.get(client.framework)
        if framework is None or client not in ledger.clients:
            return None
        idle, task = not ledger.clients.held(client), ledger.task(client)
        own = self._own(client, framework)
        if own is not None:
            return Why(client, own, idle, task=task)
        minimum = framework.min_allocatable.get(client.role, self._cluster.rules.min_allocatable)
        wants = _Wants(client, framework, task, minimum)
        counts, until, refusing = Counter[Reason](), None, 0
        closely = closely and task is not None and self._cluster.filters.count(client) > 0
        for alike in self._alike.values():
            allowed = self._allowed(client, alike.ids)
            counts["constraint"] += len(alike.ids) - len(allowed)
            if allowed:
                kept, give = self._kept(wants, alike)
                refused = 0
                if give:
                    refused, end = yield from self._refusals(client, allowed, give)
                    until = min((each for each in (until, end) if each is not None), default=None)
                elif closely and kept == "nothing_free":
                    its = alike.total.plain.taken(task or Quantities()) or NOTHING
                    more, _ = yield from self._refusals(client, allowed, its)
                    refusing += more
                counts["refused"] += refused
                counts[kept] += len(allowed) - refused
            yield
        found = {reason: counts[reason] for reason in _OF_AGENTS if counts[reason]}
        ends = None if until is None else until / _NANOSECONDS
        return Why(client, next(iter(found), "no_agents"), idle, found, ends, task, refusing)

    def _refusals(
        self, client: Client, agents: set[str], give: Resources
    ) -> Steps[tuple[int, int | None]]:
        """Return on how many agents a client refuses something, and when the first of that ends."""
        filters, ends = self._cluster.filters, []
        for number, agent in enumerate(agents, start=1):
            end = filters.refused_until(client, agent, give)
            if end is not None:
                ends.append(end)
            if number % _AT_ONCE == 0:
                yield
        return len(ends), min(ends, default=None)

    def _own(self, client: Client, framework: Framework) -> Reason | None:
        """Return what keeps a client from all agents alike."""
        if framework.said.flaw is not None:
            return "set_aside"
        if not framework.active or client.role not in framework.roles:
            return "inactive"
        if client.role in framework.suppressed:
            return "suppressed"
        if not self._cluster.allocates:
            return "recovering"
        most = bound(self._cluster)
        full = most is not None and reached(offered(self._cluster, framework.id), most)
        return "unanswered" if full else None

    def _allowed(self, client: Client, agents: set[str]) -> set[str]:
        """Return on which of some agents a client's tasks may run."""
        ledger = self._cluster.ledger
        chosen = ledger.placements.met_by(client.framework)
        allowed = agents if chosen is None else agents.intersection(chosen)
        if ledger.exclusions.number(client):
            allowed = {each for each in allowed if not ledger.exclusions.excludes(client, each)}
        return allowed

    def _kept(self, wants: _Wants, alike: _Alike) -> tuple[Reason, Resources]:
        """Return what keeps a client from agents that its constraint allows, and what it could get.

        Its own refusals are left out.
        """
        role, rules = wants.client.role, self._cluster.rules
        if not wants.framework.can_use(alike.agent, role, rules):
            return "capability", NOTHING
        if not wants.fits(alike.total):
            return "too_large", NOTHING
        if alike.state is not None:
            return alike.state, NOTHING
        if not wants.fits(alike.free):
            return "nothing_free", NOTHING
        if alike.held_for not in {None, wants.client}:
            return "held", NOTHING
        give = wants.of(alike.free)
        held_back = self._headroom is not None and self._holds_back(self._headroom, wants, give)
        return ("quota" if held_back else "turn"), give

    @staticmethod
    def _holds_back(headroom: Headroom, wants: _Wants, give: Resources) -> bool:
        """Whether limits, or guarantees of others, keep a client from all that it could get."""
        role, quotas = wants.client.role, headroom.quotas
        if any(not (kind.plain and kind.scalar) for kind in give):
            return False  # of which no quota speaks
        if role in quotas:
            if any(give.scalars[name] for name in headroom.missing(role)):
                return False
            if not headroom.divisible:
                return True  # in Mesos 1.8 its guarantee is all it gets
        if wants.task is not None:
            return not headroom.admits(role, wants.task)
        if headroom.admits(role, give.scalars):
            return False
        return not headroom.divisible or not headroom.within(role, give)


def survey(cluster: Cluster) -> Steps[Survey]:
    """Look at all agents, and return what was found. O(agents · what is allocated on them)."""
    made = Survey(cluster)
    agents = iter(list(cluster.ledger.agents.values()))
    while some := list(islice(agents, _AT_ONCE)):
        for agent in some:
            made.put(agent)
        yield
    return made
