"""State of one master's cluster, as the allocator knows it from the master's calls."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from allocator.cluster.agents.agent import Agent
from allocator.cluster.agents.failover_recovery import FailoverRecovery
from allocator.cluster.agents.ledger import Ledger
from allocator.cluster.agents.maintenance import Maintenance
from allocator.cluster.agents.used_resources import OutstandingOffers
from allocator.cluster.backfill.holds import BackfillHolds, HoldStatistics
from allocator.cluster.frameworks.demands import Demands
from allocator.cluster.frameworks.framework import Client, Framework, OfferRules
from allocator.cluster.frameworks.role_places import LimitedPlaces
from allocator.cluster.frameworks.subscription import Subscription, read_subscription
from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.limits import Limits
from allocator.cluster.input.quarantine import Quarantine
from allocator.cluster.offers.offer_filters import OfferFilters
from allocator.cluster.offers.refused_offers import RefusedOffers
from allocator.cluster.resources.cache import Cache
from allocator.contract import allocator_pb2 as contract
from allocator.cooperative import Cooperative
from allocator.fairness.metering import Meter

_SUBSCRIPTIONS = 2**23
"""Approximate bytes of parsed subscriptions that are kept, in case a framework repeats one."""

Withheld: TypeAlias = Literal["agent_set_aside", "deactivated", "not_whitelisted"]
"""The reason why an agent is not offered."""


@dataclass(slots=True)
class ClusterStatistics:
    """Counts of events, cycles, offers and errors since the engine was created."""

    messages: int = 0
    """Snapshots, messages of events, and operator commands, including rejected ones."""
    events: int = 0
    runs: int = 0
    """Number of allocation cycles."""
    candidates: int = 0
    """Agents examined in all allocation cycles together."""
    offers: int = 0
    """Offers made: one for each role and agent."""
    inverse_offers: int = 0
    clamped: int = 0
    """Recoveries of more resources than were allocated."""
    ignored: int = 0
    """Calls about agents or frameworks that are gone."""
    rejected: int = 0
    """Offers that the master's side rejected."""
    early_stamps: int = 0
    """Events with an earlier timestamp than the event before."""
    snapshots: int = 0
    passed_over: int = 0
    """Contradictory calls that requested no snapshot, because a snapshot was requested shortly
    before."""
    faults: int = 0
    """Errors in the allocator itself. Each error cost one call, or the offers of one cycle."""
    holds: HoldStatistics = field(default_factory=HoldStatistics)
    """Counts of backfill holds."""


@dataclass(slots=True)
class PendingRefresh:
    """Facts about a framework that its clients do not reflect yet (`Cluster.refresh_pending`)."""

    everything: bool = False
    """Whether any fact may have changed; else only whether the framework wants offers."""
    roles: set[str] = field(default_factory=set)
    """Roles in which the framework may have begun or ceased to want offers."""
    examines: bool = False
    """Whether all agents are then examined for the framework's clients."""


class AllocationCandidates:
    """Tracks the agents that the next allocation cycle must examine.

    Two conditions are tracked. An agent is *changed* until a cycle has examined the agent; only a
    changed agent can have resources for a client that the agent did not have before. An agent is
    *due* after an event on which Mesos allocates. A cycle examines the agents that are both changed
    and due.
    """

    def __init__(self) -> None:
        self._changed: dict[str, None] = {}
        self._all_agents: Mapping[str, Agent] | None = None
        """All agents, if all are changed; None if only the agents in `_changed` are."""
        self._due: dict[str, None] | None = {}
        """The agents that are due; None if all changed agents are."""
        self.clients: dict[Client, None] = {}
        """Clients for which all other agents have changed, too. A cycle clears it after `take`."""
        self._examined_all = False
        """Whether a cycle has examined all agents since the last tick."""

    def mark_changed(self, agent: str) -> None:
        """Mark an agent as changed: a cycle examines the agent once the agent is due."""
        if self._all_agents is None:
            self._changed[agent] = None

    def mark_all_changed(self, agents: Mapping[str, Agent]) -> None:
        """Mark all agents as changed. O(1).

        Args:
            agents: The agents by ID; agents added to this mapping before the next cycle are
                included.
        """
        self._all_agents = agents

    def mark_changed_for(self, clients: Iterable[Client], agents: Mapping[str, Agent]) -> None:
        """Mark all agents as changed for some clients, which may now accept more offers.

        The first call of this method after a tick marks the agents for all clients. A client may
        accept more offers for a reason that the engine has not noted.

        Args:
            clients: The clients.
            agents: The agents by ID, as for `mark_all_changed`.
        """
        if self._examined_all:
            self.clients.update(dict.fromkeys(clients))
        else:
            self.mark_all_changed(agents)

    def begin_interval(self) -> None:
        """Begin the interval after a tick; see `mark_changed_for`."""
        self._examined_all = False

    def schedule(self, agent: str) -> None:
        """Mark an agent as due: the next cycle examines the agent if it has changed."""
        if self._due is not None:
            self._due[agent] = None

    def schedule_all(self) -> None:
        """Mark all agents as due: the next cycle examines all changed agents."""
        self._due = None

    @property
    def any_due(self) -> bool:
        """Whether at least one agent is due and a cycle must run."""
        return self._due is None or bool(self._due)

    def take(self) -> tuple[list[str], list[str] | None]:
        """Return the agents that a cycle must examine and all due agents, and clear these marks.

        A due agent is one on which Mesos would allocate now. Only due agents that have changed must
        be examined.

        Returns:
            The IDs of the agents that are changed and due; then the IDs of all due agents, or None
            if every agent was due.
        """
        scheduled = None if self._due is None else list(self._due)
        self._due = {}
        if self._all_agents is not None:
            self._changed = dict.fromkeys(self._all_agents)
            self._all_agents, self._examined_all = None, scheduled is None
            self.clients.clear()
        if scheduled is None:
            examine = list(self._changed)
            self._changed = {}
        else:
            examine = [agent for agent in scheduled if agent in self._changed]
            for agent in examine:
                del self._changed[agent]
        return examine, scheduled

    def forget(self, agent: str) -> None:
        """Clear the marks of an agent that has been removed."""
        self._changed.pop(agent, None)
        if self._due is not None:
            self._due.pop(agent, None)


@dataclass(frozen=True, slots=True)
class Recovery:
    """Parameters of the recovery after a master's failover, from the master's flags.

    After a failover, allocation pauses until enough agents have re-registered. Masters have these
    flags since Mesos 1.11.
    """

    factor: float = 0.8
    """Fraction of the expected agents at which allocation begins."""
    timeout_ns: int = 600 * 1_000_000_000
    """Nanoseconds after which allocation begins in any case."""


@dataclass(slots=True)
class Cluster:
    """State of one master's cluster: agents, frameworks, allocations, quotas, filters and more.

    The master's calls (`allocator.cluster.calls`) change this state; the allocation cycle reads it.
    """

    rules: OfferRules
    ledger: Ledger
    demands: Demands
    interval_ns: int
    """Nanoseconds between two ticks."""
    now_ns: int
    offers_freed_at_once: bool
    """Whether freed resources are offered immediately. Otherwise, they are offered at the next
    tick."""
    left_out_agents_wait: bool
    """See `EngineSettings.left_out_agents_wait`."""
    limits_sharing: bool
    """See `EngineSettings.limits_sharing`."""
    skips_void_calls: bool
    """See `EngineSettings.skips_void_calls`."""
    statistics: ClusterStatistics
    limits: Limits
    roles: LimitedPlaces
    """The role-tree nodes that frameworks occupy, and their limit."""
    framework_places: LimitedPlaces
    """The number of frameworks with roles, and its limit; each of them occupies one place."""
    holds: BackfillHolds
    whole_from: int
    """Least number of agents for bulk allocation; 0 disables bulk allocation."""
    skips_refusing_clients: bool
    """Whether clients that would refuse each number of tasks that fits are skipped together."""
    examines_for_clients: bool
    """Whether agents that have not changed are examined for revived clients only."""
    recovery: Recovery
    reports_used: bool
    """Whether the master reports which allocated resources are used and which are only offered."""
    refusals: RefusedOffers | None = None
    """Offers that the master's side refused. None: refused resources are offered again at once."""
    quarantine: Quarantine = field(default_factory=Quarantine)
    meter: Meter | None = None
    """Meters what users hold; None if there is no meter, or not yet."""
    filters: OfferFilters = field(default_factory=OfferFilters)
    maintenance: Maintenance = field(default_factory=Maintenance)
    candidates: AllocationCandidates = field(default_factory=AllocationCandidates)
    whitelist: frozenset[str] | None = None
    """Hostnames of the agents that may be offered; None for all agents."""
    paused: bool = False
    failover: FailoverRecovery | None = None
    """The failover recovery, until all agents are back; None without a recovery."""
    offering: bool = True
    """Whether enough agents have come back since the failover. Once true, the value stays true."""
    divergence: str | None = None
    """A contradiction between the master and the known state that did not stop the engine; None
    without one."""
    replies: list[contract.Reply] = field(default_factory=list)
    """Replies to send with the next decisions."""
    pending: dict[str, PendingRefresh] = field(default_factory=dict)
    """Frameworks, by ID, whose clients the engine refreshes after several calls at once."""
    subscriptions: "Cache[tuple[str, bytes], Subscription]" = field(
        default_factory=lambda: Cache(_SUBSCRIPTIONS)
    )
    """Parsed subscriptions of frameworks, by ID and serialised FrameworkInfo."""

    def __post_init__(self) -> None:
        knows_used = self.reports_used or self.ledger.assumed_usage is not None
        if self.limits.bounds_unanswered and knows_used:
            self.ledger.used.outstanding = OutstandingOffers()

    @property
    def allocates(self) -> bool:
        """Whether an allocation cycle may run now: not paused, and enough agents are back."""
        return not self.paused and not self.recovering

    @property
    def recovering(self) -> bool:
        """Whether offers wait because too few agents have re-registered after a failover."""
        return not self.offering

    def begin_failover(self, failover: FailoverRecovery) -> None:
        """Begin a failover recovery: wait for agents to re-register (Mesos semantics, §1.3)."""
        self.failover, self.offering = failover, False
        self.ledger.set_failover(failover)
        self.follow_failover()

    def follow_failover(self) -> None:
        """Resume offers if enough agents have re-registered, and end the recovery if all are back.

        After a timeout, both are done in any case. The engine calls this method after each event.
        O(1) unless the recovery's state changes.

        Until offers resume, over-use does not increase the users' commitments. Under a policy that
        counts tasks, over-use does not increase commitments until the recovery ends.
        """
        failover = self.failover
        if failover is None:
            return
        agents, users = len(self.ledger.agents), self.ledger.clients.users
        self.offering = self.offering or not failover.holds_back_offers(agents, self.now_ns)
        if self.offering and failover.is_complete(agents, self.now_ns):
            self.failover = failover = None
            self.ledger.set_failover(None)
        # Policies that count tasks need all machines, so charging waits until all are back.
        late = failover is not None and users.counts_tasks
        users.set_charging(charging=self.offering and not late)

    def withheld(self, agent: Agent) -> Withheld | None:
        """Return why an agent may not be offered; None if the agent may be offered."""
        if agent.validation_error is not None:
            return "agent_set_aside"
        if not agent.active:
            return "deactivated"
        if self.whitelist is not None and agent.hostname not in self.whitelist:
            return "not_whitelisted"
        return None

    def agent(self, agent_id: str) -> Agent:
        """Return the agent with this ID.

        Raises:
            InvalidEvent: The agent is not known.
        """
        try:
            return self.ledger.agents[agent_id]
        except KeyError:
            raise InvalidEvent(f"agent {agent_id!r} is not known") from None

    def framework(self, framework_id: str) -> Framework:
        """Return the framework with this ID.

        Raises:
            InvalidEvent: The framework is not known.
        """
        try:
            return self.ledger.frameworks[framework_id]
        except KeyError:
            raise InvalidEvent(f"framework {framework_id!r} is not known") from None

    def read_subscription(self, framework_id: str, info: bytes) -> Subscription:
        """Parse a serialised FrameworkInfo, which the framework may have sent before."""
        key = framework_id, info
        known = self.subscriptions.get(key)
        if known is None:
            parsed = read_subscription(framework_id, info, self.limits)
            known = self.subscriptions.put(key, parsed, len(info))
        return known

    def reject_unlisted(self) -> Cooperative[None]:
        """Quarantine frameworks whose offer constraints exclude more agents than can be recorded.

        Such frameworks get no offers. Generator for cooperative steps.
        """
        for framework_id, flaw in self.ledger.exclusions.take_unlisted():
            framework = self.ledger.frameworks.get(framework_id)
            if framework is not None and framework.subscription.flaw is None:
                framework.subscription = replace(framework.subscription, flaw=flaw)
                self.quarantine.put("framework", framework_id, "subscription", flaw)
                yield from self.refresh(framework)

    def refresh(self, framework: Framework) -> Cooperative[None]:
        """Update everything that depends on a framework, now or with `refresh_pending`.

        Generator for cooperative steps.
        """
        if self.skips_void_calls:
            self._pending(framework).everything = True
        else:
            yield from self.ledger.refresh_in_steps(framework)

    def refresh_wanting(self, framework: Framework, roles: Collection[str]) -> Cooperative[None]:
        """Update whether a framework wants offers in some roles, as `refresh` does."""
        if self.skips_void_calls:
            self._pending(framework).roles.update(roles)
        else:
            yield from self.ledger.update_wanting_in_steps(framework, roles)

    def examine_after_refresh(self, framework: Framework) -> None:
        """Mark agents as changed: for a framework's clients with `refresh_pending`, or for all now.

        The clients' demands or constraints may differ.
        """
        if self.skips_void_calls:
            self._pending(framework).examines = True
        else:
            self.mark_all_changed()

    def _pending(self, framework: Framework) -> PendingRefresh:
        pending = self.pending.get(framework.id)
        if pending is None:
            pending = self.pending[framework.id] = PendingRefresh()
        return pending

    def refresh_pending(self) -> Cooperative[None]:
        """Update the clients of all frameworks in `pending`.

        A flood of calls of one framework, which arrive in few messages, therefore costs an update
        for each message, whatever the number of calls. Generator for cooperative steps.
        """
        all_pending, self.pending = self.pending, {}
        for framework_id, pending in all_pending.items():
            framework = self.ledger.frameworks.get(framework_id)
            if framework is None:
                continue
            if pending.everything:
                placements = self.ledger.placements
                yield from placements.prepare_framework(framework.name, framework.constraint)
                yield from self.ledger.refresh_in_steps(framework)
            elif pending.roles:
                yield from self.ledger.update_wanting_in_steps(framework, pending.roles)
            if pending.examines:
                self.mark_changed_for(self.ledger.clients.of(framework_id))

    def forget(self, client: Client) -> Cooperative[None]:
        """Delete the holds, filters and learned demand of a client that gets no more offers.

        Generator for cooperative steps.
        """
        for agent in self.holds.forget(client):
            self.mark_hold_ended(agent)
        yield from self.filters.forget_in_steps(client)
        self.demands.forget(client)

    def on_resources_recovered(self, agent_id: str) -> None:
        """Mark an agent as changed because some of its resources became available.

        If freed resources are offered immediately, the agent is also marked as due.
        """
        self.candidates.mark_changed(agent_id)
        if self.offers_freed_at_once:
            self.candidates.schedule(agent_id)

    def mark_hold_ended(self, agent_id: str | None) -> None:
        """Mark an agent as changed because its backfill hold has ended.

        Args:
            agent_id: The agent's ID; None and IDs of unknown agents are ignored.
        """
        if agent_id in self.ledger.agents:
            self.candidates.mark_changed(agent_id)

    def mark_all_changed(self) -> None:
        """Mark all agents as changed, because a client may now accept more offers than before."""
        self.candidates.mark_all_changed(self.ledger.agents)

    def examine_all_for(self, clients: Iterable[Client]) -> None:
        """Mark all agents as due, and as changed for clients that may now accept more offers."""
        self.mark_changed_for(clients)
        self.candidates.schedule_all()

    def mark_changed_for(self, clients: Iterable[Client]) -> None:
        """Mark all agents as changed for clients that may now accept more offers.

        Backfill holds are decided for all clients, so with holds the agents change for all.
        """
        if self.examines_for_clients and not self.holds.enabled:
            self.candidates.mark_changed_for(clients, self.ledger.agents)
        else:
            self.mark_all_changed()
