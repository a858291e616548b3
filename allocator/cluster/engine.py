"""The engine: events in, decisions out; a deterministic state machine.

It reads no clock, does no I/O and draws no unseeded number: the same messages always give the
same decisions.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from google.protobuf.message import DecodeError

from allocator.cluster.agents import Agent
from allocator.cluster.allocation import AllocationRun
from allocator.cluster.clients import Clients
from allocator.cluster.errors import InvalidEvent, InvalidOrder
from allocator.cluster.filters import OfferFilters, refusal_ns
from allocator.cluster.frameworks import Alternatives, Framework, parse_framework_info
from allocator.cluster.ledger import Ledger
from allocator.cluster.memory import Memory
from allocator.cluster.resources import (
    Resources,
    parse_allocated,
    parse_total,
    parse_used,
)
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from allocator.contract import operator_pb2 as operator
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities

_NANOSECONDS = 1_000_000_000


@dataclass(slots=True)
class Statistics:
    """What has happened since the engine was made."""

    events: int = 0
    runs: int = 0
    """Allocation runs."""
    candidates: int = 0
    """Agents that these runs looked at."""
    offers: int = 0
    """Offers made: one for each role and agent."""
    clamped: int = 0
    """Recoveries of more than was allocated."""
    ignored: int = 0
    """Recoveries for agents that are gone."""
    rejected: int = 0
    """Offers that the master's side did not let through."""
    early_stamps: int = 0
    """Events stamped earlier than the one before."""
    snapshots: int = 0


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
        self._random = Random(settings.seed)  # noqa: S311 - order of agents, not a secret
        self.statistics = Statistics()
        since_ns = round(memory.time * _NANOSECONDS) if memory is not None else 0
        self._begin(contract.Options(), sequence=0, now_ns=since_ns)
        if memory is not None:
            self._ledger.clients.inherit(memory)

    @property
    def sequence(self) -> int:
        """Sequence number of the last event applied."""
        return self._sequence

    @property
    def now(self) -> float:
        """The master's clock at the last event, in seconds since the Unix epoch."""
        return self._now_ns / _NANOSECONDS

    @property
    def pool(self) -> Pool[str]:
        """The users, with what they hold and owe."""
        return self._ledger.clients.pool

    @property
    def agents(self) -> int:
        """Number of agents."""
        return len(self._ledger.agents)

    @property
    def frameworks(self) -> int:
        """Number of frameworks."""
        return len(self._ledger.frameworks)

    @property
    def filters(self) -> int:
        """Number of offer filters in force."""
        return len(self._filters)

    def restore(self, options: contract.Options, snapshot: contract.Snapshot) -> contract.Decisions:
        """Replace all that is known of the cluster; what users owe is kept.

        Filters are lost, as in a failover of a stock master.

        Raises:
            InvalidEvent: the snapshot is malformed or contradicts itself; nothing has changed.
        """
        if self._before_change is not None:
            self._before_change(snapshot.time_ns / _NANOSECONDS)
        memory = self.memory()
        former = self.__dict__.copy()
        try:
            self._begin(options, sequence=snapshot.sequence, now_ns=snapshot.time_ns)
            for agent in snapshot.agents:
                self._add_agent(agent)
            for agent_id in snapshot.inactive_agents:
                self._deactivate_agent(contract.DeactivateAgent(agent_id=agent_id))
            for framework in snapshot.frameworks:
                self._add_framework(framework)
        except BaseException:  # whatever it was, half a snapshot is worse than none
            self.__dict__.update(former)
            raise
        self._ledger.clients.inherit(memory)
        self._paused = snapshot.paused
        self.statistics.snapshots += 1
        return self._decide()

    def apply(self, events: contract.Events) -> contract.Decisions:
        """Apply events in order, then allocate once.

        Raises:
            InvalidEvent: an event is malformed or contradicts what is known. It has changed
                nothing; those before it stand. A snapshot heals the difference.
        """
        for event in events.events:
            self._apply(event)
        return self._decide()

    def memory(self) -> Memory:
        """Return what a successor must know that no master will tell it."""
        return self._ledger.clients.memory()

    def order(self, order: operator.Order) -> None:
        """Carry out what an operator orders, at the time of the last event.

        Raises:
            InvalidOrder: it is malformed or names a user that is not known.
        """
        clients = self._ledger.clients
        match order.WhichOneof("order"):
            case "set_weight":
                change = order.set_weight
                _require_known(self.pool, [change.user])
                weight = change.weight if change.HasField("weight") else None
                try:
                    clients.order_weight(change.user, weight)
                except ValueError as error:
                    raise InvalidOrder(str(error)) from error
            case "reset_commitments":
                users = order.reset_commitments.users
                _require_known(self.pool, users)
                for user in users or [standing.user for standing in self.pool.standings()]:
                    self.pool.set_commitment(user, 0.0)
            case _:
                raise InvalidOrder("an order of a kind that this version does not know")

    def _begin(self, options: contract.Options, *, sequence: int, now_ns: int) -> None:
        self._sequence = sequence
        self._now_ns = now_ns
        self._interval_ns = options.allocation_interval_ns
        self._filter_gpus = options.filter_gpu_resources
        self._min_allocatable: Alternatives = tuple(
            _quantities(alternative) for alternative in options.min_allocatable
        )
        self._filters = OfferFilters()
        excluded = tuple(options.fairness_excluded)
        self._ledger = Ledger(Clients(self._settings, self.now, excluded))
        self._candidates: set[str] = set()
        self._paused = False

    def _apply(self, event: contract.Event) -> None:
        if event.sequence != self._sequence + 1:
            raise InvalidEvent(
                f"event {event.sequence} follows event {self._sequence}: events are missing or "
                "came twice"
            )
        call = event.WhichOneof("call")
        if call is None:
            raise InvalidEvent(
                f"event {event.sequence} carries no call this version knows; "
                "is the master's side newer than the allocator?"
            )
        before_ns = self._now_ns
        if self._before_change is not None:
            self._before_change(max(event.time_ns, before_ns) / _NANOSECONDS)
        self._now_ns = max(event.time_ns, before_ns)
        try:
            self._ledger.clients.advance(self.now)
            getattr(self, f"_{call}")(getattr(event, call))
        except InvalidEvent as error:
            raise InvalidEvent(f"event {event.sequence} ({call}): {error}") from error
        self._sequence = event.sequence
        self.statistics.events += 1
        self.statistics.early_stamps += event.time_ns < before_ns

    def _decide(self) -> contract.Decisions:
        decisions = contract.Decisions(applied_sequence=self._sequence)
        if self._paused or not self._candidates:
            return decisions
        run = AllocationRun(
            self._ledger,
            self._filters,
            min_allocatable=self._min_allocatable,
            filter_gpus=self._filter_gpus,
        )
        self.statistics.candidates += len(self._candidates)
        decisions.offers.extend(run.run(self._candidates, self._random))
        self._candidates = set()
        self.statistics.runs += 1
        self.statistics.offers += sum(len(offers.offers) for offers in decisions.offers)
        return decisions

    def _tick(self, _: contract.Tick) -> None:
        self._filters.expire(self._now_ns)
        self._ledger.clients.forget_idle()
        self._candidates.update(self._ledger.agents)

    def _add_agent(self, call: contract.AddAgent) -> None:
        if call.agent_id in self._ledger.agents:
            raise InvalidEvent(f"agent {call.agent_id} is known already; remove it first")
        try:
            info = mesos.SlaveInfo.FromString(call.info)
        except DecodeError as error:
            raise InvalidEvent(
                f"agent {call.agent_id}: info is not a serialised mesos.SlaveInfo: {error}"
            ) from error
        agent = Agent(
            id=call.agent_id,
            hostname=info.hostname,
            capabilities=frozenset(call.capabilities),
            total=parse_total(call.total),
        )
        for used in call.used:
            for role, held in parse_used(used.resources).items():
                agent.allocate(used.framework_id, role, held)
        self._ledger.add_agent(agent)
        self._candidates.add(agent.id)

    def _remove_agent(self, call: contract.RemoveAgent) -> None:
        self._ledger.remove_agent(self._agent(call.agent_id))
        self._filters.drop_agent(call.agent_id)
        self._candidates.discard(call.agent_id)

    def _activate_agent(self, call: contract.ActivateAgent) -> None:
        self._agent(call.agent_id).active = True

    def _deactivate_agent(self, call: contract.DeactivateAgent) -> None:
        self._agent(call.agent_id).active = False

    def _add_framework(self, call: contract.AddFramework) -> None:
        if call.framework_id in self._ledger.frameworks:
            raise InvalidEvent(f"framework {call.framework_id} is known already")
        info = parse_framework_info(call.framework_id, call.info)
        self._ledger.add_framework(
            Framework(call.framework_id, info, call.active, set(call.suppressed_roles))
        )
        if call.active:
            self._candidates.update(self._ledger.agents)

    def _update_framework(self, call: contract.UpdateFramework) -> None:
        framework = self._framework(call.framework_id)
        info = parse_framework_info(call.framework_id, call.info)
        left = framework.roles
        framework.update(info, call.suppressed_roles)
        self._filters.drop(framework.id, left - framework.roles)
        self._ledger.refresh(framework)

    def _remove_framework(self, call: contract.RemoveFramework) -> None:
        self._ledger.remove_framework(self._framework(call.framework_id))
        self._filters.drop(call.framework_id)

    def _activate_framework(self, call: contract.ActivateFramework) -> None:
        framework = self._framework(call.framework_id)
        framework.active = True
        self._ledger.refresh(framework)
        self._candidates.update(self._ledger.agents)

    def _deactivate_framework(self, call: contract.DeactivateFramework) -> None:
        framework = self._framework(call.framework_id)
        framework.active = False
        self._ledger.refresh(framework)
        self._filters.drop(framework.id)

    def _revive_offers(self, call: contract.ReviveOffers) -> None:
        framework = self._framework(call.framework_id)
        roles = set(call.roles) or framework.roles
        framework.suppressed -= roles
        self._filters.drop(framework.id, roles)
        self._ledger.refresh(framework)
        self._candidates.update(self._ledger.agents)

    def _suppress_offers(self, call: contract.SuppressOffers) -> None:
        framework = self._framework(call.framework_id)
        framework.suppressed |= (set(call.roles) or framework.roles) & framework.roles
        self._ledger.refresh(framework)

    def _request_resources(self, call: contract.RequestResources) -> None:
        """Accept a framework's wishes; like stock Mesos, act on none of them (§1.4)."""
        self._framework(call.framework_id)

    def _recover_resources(self, call: contract.RecoverResources) -> None:
        role, resources = parse_allocated(call.resources)
        refusal: int | None = None
        if call.HasField("filters"):
            try:
                refusal = refusal_ns(mesos.Filters.FromString(call.filters).refuse_seconds)
            except DecodeError as error:
                raise InvalidEvent(
                    f"filters are not a serialised mesos.Filters: {error}"
                ) from error
        agent = self._release(call.framework_id, call.agent_id, role, resources)
        if (
            agent is not None
            and refusal is not None
            and call.framework_id in self._ledger.frameworks
        ):
            self._refuse(call.framework_id, role, agent, resources, refusal)

    def _reject_offer(self, call: contract.RejectOffer) -> None:
        role, resources = parse_allocated(call.resources)
        self._release(call.framework_id, call.agent_id, role, resources)
        self.statistics.rejected += 1

    def _pause(self, _: contract.Pause) -> None:
        self._paused = True

    def _resume(self, _: contract.Resume) -> None:
        self._paused = False

    def _release(
        self, framework_id: str, agent_id: str, role: str, resources: Resources
    ) -> Agent | None:
        """Free resources and make their agent a candidate; late calls are normal (§1.5)."""
        agent = self._ledger.agents.get(agent_id)
        if agent is None:
            self.statistics.ignored += 1
            return None
        if not self._ledger.recover(agent, framework_id, role, resources):
            self.statistics.clamped += 1
        self._candidates.add(agent_id)
        return agent

    def _refuse(
        self, framework: str, role: str, agent: Agent, resources: Resources, refusal: int
    ) -> None:
        """Install a filter that no refuser escapes before the next batch.

        Mesos re-offers in batches, so even "no filter" keeps a refuser waiting for one. Here
        freed resources are offered at once, so the wait is a filter that ends before the next
        tick is served: otherwise refuser and allocator would play ping-pong.
        """
        if not resources:
            return
        until = self._now_ns + max(refusal, self._interval_ns) if refusal else self._now_ns - 1
        self._filters.add(framework, role, agent.id, resources, until)

    def _agent(self, agent_id: str) -> Agent:
        try:
            return self._ledger.agents[agent_id]
        except KeyError:
            raise InvalidEvent(f"agent {agent_id!r} is not known") from None

    def _framework(self, framework_id: str) -> Framework:
        try:
            return self._ledger.frameworks[framework_id]
        except KeyError:
            raise InvalidEvent(f"framework {framework_id!r} is not known") from None


def _quantities(message: contract.Quantities) -> Quantities:
    try:
        return Quantities.from_doubles(message.amounts)
    except ValueError as error:
        raise InvalidEvent(f"options: min_allocatable: {error}") from error


def _require_known(pool: Pool[str], users: Iterable[str]) -> None:
    unknown = sorted(user for user in users if user not in pool)
    if unknown:
        raise InvalidOrder(f"no such user: {', '.join(unknown)}")
