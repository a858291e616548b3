"""Why what is free does not go to a client: agent by agent, counted by reason.

It is worked out when somebody asks, beside the runs and never in them, with the same questions that
a run asks. Nothing is changed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, TypeAlias, get_args

from allocator.cluster.agents.agent import Agent
from allocator.cluster.allocation.offer_builder import (
    outstanding_limit,
    outstanding_offers,
    reaches_limit,
)
from allocator.cluster.cooperative import Cooperative, run_to_completion
from allocator.cluster.frameworks.framework import Client, Framework, Lack, Rules
from allocator.cluster.frameworks.subscription import Alternatives
from allocator.cluster.quota import Headroom, top_level
from allocator.cluster.resources import NOTHING, Resources
from allocator.cluster.state import Cluster
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
    "left_over",
    "nothing_free",
    "deactivated",
    "not_whitelisted",
    "agent_set_aside",
    "reserved",
    "too_large",
    "no_such_resource",
    Lack,
    "constraint",
]
"""Reasons of the client, of the cluster, then of agents; those closest to an offer come first.

A capability that is missing is a reason under its name."""

_OF_AGENTS: tuple[Reason, ...] = (
    "turn",
    "held",
    "quota",
    "refused",
    "left_over",
    "nothing_free",
    "deactivated",
    "not_whitelisted",
    "agent_set_aside",
    "reserved",
    "too_large",
    "no_such_resource",
    *get_args(Lack),
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
_SERVED: tuple[Reason, ...] = ("turn", "held", "quota", "nothing_free")
"""Reasons of an agent of which a client may be offered something later."""
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
    reserved_for: frozenset[str] = frozenset()
    """The roles for which the agents are reserved that would do otherwise."""
    without: frozenset[str] = frozenset()
    """The resources that its task needs, and that some agents do not have at all."""
    smaller: bool = False
    """Whether others want offers whose task is smaller, and would fit where its task does not."""


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

    def enough(self, quantities: Quantities) -> bool:
        """Return whether one task, and the least that it takes, would be there by quantity."""
        return (self.task is None or quantities.contains(self.task)) and (
            not self.minimum
            or any(quantities.contains(alternative) for alternative in self.minimum)
        )

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

    def number(self, available: Resources) -> int:
        """Return how many of its tasks there is room for; 0: nobody knows what one needs."""
        if self.task is None:
            return 0
        return self._number(self.framework.share_of(available, self.client.role).plain)

    def _number(self, plain: Resources) -> int:
        """Return how many tasks there is room for."""
        assert self.task is not None
        return _copies(plain, self.task)

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
        self._smallest: list[Quantities] | None = None
        """Different tasks of clients that want offers; None: nobody has asked yet."""

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

    def look(self, client: Client, *, closely: bool = False) -> Cooperative[Why | None]:
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
        minimum = framework.min_allocatable.get(client.role, self._rules.min_allocatable)
        wants = _Wants(client, framework, task, minimum)
        counts, until, refusing = Counter[Reason](), None, 0
        reserved_for, without = set[str](), set[str]()
        refusals = closely and task is not None and self._cluster.filters.count(client) > 0
        for alike in self._alike.values():
            allowed = self._allowed(client, alike.ids)
            counts["constraint"] += len(alike.ids) - len(allowed)
            if allowed:
                kept, give = self._kept(wants, alike)
                declined = Counter[Reason]()
                if give:
                    declined, end = yield from self._refusals(client, allowed, give)
                    until = min(
                        (instant for instant in (until, end) if instant is not None), default=None
                    )
                elif refusals and kept == "nothing_free":
                    its = alike.total.plain.taken(task or Quantities()) or NOTHING
                    declined_here, _ = yield from self._refusals(client, allowed, its)
                    refusing += declined_here.total()
                elif kept == "reserved":
                    reservations = (kind.reservation for kind in alike.total)
                    reserved_for.update(role for role in reservations if role is not None)
                elif kept == "no_such_resource":
                    without.update(task.keys() - alike.total.quantities.keys() if task else ())
                counts += declined
                counts[kept] += len(allowed) - declined.total()
            yield
        agent_counts = {reason: counts[reason] for reason in _OF_AGENTS if counts[reason]}
        ends = None if until is None else until / _NANOSECONDS
        return Why(
            client,
            next(iter(agent_counts), "no_agents"),
            idle,
            agent_counts,
            ends,
            task,
            refusing,
            frozenset(reserved_for),
            frozenset(without),
            smaller=closely and task is not None and self.others_are_smaller(task),
        )

    def passed_over(self, *, declining: bool = False) -> Cooperative[frozenset[str]]:
        """Return the users, at all levels, that want offers while no agent could serve them.

        An agent could serve a user if one of the user's clients would be offered some of its
        resources once tasks there end. No constraint, size, reservation, capability or limit may
        prevent that offer.
        While no agent is known, or agents are awaited, nobody is passed over.

        Args:
            declining: Whether users that refuse every such agent are to be among them.
        """
        ledger = self._cluster.ledger
        wanting, served = set[str](), set[str]()
        if not self._alike or self._cluster.holds_off:
            return frozenset()
        for client in list(ledger.clients.wanting):
            names = ledger.clients.shown(client)
            if not served.issuperset(names):
                wanting.update(names)
                if (yield from self.can_be_served(client, declining=declining)):
                    served.update(names)
            yield
        return frozenset(wanting - served)

    def room(self, clients: Iterable[Client], task: Quantities) -> Cooperative[tuple[int, int]]:
        """Return for how many tasks of some clients there is room: now, and if nothing else ran.

        Without clients: of one that nothing is known of, which could have what is for everybody.
        """
        ledger, now, empty = self._cluster.ledger, 0, 0
        wants = [
            _Wants(client, ledger.frameworks[client.framework], task, ())
            for client in clients
            if client in ledger.clients
        ]
        for alike in self._alike.values():
            free, all_ = dict[str, int](), dict[str, int]()
            if not wants and alike.state is None:
                held = alike.held_for is not None
                free = dict.fromkeys(alike.ids, 0 if held else _copies(alike.free, task))
                all_ = dict.fromkeys(alike.ids, _copies(alike.total, task))
            for want in wants:
                allowed = self._allowed(want.client, alike.ids)
                fits = not want.framework.lacking(alike.agent, want.client.role, self._rules)
                if allowed and fits and alike.state is None:
                    ours = alike.held_for in {None, want.client}
                    number = want.number(alike.free) if ours else 0
                    total = want.number(alike.total)
                    for agent in allowed:
                        free[agent] = max(free.get(agent, 0), number)
                        all_[agent] = max(all_.get(agent, 0), total)
            now += sum(free.values())
            empty += sum(all_.values())
            yield
        return now, empty

    def can_be_served(self, client: Client, *, declining: bool = False) -> Cooperative[bool]:
        """Return whether some agent could serve a client that wants offers.

        Args:
            client: The client.
            declining: Whether an agent that it refuses could not.
        """
        ledger, filters = self._cluster.ledger, self._cluster.filters
        framework = ledger.frameworks.get(client.framework)
        if framework is None or client not in ledger.clients:
            return False
        if self._own(client, framework) is not None:
            return False
        task = ledger.task(client)
        minimum = framework.min_allocatable.get(client.role, self._rules.min_allocatable)
        wants = _Wants(client, framework, task, minimum)
        refuses = declining and filters.count(client) > 0
        for alike in self._alike.values():
            allowed = self._allowed(client, alike.ids)
            kept, give = self._kept(wants, alike) if allowed else ("constraint", NOTHING)
            if kept in _SERVED and not self._is_at_limit(wants, alike.total):
                if not give and task is not None:
                    give = alike.total.plain.taken(task) or NOTHING
                if not refuses or not give:
                    return True
                declined, _ = yield from self._refusals(client, allowed, give)
                if declined.total() < len(allowed):
                    return True
            yield
        return False

    def _is_at_limit(self, wants: _Wants, total: Resources) -> bool:
        """Return whether the limits of a client's own role keep an agent from it, however free."""
        role, headroom = wants.client.role, self._headroom
        if headroom is None or any(not (kind.plain and kind.scalar) for kind in total):
            return False
        if role in headroom.quotas and not headroom.divisible:
            return not any(total.scalars[name] for name in headroom.missing(role))
        remaining = {name: headroom.left(top_level(role), name) for name in total.scalars}
        if wants.task is None:
            return all(quantity is not None and quantity <= 0 for quantity in remaining.values())
        return any(
            (most := remaining.get(name)) is not None and amount > most
            for name, amount in wants.task.items()
        )

    def others_are_smaller(self, task: Quantities) -> bool:
        """Return whether a client that wants offers is known to need less than a task."""
        if self._smallest is None:
            ledger = self._cluster.ledger
            tasks = map(ledger.task, ledger.clients.wanting)
            different = {frozenset(demand.items()) for demand in tasks if demand is not None}
            self._smallest = [Quantities(dict(amounts)) for amounts in different]
        return any(task.contains(demand) and demand != task for demand in self._smallest)

    def _refusals(
        self, client: Client, agents: set[str], give: Resources
    ) -> Cooperative[tuple["Counter[Reason]", int | None]]:
        """Return on how many agents a client refuses something, and when the first of that ends.

        The count separates resources that it left unused of accepted offers.
        """
        filters, ends, declined = self._cluster.filters, [], Counter[Reason]()
        for number, agent in enumerate(agents, start=1):
            end = filters.refused_until(client, agent, give)
            if end is not None:
                ends.append(end)
                left_over = filters.left_over(client, agent, give)
                declined["left_over" if left_over else "refused"] += 1
            if number % _AT_ONCE == 0:
                yield
        return declined, min(ends, default=None)

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
        most = outstanding_limit(self._cluster)
        full = most is not None and reaches_limit(
            outstanding_offers(self._cluster, framework.id), most
        )
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
        lacking = wants.framework.lacking(alike.agent, wants.client.role, self._rules)
        if lacking is not None:
            return lacking, NOTHING
        if not wants.fits(alike.total):
            return self._too_little(wants, alike.total), NOTHING
        if alike.state is not None:
            return alike.state, NOTHING
        if not wants.fits(alike.free):
            return "nothing_free", NOTHING
        if alike.held_for not in {None, wants.client}:
            return "held", NOTHING
        give = wants.of(alike.free)
        held_back = self._headroom is not None and self._holds_back(self._headroom, wants, give)
        return ("quota" if held_back else "turn"), give

    @property
    def _rules(self) -> Rules:
        return self._cluster.rules

    @staticmethod
    def _too_little(wants: _Wants, total: Resources) -> Reason:
        """Return why all of an agent is too little for a client."""
        if not wants.enough(total.quantities):
            unknown = wants.task is not None and wants.task.keys() - total.quantities.keys()
            return "no_such_resource" if unknown else "too_large"
        role = wants.client.role
        for_it = total.where(lambda kind: kind.offerable_to(role))
        if not wants.enough(for_it.quantities) or not for_it:
            return "reserved"
        lacks = (wants.framework.lacking_for(kind) for kind in for_it)
        return next((lack for lack in lacks if lack is not None), "too_large")

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


def _copies(available: Resources, task: Quantities) -> int:
    """Return how many tasks what is for everybody has room for."""
    room = available.plain.divisible
    return min((room.get(name, 0) // amount for name, amount in task.items()), default=0)


def could_be_served(cluster: Cluster, client: Client) -> bool:
    """Return whether some agent could serve a client that wants offers.

    O(agents), each in a fraction of what a survey takes, and mostly it is the first that could.
    """
    ledger, seen = cluster.ledger, set[object]()
    for agent in ledger.agents.values():
        key = (
            *(id(agent.total), agent.region, cluster.withheld(agent)),
            *(agent.multi_role, agent.hierarchical_role),
        )
        if key not in seen and ledger.admits(client, agent.id):
            seen.add(key)
            alone = Survey(cluster)
            alone.put(agent)
            if run_to_completion(alone.can_be_served(client)):
                return True
    return False


def survey(cluster: Cluster) -> Cooperative[Survey]:
    """Look at all agents, and return what was found. O(agents · what is allocated on them)."""
    made = Survey(cluster)
    agents = iter(list(cluster.ledger.agents.values()))
    while some := list(islice(agents, _AT_ONCE)):
        for agent in some:
            made.put(agent)
        yield
    return made
