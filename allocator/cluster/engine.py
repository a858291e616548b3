"""The engine: events in, decisions out; a deterministic state machine.

It reads no clock, does no I/O and draws no unseeded number: the same messages always give the
same decisions.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Literal, Protocol, TypeAlias

from google.protobuf.message import DecodeError

from allocator.cluster.allocation import Allocation
from allocator.cluster.calls import PREPARE
from allocator.cluster.carrying_over import carry_over, note_unheard
from allocator.cluster.clients import Clients
from allocator.cluster.demands import Demands
from allocator.cluster.errors import InvalidEvent, InvalidOrder, LostTrack
from allocator.cluster.filters import OfferFilters
from allocator.cluster.frameworks import Client, Framework, Rules
from allocator.cluster.ledger import Ledger
from allocator.cluster.memory import Changes, Memory
from allocator.cluster.placements import Placements
from allocator.cluster.quarantine import Flaw, SetAside, in_words
from allocator.cluster.quota import Quota
from allocator.cluster.reasons import Survey, survey
from allocator.cluster.settings import EngineSettings
from allocator.cluster.snapshots import Spoiled, fill, subject
from allocator.cluster.state import Cluster, Recovery, Statistics
from allocator.cluster.steps import Steps, finished
from allocator.cluster.users import Users
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.contract import operator_pb2 as operator
from allocator.fairness.pool import Pool, Standing
from allocator.fairness.quantities import Quantities

LONGEST_LEAP_NS = 7200 * 1_000_000_000
"""An event stamped later than this after the one before is refused; a snapshot may be later.

Time fades debts, so one stamp from a broken clock would forgive everybody everything."""
PATIENCE_NS = 60 * 1_000_000_000
"""A snapshot is asked for at most so often because something contradicts what is known."""
MOST_SPOILERS = 10
"""Parts of a snapshot that may break the allocator itself, each of which costs a further try."""
_NANOSECONDS = 1_000_000_000


class Watcher(Protocol):
    """Looks at allocation runs; may not touch anything."""

    def before_run(self, engine: "Engine") -> None:
        """Look at the order in which the run is going to serve."""

    def after_run(self, engine: "Engine", decisions: contract.Decisions) -> None:
        """Look at what has come of it."""


PlaceState: TypeAlias = Literal[
    "offered", "set aside", "deactivated", "not on the whitelist", "full"
]


@dataclass(frozen=True, slots=True)
class Place:
    """One agent, as people look at it."""

    agent: str
    hostname: str
    state: PlaceState
    """Whether what is free may be offered, and why not."""
    total: Quantities
    free: Quantities
    held: dict[str, Quantities]
    """By user; by role where the framework is not known."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Where one framework may run its tasks."""

    framework: str
    constraint: str
    """In words; empty: it has none."""
    agents: int
    """How many it may use."""
    misfit: str
    """What it has said that cannot be met or understood; empty: nothing."""
    at_a_time: int = 1
    """How many of its tasks count as one, because one is below the floor of demands."""


class Engine:
    """All that the allocator knows of one master, and what it makes of it.

    Args:
        settings: What the operator decides.
        memory: What a former engine has left.
        before_change: Told the time of each event before it is applied; may look, not touch.
    """

    def __init__(
        self,
        settings: EngineSettings,
        *,
        memory: Memory | None = None,
        before_change: Callable[[float], None] | None = None,
    ) -> None:
        self._settings = settings
        self._before_change = before_change
        self._watcher: Watcher | None = None
        self._random = Random(settings.seed)  # noqa: S311 - order of agents, not a secret
        self._sequence = 0
        self._asked_ns = -PATIENCE_NS
        self._asking: str | None = None
        self._heard = 0
        """Sequence number up to which all events have been heard; −1: some are missing."""
        self._leading_since_ns = 0
        since_ns = round(memory.time * _NANOSECONDS) if memory is not None else 0
        self._cluster = self._empty(contract.Options(), since_ns, Statistics())
        self._allocation = Allocation(self._cluster)
        self._inherited = memory
        """What the former engine left, until a snapshot says what is held now."""
        self._last_memory = memory if memory is not None else Memory(0.0, {})
        if memory is not None:
            self._users.inherit(memory)

    @property
    def settings(self) -> EngineSettings:
        """What the operator decided."""
        return self._settings

    @property
    def sequence(self) -> int:
        """Sequence number of the last event applied."""
        return self._sequence

    @property
    def now(self) -> float:
        """The master's clock at the last event, in seconds since the Unix epoch."""
        return self._cluster.now_ns / _NANOSECONDS

    @property
    def statistics(self) -> Statistics:
        """What has happened since the engine was made."""
        return self._cluster.statistics

    @property
    def pool(self) -> Pool[str]:
        """The users at the top, with what they hold and owe."""
        return self._users.pool

    @property
    def agents(self) -> int:
        """Number of agents."""
        return len(self._cluster.ledger.agents)

    @property
    def frameworks(self) -> int:
        """Number of frameworks."""
        return len(self._cluster.ledger.frameworks)

    @property
    def filters(self) -> int:
        """Number of offer filters in force."""
        return len(self._cluster.filters)

    def standings(self) -> list[Standing[str]]:
        """Return how all users stand, each level of a role tree in order of priority."""
        return self._users.standings()

    def users(self) -> list[str]:
        """Return the names of all users, those at the top first, and of virtual leaves."""
        return self._users.names()

    def standing(self, user: str) -> Standing[str] | None:
        """Return how a user stands, O(resources); None: it is not known."""
        return self._users.standing(user)

    def user(self, role: str, framework: str) -> str | None:
        """Return the user that a framework acts for in a role; None: neither is known."""
        client = Client(role, framework)
        clients = self._cluster.ledger.clients
        return clients.user(client) if client in clients else None

    def demands(self) -> dict[str, list[Quantities]]:
        """Return what one task needs of each framework of a user, as far as that is known."""
        demands: dict[str, list[Quantities]] = {}
        for framework in self._cluster.ledger.frameworks.values():
            for client in self._cluster.ledger.clients.of(framework.id):
                demand = self._cluster.demands.of(client, framework)
                if demand is not None:
                    user = self._cluster.ledger.clients.user(client)
                    demands.setdefault(user, []).append(demand)
        return demands

    def misfits(self) -> dict[str, str]:
        """Return which frameworks have said what cannot be met or understood, and what.

        Until enough agents are back after a failover, a constraint may still be met. O(frameworks).
        """
        frameworks = self._cluster.ledger.frameworks.values()
        found = ((framework.id, self._misfit(framework)) for framework in frameworks)
        return {framework: misfit for framework, misfit in found if misfit}

    def set_aside(self) -> Iterator[SetAside]:
        """Go through what could not be accepted of what anybody has said."""
        return iter(self._cluster.quarantine)

    def fits(self, user: str) -> list[Fit]:
        """Return where the frameworks that act for a user may run their tasks."""
        clients = self._cluster.ledger.clients
        return [
            self._fit(framework)
            for framework in self._cluster.ledger.frameworks.values()
            if any(clients.user(client) == user for client in clients.of(framework.id))
        ]

    def clients(self, user: str | None = None) -> list[Client]:
        """Return all clients, or those of a user and of those below it. O(clients)."""
        clients = self._cluster.ledger.clients
        return [
            client
            for framework in self._cluster.ledger.frameworks
            for client in clients.of(framework)
            if user is None or user in clients.node(client).names
        ]

    def users_of(self, client: Client) -> list[str]:
        """Return the user that a client acts for, and all above it; nobody: the client is gone."""
        clients = self._cluster.ledger.clients
        if client not in clients:
            return []
        return list(self._users.above(clients.user(client)))

    def survey(self) -> Steps[Survey]:
        """Look at all agents, to be asked then why clients get nothing of what is free."""
        return survey(self._cluster)

    def filters_by_role(self) -> dict[str, int]:
        """Return how many offer filters are in force for each role that frameworks have."""
        counts: dict[str, int] = {}
        for framework in self._cluster.ledger.frameworks.values():
            for client in self._cluster.ledger.clients.of(framework.id):
                counts[client.role] = counts.get(client.role, 0) + self._cluster.filters.count(
                    client
                )
        return counts

    def quotas(self) -> dict[str, tuple[Quota, Quantities]]:
        """Return by role its quota, and what counts against it."""
        quotas = self._cluster.ledger.quotas
        return {role: (quota, quotas.consumed(role)) for role, quota in quotas.items()}

    def offered(self) -> dict[str, Quantities] | None:
        """Return what of each user's allocation is offered and not running; None: nobody tells.

        Masters tell since Mesos 1.10. O(clients).
        """
        if not self._cluster.tells_running:
            return None
        clients, running = self._cluster.ledger.clients, self._cluster.ledger.running
        offered: dict[str, Quantities] = {}
        for framework in self._cluster.ledger.frameworks:
            for client in clients.of(framework):
                idle = clients.held(client) - running.of(client)
                for user in self._users.above(clients.user(client)):
                    offered[user] = offered.get(user, Quantities()) + idle
        return offered

    def holdings(self) -> dict[tuple[str, str, str], Quantities]:
        """Return what is allocated: (agent, framework, role) → scalars."""
        return {
            (agent.id, framework, role): held.scalars
            for agent in self._cluster.ledger.agents.values()
            for framework, role, held in agent.allocations()
        }

    def available(self) -> dict[str, Quantities]:
        """Return the scalars that are free on each agent."""
        agents = self._cluster.ledger.agents
        return {agent.id: agent.shown.scalars for agent in agents.values()}

    def places(self) -> Iterator[Place]:
        """Go through the agents and what users hold of each, in order of arrival.

        Something may be applied meanwhile; each is as it is when its turn comes.
        """
        cluster = self._cluster
        for agent in list(cluster.ledger.agents.values()):  # they may change meanwhile
            held: dict[str, Quantities] = {}
            for framework, role, resources in agent.allocations():
                user = self.user(role, framework) or role
                held[user] = held.get(user, Quantities()) + resources.scalars
            state: PlaceState = "offered"
            if agent.flaw is not None:
                state = "set aside"
            elif not agent.active:
                state = "deactivated"
            elif cluster.whitelist is not None and agent.hostname not in cluster.whitelist:
                state = "not on the whitelist"
            elif not agent.shown:
                state = "full"
            total, free = agent.total.scalars, agent.shown.scalars
            yield Place(agent.id, agent.hostname, state, total, free, held)

    def agent_name(self, agent: str) -> str:
        """Return an agent's host, or what it was called if it is not known."""
        known = self._cluster.ledger.agents.get(agent)
        return known.hostname if known is not None else agent

    def framework_name(self, framework: str) -> str:
        """Return how a framework calls itself, or its id if it is not known."""
        known = self._cluster.ledger.frameworks.get(framework)
        return known.name if known is not None else framework

    def watch(self, watcher: Watcher) -> None:
        """Have somebody look at each allocation run from now on."""
        self._watcher = watcher

    def restore(
        self,
        options: contract.Options,
        snapshot: contract.Snapshot,
        memory: Memory | None = None,
    ) -> contract.Decisions:
        """Replace all that is known of the cluster; what users owe is kept.

        A part of it that cannot be used is set aside. Filters are lost, as in a failover of a stock
        master, unless it is the same master and all its events have been heard.

        Args:
            options: The master's.
            snapshot: All that is.
            memory: What another engine has left, which led meanwhile; what it says holds if it
                is of later than what is known here.

        Raises:
            InvalidEvent: the master's options are malformed; nothing has changed.
        """
        if snapshot.time_ns < 0:
            raise InvalidEvent("the snapshot is stamped before 1970; is the master's clock right?")
        cluster = self._filled(options, snapshot)
        if self._before_change is not None:
            self._before_change(snapshot.time_ns / _NANOSECONDS)
        known = self._known()
        later = memory is not None and memory.time > known.time
        cluster.ledger.clients.users.inherit(memory if later and memory is not None else known)
        same_master = snapshot.leading_since_ns == self._leading_since_ns
        if same_master and snapshot.sequence == self._heard:
            self._carry_over(cluster)
        self._inherited = None
        self._cluster = cluster
        self._allocation = Allocation(cluster)
        self._sequence = self._heard = snapshot.sequence
        self._leading_since_ns = snapshot.leading_since_ns
        self._asking = None
        self._asked_ns = min(self._asked_ns, snapshot.time_ns)
        self.statistics.snapshots += 1
        return finished(self._deciding())

    def apply(self, events: contract.Events) -> contract.Decisions:
        """Apply events in order, then allocate once.

        An event that contradicts what is known changes nothing. The first makes a snapshot
        necessary; those that follow within a minute are passed over.

        Raises:
            InvalidEvent: a snapshot is needed. Events before the one that it names stand.
        """
        return finished(self.applying(events))

    def applying(self, events: contract.Events) -> Steps[contract.Decisions]:
        """Do so step by step; until it is done nobody else may look at this engine."""
        self._asking = None
        for number, event in enumerate(events.events):
            try:
                self._apply(event)
            except InvalidEvent as error:
                lost = isinstance(error, LostTrack)
                if lost or self._may_ask():
                    self._heard = -1 if lost else self._heard
                    self._note_unheard(events.events[number:])
                    raise
                self._pass_over(event, error)
            yield
        decisions = yield from self._deciding()
        if self._cluster.divergence is not None and self._may_ask():
            self._asking, self._cluster.divergence = self._cluster.divergence, None
        return decisions

    def divergence(self) -> str | None:
        """Return what of the last message, or before, does not fit; a snapshot would heal it.

        A master that goes on saying such things is not asked more than once a minute.
        """
        return self._asking

    def unheard(self, events: Iterable[contract.Event]) -> None:
        """Learn of events that are not applied, as a snapshot that contains them is under way."""
        self._note_unheard(events)

    def memory(self) -> Memory:
        """Return what a successor must know that no master will tell it."""
        memory = self._users.memory()
        if self._inherited is None:
            return memory
        before, tau = self._inherited.users, self._inherited.tau
        return replace(
            memory,
            tau=memory.tau if tau is None else tau,
            users={
                user: replace(remembered, overuse=before[user].overuse)
                if user in before
                else remembered
                for user, remembered in memory.users.items()
            },
        )

    def changes(self) -> Changes:
        """Return what a successor must know that it would not from what this returned before.

        Costs O(users that have got or given back something since), at first O(users).
        """
        changes = self._users.changes()
        if self._inherited is None:
            return changes
        before, tau = self._inherited.users, self._inherited.tau
        return replace(
            changes,
            courses={
                user: replace(
                    course,
                    tau=course.tau if tau is None else tau,
                    remembered=replace(course.remembered, overuse=before[user].overuse),
                )
                if user in before
                else course
                for user, course in changes.courses.items()
            },
        )

    def order(self, order: operator.Order) -> None:
        """Carry out what an operator orders, at the time of the last event.

        Raises:
            InvalidOrder: it is malformed or names a user that is not known.
        """
        users = self._users
        match order.WhichOneof("order"):
            case "set_weight":
                change = order.set_weight
                self._require_known([change.user])
                weight = change.weight if change.HasField("weight") else None
                try:
                    users.order_weight(change.user, weight)
                except ValueError as error:
                    raise InvalidOrder(str(error)) from error
            case "reset_commitments":
                named = order.reset_commitments.users
                self._require_known(named)
                if not named:
                    users.forgive_all()
                for user in named:
                    users.forgive(user)
            case _:
                raise InvalidOrder("an order of a kind that this version does not know")

    @property
    def _users(self) -> Users:
        return self._cluster.ledger.clients.users

    def _fit(self, framework: Framework) -> Fit:
        ledger = self._cluster.ledger
        return Fit(
            framework=framework.id,
            constraint=ledger.placements.describe(framework.id),
            agents=ledger.placements.number(framework.id),
            misfit=self._misfit(framework),
            at_a_time=max(map(ledger.at_a_time, ledger.clients.of(framework.id)), default=1),
        )

    def _misfit(self, framework: Framework) -> str:
        ledger = self._cluster.ledger
        wrong = [framework.said.unreadable] if framework.said.unreadable else []
        wrong += [flaw.words for flaw in self._cluster.quarantine.of("framework", framework.id)]
        known = len(ledger.agents)
        if known and not ledger.placements.number(framework.id) and not self._cluster.holds_off:
            constraint = ledger.placements.describe(framework.id)
            wrong.append(f"no agent meets its constraint: {constraint}")
        if ledger.agents and not self._cluster.holds_off:
            wrong += dict.fromkeys(
                f"one task needs {beyond}"
                for client in ledger.clients.of(framework.id)
                if (demand := self._cluster.demands.of(client, framework)) is not None
                and (beyond := ledger.floor.beyond(demand))
            )
        wrong += [
            f"its offer constraints for the role {client.role!r} exclude every agent"
            for client in ledger.clients.of(framework.id)
            if known and ledger.exclusions.number(client) == known
        ]
        return "; ".join(wrong)

    def _require_known(self, users: Iterable[str]) -> None:
        unknown = sorted(user for user in users if user not in self._users)
        if unknown:
            raise InvalidOrder(f"no such user: {', '.join(unknown)}")

    def _empty(self, options: contract.Options, now_ns: int, statistics: Statistics) -> Cluster:
        excluded = tuple(options.fairness_excluded)
        clients = Clients(self._settings, now_ns / _NANOSECONDS, excluded)
        demands = Demands(self._settings)
        return Cluster(
            rules=_rules(options),
            ledger=Ledger(clients, demands, Placements(self._settings.constraints)),
            demands=demands,
            interval_ns=options.allocation_interval_ns,
            now_ns=now_ns,
            at_once=self._settings.allocation == "event",
            statistics=statistics,
            recovery=_recovery(options),
            tells_running=options.tells_running,
            limits=self._settings.limits,
        )

    def _filled(self, options: contract.Options, snapshot: contract.Snapshot) -> Cluster:
        """Return the cluster of a snapshot, without what would break the allocator itself.

        Raises:
            InvalidEvent: the master's options are malformed.
        """
        statistics, spoilers = self._cluster.statistics, dict[int, Flaw]()
        while True:
            cluster = self._empty(options, snapshot.time_ns, statistics)
            try:
                fill(cluster, snapshot, self.pool.capacity, spoilers)
            except Spoiled as error:
                statistics.faults += 1
                spoilers[error.part] = error.flaw
                if len(spoilers) > MOST_SPOILERS:
                    raise InvalidEvent(error.flaw.words) from error
            else:
                return cluster

    def _carry_over(self, cluster: Cluster) -> None:
        try:
            carry_over(self._cluster, cluster)
        except Exception:  # noqa: BLE001 - what is there is broken, and what is carried may be lost
            self.statistics.faults += 1
            cluster.filters = OfferFilters()

    def _known(self) -> Memory:
        """Return what is to be handed on; if the engine is broken, what it was handed itself."""
        try:
            self._last_memory = self.memory()
        except Exception:  # noqa: BLE001 - a healthy snapshot replaces whatever there is
            self.statistics.faults += 1
        return self._last_memory

    def _apply(self, event: contract.Event) -> None:
        if event.sequence != self._sequence + 1:
            raise LostTrack(
                f"event {event.sequence} follows event {self._sequence}: events are missing or "
                "came twice"
            )
        call = event.WhichOneof("call")
        if call is None:
            raise InvalidEvent(
                f"event {event.sequence} carries no call this version knows; "
                "is the master's side newer than the allocator?"
            )
        cluster = self._cluster
        before_ns = cluster.now_ns
        if event.time_ns - before_ns > LONGEST_LEAP_NS:
            raise InvalidEvent(
                f"event {event.sequence} ({call}) is stamped "
                f"{(event.time_ns - before_ns) / _NANOSECONDS:.0f} s after the one before; "
                "is the master's clock right?"
            )
        cluster.now_ns = max(event.time_ns, before_ns)
        said = getattr(event, call)
        try:
            change = PREPARE[call](cluster, said)
        except Exception as error:
            cluster.now_ns = before_ns
            raise self._refusal(event.sequence, call, error) from error
        replies = len(cluster.replies)
        try:
            if self._before_change is not None:
                self._before_change(self.now)
            self._users.advance(self.now)
            change()
        except Exception as error:  # it may have changed a part, which only a snapshot can heal
            raise self._refusal(event.sequence, call, error) from error
        for reply in cluster.replies[replies:]:
            reply.sequence = event.sequence
        cluster.follow_failover()
        if cluster.quarantine:
            cluster.quarantine.put(*subject(call, said), "call", None)
        self._sequence = self._heard = event.sequence
        self.statistics.events += 1
        self.statistics.early_stamps += event.time_ns < before_ns

    def _note_unheard(self, events: Iterable[contract.Event]) -> None:
        for event in events:
            if event.sequence == self._heard + 1 and self._heard >= 0:
                self._heard = event.sequence
                try:
                    note_unheard(self._cluster, event)
                except Exception:  # noqa: BLE001 - what is carried over need not be whole
                    self.statistics.faults += 1
                    self._heard = -1
            elif event.sequence != self._heard:
                self._heard = -1

    def _refusal(self, sequence: int, call: str, error: Exception) -> InvalidEvent:
        """Return the refusal of a call, also where the allocator itself is to blame."""
        if not isinstance(error, InvalidEvent):
            self.statistics.faults += 1
        return InvalidEvent(f"event {sequence} ({call}): {in_words(error)}")

    def _may_ask(self) -> bool:
        """Whether a snapshot may be asked for; it is then."""
        if self._cluster.now_ns < self._asked_ns + PATIENCE_NS:
            return False
        self._asked_ns = self._cluster.now_ns
        return True

    def _pass_over(self, event: contract.Event, error: InvalidEvent) -> None:
        """Go on without a call; it is explained, and a snapshot asked for when that may be."""
        cluster, call = self._cluster, event.WhichOneof("call")
        if call is not None:
            flaw = Flaw("contradiction", str(error))
            cluster.quarantine.put(*subject(call, getattr(event, call)), "call", flaw)
        if call in {"update_available", "get_inverse_offer_statuses"}:
            cluster.replies.append(contract.Reply(sequence=event.sequence, error=str(error)))
        cluster.divergence = str(error)
        self._sequence = self._heard = event.sequence
        self.statistics.passed_over += 1

    def _deciding(self) -> Steps[contract.Decisions]:
        """Allocate; a fault of the allocator itself costs the offers of one run."""
        cluster = self._cluster
        replies, cluster.replies = cluster.replies, []
        try:
            decisions = yield from self._running()
        except Exception as error:  # noqa: BLE001 - nobody gets offers from an allocator that is down
            self.statistics.faults += 1
            cluster.divergence = f"an allocation run: {in_words(error)}"
            decisions = contract.Decisions()
        decisions.applied_sequence = self._sequence
        if replies:
            decisions.replies.extend(replies)
        return decisions

    def _running(self) -> Steps[contract.Decisions]:
        cluster, decisions = self._cluster, contract.Decisions()
        if not cluster.marks.due or not cluster.allocates:
            return decisions
        changed, called = cluster.marks.take()
        agents = [cluster.ledger.agents[name] for name in changed]
        if self._watcher is not None:
            self._watcher.before_run(self)
        self._random.shuffle(agents)  # so that no agent is always the first to be used
        made = yield from self._allocation.run(agents, decisions)
        inverse_offers = self._inverse_offers(called)
        decisions.inverse_offers.extend(inverse_offers)
        done = self.statistics
        done.runs += 1
        done.candidates += len(agents)
        done.offers += made
        done.inverse_offers += sum(len(each.inverse_offers) for each in inverse_offers)
        if self._watcher is not None:
            self._watcher.after_run(self, decisions)
        return decisions

    def _inverse_offers(self, called: list[str] | None) -> list[contract.InverseOffers]:
        """Ask active frameworks to leave agents that are going to be unavailable (§3.9)."""
        cluster = self._cluster
        made: dict[str, contract.InverseOffers] = {}
        for name in cluster.maintenance.agents():
            if called is not None and name not in called:
                continue
            for holder in cluster.ledger.agents[name].holders():
                framework = cluster.ledger.frameworks.get(holder)
                if framework is None or not framework.active:
                    continue
                unavailability = cluster.maintenance.ask(name, holder, cluster.now_ns)
                if unavailability is not None:
                    offers = made.setdefault(holder, contract.InverseOffers(framework_id=holder))
                    offers.inverse_offers.add(agent_id=name, unavailability=unavailability)
        return list(made.values())


def _rules(options: contract.Options) -> Rules:
    """Read what the master's flags say.

    Raises:
        InvalidEvent: the domain is malformed, or an amount is none.
    """
    region: str | None = None
    if options.HasField("domain"):
        try:
            domain = mesos.DomainInfo.FromString(options.domain)
        except DecodeError as error:
            raise InvalidEvent(
                f"options: domain is not a serialised mesos.DomainInfo: {error}"
            ) from error
        if domain.HasField("fault_domain"):
            region = domain.fault_domain.region.name
    try:
        minimum = tuple(Quantities.from_doubles(m.amounts) for m in options.min_allocatable)
    except ValueError as error:
        raise InvalidEvent(f"options: min_allocatable: {error}") from error
    return Rules(minimum, options.filter_gpu_resources, region)


def _recovery(options: contract.Options) -> Recovery:
    """Read how long to hold off after an election.

    Raises:
        InvalidEvent: the factor is no fraction.
    """
    recovery = Recovery()
    if options.HasField("recovery_factor"):
        if not 0.0 <= options.recovery_factor <= 1.0:
            raise InvalidEvent(
                f"options: recovery_factor {options.recovery_factor} is not between 0 and 1"
            )
        recovery = replace(recovery, factor=options.recovery_factor)
    if options.HasField("recovery_timeout_ns"):
        recovery = replace(recovery, timeout_ns=options.recovery_timeout_ns)
    return recovery
