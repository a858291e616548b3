"""Explains why a client gets no free resources: the reasons, and the number of agents for each.

The reasons are computed on request, outside of allocation cycles, with the same checks as in an
allocation cycle. The computation changes no state.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, TypeAlias, get_args

from allocator.cluster.agents.agent import Agent
from allocator.cluster.allocation.offer_builder import OutstandingSums
from allocator.cluster.frameworks.framework import Client, Framework, MissingCapability, OfferRules
from allocator.cluster.frameworks.subscription import Alternatives
from allocator.cluster.quota import Headroom, top_level
from allocator.cluster.resources import NOTHING, Resources
from allocator.cluster.state import Cluster
from allocator.cooperative import Cooperative, run_to_completion
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
    MissingCapability,
    "constraint",
]
"""Reasons of the client, of the cluster, then of agents; reasons closest to an offer come first.

A missing capability is a reason under its own name."""

_AGENT_REASONS: tuple[Reason, ...] = (
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
    *get_args(MissingCapability),
    "no_such_resource",
    "constraint",
)
REASON_ORDER: tuple[Reason, ...] = (
    *_AGENT_REASONS,
    "no_agents",
    "unanswered",
    "recovering",
    "inactive",
    "set_aside",
    "suppressed",
)
"""All reasons; the reason of a client that is closest to getting an offer comes first."""
_TEMPORARY: tuple[Reason, ...] = ("turn", "held", "quota", "nothing_free")
"""Reasons that may pass, so that the agent may be offered to the client later."""
_NANOSECONDS = 1_000_000_000
_NEEDED_BY_EVERY_TASK = frozenset({"cpus", "mem"})
"""Resources of an agent without which, by assumption, it can run no task of an unknown demand."""
_AGENTS_A_STEP = 200
"""Agents examined in one step."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation why a client gets no free resources now: the main reason, and details."""

    client: Client
    reason: Reason
    """The reason of the agents that are closest to being offered to the client."""
    idle: bool
    """Whether the client holds no resources."""
    agents: Mapping[Reason, int] = field(default_factory=dict)
    """Number of agents by reason; each agent counts once."""
    until: float | None = None
    """Time at which the first of the client's filters expires, in seconds since the Unix epoch;
    None without filters."""
    task: Quantities | None = None
    """Resources that the client needs for one task; None if unknown."""
    declined_agents: int = 0
    """Number of agents without free resources on which the client has declined its task's needs.
    The client would decline these agents even if they were free. If most agents without
    free resources are declined, `agents` counts them as declined instead. Counted on request."""
    reserved_for: frozenset[str] = frozenset()
    """Roles that reserve agents that would otherwise suit the client."""
    missing_resources: frozenset[str] = frozenset()
    """Resources that the client's task needs and that some agents do not have."""
    unanswered_for: float | None = None
    """Seconds for which an offer counts as unanswered, if this limits further offers and the master
    does not report used resources; else None."""
    lacking_resources: frozenset[str] = frozenset()
    """The resources that suitable agents have too little of for the client's task. Only resources
    that most agents lack; of several, only the rarest. Computed on request."""
    others_are_smaller: bool = False
    """Whether other clients have smaller tasks, which fit on agents too small for this client's
    task."""
    reached_limits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Exhausted quota of the client's role: resource → consumed quantity and limit, in
    thousandths. Empty if unmet guarantees of further roles are the reason, or without "quota"."""

    @property
    def is_reported(self) -> bool:
        """Whether agents are the reason, so that a lasting wait is logged."""
        return bool(self.agents)


@dataclass(slots=True, eq=False)
class _EquivalentAgents:
    """Agents with equal resources and state, of which one is examined for all.

    A client gets the same reason for each of these agents, apart from placement constraints, offer
    constraints and offer filters.
    """

    agent: Agent
    """A representative agent of this equivalence class."""
    state: Reason | None
    """The reason why no client is offered the agents, such as a deactivation; None if they may be
    offered."""
    total: Resources
    free: Resources
    held_for: Client | None
    """The client that has a backfill hold on the agents; None without a hold."""
    ids: set[str] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class _ClientNeeds:
    """A client's needs for one offer: its task demand and its minimum offer.

    The needs are copied, because the client may be removed while an explanation is computed.
    """

    client: Client
    framework: Framework
    task: Quantities | None
    minimum: Alternatives

    def enough(self, quantities: Quantities) -> bool:
        """Return whether quantities suffice for one task and for the client's minimum offer.

        If the task's needs are unknown, only the minimum offer counts.
        """
        return (self.task is None or quantities.contains(self.task)) and (
            not self.minimum
            or any(quantities.contains(alternative) for alternative in self.minimum)
        )

    def fits(self, resources: Resources) -> bool:
        """Return whether the client could be offered a part of these resources if it were alone.

        This is a faster form of `bool(self.of(resources))`, which does not compute the offer.
        """
        if self.task is None or not resources.ordinary:
            return bool(self.of(resources))
        number = self._number(resources)
        given = {name: number * amount for name, amount in self.task.items()}
        return number > 0 and (
            not self.minimum
            or any(all(given.get(n, 0) >= a for n, a in m.items()) for m in self.minimum)
        )

    def number(self, available: Resources) -> int:
        """Return how many of the client's tasks fit into an agent's available resources.

        Resources that the client may not use do not count. The result is 0 if the task's needs are
        unknown.
        """
        if self.task is None:
            return 0
        return self._number(self.framework.usable_part(available, self.client.role).plain)

    def lacking(self, available: Resources) -> list[str]:
        """Return the resources that an agent has too little of for the client's task."""
        capacity = self.framework.usable_part(available, self.client.role).plain.divisible
        task = self.task or Quantities()
        return [name for name, amount in task.items() if capacity.get(name, 0) < amount]

    def used_up(self, total: Resources, offer: Resources) -> list[str]:
        """Return the resources that nearly every task needs and that an offer of an agent lacks.

        A client of an unknown demand waits for these resources if it declines the offer. The
        result is empty if the demand is known, because offers then hold a whole task.

        Args:
            total: The agent's total resources.
            offer: The offer that the client would get on the agent.
        """
        needed = _NEEDED_BY_EVERY_TASK if self.task is None else frozenset[str]()
        return sorted(needed.intersection(total.quantities).difference(offer.quantities))

    def _number(self, plain: Resources) -> int:
        """Return how many of the client's tasks fit into resources that the client can use.

        Args:
            plain: Unreserved and non-revocable resources.
        """
        assert self.task is not None
        return _max_tasks(plain, self.task)

    def of(self, resources: Resources, headroom: Headroom | None = None) -> Resources:
        """Return the offer that the client would get from these resources if it were alone.

        The offer is empty if the resources do not suffice.

        Args:
            resources: The resources of an agent.
            headroom: The quotas that bound the offer; None: no quotas.
        """
        role = self.client.role
        offer = usable = self.framework.usable_part(resources, role)
        if headroom is not None and role in headroom.quotas:
            share = self.guarantee(resources, headroom)
            if share or not headroom.separate_limits:
                return share
        if self.task is not None:
            offer = NOTHING if usable.ordinary else usable.where(lambda kind: not kind.plain)
            number = self._number(usable.plain)
            if number and headroom is not None:
                one = usable.plain.take_demand(self.task) or NOTHING
                number = headroom.most_tasks(role, one.scalars, number)
            tasks = usable.plain.take_demand(self.task.times(number)) if number else None
            offer = offer if tasks is None else offer + tasks
        elif headroom is not None:
            offer = headroom.fair_share(role, usable)
        return offer if self.reached_by(offer) else NOTHING

    def guarantee(self, resources: Resources, headroom: Headroom) -> Resources:
        """Return the offer that the client would get for the unmet guarantee of its role.

        Its task may need more than this offer, because the first stage of a cycle ignores demands.
        The offer is empty if the guarantee is met, or the role has none.

        Args:
            resources: The resources of an agent.
            headroom: The quotas of all roles.
        """
        role = self.client.role
        if role not in headroom.quotas:
            return NOTHING
        usable = self.framework.usable_part(resources, role)
        _, share = headroom.guarantee_share(role, usable)
        return share if self.reached_by(share) else NOTHING

    def reached_by(self, offer: Resources) -> bool:
        """Return whether an offer is not empty and reaches the client's minimum offer."""
        return bool(offer) and (
            not self.minimum or any(offer.quantities.contains(m) for m in self.minimum)
        )


class Survey:
    """The agents of a cluster at one time, grouped by equivalence, to explain missing offers.

    Agents are equivalent if their resources and states are equal. An explanation for one client
    costs O(groups + agents whose free resources the client could use).
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._groups: dict[object, _EquivalentAgents] = {}
        quotas = cluster.ledger.quotas
        self._headroom: Headroom | None = quotas.headroom() if quotas else None
        self._limits: Headroom | None = quotas.limits() if quotas else None
        """The headroom if each agent were empty, so that only the roles' limits bind."""
        self._outstanding: OutstandingSums | None = None
        """None until first needed."""
        self._smallest: list[Quantities] | None = None
        """Distinct task demands of clients that want offers; None until first needed."""

    def add_agent(self, agent: Agent) -> None:
        """Add an agent to its group of equivalent agents, with the agent's current resources."""
        state = self._cluster.withheld(agent)
        total, free = agent.total, agent.available_for_display
        hold = self._cluster.holds.on(agent.id)
        held_for = None if hold is None else hold.client
        key = (
            *(state, total.key, free.key, agent.region, held_for),
            *(agent.multi_role, agent.hierarchical_role),
        )
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _EquivalentAgents(agent, state, total, free, held_for)
        group.ids.add(agent.id)

    def explain(self, client: Client, *, closely: bool = False) -> Cooperative[Explanation | None]:
        """Return why a client gets no free resources; None if the client is gone.

        Generator for cooperative steps.

        Args:
            client: The client that gets no free resources.
            closely: Whether to compute details that cost more: `Explanation.declined_agents`, also
                of agents without free resources, `lacking_resources` and `others_are_smaller`.
        """
        ledger = self._cluster.ledger
        framework = ledger.frameworks.get(client.framework)
        if framework is None or client not in ledger.clients:
            return None
        idle, task = not ledger.clients.held(client), ledger.unit_demand(client)
        own_reason = self._own_reason(client, framework)
        if own_reason is not None:
            assumes_usage = own_reason == "unanswered" and ledger.assumed_usage is not None
            unanswered_for = self._cluster.limits.answered_after if assumes_usage else None
            return Explanation(client, own_reason, idle, task=task, unanswered_for=unanswered_for)
        minimum = framework.min_allocatable.get(client.role, self._rules.min_allocatable)
        needs = _ClientNeeds(client, framework, task, minimum)
        counts, ends = Counter[Reason](), list[int]()
        reserved_for, missing, lacking = set[str](), set[str](), Counter[str]()
        full_groups = list[tuple[_EquivalentAgents, set[str], Resources]]()
        for group in self._groups.values():
            allowed = self._allowed(client, group.ids)
            counts["constraint"] += len(group.ids) - len(allowed)
            if allowed:
                reason, offer = self._reason(needs, group)
                declined, is_full = Counter[Reason](), reason == "nothing_free"
                if offer:
                    declined, end = yield from self._declined(client, allowed, offer)
                    used_up = needs.used_up(group.total, offer)
                    lacking += Counter(dict.fromkeys(used_up, declined.total()))
                    ends += [] if used_up or end is None else [end]
                    waiting = Counter[Reason]({"nothing_free": declined.total()})
                    counts += waiting if used_up else declined
                    is_full = bool(used_up and declined)
                elif closely and reason == "nothing_free":
                    lacking.update(dict.fromkeys(needs.lacking(group.free), len(allowed)))
                elif reason == "reserved":
                    reservations = (kind.reservation for kind in group.total)
                    reserved_for.update(role for role in reservations if role is not None)
                elif reason == "no_such_resource":
                    missing.update(task.keys() - group.total.quantities.keys() if task else ())
                counts[reason] += len(allowed) - declined.total()
                full_groups += [(group, allowed, offer)] if is_full else []
            yield
        blocked, end = Counter[Reason](), None
        if closely or 2 * self._cluster.filters.count(client) > counts["nothing_free"]:
            blocked, end = yield from self._declined_later(needs, full_groups)
        are_most = 2 * blocked.total() > counts["nothing_free"]
        counts += blocked if are_most else Counter[Reason]()
        counts["nothing_free"] -= blocked.total() if are_most else 0
        ends += [end] if end is not None and (are_most or closely) else []
        agent_counts = {reason: counts[reason] for reason in _AGENT_REASONS if counts[reason]}
        return Explanation(
            client,
            next(iter(agent_counts), "no_agents"),
            idle,
            agent_counts,
            min(ends) / _NANOSECONDS if ends else None,
            task,
            blocked.total() if closely and not are_most else 0,
            frozenset(reserved_for),
            frozenset(missing),
            lacking_resources=self._scarcest(lacking),
            others_are_smaller=closely and task is not None and self.others_are_smaller(task),
            reached_limits=self._reached_limits(needs) if counts["quota"] else {},
        )

    def _reached_limits(self, needs: _ClientNeeds) -> dict[str, tuple[int, int]]:
        """Return the limits of a client's role that leave too little for the client's next task.

        The limits must be the reason why the client gets nothing. If each limit leaves something,
        but less than the client's minimum offer, all limits of the role are returned.

        Returns:
            resource → consumed quantity and limit of the top-level role, in thousandths.
        """
        top, quotas = top_level(needs.client.role), self._cluster.ledger.quotas
        quota = dict(quotas.items()).get(top)
        if quota is None or not any(
            self._reason(needs, group)[0] == "quota" and not needs.of(group.free, self._limits)
            for group in self._groups.values()
            if self._allowed(needs.client, group.ids)
        ):
            return {}
        consumed, task = quotas.consumed()[top], needs.task
        shown = {name: (consumed[name], limit) for name, limit in quota.shown_limits.items()}
        reached = {
            name: (amount, limit)
            for name, (amount, limit) in shown.items()
            if amount + (1 if task is None else task[name]) > limit
        }
        return reached or shown

    def _declined_later(
        self,
        needs: _ClientNeeds,
        full_groups: Iterable[tuple[_EquivalentAgents, set[str], Resources]],
    ) -> Cooperative[tuple["Counter[Reason]", int | None]]:
        """Count the full agents on which a client would decline offers even after tasks end.

        With a demand, the client declines the resources of one task. Without a demand, it has
        declined an offer with CPUs and memory, in which a task may have fit.

        Args:
            needs: The client's task demand and minimum offer.
            full_groups: Groups of agents with too little free, the IDs of the agents admitted by
                the client's constraints, and free resources without CPUs or memory. Agents
                count only if the client declines these free resources there.

        Returns:
            The same as `_declined`.
        """
        client, filters, ends = needs.client, self._cluster.filters, list[int]()
        declined = Counter[Reason]()
        for group, agents, rest in full_groups if filters.count(client) else ():
            if needs.task is not None:
                offer = group.total.plain.take_demand(needs.task) or NOTHING
                tested = agents if offer else set[str]()
                more, end = yield from self._declined(client, tested, offer)
                declined += more
                ends += [] if end is None else [end]
                continue
            needed = _NEEDED_BY_EVERY_TASK.intersection(group.total.quantities)
            for number, agent in enumerate(agents, start=1):
                end = filters.declined_until(client, agent, needed)
                if end is not None and (not rest or filters.refuses(client, agent, rest)):
                    declined["refused"] += 1
                    ends.append(end)
                if number % _AGENTS_A_STEP == 0:
                    yield
            yield
        return declined, min(ends, default=None)

    def _scarcest(self, lacking: Mapping[str, int]) -> frozenset[str]:
        """Return the resources that most agents lack, and of these the rarest resources.

        Args:
            lacking: Number of agents that have too little of a resource free, by resource.
        """
        groups = self._groups.values()
        ranks = {
            name: (
                -number,
                sum(len(group.ids) * (name in group.total.quantities) for group in groups),
            )
            for name, number in lacking.items()
        }
        first = min(ranks.values(), default=None)
        return frozenset(name for name, rank in ranks.items() if rank == first)

    def passed_over(self, *, declining: bool = False) -> Cooperative[frozenset[str]]:
        """Return the users, at all levels of the role tree, that no agent can serve.

        Only users that want offers are considered. An agent can serve a user if a client of the
        user could be offered its resources, perhaps after tasks there end. An agent cannot if
        constraints, minimum sizes, reservations, capabilities or limits prevent the offer. The
        result is empty while no agent is known, and during a failover recovery.

        Args:
            declining: Whether to include users that decline every agent that could serve them.
        """
        ledger = self._cluster.ledger
        candidates, served = set[str](), set[str]()
        if not self._groups or self._cluster.recovering:
            return frozenset()
        for client in list(ledger.clients.wanting_offers):
            names = ledger.clients.display_names(client)
            if not served.issuperset(names):
                candidates.update(names)
                if (yield from self.can_be_served(client, declining=declining)):
                    served.update(names)
            yield
        return frozenset(candidates - served)

    def task_capacity(
        self, clients: Iterable[Client], task: Quantities
    ) -> Cooperative[tuple[int, int]]:
        """Return how many tasks fit on all agents now, and how many if all agents were empty.

        Quotas bound the number of tasks now. Generator for cooperative steps.

        Args:
            clients: The clients that may run the tasks. If there are none, the tasks may use only
                resources that are open to every client.
            task: The demand of one task.

        Returns:
            The number of tasks that fit now, and the number that would fit if all agents were
            empty.
        """
        ledger, fitting_now, fitting_if_empty = self._cluster.ledger, 0, 0
        all_needs = [
            _ClientNeeds(client, ledger.frameworks[client.framework], task, ())
            for client in clients
            if client in ledger.clients
        ]
        for group in self._groups.values():
            free_now, if_empty = dict[str, int](), dict[str, int]()
            if not all_needs and group.state is None:
                held = group.held_for is not None
                free_now = dict.fromkeys(group.ids, 0 if held else _max_tasks(group.free, task))
                if_empty = dict.fromkeys(group.ids, _max_tasks(group.total, task))
            for needs in all_needs:
                allowed = self._allowed(needs.client, group.ids)
                fits = not needs.framework.missing_capability(
                    group.agent, needs.client.role, self._rules
                )
                if allowed and fits and group.state is None:
                    not_held = group.held_for in {None, needs.client}
                    number = needs.number(group.free) if not_held else 0
                    total = needs.number(group.total)
                    for agent in allowed:
                        free_now[agent] = max(free_now.get(agent, 0), number)
                        if_empty[agent] = max(if_empty.get(agent, 0), total)
            fitting_now += sum(free_now.values())
            fitting_if_empty += sum(if_empty.values())
            yield
        if self._headroom is not None and all_needs:
            roles = {needs.client.role for needs in all_needs}
            permitted = [self._headroom.most_tasks(role, task, fitting_now) for role in roles]
            fitting_now = min(fitting_now, sum(permitted))
        return fitting_now, fitting_if_empty

    def can_be_served(self, client: Client, *, declining: bool = False) -> Cooperative[bool]:
        """Return whether at least one agent could serve a client that wants offers.

        An agent also counts if tasks on it have to end first. Generator for cooperative steps.

        Args:
            client: The client that would be offered the agent.
            declining: Whether to leave out agents that the client declines. A client of an unknown
                demand does not decline an agent of which it declines only a part without CPUs or
                memory.
        """
        ledger, filters = self._cluster.ledger, self._cluster.filters
        framework = ledger.frameworks.get(client.framework)
        if framework is None or client not in ledger.clients:
            return False
        if self._own_reason(client, framework) is not None:
            return False
        task = ledger.unit_demand(client)
        minimum = framework.min_allocatable.get(client.role, self._rules.min_allocatable)
        needs = _ClientNeeds(client, framework, task, minimum)
        refuses = declining and filters.count(client) > 0
        for group in self._groups.values():
            allowed = self._allowed(client, group.ids)
            reason, offer = self._reason(needs, group) if allowed else ("constraint", NOTHING)
            if allowed and self._may_serve(needs, group, reason):
                if not refuses:
                    return True
                if offer and not needs.used_up(group.total, offer):
                    declined, _ = yield from self._declined(client, allowed, offer)
                else:
                    declined, _ = yield from self._declined_later(needs, [(group, allowed, offer)])
                if declined.total() < len(allowed):
                    return True
            yield
        return False

    def _may_serve(self, needs: _ClientNeeds, group: _EquivalentAgents, reason: Reason) -> bool:
        """Return whether a group of agents could serve a client, perhaps after tasks end.

        The limits of the client's role must permit an offer. Guarantees of other roles may be met
        later.

        Args:
            needs: The client's task demand and minimum offer.
            group: Agents that the client's constraints admit.
            reason: Why the client is not offered these agents now.
        """
        if self._limits is None:
            return reason in _TEMPORARY
        if reason in _TEMPORARY:
            return bool(needs.of(group.total, self._limits))
        small = reason in {"too_large", "no_such_resource"} and group.state is None
        return small and bool(needs.guarantee(group.total, self._limits))

    def others_are_smaller(self, task: Quantities) -> bool:
        """Return whether another client that wants offers is known to have a smaller task.

        A task is not smaller only because its demand lacks a resource, for example memory.

        Args:
            task: The task to compare with.
        """
        if self._smallest is None:
            ledger = self._cluster.ledger
            tasks = map(ledger.unit_demand, ledger.clients.wanting_offers)
            distinct = {frozenset(demand.items()) for demand in tasks if demand is not None}
            self._smallest = [Quantities(dict(amounts)) for amounts in distinct]
        return any(
            task.contains(demand) and any(amount < task[name] for name, amount in demand.items())
            for demand in self._smallest
        )

    def _declined(
        self, client: Client, agents: set[str], offer: Resources
    ) -> Cooperative[tuple["Counter[Reason]", int | None]]:
        """Count the agents on which a client's filters decline an offer, and find the first expiry.

        Resources that the client left unused of an accepted offer count as a separate reason.

        Args:
            client: The client that has the filters.
            agents: IDs of the agents to check.
            offer: The offer that the client would get on each agent.

        Returns:
            Number of agents by reason. Also the time at which the first of these filters expires,
            in nanoseconds since the epoch, or None without filters.
        """
        filters, ends, declined = self._cluster.filters, [], Counter[Reason]()
        for number, agent in enumerate(agents, start=1):
            end = filters.refused_until(client, agent, offer)
            if end is not None:
                ends.append(end)
                left_over = filters.left_over(client, agent, offer)
                declined["left_over" if left_over else "refused"] += 1
            if number % _AGENTS_A_STEP == 0:
                yield
        return declined, min(ends, default=None)

    def _own_reason(self, client: Client, framework: Framework) -> Reason | None:
        """Return a reason that does not depend on the agent, such as "suppressed", or None."""
        if framework.subscription.flaw is not None:
            return "set_aside"
        if not framework.active or client.role not in framework.roles:
            return "inactive"
        if client.role in framework.suppressed:
            return "suppressed"
        if not self._cluster.allocates:
            return "recovering"
        if self._outstanding is None:
            self._outstanding = OutstandingSums(self._cluster)
        return "unanswered" if self._outstanding.reached(framework.id) else None

    def _allowed(self, client: Client, agents: set[str]) -> set[str]:
        """Return the given agents on which placement and offer constraints admit the client."""
        ledger = self._cluster.ledger
        suitable = ledger.placements.eligible_agents(client.framework)
        allowed = agents if suitable is None else agents.intersection(suitable)
        if ledger.exclusions.number(client):
            allowed = {agent for agent in allowed if not ledger.exclusions.excludes(client, agent)}
        return allowed

    def _reason(self, needs: _ClientNeeds, group: _EquivalentAgents) -> tuple[Reason, Resources]:
        """Return why a client is not offered a group of agents, and the offer that it could get.

        The client's own filters are not considered.

        Args:
            needs: The client's task demand and minimum offer.
            group: Agents that the client's constraints admit.

        Returns:
            The reason and the offer. The offer is empty unless the reason is "turn", because other
            clients come first, or "quota".
        """
        lacking = needs.framework.missing_capability(group.agent, needs.client.role, self._rules)
        if lacking is not None:
            return lacking, NOTHING
        guarantee = NOTHING
        if group.state is None and self._headroom is not None:
            guarantee = needs.guarantee(group.free, self._headroom)
        held = group.held_for not in {None, needs.client}
        if guarantee and not held:
            return "turn", guarantee
        if not needs.fits(group.total):
            return self._shortage(needs, group.total), NOTHING
        if group.state is not None or not needs.fits(group.free):
            return group.state or "nothing_free", NOTHING
        if held:
            return "held", NOTHING
        permitted = needs.of(group.free, self._headroom)
        return ("turn", permitted) if permitted else ("quota", needs.of(group.free))

    @property
    def _rules(self) -> OfferRules:
        return self._cluster.rules

    @staticmethod
    def _shortage(needs: _ClientNeeds, total: Resources) -> Reason:
        """Return why an agent's total resources, even if free, do not suffice for a client."""
        if not needs.enough(total.quantities):
            absent = needs.task is not None and needs.task.keys() - total.quantities.keys()
            return "no_such_resource" if absent else "too_large"
        role = needs.client.role
        usable = total.where(lambda kind: kind.offerable_to(role))
        if not needs.enough(usable.quantities) or not usable:
            return "reserved"
        lacks = (needs.framework.lacking_for(kind) for kind in usable)
        return next((lack for lack in lacks if lack is not None), "too_large")


def _max_tasks(available: Resources, task: Quantities) -> int:
    """Return how many tasks fit into the unreserved part of available resources."""
    capacity = available.plain.divisible
    return min((capacity.get(name, 0) // amount for name, amount in task.items()), default=0)


def could_be_served(cluster: Cluster, client: Client) -> bool:
    """Return whether at least one agent could serve a client that wants offers.

    Costs O(agents), less than the construction of a `Survey`. In most cases, the first agent
    examined can serve the client.
    """
    ledger, seen = cluster.ledger, set[object]()
    for agent in ledger.agents.values():
        key = (
            *(id(agent.total), agent.region, cluster.withheld(agent)),
            *(agent.multi_role, agent.hierarchical_role),
        )
        if key not in seen and ledger.admits(client, agent.id):
            seen.add(key)
            single = Survey(cluster)
            single.add_agent(agent)
            if run_to_completion(single.can_be_served(client)):
                return True
    return False


def survey(cluster: Cluster) -> Cooperative[Survey]:
    """Return a survey of all agents of a cluster, to explain missing offers.

    Generator for cooperative steps. Costs O(agents · allocations on them).
    """
    made = Survey(cluster)
    agents = iter(list(cluster.ledger.agents.values()))
    while batch := list(islice(agents, _AGENTS_A_STEP)):
        for agent in batch:
            made.add_agent(agent)
        yield
    return made
