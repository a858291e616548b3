"""All that the allocator knows of one master's cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from allocator.cluster.agents.agent import Agent
from allocator.cluster.agents.failover_recovery import Failover
from allocator.cluster.agents.ledger import Ledger
from allocator.cluster.agents.maintenance import Maintenance
from allocator.cluster.backfill.holds import BackfillHolds, HoldStatistics
from allocator.cluster.frameworks.demands import Demands
from allocator.cluster.frameworks.framework import Client, Framework, Rules
from allocator.cluster.frameworks.role_places import RolePlaces
from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.limits import Limits
from allocator.cluster.input.quarantine import Quarantine
from allocator.cluster.offers.filters import OfferFilters
from allocator.contract import allocator_pb2 as contract
from allocator.fairness.metering import Meter

Withheld: TypeAlias = Literal["agent_set_aside", "deactivated", "not_whitelisted"]
"""Why an agent is not offered."""


@dataclass(slots=True)
class ClusterStatistics:
    """What has happened since the engine was made."""

    messages: int = 0
    """Snapshots, messages of events and orders, refused ones too."""
    events: int = 0
    runs: int = 0
    """Allocation runs."""
    candidates: int = 0
    """Agents that these runs looked at."""
    offers: int = 0
    """Offers made: one for each role and agent."""
    inverse_offers: int = 0
    clamped: int = 0
    """Recoveries of more than was allocated."""
    ignored: int = 0
    """Calls about agents or frameworks that are gone."""
    rejected: int = 0
    """Offers that the master's side did not let through."""
    early_stamps: int = 0
    """Events stamped earlier than the one before."""
    snapshots: int = 0
    passed_over: int = 0
    """Calls that contradicted what is known so soon after others that no snapshot was asked for."""
    faults: int = 0
    """Errors in the allocator itself; each cost one call, or the offers of one run."""
    holds: HoldStatistics = field(default_factory=HoldStatistics)
    """Agents that have been held back."""


class AllocationCandidates:
    """Which agents an allocation run has to look at.

    An agent is *changed* until a run has looked at it: only then can it have something for
    somebody that it had not before. It is *due* when something happened upon which Mesos allocates.
    """

    def __init__(self) -> None:
        self._changed: dict[str, None] = {}
        self._everybody: Mapping[str, Agent] | None = None
        """All agents, if all are changed; None: those in `_changed` are."""
        self._due: dict[str, None] | None = {}
        """None: all that are changed."""

    def change(self, agent: str) -> None:
        """Say that an agent is not what a run has seen."""
        if self._everybody is None:
            self._changed[agent] = None

    def change_all(self, agents: Mapping[str, Agent]) -> None:
        """Say that everything may look different now, also what comes yet. O(1)."""
        self._everybody = agents

    def call(self, agent: str) -> None:
        """Have the next run look at an agent, if it has changed."""
        if self._due is not None:
            self._due[agent] = None

    def call_all(self) -> None:
        """Have the next run look at all agents that have changed."""
        self._due = None

    @property
    def due(self) -> bool:
        """Whether a run is called for."""
        return self._due is None or bool(self._due)

    def take(self) -> tuple[list[str], list[str] | None]:
        """Return who must be looked at, and who was called for (None: all); they are seen then."""
        called = None if self._due is None else list(self._due)
        self._due = {}
        if self._everybody is not None:
            self._changed = dict.fromkeys(self._everybody)
            self._everybody = None
        if called is None:
            seen = list(self._changed)
            self._changed = {}
        else:
            seen = [agent for agent in called if agent in self._changed]
            for agent in seen:
                del self._changed[agent]
        return seen, called

    def forget(self, agent: str) -> None:
        """Forget an agent that is gone."""
        self._changed.pop(agent, None)
        if self._due is not None:
            self._due.pop(agent, None)


@dataclass(frozen=True, slots=True)
class Recovery:
    """How long to hold off after an election, as the master's flags say (since Mesos 1.11)."""

    factor: float = 0.8
    """Fraction of the expected agents at which allocation begins."""
    timeout_ns: int = 600 * 1_000_000_000
    """After which it begins in any case."""


@dataclass(slots=True)
class Cluster:
    """One master's cluster, as far as its calls have told."""

    rules: Rules
    ledger: Ledger
    demands: Demands
    interval_ns: int
    """Between two ticks."""
    now_ns: int
    at_once: bool
    """Whether freed resources are offered at once, or at the next tick."""
    statistics: ClusterStatistics
    limits: Limits
    roles: RolePlaces
    """Places in the tree of roles that frameworks take."""
    holds: BackfillHolds
    whole_from: int
    """From how many agents they are dealt out together."""
    recovery: Recovery
    tells_running: bool
    """Whether the master says what of the allocated is running, and what only offered."""
    quarantine: Quarantine = field(default_factory=Quarantine)
    meter: Meter | None = None
    """Counts what users have; None: nobody does, or not yet."""
    filters: OfferFilters = field(default_factory=OfferFilters)
    maintenance: Maintenance = field(default_factory=Maintenance)
    marks: AllocationCandidates = field(default_factory=AllocationCandidates)
    whitelist: frozenset[str] | None = None
    """Hostnames of the agents that may be offered; None: all."""
    paused: bool = False
    failover: Failover | None = None
    """After a failover, until all agents are back; None: nobody is awaited."""
    offering: bool = True
    """Whether enough agents have come back since the failover; once they have, it stays so."""
    divergence: str | None = None
    """What the master said that does not fit what is known here, though work goes on."""
    replies: list[contract.Reply] = field(default_factory=list)
    """To be sent with the next decisions."""

    @property
    def allocates(self) -> bool:
        """Whether nothing keeps the next run from happening."""
        return not self.paused and not self.holds_off

    @property
    def holds_off(self) -> bool:
        """Whether after a failover not enough agents are back yet."""
        return not self.offering

    def begin_failover(self, failover: Failover) -> None:
        """Wait for agents after a failover (§1.3)."""
        self.failover, self.offering = failover, False
        self.ledger.set_failover(failover)
        self.follow_failover()

    def follow_failover(self) -> None:
        """Look who is back; to be called after each event. O(1) unless something changes."""
        failover = self.failover
        if failover is None:
            return
        agents, users = len(self.ledger.agents), self.ledger.clients.users
        self.offering = self.offering or not failover.holds_off(agents, self.now_ns)
        if self.offering and failover.over(agents, self.now_ns):
            self.failover = failover = None
            self.ledger.set_failover(None)
        # Tasks are counted against the machines that are there, so these have to be complete.
        late = failover is not None and users.counts_tasks
        users.set_charging(charging=self.offering and not late)

    def withheld(self, agent: Agent) -> Withheld | None:
        """Return why nothing of what an agent has free may be offered; None: it may."""
        if agent.flaw is not None:
            return "agent_set_aside"
        if not agent.active:
            return "deactivated"
        if self.whitelist is not None and agent.hostname not in self.whitelist:
            return "not_whitelisted"
        return None

    def agent(self, agent_id: str) -> Agent:
        """Return an agent.

        Raises:
            InvalidEvent: it is not known.
        """
        try:
            return self.ledger.agents[agent_id]
        except KeyError:
            raise InvalidEvent(f"agent {agent_id!r} is not known") from None

    def framework(self, framework_id: str) -> Framework:
        """Return a framework.

        Raises:
            InvalidEvent: it is not known.
        """
        try:
            return self.ledger.frameworks[framework_id]
        except KeyError:
            raise InvalidEvent(f"framework {framework_id!r} is not known") from None

    def forget(self, client: Client) -> None:
        """Forget of a client that gets no offers any more what has come of those it got."""
        for agent in self.holds.forget(client):
            self.no_longer_held(agent)
        self.filters.forget(client)
        self.demands.forget(client)

    def freed(self, agent_id: str) -> None:
        """Follow that something of an agent is free now."""
        self.marks.change(agent_id)
        if self.at_once:
            self.marks.call(agent_id)

    def no_longer_held(self, agent_id: str | None) -> None:
        """Follow that an agent may be had by others than the one it was held back for."""
        if agent_id in self.ledger.agents:
            self.marks.change(agent_id)

    def anybody(self) -> None:
        """Follow that somebody may want now what nobody wanted."""
        self.marks.change_all(self.ledger.agents)
